# Results kept in git: `snakemake reference` makes them of one's own, `snakemake verify` compares one's own with them.

REFERENCE = f"paper/reference/{SCALE}"


rule collect_reference:
    input:
        runs=run_files(LAYOUT.runs, *FILES),
        claims=f"{TOGETHER}/claims.csv",
        tables=expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
        code=code("reference"),
    output:
        runs=f"{REFERENCE}/runs.csv",
        histories=f"{REFERENCE}/histories.csv.gz",
        claims=f"{REFERENCE}/claims.csv",
        tables=expand(f"{REFERENCE}/tables/{{table}}.csv", table=TABLES),
    log:
        f"{TOGETHER}/logs/collect_reference.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        runs=run_folders(LAYOUT.runs),
        asked=LAYOUT.asked(LAYOUT.runs),
    script:
        "../scripts/reference.py"


# Its own rule, because only this needs TeX.
rule keep_paper:
    input:
        f"{LATEX_TOGETHER}/paper.pdf",
    output:
        f"{REFERENCE}/paper.pdf",
    log:
        f"{TOGETHER}/logs/keep_paper.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
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
        run_files(LAYOUT.runs) if Path(project_file(f"{REFERENCE}/runs.csv")).exists() else [],
    log:
        f"{TOGETHER}/logs/verify.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        scale=SCALE,
        csv=f"{RESULTS}/verify.csv",
        text=f"{RESULTS}/verify.txt",
        configuration=configuration_arguments,
    shell:
        "python -m qlocaladam reference verify --scale {params.scale:q} {params.configuration:q} --csv {params.csv:q} "
        "--text {params.text:q} 2> {log:q}"
