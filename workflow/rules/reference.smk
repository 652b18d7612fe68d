# Results kept in git: `snakemake reference` makes them of one's own, `snakemake verify` compares one's own with them.

REFERENCE = f"paper/reference/{SCALE}"


rule collect_reference:
    input:
        runs=run_files(LAYOUT.runs, *FILES),
        listed=LISTED,
        claims=f"{RESULTS}/claims.csv",
        tables=expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
        code=code("report/reference", "experiments/runs"),
    output:
        runs=f"{REFERENCE}/runs.csv",
        histories=f"{REFERENCE}/histories.csv.gz",
        claims=f"{REFERENCE}/claims.csv",
        tables=expand(f"{REFERENCE}/tables/{{table}}.csv", table=TABLES),
    log:
        f"{RESULTS}/logs/collect_reference.log",
    benchmark:
        f"{RESULTS}/benchmarks/collect_reference.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        folder=subpath(output.runs, parent=True),
        asked=lambda wildcards: json.dumps(LAYOUT.asked(LAYOUT.runs)),
    shell:
        "python -m qlocaladam reference collect @{input.listed:q} --asked {params.asked:q} --claims {input.claims:q} --tables {input.tables:q} "
        "--out {params.folder:q} > {log:q} 2>&1"


# Its own rule, because only this needs TeX.
rule keep_paper:
    input:
        f"{LATEX}/paper.pdf",
    output:
        f"{REFERENCE}/paper.pdf",
    log:
        f"{RESULTS}/logs/keep_paper.log",
    benchmark:
        f"{RESULTS}/benchmarks/keep_paper.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=100,
        runtime=1,
    shell:
        "(cp {input:q} {output:q}.part && mv {output:q}.part {output:q}) 2> {log:q}"


rule reference:
    input:
        rules.collect_reference.output,
        rules.keep_paper.output,


# The reference is no input: it would be made again where one's own runs are newer. And what this writes is no output: it
# would be deleted where runs differ. With neither, nor a benchmark, Snakemake runs it whenever it is asked for. Without a
# reference nothing is trained, and the command says what there is.
rule verify:
    input:
        [file for file in run_files(LAYOUT.runs) if Path(project_file(f"{REFERENCE}/runs.csv")).exists()],
    log:
        f"{RESULTS}/logs/verify.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        scale=SCALE,
        csv=f"{RESULTS}/verify.csv",
        text=f"{RESULTS}/verify.txt",
        configuration=lambda wildcards: CONFIGURATION,
    shell:
        "python -m qlocaladam reference verify --scale {params.scale:q} {params.configuration:q} --csv {params.csv:q} --text {params.text:q} 2> {log:q}"
