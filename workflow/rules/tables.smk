# Tables: LaTeX for a paper, CSV for a program. `snakemake tables` makes them all.


rule tables:
    input:
        expand(f"{LATEX}/tables/{{table}}.tex", table=TABLES),
        expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),


rule table:
    input:
        unpack(table_inputs),
        code=code("results/tables", "experiments/runs", "results/latex"),
    output:
        tex=f"{LATEX}/tables/{{table}}.tex",
        csv=f"{RESULTS}/tables/{{table}}.csv",
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/tables/{{table}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=lambda wildcards: json.dumps(LAYOUT.table_spec(wildcards.table)),
        runs=lambda wildcards, input: [f"--runs={folder}" for folder in folders(input.get("runs", []))],
        files=lambda wildcards, input: [f"--file={pair}" for pair in named(input)],
    shell:
        "python -m qlocaladam table --spec {params.spec:q} {params.runs:q} {params.files:q} "
        "--tex {output.tex:q} --csv {output.csv:q} > {log:q} 2>&1"
