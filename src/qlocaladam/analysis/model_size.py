"""How hard the floor of the released code bites as models grow: the first steps of a transformer of several widths.

Each arm trains from the same weights on the same batches, centrally. How long its way is relative to FP32's says how
much of Adam's step the arm leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from qlocaladam import ARITHMETIC_SINCE, RELEASED_FLOOR
from qlocaladam.analysis.closed_loop import Step, follow
from qlocaladam.analysis.memory import Arms, options_of
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated.batches import sample_sets
from qlocaladam.federated.rounds import make_model, prepare_device
from qlocaladam.federated.settings import RunSettings

WIDTHS = (48, 128, 256, 512)
STEPS = 20
USED = ("lr", "batch_size", "seed", "precision", "device")
"""Settings of a run that decide what is measured here."""
COLUMNS = ("width", "parameters", "arm", "steps", "way", "relative_way", "loss", "zero", "below")


def analyse(
    settings: RunSettings,
    dataset: Dataset,
    arms: Arms,
    widths: Sequence[int] = WIDTHS,
    steps: int = STEPS,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A row for each width and arm, FP32 first, and what was trained.

    `arms` are those of config.yaml. `way` is the length of all steps, in learning rates, and `relative_way` that over
    FP32's; `loss` that of the last batch; `zero` and `below` are shares of weights whose variance in FP32 training is 0
    after the last step, or above 0 and below the floor.
    """
    if not dataset.is_text:
        raise ValueError(f"dataset must be text, on which transformers are trained, got {dataset.name!r}")
    chosen = {"fp32": {}, **{name: options_of(name, entry) for name, entry in arms.items() if name != "fp32"}}
    rows = [row for width in widths for row in _of_width(replace(settings, width=width), dataset, chosen, steps)]
    return pd.DataFrame(rows, columns=COLUMNS), {
        "arithmetic": ARITHMETIC_SINCE,
        "settings": {name: getattr(settings, name) for name in USED},
        "dataset": {"name": dataset.name, "sha256": dataset.sha256, "training_images": len(dataset.y_train)},
        "widths": list(widths),
        "steps": steps,
        "arms": dict(arms),
        "floor": RELEASED_FLOOR,
    }


def _of_width(settings: RunSettings, dataset: Dataset, arms: Arms, steps: int) -> list[dict[str, Any]]:
    device = prepare_device(settings.device)
    data, _ = sample_sets(dataset, settings.image_size, device)
    rows: list[dict[str, Any]] = []
    exact: list[Step] = []
    for arm, options in arms.items():
        model = make_model(settings, dataset.outputs, device, text=True)
        how = replace(settings, arm="fp32", optimizer=dict(options), flip=False).local_training()
        taken = follow(model, data, torch.arange(len(data)), how, steps=steps)
        exact = exact or taken
        way, fp32 = (sum(step.way for step in one) for one in (taken, exact))
        rows.append(
            {
                "width": settings.width,
                "parameters": sum(param.numel() for param in model.parameters()),
                "arm": arm,
                "steps": len(taken),
                "way": way,
                "relative_way": way / fp32,
                "loss": taken[-1].loss,
                "zero": exact[-1].zero,
                "below": exact[-1].below,
            }
        )
    return rows
