# Pages for people: what `snakemake --report report.html` shows beside the figures, and RESULTS.md.


rule pages:
    input:
        f"{RESULTS}/claims.html",
        f"{RESULTS}/RESULTS.md",
        expand(f"{RESULTS}/tables/{{table}}.html", table=TABLES),


rule table_page:
    input:
        table=f"{RESULTS}/tables/{{table}}.csv",
        code=code("report/page"),
    output:
        report(
            f"{RESULTS}/tables/{{table}}.html",
            caption="../report/table.rst",
            category=lambda wildcards: page.numbered(page.section(config["tables"][wildcards.table])),
            labels={"result": "Table {table}"},
        ),
    log:
        f"{RESULTS}/logs/pages/{{table}}.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/{{table}}.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=lambda wildcards: json.dumps(LAYOUT.page_spec(wildcards.table)),
    shell:
        "python -m qlocaladam page table --spec {params.spec:q} --table {input.table:q} --out {output:q} > {log:q} 2>&1"


# Kept in git. `snakemake docs/released.md` brings it up to date.
rule released_page:
    input:
        source=project_file("paper/released.yaml"),
        code=code("results/released"),
    output:
        "docs/released.md",
    log:
        f"{RESULTS}/logs/pages/released.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/released.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        labels=lambda wildcards: json.dumps(LAYOUT.labels()["arm"]),
    shell:
        "python -m qlocaladam page released --source {input.source:q} --labels {params.labels:q} --out {output:q} > {log:q} 2>&1"


rule ledger_page:
    input:
        claims=f"{RESULTS}/claims.csv",
        code=code("report/page"),
    output:
        report(
            f"{RESULTS}/claims.html",
            caption="../report/claims.rst",
            category=page.numbered("Claims"),
            labels={"result": "Ledger of claims"},
        ),
    log:
        f"{RESULTS}/logs/pages/claims.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/claims.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        scale=SCALE,
    shell:
        "python -m qlocaladam page ledger --claims {input.claims:q} --scale {params.scale:q} --out {output:q} > {log:q} 2>&1"


rule results_page:
    input:
        tables=expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
        figures=expand(f"{FIGURES}/{{figure}}.png", figure=FIGURE_NAMES),
        numbers=f"{RESULTS}/numbers.json",
        claims=f"{RESULTS}/claims.csv",
        code=code("report/page"),
    output:
        f"{RESULTS}/RESULTS.md",
    log:
        f"{RESULTS}/logs/pages/RESULTS.log",
    benchmark:
        f"{RESULTS}/benchmarks/pages/RESULTS.tsv"
    localrule: True
    conda:
        "../../envs/environment.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=lambda wildcards: json.dumps(LAYOUT.results_spec()),
    shell:
        "python -m qlocaladam page results --spec {params.spec:q} --tables {input.tables:q} --figures {input.figures:q} "
        "--numbers {input.numbers:q} --claims {input.claims:q} --out {output:q} > {log:q} 2>&1"
