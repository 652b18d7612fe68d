# Tables: LaTeX for a paper, CSV for a program. `snakemake tables` makes them all.


rule tables:
    input:
        expand(f"{LATEX}/tables/{{table}}.tex", table=TABLES),
        expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),


rule table:
    input:
        unpack(table_inputs),
        code=code_with_kind("table"),
    output:
        tex=f"{LATEX}/tables/{{table}}.tex",
        csv=f"{RESULTS}/tables/{{table}}.csv",
    log:
        f"{RESULTS}/logs/tables/{{table}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        spec=by("table", LAYOUT.table_spec),
        runs=table_folders,
    script:
        "../scripts/table.py"
