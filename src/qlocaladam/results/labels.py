"""What things are called: the axes of the grid and their values, arms and data sets, in words and in LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qlocaladam.experiments.grid import as_list
from qlocaladam.federated.partition import IID
from qlocaladam.results.latex import BREAK, Column, escape, listed, power_of_ten

Spec = Mapping[str, Any]
Names = Mapping[str, Mapping[str, str]]
"""The labels of config.yaml: by `dataset` and `arm`."""

ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
SAME_EVERYWHERE = "IID"
"""The word for the alpha of clients that are all alike."""
AXES = {
    "dataset": "Data set",
    "alpha": ALPHA,
    "arm": "Arm",
    "block_size": "Block size",
    "lr": "Learning rate",
    "loss_scale": "Loss scale",
    "clients": "Clients",
    "clients_per_round": "Clients a round",
    "states": "States",
    "seed": "Seed",
}
"""The axes of the grid in words."""
VALUES = {
    "alpha": f"{ALPHA} = {{}}",
    "block_size": "B = {}",
    "lr": "lr = {}",
    "loss_scale": "loss times {}",
    "clients": "{} clients",
    "clients_per_round": "{} clients a round",
    "states": "states {}",
    "seed": "seed {}",
}
"""A value of an axis where the axis is not named beside it; arms and data sets need no more than their label."""
DATASET = Column(AXES["dataset"], "l")
ROWS = {
    axis: Column(words.replace(ALPHA, r"$\alpha$").replace(" ", BREAK, 1), "l" if axis in ("arm", "states") else "r")
    for axis, words in AXES.items()
    if axis != "dataset"
} | {"alpha": Column(r"$\alpha$", "l")}
"""What the rows of a table and the lines of a figure can stand for, as the head of a column."""


def plain(names: Names, axis: str, value: Any) -> str:
    return SAME_EVERYWHERE if value == IID else str(names.get(axis, {}).get(value, value))


def in_words(names: Names, axis: str, value: Any) -> str:
    """A value, or several, that can stand without its axis."""
    words = [plain(names, axis, one) for one in as_list(value)]
    return listed([word if word == SAME_EVERYWHERE else VALUES.get(axis, "{}").format(word) for word in words])


def latex(spec: Spec, axis: str, value: Any) -> str:
    """A cell. `stands_for` is a data set of the paper, whatever stands in its place."""
    if axis == "stands_for":
        return escape(spec["stands_for"].get(value, value))
    return power_of_ten(value) if axis in ("lr", "loss_scale") else escape(plain(spec["labels"], axis, value))


def alpha_latex(value: str) -> str:
    return SAME_EVERYWHERE if value == IID else rf"$\alpha={escape(value)}$"


def dataset_and_alpha(spec: Spec, dataset: str, alpha: str, axis: str = "dataset") -> str:
    """The label of a group of rows, in two lines."""
    return rf"{latex(spec, axis, dataset)}{BREAK}{alpha_latex(alpha)}"
