# Pages for people: what `snakemake --report report.html` shows beside the figures, and RESULTS.md.


rule pages:
    input:
        f"{TOGETHER}/claims.html",
        f"{TOGETHER}/RESULTS.md",
        f"{TOGETHER}/REPRODUCIBILITY.md",
        expand(f"{RESULTS}/tables/{{table}}.html", table=TABLES),


rule table_page:
    input:
        table=f"{RESULTS}/tables/{{table}}.csv",
        code=code_with_kind("table_page"),
    output:
        report(
            f"{RESULTS}/tables/{{table}}.html",
            caption="../report/table.rst",
            category=section,
            labels={"result": "Table {table}"},
        ),
    log:
        f"{RESULTS}/logs/pages/{{table}}.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        spec=by("table", LAYOUT.page_spec),
    script:
        "../scripts/table_page.py"


# Kept in git. `snakemake docs/released.md` brings it up to date.
rule released_page:
    input:
        source=project_file("paper/released.yaml"),
        code=code("released_page"),
    output:
        "docs/released.md",
    log:
        f"{RESULTS}/logs/pages/released.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        labels=LAYOUT.labels()["arm"],
    script:
        "../scripts/released_page.py"


rule ledger_page:
    input:
        claims=f"{TOGETHER}/claims.csv",
        code=code("ledger_page"),
    output:
        report(
            f"{TOGETHER}/claims.html",
            caption="../report/claims.rst",
            category=page.numbered("Claims"),
            labels={"result": "Ledger of claims"},
        ),
    log:
        f"{TOGETHER}/logs/pages/claims.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        scale=SCALE,
    script:
        "../scripts/ledger_page.py"


rule results_page:
    input:
        tables=expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
        figures=expand(f"{FIGURES}/{{figure}}.png", figure=FIGURE_NAMES),
        numbers=f"{TOGETHER}/numbers.json",
        claims=f"{TOGETHER}/claims.csv",
        code=code("results_page", "results/kinds/*"),
    output:
        f"{TOGETHER}/RESULTS.md",
    log:
        f"{TOGETHER}/logs/pages/RESULTS.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        spec=LAYOUT.results_spec(),
    script:
        "../scripts/results_page.py"


rule reproducibility_page:
    input:
        template=LAYOUT.reproducibility_spec()["template"],
        registered=LAYOUT.reproducibility_spec()["registered"],
        numbers=f"{TOGETHER}/numbers.json",
        claims=f"{TOGETHER}/claims.csv",
        tables=expand(f"{RESULTS}/tables/{{table}}.csv", table=LAYOUT.tested["registered"]),
        code=code("reproducibility_page"),
    output:
        f"{TOGETHER}/REPRODUCIBILITY.md",
    log:
        f"{TOGETHER}/logs/pages/REPRODUCIBILITY.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        spec=LAYOUT.reproducibility_spec(),
    script:
        "../scripts/reproducibility_page.py"


# Kept in git. `snakemake RESULTS.md` writes it again from the results that are kept there, too; nothing is trained.
rule kept_results_page:
    input:
        template=project_file("paper/RESULTS.template.md"),
        registered=project_file("paper/registered.yaml"),
        # By their whole paths, by which no rule makes them: what is kept is shown as it is, and nothing is trained for it.
        kept=sorted(glob(f"{Path.cwd()}/paper/reference/*/**/*.csv", recursive=True)),
        pictures=sorted(glob(f"{Path.cwd()}/docs/images/*/*.png")),
        code=code("kept_results_page", "results/kinds/*"),
    output:
        "RESULTS.md",
    log:
        f"{RESULTS}/logs/pages/kept_results.log",
    localrule: True
    conda:
        "../../envs/environment.yaml"
    params:
        reference=reference_folder,
        labels={scale: LAYOUT.labels(scale) for scale in config["scales"]},
    script:
        "../scripts/kept_results_page.py"
