# Configuration, the grid, and the names of files. No rule here.

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger
from snakemake.settings.enums import Quietness
from snakemake.utils import Paramspace, min_version, validate

from qlocaladam.paper import claims, grid, page
from qlocaladam.paper.configuration import explain, refuse_repeated_keys
from qlocaladam.paper.progress import listen

min_version("9.0")

# Rules call `python`: that of the environment that Snakemake runs in, or of the one it deploys.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

# On the command line only True and False are read as such; true and false mean the same.
for key in (*grid.GROUPS, "train"):
    config[key] = {"true": True, "false": False}.get(str(config.get(key)).lower(), config.get(key))

try:
    for path in workflow.configfiles:
        refuse_repeated_keys(path)
    validate(config, "../schemas/config.schema.yaml")
    grid.check(config)
except (WorkflowError, ValueError) as error:
    raise WorkflowError(f"config.yaml: {explain(error)}") from None

listen(logger, quiet=Quietness.RULES in (workflow.output_settings.quiet or ()))

SCALE = config["scale"]
SIZE = config["scales"][SCALE]
RESULTS = f"results/{SCALE}"
EXACT = "results/exact"
FIGURES = f"figures/{SCALE}"
LATEX = f"paper/generated/{SCALE}"

GRID = grid.expand(config)
SPACE = Paramspace(grid.unique(GRID))
TABLES = [name for name, entry in config["tables"].items() if grid.is_on(config, entry)]
FIGURE_NAMES = [name for name, entry in config["figures"].items() if grid.is_on(config, entry)]

EXACT_FILES = [
    "memory.csv",
    "scaling.csv",
    "precision.csv",
    "precision_summary.csv",
    "precision_by_decade.csv",
    "clients.csv",
    "heterogeneity.csv",
    "sampling.json",
    "steps.csv",
]
NO_TEX = (
    "The paper needs TeX: apt-get install --no-install-recommends latexmk texlive-latex-recommended texlive-science "
    "texlive-latex-extra, or conda install -c conda-forge texlive-core latexmk"
)
PICTURES = ["rulegraph.svg", "convergence_cifar10.png"]
PICTURES += ["controls_tested.png", "variance.png"] if config["controls"] else []
PICTURES += ["steps.png", "step_layers.png", "equivalence.png"] if config["beyond"] else []
DISTRIBUTIONS = ["histograms.csv", "quantiles.csv", "shape.csv", "errors.csv", "summary.json"]
STEPS = ["steps.csv", "steps_by_decade.csv", "summary.json"]
VARIANCE = ["variance.csv", "summary.json"]
WATCHING = {"steps": "steps", "step_layers": "steps", "variance": "variance"}
TABLE_FILES = {
    "runs": ["memory"],
    "heterogeneity": ["memory"],
    "multiseed": ["memory"],
    "scaling": ["scaling"],
    "data_distribution": ["heterogeneity"],
    "data_distribution_summary": ["heterogeneity"],
    "clients": ["clients"],
}
TESTED = [name for name in TABLES if config["tables"][name]["kind"] == "multiseed"]
COMPARED = [name for name in TABLES if config["tables"][name]["kind"] == "equivalence"]
EQUIVALENCE = f"{RESULTS}/analysis/equivalence"
PROBED = [
    config["figures"][name]["where"]["dataset"]
    for name in FIGURE_NAMES
    if config["figures"][name]["kind"] == "distributions"
]


wildcard_constraints:
    **{name: r"[^/~]+" for name in SPACE.columns},
    table="|".join(config["tables"]),
    figure="|".join(config["figures"]),


def shown(analysis, axis="dataset"):
    """The data sets, or the arms, of which tables and figures show an analysis of clients."""
    entries = [*(config["tables"][name] for name in TABLES), *(config["figures"][name] for name in FIGURE_NAMES)]
    wheres = [entry["where"] for entry in entries if WATCHING.get(entry["kind"]) == analysis]
    return sorted({value for where in wheres for value in grid.as_list(where[axis])})


def data_file(dataset):
    return f"results/data/{SIZE['datasets'][dataset]['data']}.npz"


