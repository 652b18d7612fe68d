"""One client of the paper's own partition in its first round, with every arm: the whole of its training, step by step.

The client is the one with the fewest samples that fill a batch. The partition is that of the paper where the data are
CIFAR: it is dealt out from all training images, whatever subset a scale trains on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from qlocaladam import RELEASED_FLOOR
from qlocaladam.analysis.closed_loop import follow
from qlocaladam.analysis.memory import Arms, options_of
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated.batches import image_sets
from qlocaladam.federated.partition import partition
from qlocaladam.federated.rounds import make_model, prepare_device
from qlocaladam.federated.run import describe
from qlocaladam.federated.settings import RunSettings

CLIENTS, ALPHA = 10, 0.1
"""Of the paper's partition at the strongest heterogeneity."""
COLUMNS = ("arm", "steps", "first_loss", "last_loss", "median", "p99", "max", "far", "relative_way", "zero", "below")
BY_STEP = ("arm", "step", "loss", "way", "exact_way", "median", "p99", "max", "far", "zero", "below")


def analyse(
    settings: RunSettings, dataset: Dataset, arms: Arms, steps: int | None = None
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """A row for each arm, a row for each arm and step, and who was looked at.

    `arms` are those of config.yaml; `steps`: at most so many, else all of the round. Of an arm's steps `median` and
    `p99` are the medians over all of them of these quantiles of a step's error, `max` and `far` the worst step's.
    `relative_way` is the length of all steps over that with exact states, `zero` and `below` are after the last step,
    and `last_loss` is the mean of the last quarter of the batches.
    """
    dealt = partition(dataset.y_train, CLIENTS, ALPHA, settings.seed)
    client = smallest_client(dealt.sizes, settings.batch_size)
    indices = torch.tensor(dealt.indices[client])
    device = prepare_device(settings.device)
    data, _ = image_sets(dataset, settings.image_size, device)
    by_step = []
    for name, entry in arms.items():
        of_arm = replace(settings, arm="fp32", optimizer=options_of(name, entry))
        model = make_model(of_arm, dataset.outputs, device)
        taken = follow(model, data, indices, of_arm.local_training(), steps=steps, client=client)
        by_step += [{"arm": name, **step._asdict()} for step in taken]
    table = pd.DataFrame(by_step, columns=BY_STEP)
    summary = {
        **describe(replace(settings, arm="fp32", optimizer={}), dataset, dealt),
        "client": client,
        "samples": len(indices),
        "steps": int(table["step"].max()),
        "most_steps": steps,
        "parameters": sum(param.numel() for param in model.parameters()),
        "arms": dict(arms),
        "floor": RELEASED_FLOOR,
    }
    return summarise(table), table, summary


def smallest_client(sizes: NDArray[np.int64], batch_size: int) -> int:
    """The client with the fewest samples that fill a batch; where nobody has so many, the one with the most."""
    full = np.flatnonzero(sizes >= batch_size)
    return int(full[sizes[full].argmin()] if len(full) else sizes.argmax())


def summarise(by_step: pd.DataFrame) -> pd.DataFrame:
    """A row for each arm."""
    rows = []
    for arm, steps in by_step.groupby("arm", sort=False):
        last = steps.iloc[-1]
        rows.append(
            {
                "arm": arm,
                "steps": len(steps),
                "first_loss": steps["loss"].iloc[0],
                "last_loss": steps["loss"].iloc[-max(1, len(steps) // 4) :].mean(),
                **steps[["median", "p99"]].median(),
                **steps[["max", "far"]].max(),
                "relative_way": steps["way"].sum() / steps["exact_way"].sum(),
                "zero": last["zero"],
                "below": last["below"],
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)
