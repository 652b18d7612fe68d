"""Training runs as a table: where each stands in the grid, what it was, what came out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

GRID = ("dataset", "alpha", "arm", "block_size", "lr", "seed")
"""What names a run. Its folder is these, as `dataset~cifar10/alpha~0.1/...`."""
KINDS = {"block_size": int, "lr": float, "seed": int}
"""How to read those that are not words. An alpha may be one: iid."""
AGAIN = "delete the run's folder and run snakemake again"


def place(folder: Path) -> dict[str, Any]:
    """Where in the grid a run stands, read from the last parts of its folder's name."""
    pairs = [part.partition("~") for part in folder.parts[-len(GRID) :]]
    if tuple(name for name, _, _ in pairs) != GRID:
        raise ValueError(f"{folder}: a run's folder ends in {'/'.join(f'{name}~...' for name in GRID)}")
    return {name: KINDS.get(name, str)(value) for name, _, value in pairs}


def read_runs(folders: Iterable[Path]) -> pd.DataFrame:
    """One row a run: the grid's columns, what was trained, best and final accuracy, bytes, and the folder."""
    runs = pd.DataFrame([_read_run(Path(folder)) for folder in folders])
    return runs if runs.empty else runs.astype({"image_size": "Int64"})  # text has none


def _read_run(folder: Path) -> dict[str, Any]:
    summary, made = (_read_json(folder / name) for name in ("summary.json", "settings.json"))
    settings, data = made["settings"], made["dataset"]
    if (folder / "history.csv").exists():  # a table shows a summary, but of a run that is sound
        _check_history(folder, summary["history_sha256"])
    return {
        **place(folder),
        "best": summary["best_accuracy"],
        "best_round": summary["best_round"],
        "final": summary["final_accuracy"],
        "diverged": summary["diverged"] is not None,
        "rounds": settings["rounds"],
        "parameters": summary["parameters"],
        "held_bytes": summary["optimizer_bytes"]["held"],
        "published_bytes": summary["optimizer_bytes"]["published"],
        "data": data["name"],
        "classes": data["classes"],
        "training_images": data["training_images"],
        "test_images": data["test_images"],
        **{name: settings[name] for name in ("clients_per_round", "epochs", "batch_size", "width", "image_size")},
        "clients": made["partition"]["clients"],
        "history_sha256": summary["history_sha256"],
        "folder": str(folder),
    }


def collapsed(runs: pd.DataFrame) -> pd.Series:
    """Whether each run ends below twice the accuracy of guessing, whatever it reached before.

    With two or three classes that would be too much to ask: there, halfway between guessing and all correct.
    """
    chance = 100 / runs["classes"]
    return runs["final"] < (2 * chance).clip(upper=(100 + chance) / 2)


def read_histories(runs: pd.DataFrame) -> pd.DataFrame:
    """Every round of every run: the grid's columns, then those of history.csv."""
    return pd.concat([_read_history(run) for run in runs.to_dict("records")], ignore_index=True)


def _read_history(run: dict[str, Any]) -> pd.DataFrame:
    path = _check_history(Path(run["folder"]), run["history_sha256"])
    history = pd.read_csv(path, dtype={"clients": str})
    return pd.DataFrame({**{name: run[name] for name in GRID}, **history})


def _check_history(folder: Path, sha256: str) -> Path:
    path = folder / "history.csv"
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise ValueError(f"{path} is not the file that its summary.json was written with; {AGAIN}")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not there; {AGAIN}") from None
    except ValueError as error:  # not JSON, or not even text
        raise ValueError(f"{path} is not whole ({error}); {AGAIN}") from None
    return content