def partition_file(place):
    return f"{RESULTS}/partitions/dataset~{place.dataset}/alpha~{place.alpha}/seed~{place.seed}.npz"


def settled(dataset, file):
    """An input whose date says nothing. Data that are fixed by hash are the same whenever they were prepared, so results
    that were copied in from another machine stay as they are; a file of one's own may change."""
    return file if SIZE["datasets"][dataset]["data"] in config["sources"] else ancient(file)


def partition_flags(dataset):
    return as_flags({"clients": config["clients"], **subset_options(dataset)})


def data_source(wildcards):
    return [config["sources"][wildcards.data]] if wildcards.data in config["sources"] else []


def subset_options(dataset):
    entry = SIZE["datasets"][dataset]
    return {name: entry[name] for name in ("train_images", "test_images") if name in entry}


def as_flags(options):
    """Options of the command line: {"rounds": 2, "flip": False} is --rounds 2 --no-flip."""
    flags = []
    for name, value in options.items():
        word = name.replace("_", "-")
        flags += [f"--{word}" if value else f"--no-{word}"] if isinstance(value, bool) else [f"--{word}", str(value)]
    return flags


def training_flags(wildcards):
    arm = config["arms"][wildcards.arm]
    options = {"block_size": wildcards.block_size, **arm.get("options", {})}
    return [
        *as_flags({"arm": arm["arm"], "lr": wildcards.lr, "seed": wildcards.seed}),
        *as_flags({**subset_options(wildcards.dataset), **grid.training(config, wildcards.dataset)}),
        *(word for name, value in options.items() for word in ("--option", f"{name}={value}")),
    ]


def run_files(rows, name="summary.json"):
    """A file of each of these runs."""
    return [f"{RESULTS}/runs/{place}/{name}" for place in Paramspace(rows).instance_patterns]


def labels():
    return {
        "dataset": {name: entry["label"] for name, entry in SIZE["datasets"].items()},
        "arm": {name: entry["label"] for name, entry in config["arms"].items()},
    }


def folders(files):
    return [str(Path(file).parent) for file in files]


def named(files):
    """NAME=PATH for each named input that is not a run."""
    return [f"{name}={path}" for name, path in files.items() if name not in ("runs", "histories", "listed", "code")]


def code(*modules):
    """Files of the package whose change makes a result be made again; those that train are not among them."""
    return [f"src/qlocaladam/{module}.py" for module in modules]


if not config["train"]:
    missing = [file for file in run_files(SPACE.dataframe) if not Path(file).exists()]
    if missing:
        logger.warning(
            "\n  ".join([f"train is false, and {len(missing)} of {len(SPACE.dataframe)} runs are not there:", *missing])
        )


def probe_options(dataset):
    """How the model is trained whose optimizer states are looked at: as this scale's runs, but centrally."""
    chosen = grid.training(config, dataset)
    names = ("width", "stem", "image_size", "flip", "precision", "device")
    return {**subset_options(dataset), **{name: chosen[name] for name in names if name in chosen}}


def watched_client(dataset):
    """The data and the partition of the clients whose steps are looked at: those of a run at the defaults."""
    alpha, seed = grid.text(config["defaults"]["alpha"]), config["defaults"]["seed"]
    partition = partition_file(SimpleNamespace(dataset=dataset, alpha=alpha, seed=seed))
    return {"data": settled(dataset, data_file(dataset)), "partition": settled(dataset, partition)}


def watched_options(dataset):
    """How these clients train: as in a run at the defaults."""
    chosen = {name: config["defaults"][name] for name in ("lr", "seed")} | grid.training(config, dataset)
    return {**subset_options(dataset), **{name: value for name, value in chosen.items() if name != "checkpoint_every"}}


def watched_arms():
    size = config["defaults"]["block_size"]
    chosen = {name: entry for name, entry in config["arms"].items() if name in shown("steps", "arm")}
    return {
        name: {
            "arm": entry["arm"],
            "options": {"block_size": entry.get("block_size", size), **entry.get("options", {})},
        }
        for name, entry in chosen.items()
    }


