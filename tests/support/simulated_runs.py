"""Folders of training runs with the accuracies that a test asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.experiments.grid import AXES_OF_TRAINING, run_name, typed
from qlocaladam.experiments.runs import read_runs
from qlocaladam.federated import record


class Runs:
    """Folders of training runs with the accuracies one asks for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, *wanted: dict[str, Any]) -> pd.DataFrame:
        return read_runs([self._write(**one) for one in wanted])

    def _write(self, accuracy: list[float], diverged: bool = False, classes: int = 10, **at: Any) -> Path:
        at = {"dataset": "cifar10", "alpha": "0.1", "arm": "fp32", "block_size": 64, "lr": 0.001, "seed": 42, **at}
        folder = self.root / run_name(at)
        folder.mkdir(parents=True)
        rounds = [[i, value, 1.0, 1.0, 100, "0 3", 2] for i, value in enumerate(accuracy, 1)]
        names = ("epochs", "batch_size", "width", "image_size")
        settings = {name: typed(at)[name] for name in ("arm", "seed", "lr", *AXES_OF_TRAINING)}
        made = {
            "settings": {**settings, **dict.fromkeys(names, 20), "rounds": len(accuracy)},
            "dataset": {"name": "digits", "classes": classes, "training_images": 100, "test_images": 50},
            "partition": {"clients": 10, "alpha": at["alpha"]},
        }
        measured = {
            "parameters": 1000,
            "diverged": {"round": len(accuracy), "client": 0} if diverged else None,
            "optimizer_bytes": {"held": 1, "published": 1},
        }
        record.write(folder, made, rounds, [[i, 1.0, 1.0] for i in range(len(rounds))], measured)
        return folder
