"""The grid of config.yaml: which runs there are, how each is trained, and which of them a table or a figure shows.

The schema has checked the form of the configuration before anything here is called; what is checked here is that its
parts fit together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam import ARITHMETIC_SINCE
from qlocaladam.federated.partition import IID
from qlocaladam.federated.settings import RunSettings

Config = Mapping[str, Any]

GRID = ("dataset", "alpha", "arm", "block_size", "lr", "seed")
"""What names a run. Its folder is these, as `dataset~cifar10/alpha~0.1/...`."""
KINDS = {"block_size": int, "lr": float, "seed": int}
"""How to read those that are not words. An alpha may be one: iid."""

SUBSETS = ("train_images", "test_images")
DEFAULTS = {field.name: field.default for field in fields(RunSettings) if field.default is not MISSING}
"""Of `train`, for what the configuration leaves out."""


def place(folder: Path) -> dict[str, Any]:
    """Where in the grid a run stands, read from the last parts of its folder's name."""
    pairs = [part.partition("~") for part in folder.parts[-len(GRID) :]]
    if tuple(name for name, _, _ in pairs) != GRID:
        raise ValueError(f"{folder}: a run's folder ends in {'/'.join(f'{name}~...' for name in GRID)}")
    return typed({name: value for name, _, value in pairs})


def typed(words: Mapping[str, str]) -> dict[str, Any]:
    """A place in the grid with numbers where it has them."""
    return {name: KINDS.get(name, str)(words[name]) for name in GRID}


def short_name(place: Mapping[str, Any]) -> str:
    """What a reference calls the run at a place."""
    return "/".join(map(str, typed(place).values()))


def text(value: object) -> str:
    """A value as it stands in a folder's name: 1 and 1.0 are the same alpha."""
    return repr(float(value)) if isinstance(value, float | int) else str(value)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_on(config: Config, entry: Config) -> bool:
    """Whether an experiment, table or figure takes part: those of a group only where the group's key is true."""
    return "group" not in entry or bool(config[entry["group"]])


def expand(config: Config) -> pd.DataFrame:
    """Every run of every experiment that is on: its experiment, and the six words of its place in the grid."""
    rows = [
        {"experiment": experiment["name"], **place}
        for experiment in config["experiments"]
        if is_on(config, experiment)
        for place in _places(config, experiment)
    ]
    return pd.DataFrame(rows, columns=["experiment", *GRID])


def _places(config: Config, experiment: Config) -> Iterable[dict[str, str]]:
    for dataset, arm in itertools.product(as_list(experiment["dataset"]), as_list(experiment["arm"])):
        given = {**config["defaults"], **config["arms"][arm], **experiment}
        axes = [as_list(given[name]) for name in ("alpha", "block_size", "lr", "seed")]
        for alpha, block_size, lr, seed in itertools.product(*axes):
            yield {
                "dataset": dataset,
                "alpha": text(alpha),
                "arm": arm,
                "block_size": str(int(block_size)),
                "lr": text(lr),
                "seed": str(int(seed)),
            }


def unique(grid: pd.DataFrame) -> pd.DataFrame:
    """The runs to train: those that several experiments share, once."""
    return grid[list(GRID)].drop_duplicates(ignore_index=True)


def selected(grid: pd.DataFrame, entry: Config) -> pd.DataFrame:
    """The runs that a table or a panel is made of."""
    rows = grid[grid["experiment"].isin(entry["experiments"])]
    for name, wanted in entry.get("where", {}).items():
        rows = rows[rows[name].isin([_word(name, value) for value in as_list(wanted)])]
    return unique(rows)


def _word(name: str, value: object) -> str:
    return text(value) if name in ("alpha", "lr") else str(value)


def training(config: Config, dataset: str) -> dict[str, Any]:
    """The options of `train` for a data set at the chosen scale."""
    size = config["scales"][config["scale"]]
    return {**size["training"], **size["datasets"][dataset].get("training", {})}


# What decides the numbers of a run, in one place: the command that trains it and the comparison with what was made
# follow from the same few keys, and nothing else of the configuration reaches either.


def asked(config: Config, datasets: Iterable[str], arms: Iterable[str]) -> dict[str, Any]:
    """All that the configuration says about runs of these data sets and arms, besides their places in the grid."""
    entries = config["scales"][config["scale"]]["datasets"]
    return {
        "clients": config["clients"],
        "arms": {name: {key: config["arms"][name].get(key, {}) for key in ("arm", "options")} for name in arms},
        "datasets": {
            name: {
                **{key: entries[name].get(key) for key in ("data", *SUBSETS)},
                "training": training(config, name),
            }
            for name in datasets
        },
    }


