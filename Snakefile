# From config.yaml to every table, figure and number of the paper. `snakemake --cores 2` makes everything.

import os

from qlocaladam import project
from qlocaladam.experiments import configuration

# For `snakemake -s path/to/Snakefile -d elsewhere`, and where another workflow has this one as a module.
os.environ[project.VARIABLE] = workflow.current_basedir.get_path_or_uri(secret_free=True)

try:
    configuration.refuse_unreadable(project.project_file("config.yaml"))
except ValueError as error:
    configuration.stop(error)


configfile: project.project_file("config.yaml")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/functions.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/partitions.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/numbers.smk"
include: "workflow/rules/claims.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/check.smk"
include: "workflow/rules/paper.smk"
include: "workflow/rules/reference.smk"
include: "workflow/rules/present.smk"


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
        rules.passed.output,
        rules.paper.input if shutil.which("latexmk") and not LAYOUT.absent else [],


# A cluster may have what the host that submits to it has not.
onstart:
    PROGRESS.queued = not workflow.local_exec
    trained_here = {"training_run", *CLIENT_FILES} if workflow.local_exec else set()
    if trained_here & {job.rule.name for job in workflow.dag.needrun_jobs()}:
        for dataset, device in consistency.devices(config).items():
            if lacks := consistency.device_lacks(device):
                configuration.stop(f"scales.{SCALE}.datasets.{dataset}.training: {lacks}")


onsuccess:
    said = PROGRESS.planned
    print()
    if "judge" in said:
        print(
            f"Made at scale {SCALE} in {PROGRESS.since_start()}, from {len(LAYOUT.available(LAYOUT.runs))} training runs on {DATA}."
        )
        for head, line in presentation.answer(presentation.read(Path(TOGETHER, "claims.csv"))).items():
            print(f"{head}: {line}.")
    else:
        made = {RESULTS: said, FIGURES: "figure" in said, LATEX: {"table", "judge"} & said.keys()}
        print(f"Made at scale {SCALE}, in {latex.listed([folder for folder, new in made.items() if new])}.")
    if "results_page" in said:
        print(
            f"Look: {TOGETHER}/RESULTS.md sums all up, {TOGETHER}/claims.html has every verdict, {FIGURES} the figures; "
            "`--report report.html` behind the same command puts everything on one page."
        )
    if "results_page" in said and not shutil.which("latexmk"):
        print(NO_TEX)
