"""The grid of config.yaml: which runs there are, how each is trained, and which of them a table or a figure shows.

The schema has checked the form of the configuration before anything here is called; what is checked here is that its
parts fit together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from qlocaladam.paper.runs import GRID

Config = Mapping[str, Any]


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
