# From config.yaml to every table, figure and number of the paper. `snakemake --cores 2` makes everything.


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/partitions.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/numbers.smk"
include: "workflow/rules/claims.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/paper.smk"
include: "workflow/rules/reference.smk"


rule all:
    default_target: True
    input:
        rules.partitions.input,
        rules.train.input,
        rules.analysis.input,
        rules.tables.input,
        rules.figures.input,
        rules.numbers.input,
        rules.claims.input,
        rules.pages.input,
        rules.paper.input if shutil.which("latexmk") else [],


onsuccess:
    if Path(f"{RESULTS}/claims.csv").exists():
        print(claims.overview(page.read_claims(Path(f"{RESULTS}/claims.csv"))), end="\n\n")
    print(
        f"Made at scale {SCALE}: {RESULTS}, {FIGURES} and {LATEX} hold the results; {RESULTS}/RESULTS.md sums them up."
    )
    if not shutil.which("latexmk"):
        print(NO_TEX)