def request(asked: Config, place: Config) -> dict[str, Any]:
    """What settings.json must say of the run at a place, as far as the configuration decides it."""
    arm, data = asked["arms"][place["arm"]], asked["datasets"][place["dataset"]]
    alpha = place["alpha"] if place["alpha"] == IID else float(place["alpha"])
    seed = int(place["seed"])
    settings = {
        **DEFAULTS,
        **{name: value for name, value in data["training"].items() if name in DEFAULTS},
        "arm": arm["arm"],
        "optimizer": {"block_size": int(place["block_size"]), **arm["options"]},
        "lr": float(place["lr"]),
        "seed": seed,
    }
    counts = {f"{part}_images": data[name] for part, name in zip(("training", "test"), SUBSETS, strict=True)}
    return {
        "arithmetic": ARITHMETIC_SINCE,
        "settings": settings,
        "dataset": {"name": data["data"], **{name: count for name, count in counts.items() if count}},
        "partition": {"alpha": alpha, "clients": asked["clients"], "seed": seed},
    }


def training_flags(asked: Config, place: Config) -> list[str]:
    """The same as options of `python -m qlocaladam train`."""
    arm, data = asked["arms"][place["arm"]], asked["datasets"][place["dataset"]]
    options = {"block_size": place["block_size"], **arm["options"]}
    return [
        *as_flags({"arm": arm["arm"], "lr": place["lr"], "seed": place["seed"]}),
        *as_flags({**{name: data[name] for name in SUBSETS}, **data["training"]}),
        *(word for name, value in options.items() for word in ("--option", f"{name}={value}")),
    ]


def as_flags(options: Config) -> list[str]:
    """Options of the command line: {"rounds": 2, "flip": False, "width": None} is --rounds 2 --no-flip."""
    flags = []
    for name, value in options.items():
        word = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{word}" if value else f"--no-{word}")
        elif value is not None:
            flags += [f"--{word}", str(value)]
    return flags


def check(config: Config) -> None:
    """Raise ValueError where parts of the configuration do not fit together, naming the key and what is accepted."""
    scale = config["scales"].get(config["scale"])
    _known("scale", [config["scale"]], config["scales"])
    names = [experiment["name"] for experiment in config["experiments"]]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"experiments: {names.count(name)} of them have the name {name!r}; each needs its own")
    for experiment in config["experiments"]:
        key = f"experiments, {experiment['name']}"
        _known(f"{key}: dataset", as_list(experiment["dataset"]), config["datasets"])
        _known(f"{key}: arm", as_list(experiment["arm"]), config["arms"])
        if is_on(config, experiment):
            _known(f"{key}: dataset at scale {config['scale']}", as_list(experiment["dataset"]), scale["datasets"])
    for part in ("tables", "figures"):
        for name, entry in config[part].items():
            _check_entry(config, f"{part}, {name}", entry, names)


def _check_entry(config: Config, key: str, entry: Config, names: list[str]) -> None:
    """Whether a table or a figure has something to show. One of a group is looked at as if that were on."""
    datasets = entry.get("where", {}).get("dataset", [])
    _known(f"{key}: where: dataset", as_list(datasets), config["datasets"])
    _known(f"{key}: where: arm", as_list(entry.get("where", {}).get("arm", [])), config["arms"])
    if entry["kind"] == "distributions" and not isinstance(datasets, str):
        raise ValueError(f"{key}: where: dataset is {datasets!r}; accepted: one of {', '.join(config['datasets'])}")
    if "table" in entry:
        tested = [name for name, table in config["tables"].items() if _is_tested_with(table, entry)]
        _known(f"{key}: table", [entry["table"]], tested)
    grid = expand({**config, **({entry["group"]: True} if "group" in entry else {})})
    for place, selection in _selections(entry):
        _known(f"{key}{place}: experiments", selection["experiments"], names)
        if selected(grid, selection).empty:
            where = selection.get("where", {})
            raise ValueError(f"{key}{place}: where {where} selects none of the runs of its experiments that are on")
        if "baseline" in entry:
            _known(f"{key}: baseline", [entry["baseline"]], selected(grid, selection)["arm"].unique())


def _is_tested_with(table: Config, figure: Config) -> bool:
    """Whether a table has tests that a figure can draw: of its kind, and there whenever the figure is."""
    return bool(table["kind"] == figure["kind"] and table.get("group") in (None, figure.get("group")))


GROUPS = ("controls", "beyond")
"""Keys that turn a group of experiments on."""


def _selections(entry: Config) -> Iterable[tuple[str, Config]]:
    if "experiments" in entry:
        yield "", entry
    for number, panel in enumerate(entry.get("panels", []), 1):
        yield f", panel {number}", panel


def _known(key: str, values: Iterable[str], accepted: Iterable[str]) -> None:
    for value in values:
        if value not in accepted:
            raise ValueError(f"{key} is {value!r}; accepted: {', '.join(accepted)}")
