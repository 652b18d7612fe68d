"""Training runs as a table: where each stands in the grid, what it was, what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.federated.record import AGAIN, differences, read
from qlocaladam.paper.grid import GRID, place, request


def read_runs(folders: Iterable[Path | str], asked: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One row a run: the grid's columns, what was trained, best and final accuracy, bytes, and the folder.

    ValueError unless the files of a run agree with each other, and with what the configuration asks of it.
    """
    runs = pd.DataFrame([_read_run(Path(folder), asked) for folder in folders])
    return runs if runs.empty else runs.astype({"image_size": "Int64"})  # text has none


def _read_run(folder: Path, asked: Mapping[str, Any] | None) -> dict[str, Any]:
    run, where = read(folder), place(folder)
    summary, settings, data = run.summary, run.made["settings"], run.made["dataset"]
    if asked is not None and (changed := differences(run.made, request(asked, where))):
        raise ValueError(f"{folder / 'settings.json'}: {', '.join(changed)}, as the configuration asks; {AGAIN}")
    return {
        **where,
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
        "clients": run.made["partition"]["clients"],
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
    folder = Path(run["folder"])
    read(folder)  # refuses a history that is not the one that the run was read with
    history = pd.read_csv(folder / "history.csv", dtype={"clients": str})
    return pd.DataFrame({**{name: run[name] for name in GRID}, **history})
