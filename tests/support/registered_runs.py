"""The registered questions, and simulated runs that answer them."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from projects import ROOT

from qlocaladam.analysis.registered import answers

REGISTRATION = yaml.safe_load((ROOT / "paper/registered.yaml").read_text())
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
QUESTIONS = [question["name"] for question in REGISTRATION["questions"]]
SEEDS = tuple(REGISTRATION["seeds"])
EXPECTED = {
    (1.0, "fp32"): 0.0,
    (1.0, "fp32-floor"): 0.0,
    (1.0, "no-floor"): -50.0,
    (1.0, "normalised"): 0.2,
    (1.0, "normalised-4bit"): -0.2,
    (1.0, "q-localadam"): 0.1,
    (0.0001, "fp32"): 0.0,
    (0.0001, "normalised"): 0.0,
    (0.0001, "q-localadam"): -12.0,
}
"""As everybody thinks; only that the method is not above FP32."""
NOISE = 0.4


def simulated(shifts: dict[tuple[float, str], float] | None = None, seeds=SEEDS, **changed: Any) -> pd.DataFrame:
    """Runs of both data sets with shifts as expected, but for these; None stands for no runs at all."""
    random, rows = np.random.default_rng(19), []
    for dataset, seed in itertools.product(REGISTRATION["datasets"], seeds):
        of_seed = random.normal(0, 2)
        for (scale, arm), shift in {**EXPECTED, **(shifts or {})}.items():
            value = 60 + of_seed + random.normal(0, NOISE)
            if shift is None:
                continue
            rows.append(
                {"dataset": dataset, "arm": arm, "loss_scale": scale, "seed": seed, "last_third": value + shift}
            )
    frame = pd.DataFrame(rows)
    others = dict.fromkeys(("best", "final", "mean"), frame["last_third"] + 1)
    usual = {"alpha": "0.1", "block_size": 64, "lr": 0.001, "clients": 10, "clients_per_round": 5, "states": "reset"}
    return frame.assign(**others, **usual, classes=10, diverged=False, **changed)


@cache
def of_all_kinds() -> str:
    """Answers of all four kinds, as the analysis writes them."""
    shifts = {(1.0, "normalised"): -4.0, (0.0001, "normalised"): None}
    return answers(REGISTRATION, simulated(shifts), "small").to_csv(index=False)


def answered(path: Path) -> Path:
    path.write_text(of_all_kinds())
    return path


LABELS = {
    "dataset": {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"},
    "arm": {name: entry["label"] for name, entry in CONFIG["arms"].items()},
}
