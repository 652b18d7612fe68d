# Numbers that a text quotes, each with the file it came from.


rule numbers:
    input:
        f"{LATEX}/numbers.tex",
        f"{RESULTS}/numbers.json",


# A command line takes about a thousand folders; a file takes any number.
rule list_runs:
    output:
        f"{RESULTS}/runs.txt",
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
    params:
        runs=folders(run_files(SPACE.dataframe)),
    run:
        Path(output[0]).write_text("".join(f"--runs={folder}\n" for folder in params.runs))


rule collect_numbers:
    input:
        **number_files(),
        runs=run_files(SPACE.dataframe),
        histories=run_files(SPACE.dataframe, "history.csv"),
        listed=f"{RESULTS}/runs.txt",
        code=code("paper/numbers", "paper/runs"),
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
        spec=json.dumps({"scale": SCALE, "defaults": config["defaults"]}),
        files=lambda wildcards, input: [f"--file={pair}" for pair in named(input)],
    shell:
        "python -m qlocaladam numbers --spec {params.spec:q} @{input.listed} {params.files:q} "
        "--tex {output.tex} --json {output.json} > {log} 2>&1"
