# Configuration, and which results are there as it asks for them. No rule is here.

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

from snakemake.logging import logger
from snakemake.settings.enums import Quietness
from snakemake_interface_executor_plugins.settings import DeploymentMethod
from snakemake.utils import min_version

import qlocaladam
from qlocaladam.federated.progress import NO_KERNEL
from qlocaladam.federated.record import FILES
from qlocaladam.ledger import claims
from qlocaladam.experiments import configuration, consistency, grid
from qlocaladam.results import kinds, latex
from qlocaladam.report import page
from qlocaladam.results.layout import CLIENT_FILES, EXACT, EXACT_FILES, WITHOUT_PARTITION, Layout
from qlocaladam.report.progress import listen
from qlocaladam.project import project_file

min_version("9.0")

# Rules call `python`: that of the environment that Snakemake runs in, or of the one it deploys.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

# One that conda deploys has what the package needs and not the package: that is this one, and nothing else from here.
if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
    package = Path(".snakemake/package/qlocaladam").absolute()
    package.parent.mkdir(parents=True, exist_ok=True)
    package.unlink(missing_ok=True)
    package.symlink_to(Path(qlocaladam.__file__).parent)
    os.environ.update(PYTHONPATH=str(package.parent))

# A module is given what it should have otherwise; files and the command line are those of the workflow that has it.
MODULE = workflow.modifier.skip_configfile
CONFIGURED_BY = [] if MODULE else workflow.configfiles
COMMAND_LINE = {} if MODULE else workflow.config_settings.config
if MODULE:
    configuration.complete(config, Path(os.environ[project.VARIABLE], "config.yaml"))
configuration.settle(config, CONFIGURED_BY, COMMAND_LINE, kinds.check)

FLAGS = {word.partition("=")[0] for word in sys.argv}
REPORT = "--report" in FLAGS
START = workflow.is_main_process and not {"--unlock", "-n", "--dry-run", "--dryrun", "--lint", "--report"} & FLAGS

if START and any(Path(".snakemake/locks").glob("*")):
    logger.warning(
        "Another snakemake works here, or one was killed. If none does: snakemake --unlock, then the same call again; "
        "finished runs and finished rounds are kept."
    )
if START and not any(Path(qlocaladam.__file__).parent.glob("kernels/_fused_*")):
    logger.warning(NO_KERNEL)

try:
    LAYOUT = Layout(config)
except ValueError as error:
    configuration.stop(error)
SCALE = LAYOUT.scale
SIZE = LAYOUT.size
RESULTS = LAYOUT.results
FIGURES = LAYOUT.figure_folder
LATEX = LAYOUT.latex
PLACES = LAYOUT.runs.to_dict("records")
TABLES = list(LAYOUT.tables)
FIGURE_NAMES = list(LAYOUT.figures)

NO_TEX = (
    "The paper needs TeX: apt-get install --no-install-recommends latexmk texlive-latex-recommended texlive-science "
    "texlive-latex-extra, or conda install -c conda-forge texlive-core latexmk"
)
PICTURES = ["rulegraph.svg", "convergence_cifar10.png"]
PICTURES += ["controls_contrasts.png", "variance.png"] if config["controls"] else []
PICTURES += ["steps.png", "step_layers.png", "beyond.png"] if config["beyond"] else []


wildcard_constraints:
    table="|".join(config["tables"]),
    figure="|".join(config["figures"]),


# What takes long is made by a rule only where it is not there as the configuration asks for it, and then always; what is
# there is a file like any other. So no date and no record of Snakemake's decides about it: neither does a finished run
# look outdated, nor an outdated one finished. (Snakemake looks at no parameters of what follows from a job that must
# run, and has no record of files that were copied.)

# A report sees nothing but this.
if REPORT and (ledger := Path(RESULTS, "claims.csv")).exists():
    config["answer"] = page.answer_html(page.read_claims(ledger))
if REPORT:
    config["said"] = LAYOUT.said()
ALL_AGAIN = not workflow.is_main_process or bool({"-F", "--forceall"} & FLAGS)


def needed(rule, lacking):
    """A pattern for what a rule must make, by name. `lacking` has why each is not there as asked. A report shows
    the whole graph; a job in a process of its own was chosen by the one that started it."""
    everything = ALL_AGAIN or REPORT or rule in sys.argv
    names = [re.escape(name) for name, reason in lacking.items() if reason or everything]
    return "|".join(names) or "(?!)"


def always(output, **inputs):
    """The inputs of a job that is run whatever the dates of its files, as Snakemake does with one that was killed."""
    if workflow.is_main_process and not REPORT:
        workflow.dag.forcefiles.add(output)
    return inputs


