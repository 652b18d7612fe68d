# Numbers that a text quotes, each with the file it came from.


rule numbers:
    input:
        f"{LATEX}/numbers.tex",
        f"{RESULTS}/numbers.json",


# A command line takes about a thousand folders; a file takes any number. Its name has all that decides it, so that one
# that is there is the one that is asked for.
RUN_LIST = "".join(f"--runs={folder}\n" for folder in LAYOUT.folders(LAYOUT.available(LAYOUT.runs)))
LISTED = f"{RESULTS}/runs-{hashlib.sha256(RUN_LIST.encode()).hexdigest()[:8]}.txt"


rule list_runs:
    output:
        LISTED,
    log:
        f"{RESULTS}/logs/list_runs.log",
    benchmark:
        f"{RESULTS}/benchmarks/list_runs.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=100,
        runtime=1,
    run:
        Path(output[0]).write_text(RUN_LIST)


rule collect_numbers:
    input:
        **LAYOUT.number_files(),
        runs=run_files(LAYOUT.runs, *FILES[1:]),
        listed=LISTED,
        code=code("results/numbers", "experiments/runs", "results/latex"),
    output:
        tex=f"{LATEX}/numbers.tex",
        json=f"{RESULTS}/numbers.json",
    log:
        f"{RESULTS}/logs/numbers.log",
    benchmark:
        f"{RESULTS}/benchmarks/numbers.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=lambda wildcards: json.dumps(LAYOUT.numbers_spec()),
        files=lambda wildcards, input: [f"--file={pair}" for pair in named(input)],
    shell:
        "python -m qlocaladam numbers --spec {params.spec:q} @{input.listed:q} {params.files:q} "
        "--tex {output.tex:q} --json {output.json:q} > {log:q} 2>&1"
