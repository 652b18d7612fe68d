# Configuration, which of its results exist already, and what rules have in common. No rule is here.

import os
import re
import shutil
import sys
from functools import partial
from glob import glob
from pathlib import Path

from snakemake.logging import logger
from snakemake.settings.enums import Quietness
from snakemake_interface_executor_plugins.settings import DeploymentMethod
from snakemake.utils import min_version

import qlocaladam
from qlocaladam import imports
from qlocaladam.federated.progress import NO_KERNEL
from qlocaladam.federated.record import FILES
from qlocaladam.ledger import presentation
from qlocaladam.experiments import configuration, consistency, grid
from qlocaladam.results import kinds, latex
from qlocaladam.report import html, page
from qlocaladam.results.layout import CLIENT_FILES, EXACT, EXACT_FILES, TEST_FILES, WITHOUT_PARTITION, Layout
from qlocaladam.report.progress import listen
from qlocaladam.project import project_file

min_version("9.0")

# Rules call `python`: that of the environment that Snakemake runs in, or of the one it deploys.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

# An environment that conda deploys has what the package needs, but not the package: this one is put on its path.
if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
    package = Path(".snakemake/package/qlocaladam").absolute()
    package.parent.mkdir(parents=True, exist_ok=True)
    package.unlink(missing_ok=True)
    package.symlink_to(Path(qlocaladam.__file__).parent)
    os.environ.update(PYTHONPATH=str(package.parent))
    # Snakemake would otherwise remove PYTHONPATH from the environment of these jobs.
    workflow.deployment_settings.conda_not_block_search_path_envvars = True

# As a module of another workflow this one is given a configuration; files and command line belong to the other.
MODULE = workflow.modifier.skip_configfile
CONFIGURED_BY = [] if MODULE else workflow.configfiles
COMMAND_LINE = {} if MODULE else workflow.config_settings.config
if MODULE:
    configuration.complete(config, Path(os.environ[project.VARIABLE], "config.yaml"))
configuration.check_or_stop(config, CONFIGURED_BY, COMMAND_LINE, kinds.check)

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
RESULTS, TOGETHER, FIGURES = LAYOUT.results, LAYOUT.together, LAYOUT.figure_folder
LATEX, LATEX_TOGETHER = LAYOUT.latex, LAYOUT.latex_together
PLACES = LAYOUT.runs.to_dict("records")
TABLES = list(LAYOUT.tables)
FIGURE_NAMES = list(LAYOUT.figures)


wildcard_constraints:
    table="|".join(TABLES) or "(?!)",
    figure="|".join(FIGURE_NAMES) or "(?!)",


# Data, training runs and analyses that train are expensive. Their rules match, by wildcard constraints, only results that
# are missing or were recorded with other settings, and then their jobs are forced; all others are plain input files. So
# neither dates nor Snakemake's own records decide: a finished run never looks outdated, nor an outdated one finished.
# (Snakemake compares no parameters downstream of a job that must run, and has no record of files that were copied.)
if REPORT:
    config["report_texts"] = html.report_texts(LAYOUT)  # a report's opening and captions see nothing but this
ALL_AGAIN = not workflow.is_main_process or bool({"-F", "--forceall"} & FLAGS)


def needed(rule, lacking):
    """A pattern for the results that a rule must make. `lacking` has, by their names, why each is missing or outdated.
    A report shows the whole graph; a job in a process of its own was chosen by the process that started it."""
    everything = ALL_AGAIN or REPORT or rule in sys.argv
    names = [re.escape(name) for name, reason in lacking.items() if reason or everything]
    return "|".join(names) or "(?!)"


def always(output, **inputs):
    """The inputs of a job that runs whatever the dates of its files are."""
    if workflow.is_main_process and not REPORT:
        workflow.dag.forcefiles.add(output)
    return inputs


def code(script, *by_name):
    """The script of a rule and all files of the package that it imports. `by_name` are patterns of modules that it
    imports by their names. What trains, deals out or prepares has none: recorded settings decide about it."""
    source = Path(project_file("src/qlocaladam"))
    modules = [path for pattern in by_name for path in sorted(source.glob(f"{pattern}.py"))]
    return list(map(str, imports.reached(source, Path(project_file(f"workflow/scripts/{script}.py")), *modules)))


def run_files(rows, *names):
    """Files of each of these runs, except runs that are missing and will not be trained."""
    if LAYOUT.kept:  # by its whole path, by which no rule makes it
        return [str(Path(LAYOUT.kept).absolute().with_name(name)) for name in ("runs.csv", "histories.csv.gz")]
    return [f"{folder}/{name}" for folder in run_folders(rows) for name in names or ("summary.json",)]


def run_folders(rows):
    """The folders, or the file of a reference, to read these runs from."""
    available = LAYOUT.available(rows)
    return LAYOUT.folders(available) if len(available) else []


def table_runs(wildcards):
    return run_files(LAYOUT.table_rows(wildcards.table), *FILES[1:])


def table_folders(wildcards):
    return run_folders(LAYOUT.table_rows(wildcards.table))


def table_asked(wildcards):
    """The settings that the configuration asks of the runs of a table."""
    return LAYOUT.asked(LAYOUT.table_rows(wildcards.table))


RUNS = {grid.run_name(place): place for place in PLACES}
LACKING_RUNS = {name: LAYOUT.run_lacks(place) for name, place in RUNS.items()}
DATA = latex.listed([LAYOUT.data_in_words(name) for name in LAYOUT.available(LAYOUT.runs)["dataset"].unique()])
PROGRESS = listen(
    logger,
    quiet=Quietness.RULES in (workflow.output_settings.quiet or ()),
    runs={name: LAYOUT.described(place) for name, place in RUNS.items() if workflow.is_main_process},
    lacking=[name for name, reason in LACKING_RUNS.items() if reason],
    data=DATA,
)
