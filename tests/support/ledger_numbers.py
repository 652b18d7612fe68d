"""numbers.json as the ledger reads it, from what its numbers are of."""

from __future__ import annotations

import json
from typing import Any

from qlocaladam.experiments.grid import typed
from qlocaladam.results.number import Number, number
from qlocaladam.results.numbers import as_json, run_number

DEFAULTS = {"block_size": 64, "lr": 0.001, "seed": 42}
FILE = "results/a.csv"


def of_run(quantity: str, arm: str, value: float | None, over: str = "", **place: Any) -> Number:
    """A number of a run on CIFAR-10, alpha 0.1, at the defaults where `place` does not say otherwise."""
    run = typed({"dataset": "cifar10", "alpha": "0.1", "arm": arm, **DEFAULTS, **place})
    return run_number(DEFAULTS, run, quantity, value, str, FILE, on="", over=over)


def chance_of(dataset: str = "cifar10", value: float = 10.0) -> Number:
    return number({"kind": "setting", "dataset": dataset, "quantity": "chance"}, value, str, FILE)


def residual_of(metric: str, variance: float, freedom: float, dataset: str = "cifar10") -> list[Number]:
    of = {"kind": "residual", "metric": metric, "dataset": dataset, "alpha": "0.1"}
    parts = {"variance": variance, "freedom": freedom}
    return [number({**of, "quantity": part}, value, str, FILE) for part, value in parts.items()]


def as_read(*numbers: Number) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(as_json(numbers))
    return content
