"""The variance of Adam in real client training: by round and layer, beside the floor of the released code.

Clients train in FP32. What is looked at are the states that they end their local training with, all clients of a round
together. The same settings, data and partition give the same bytes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch import nn
from torch.optim import Optimizer

from qlocaladam import RELEASED_FLOOR
from qlocaladam.analysis.distributions import joined
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated.partition import Partition
from qlocaladam.federated.progress import duration
from qlocaladam.federated.rounds import Federation
from qlocaladam.federated.run import describe
from qlocaladam.federated.settings import RunSettings

QUANTILES = {"p1": 0.01, "p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99}
COLUMNS = ("round", "layer", "dimensions", "numel", "zero", "below", *QUANTILES)
ALL = "all"
"""The layer of all weights together."""


def analyse(settings: RunSettings, dataset: Dataset, partition: Partition) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A row for each round and layer, and what was trained.

    `numel` counts the weights of the layer on all clients of the round, `zero` is the share whose variance is 0,
    `below` the share above 0 but below the floor. Quantiles are over the weights whose variance is above 0.
    """
    federation = Federation(replace(settings, arm="fp32", optimizer={}), dataset, partition)
    rows, start = [], time.monotonic()
    for number in range(1, settings.rounds + 1):
        optimizers = [result.optimizer for _, result in federation.train_round(number)]
        rows += measure(number, federation.model, optimizers)
        left = (time.monotonic() - start) / number * (settings.rounds - number)
        print(f"round {number}/{settings.rounds}  {duration(left)} left", file=sys.stderr, flush=True)
    table = pd.DataFrame(rows, columns=COLUMNS).astype({"dimensions": "Int64"})
    return table, {**describe(federation.settings, dataset, partition), "floor": RELEASED_FLOOR}


def measure(number: int, model: nn.Module, optimizers: list[Optimizer]) -> list[dict[str, Any]]:
    """The rows of a round. One in which no client held anything has none."""
    if not optimizers:
        return []
    held = {
        name: joined(optimizer.state[param]["variance"].cpu() for optimizer in optimizers)
        for name, param in model.named_parameters()
    }
    dimensions = {name: param.dim() for name, param in model.named_parameters()}
    return [
        {"round": number, "layer": layer, "dimensions": dimensions.get(layer), **_described(variance)}
        for layer, variance in {ALL: np.concatenate(list(held.values())), **held}.items()
    ]


def _described(variance: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, Any]:
    live = variance[variance > 0]
    below = (live < np.float32(RELEASED_FLOOR)).sum()  # as the floor is where it is applied
    row = {"numel": len(variance), "zero": 1 - len(live) / len(variance), "below": below / len(variance)}
    return row | dict(zip(QUANTILES, np.quantile(live, list(QUANTILES.values())), strict=True)) if len(live) else row
