# Numbers that a text quotes, each with the file it came from.


rule numbers:
    input:
        f"{LATEX}/numbers.tex",
        f"{RESULTS}/numbers.json",


rule collect_numbers:
    input:
        **number_files(),
        runs=run_files(SPACE.dataframe),
        histories=run_files(SPACE.dataframe, "history.csv"),
        code=code("paper/numbers", "paper/runs"),
    output:
        tex=f"{LATEX}/numbers.tex",
        json=f"{RESULTS}/numbers.json",
    log:
        f"{RESULTS}/logs/numbers.log",
    benchmark:
        f"{RESULTS}/benchmarks/numbers.tsv"
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=json.dumps({"scale": SCALE, "defaults": config["defaults"]}),
        runs=lambda wildcards, input: [f"--runs={folder}" for folder in folders(input.runs)],
        files=lambda wildcards, input: [f"--file={pair}" for pair in named(input)],
    shell:
        "python -m qlocaladam numbers --spec {params.spec:q} {params.runs:q} {params.files:q} "
        "--tex {output.tex} --json {output.json} > {log} 2>&1"