def watched_files(entry, **names):
    """Of each data set, the files of an analysis that a table or figure reads, by the names it has for them."""
    return {
        f"{name}.{dataset}": f"{RESULTS}/analysis/{WATCHING[entry['kind']]}/{dataset}/{file}"
        for dataset in grid.as_list(entry["where"]["dataset"])
        for name, file in names.items()
    }


def stands_for():
    """The paper's data sets, in whose place a scale has others."""
    return {name: entry["label"] for name, entry in config["datasets"].items() if "label" in entry}


def spec(part, name):
    """What a table or a figure is told: its entry in the configuration, and what things are called at this scale."""
    told = {"name": name, "scale": SCALE, "labels": labels(), "stands_for": stands_for()}
    return json.dumps({**config[part][name], **told})


def table_inputs(wildcards):
    entry = config["tables"][wildcards.table]
    inputs = {name: f"{EXACT}/{name}.csv" for name in TABLE_FILES.get(entry["kind"], [])}
    if entry["kind"] == "multiseed":
        inputs["multiseed"] = f"{RESULTS}/analysis/significance/{wildcards.table}/significance.csv"
    if entry["kind"] == "equivalence":
        inputs["equivalence"] = f"{EQUIVALENCE}/{wildcards.table}/equivalence.csv"
    if entry["kind"] == "steps":
        inputs |= watched_files(entry, steps="steps.csv", summary="summary.json")
    if entry["kind"] == "variance":
        inputs |= watched_files(entry, variance="variance.csv", summary="summary.json")
    if "experiments" in entry:
        inputs["runs"] = run_files(grid.selected(GRID, entry))
    return inputs


def figure_inputs(wildcards):
    entry = config["figures"][wildcards.figure]
    if entry["kind"] == "convergence":
        return {
            "runs": [
                file
                for panel in entry["panels"]
                for name in ("summary.json", "history.csv")
                for file in run_files(grid.selected(GRID, panel), name)
            ]
        }
    if entry["kind"] == "equivalence":
        return {name: f"{EQUIVALENCE}/{entry['table']}/{name}.csv" for name in ("equivalence", "differences")}
    if entry["kind"] == "steps":
        return watched_files(entry, decades="steps_by_decade.csv")
    if entry["kind"] == "step_layers":
        return watched_files(entry, steps="steps.csv")
    if entry["kind"] == "variance":
        return watched_files(entry, variance="variance.csv", summary="summary.json")
    if entry["kind"] == "distributions":
        folder = f"{RESULTS}/analysis/distributions/{entry['where']['dataset']}"
        return {"histograms": f"{folder}/histograms.csv", "summary": f"{folder}/summary.json"}
    return (
        {"precision": f"{EXACT}/precision.csv"} if entry["kind"] == "precision" else {"clients": f"{EXACT}/clients.csv"}
    )


def definitions():
    """What the document is told: its scale, and a command by the name of each group that is on."""
    return rf"\newcommand{{\scale}}{{{SCALE}}}" + "".join(
        rf"\def\{group}{{}}" for group in grid.GROUPS if config[group]
    )


def panel_flags(figure):
    """--panel and its runs, for each panel of a figure."""
    flags = []
    for panel in config["figures"][figure].get("panels", []):
        flags += ["--panel", *folders(run_files(grid.selected(GRID, panel)))]
    return flags


def number_files():
    exact = {Path(name).stem: f"{EXACT}/{name}" for name in EXACT_FILES if name != "precision.csv"}
    tests = {f"significance.{name}": f"{RESULTS}/analysis/significance/{name}/significance.csv" for name in TESTED}
    tests |= {f"equivalence.{name}": f"{EQUIVALENCE}/{name}/equivalence.csv" for name in COMPARED}
    probes = {f"distributions.{name}": f"{RESULTS}/analysis/distributions/{name}/summary.json" for name in PROBED}
    lives = {f"variance.{name}": f"{RESULTS}/analysis/variance/{name}/variance.csv" for name in shown("variance")}
    return {**exact, **tests, **probes, **lives}