RUNS = {grid.run_name(place): place for place in PLACES}
LACKING_RUNS = {name: LAYOUT.run_lacks(place) for name, place in RUNS.items()}
DATA = latex.listed([LAYOUT.data_in_words(dataset) for dataset in LAYOUT.runs["dataset"].unique()])
PROGRESS = listen(
    logger,
    quiet=Quietness.RULES in (workflow.output_settings.quiet or ()),
    runs={name: LAYOUT.described(place) for name, place in RUNS.items() if workflow.is_main_process},
    lacking=[name for name, reason in LACKING_RUNS.items() if reason],
    data=DATA,
)
LACKING_DATA = {
    LAYOUT.data_of(name): "" if LAYOUT.prepared(LAYOUT.data_of(name)) else "not there" for name in SIZE["datasets"]
}
LACKING_ANALYSES = {
    analysis: {dataset: LAYOUT.analysis_lacks(analysis, dataset) for dataset in LAYOUT.shown(analysis)}
    for analysis in CLIENT_FILES
}


def run_files(rows, *names):
    """Files of each of these runs, but for those that are not there and will not be trained."""
    if LAYOUT.kept:
        return [LAYOUT.kept, LAYOUT.kept.replace("runs.csv", "histories.csv.gz")]
    return [
        f"{folder}/{name}" for folder in LAYOUT.folders(LAYOUT.available(rows)) for name in names or ("summary.json",)
    ]


def folders(files):
    return [LAYOUT.kept][: len(files)] if LAYOUT.kept else list(dict.fromkeys(str(Path(file).parent) for file in files))


def named(files):
    """NAME=PATH for each named input that is not a run."""
    return [f"{name}={path}" for name, path in files.items() if name not in ("runs", "listed", "code")]


def code(*modules):
    """Files of the package whose change makes a result be made again; those that train are not among them."""
    return [project_file(f"src/qlocaladam/{module}.py") for module in modules]


def data_inputs(wildcards):
    source = grid.as_list(config["sources"].get(wildcards.data, []))
    return always(f"results/data/{wildcards.data}.npz", source=source)


def training_inputs(wildcards):
    place = RUNS[wildcards.run]
    inputs = {"data": LAYOUT.data_file(place["dataset"]), "partition": LAYOUT.partition_file(place)}
    return always(f"{LAYOUT.run_folder(place)}/summary.json", **inputs)


def analysis_inputs(analysis):
    """The data and, of the clients that are looked at, the partition: that of a run at the defaults."""

    def inputs(wildcards):
        dataset = wildcards.dataset
        partition = {"partition": LAYOUT.partition_file(LAYOUT.watched_place(dataset))}
        found = {"data": LAYOUT.data_file(dataset), **({} if analysis in WITHOUT_PARTITION else partition)}
        return always(LAYOUT.analysis_files(analysis, dataset)[-1], **found)

    return inputs


def analysis_flags(analysis):
    return lambda wildcards: grid.as_flags(LAYOUT.analysis_options(analysis, wildcards.dataset))


def table_inputs(wildcards):
    rows = LAYOUT.table_rows(wildcards.table)
    return LAYOUT.table_files(wildcards.table) | ({"runs": run_files(rows, *FILES[1:])} if len(rows) else {})


def figure_inputs(wildcards):
    rows = LAYOUT.panel_rows(wildcards.figure)
    runs = [file for panel in rows for file in run_files(panel, *FILES[1:])]
    return LAYOUT.figure_files(wildcards.figure) | ({"runs": runs} if rows else {})


def panel_flags(figure):
    """--panel and its runs, for each panel of a figure."""
    return [word for rows in LAYOUT.panel_rows(figure) for word in ("--panel", *folders(run_files(rows)))]


def definitions():
    """What the document is told: its scale, and a command by the name of each group that is on."""
    return rf"\newcommand{{\scale}}{{{SCALE}}}" + "".join(
        rf"\def\{group}{{}}" for group in grid.GROUPS if config[group]
    )


THERE = [f"{RESULTS}/runs/{name}/{file}" for name, reason in LACKING_RUNS.items() if not reason for file in FILES]
THERE += [f"results/data/{name}.npz" for name, reason in LACKING_DATA.items() if not reason]
THERE += [
    file
    for analysis, lacking in LACKING_ANALYSES.items()
    for dataset, reason in lacking.items()
    if not reason
    for file in LAYOUT.analysis_files(analysis, dataset)
]

if LAYOUT.absent and workflow.is_main_process:
    lines = [f"{RESULTS}/runs/{name}: {LACKING_RUNS[name]}" for name in RUNS if name in LAYOUT.absent]
    why = f"{LAYOUT.kept} is shown" if LAYOUT.kept else "train is false"
    logger.warning("\n  ".join([f"{why}, and {len(lines)} of {len(PLACES)} runs are not there as asked:", *lines]))
