# Results that exist already, with the settings that the configuration asks for: no other rule makes them.

THERE = [f"{RESULTS}/runs/{name}/{file}" for name, reason in LACKING_RUNS.items() if not reason for file in FILES]
THERE += [f"results/data/{name}.npz" for name, reason in LACKING_DATA.items() if not reason]
THERE += [
    file
    for analysis, lacking in LACKING_ANALYSES.items()
    for dataset, reason in lacking.items()
    if not reason
    for file in LAYOUT.analysis_files(analysis, dataset)
]

# Snakemake refuses to be asked for a file that no rule makes, also where it is there.
if present := set(THERE) & set(sys.argv):

    rule there:
        output:
            [update(file) for file in sorted(present)],
        log:
            f"{RESULTS}/logs/there.log",
        localrule: True
        shell:
            ": > {log:q}"
