# From config.yaml to every table, figure and number of the paper. `snakemake --cores 2` makes everything.


configfile: "config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/partitions.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/numbers.smk"


rule all:
    default_target: True
    input:
        rules.partitions.input,
        rules.train.input,
        rules.analysis.input,
        rules.tables.input,
        rules.figures.input,
        rules.numbers.input,


onsuccess:
    print(f"Made at scale {SCALE}: {RESULTS}, {FIGURES} and {LATEX} hold the results.")
