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

AS_IN_THE_PAPER = {"loss_scale": "1.0", "clients": "10", "clients_per_round": "5", "states": "reset"}
"""Axes that a run is named by only where it differs from the paper."""
GRID = ("dataset", "alpha", "arm", "block_size", "lr", *AS_IN_THE_PAPER, "seed")
"""What names a run. Its folder is these, as `dataset~cifar10/alpha~0.1/...`."""
KINDS = {"block_size": int, "lr": float, "loss_scale": float, "clients": int, "clients_per_round": int, "seed": int}
"""How to read those that are not words. An alpha may be one: iid."""

AXES_OF_TRAINING = tuple(name for name in AS_IN_THE_PAPER if name != "clients")
"""Those that are settings of a run; the clients are the partition's."""

SUBSETS = ("train_images", "test_images")
DEFAULTS = {field.name: field.default for field in fields(RunSettings) if field.default is not MISSING}
"""Of `train`, for what the configuration leaves out."""


def place(folder: Path) -> dict[str, Any]:
    """Where in the grid a run stands, read from the last parts of its folder's name."""
    words: dict[str, str] = {}
    for part in reversed(folder.parts):
        name, _, value = part.partition("~")
        if name not in GRID or name in words:
            break
        words[name] = value
    place = {**AS_IN_THE_PAPER, **words}
    if words.keys() | AS_IN_THE_PAPER.keys() != set(GRID) or run_name(place) != "/".join(folder.parts[-len(words) :]):
        usual = "/".join(f"{name}~..." for name in GRID if name not in AS_IN_THE_PAPER)
        raise ValueError(
            f"{folder}: a run's folder ends in {usual}, with {', '.join(AS_IN_THE_PAPER)} before the seed where they "
            "differ from the paper"
        )
    return typed(place)


def run_name(place: Mapping[str, Any]) -> str:
    """The folder of the run at a place, below that of all runs."""
    place = {**AS_IN_THE_PAPER, **place}
    return "/".join(f"{name}~{place[name]}" for name in _naming(place))


def _naming(place: Mapping[str, Any]) -> list[str]:
    return [name for name in GRID if AS_IN_THE_PAPER.get(name) != str(place[name])]


def typed(words: Mapping[str, str]) -> dict[str, Any]:
    """A place in the grid with numbers where it has them; on axes that it leaves out, where the paper is."""
    words = {**AS_IN_THE_PAPER, **words}
    return {name: KINDS.get(name, str)(words[name]) for name in GRID}


def short_name(place: Mapping[str, Any]) -> str:
    """What a reference calls the run at a place."""
    place = typed(place)
    return "/".join(f"{n}={place[n]}" if n in AS_IN_THE_PAPER else str(place[n]) for n in _naming(place))


def text(value: object) -> str:
    """A value as it stands in a folder's name: 1 and 1.0 are the same alpha."""
    return repr(float(value)) if isinstance(value, float | int) else str(value)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def is_on(config: Config, entry: Config) -> bool:
    """Whether an experiment, table or figure takes part: those of a group only where the group's key is true."""
    return "group" not in entry or bool(config[entry["group"]])


def expand(config: Config) -> pd.DataFrame:
    """Every run of every experiment that is on: its experiment, and the words of its place in the grid."""
    rows = [
        {"experiment": experiment["name"], **place}
        for experiment in config["experiments"]
        if is_on(config, experiment)
        for place in _places(config, experiment)
    ]
    return pd.DataFrame(rows, columns=["experiment", *GRID])


def _places(config: Config, experiment: Config) -> Iterable[dict[str, str]]:
    for dataset, arm in itertools.product(as_list(experiment["dataset"]), as_list(experiment["arm"])):
        given = {**usual(config, dataset), **config["arms"][arm], **experiment, "dataset": dataset, "arm": arm}
        axes = [[word(name, value) for value in as_list(given[name])] for name in GRID]
        yield from (dict(zip(GRID, words, strict=True)) for words in itertools.product(*axes))


def usual(config: Config, dataset: str) -> dict[str, Any]:
    """Where runs of a data set stand on the axes that an experiment does not name."""
    if dataset not in config["scales"].get(config["scale"], {}).get("datasets", {}):
        return {**AS_IN_THE_PAPER, **config["defaults"]}  # `check` says what is wrong
    chosen = {**AS_IN_THE_PAPER, "clients": config["clients"], **training(config, dataset)}
    return {**{name: chosen[name] for name in AS_IN_THE_PAPER}, **config["defaults"]}


def unique(grid: pd.DataFrame) -> pd.DataFrame:
    """The runs to train: those that several experiments share, once."""
    return grid[list(GRID)].drop_duplicates(ignore_index=True)


def selected(grid: pd.DataFrame, entry: Config) -> pd.DataFrame:
    """The runs that a table or a panel is made of."""
    rows = grid[grid["experiment"].isin(entry["experiments"])]
    for name, wanted in entry.get("where", {}).items():
        rows = rows[rows[name].isin([word(name, value) for value in as_list(wanted)])]
    return unique(rows)


def word(name: str, value: Any) -> str:
    """A value of an axis as it stands in a folder's name."""
    if KINDS.get(name) is int:
        return str(int(value))
    return text(float(value)) if name in KINDS else text(value) if name == "alpha" else str(value)


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
        "seed": seed,
        **{name: typed(place)[name] for name in ("lr", *AXES_OF_TRAINING)},
    }
    counts = {f"{part}_images": data[name] for part, name in zip(("training", "test"), SUBSETS, strict=True)}
    return {
        "arithmetic": ARITHMETIC_SINCE,
        "settings": settings,
        "dataset": {"name": data["data"], **{name: count for name, count in counts.items() if count}},
        "partition": {"alpha": alpha, "clients": int(place["clients"]), "seed": seed},
    }


def training_flags(asked: Config, place: Config) -> list[str]:
    """The same as options of `python -m qlocaladam train`."""
    arm, data = asked["arms"][place["arm"]], asked["datasets"][place["dataset"]]
    options = {"block_size": place["block_size"], **arm["options"]}
    return [
        *as_flags({"arm": arm["arm"], **{name: place[name] for name in ("lr", "seed")}}),
        *as_flags(
            {
                **{name: data[name] for name in SUBSETS},
                **data["training"],
                **{name: place[name] for name in AXES_OF_TRAINING},
            }
        ),
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
    refuse_unknown("scale", [config["scale"]], config["scales"])
    names = [experiment["name"] for experiment in config["experiments"]]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"experiments: {names.count(name)} of them have the name {name!r}; each needs its own")
    for experiment in config["experiments"]:
        key = f"experiments, {experiment['name']}"
        refuse_unknown(f"{key}: dataset", as_list(experiment["dataset"]), config["datasets"])
        refuse_unknown(f"{key}: arm", as_list(experiment["arm"]), config["arms"])
        if is_on(config, experiment):
            at_scale = f"{key}: dataset at scale {config['scale']}"
            refuse_unknown(at_scale, as_list(experiment["dataset"]), scale["datasets"])


GROUPS = ("controls", "beyond", "mechanism", "registered")
"""Keys that turn a group of experiments on."""


def refuse_unknown(key: str, values: Iterable[str], accepted: Iterable[str]) -> None:
    for value in values:
        if value not in accepted:
            raise ValueError(f"{key} is {value!r}; accepted: {', '.join(accepted)}")
