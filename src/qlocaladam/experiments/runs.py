"""Training runs as a table: where each stands in the grid, what it was, what came out."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from qlocaladam.experiments.grid import AXES_OF_TRAINING, GRID, place, request, short_name, typed
from qlocaladam.federated.record import AGAIN, differences, last_third, read
from qlocaladam.files import table_rows


def read_runs(folders: Iterable[Path | str], asked: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One row a run: the grid's columns, what was trained, best and final accuracy, bytes, and the folder.

    ValueError unless the files of a run agree with each other, and with what the configuration asks of it. A single
    runs.csv is that of a reference, of which `asked` names the places.
    """
    paths = [Path(folder) for folder in folders]
    if asked is not None and [path.name for path in paths] == ["runs.csv"]:
        return _read_kept(paths[0], asked["places"])
    runs = pd.DataFrame([_read_run(folder, asked) for folder in paths])
    return runs if runs.empty else runs.astype({"image_size": "Int64"})  # text has none


def _read_run(folder: Path, asked: Mapping[str, Any] | None) -> dict[str, Any]:
    run, where = read(folder), place(folder)
    summary, settings, data = run.summary, run.made["settings"], run.made["dataset"]
    if asked is not None and (changed := differences(run.made, request(asked, where))):
        raise ValueError(f"{folder / 'settings.json'}: {', '.join(changed)}, as the configuration asks; {AGAIN}")
    return {
        **where,
        **{name: settings.get(name, where[name]) for name in AXES_OF_TRAINING},
        "clients": run.made["partition"]["clients"],
        **{metric: summary[f"{metric}_accuracy"] for metric in METRICS},
        "best_round": summary["best_round"],
        "diverged": summary["diverged"] is not None,
        "rounds": settings["rounds"],
        "parameters": summary["parameters"],
        **{f"{layout}_bytes": size for layout, size in summary["optimizer_bytes"].items()},
        "data": data["name"],
        **{name: data[name] for name in ("classes", "training_images", "test_images")},
        **{name: settings[name] for name in ("epochs", "batch_size", "width", "image_size")},
        "history_sha256": summary["history_sha256"],
        "folder": str(folder),
    }


METRICS = ("last_third", "best", "final", "mean")
"""Accuracies of a run: over the last third of its rounds, which is what arms are judged by; of its best round, as
published; of its last; over all."""
ALL_ROUNDS = "all_rounds"
"""What the last is called beside means over seeds."""
NUMBERS = {
    **dict.fromkeys(("best", "final"), float),
    **dict.fromkeys(("best_round", "rounds", "parameters", "held_bytes", "published_bytes", "classes"), int),
    **dict.fromkeys(("training_images", "test_images", "epochs", "batch_size", "width"), int),
}
"""Columns of a run that are not words."""


def _read_kept(path: Path, places: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """Runs of a reference: a row each, which its history must bear out to the letter."""
    rows = {row["run"]: row for row in table_rows(pd.read_csv(path, dtype=str, keep_default_na=False))}
    header, histories = _kept_histories(path.with_name("histories.csv.gz"))
    runs = []
    for where in places:
        row = rows[short_name(where)]
        lines = histories.get(row["run"], [])
        if hashlib.sha256("".join([header, *lines]).encode()).hexdigest() != row["history_sha256"]:
            raise ValueError(f"{path}: {row['run']} has another history than it was kept with; get the files again")
        accuracies = [float(line.split(",")[1]) for line in lines]
        if (float(row["best"]), float(row["final"])) != (max(accuracies), accuracies[-1]):
            said = f"best and final are {row['best']} and {row['final']}, but its history has"
            raise ValueError(f"{path}: {row['run']}: {said} {max(accuracies)} and {accuracies[-1]}")
        others = {"last_third": last_third(accuracies), "mean": fmean(accuracies)}
        numbers = {name: kind(row[name]) for name, kind in NUMBERS.items()}
        size = int(row["image_size"]) if row["image_size"] else None
        rest = {"diverged": row["diverged"] == "True", "image_size": size, "folder": str(path)}
        runs.append({**typed(where), "data": row["data"], **numbers, **others, **rest})
    return pd.DataFrame(runs).astype({"image_size": "Int64"})


def _kept_histories(path: Path) -> tuple[str, dict[str, list[str]]]:
    """The first line of history.csv, and the others of each run."""
    first, *lines = gzip.decompress(path.read_bytes()).decode().splitlines(keepends=True)
    histories: dict[str, list[str]] = {}
    for line in lines:
        name, _, rest = line.partition(",")
        histories.setdefault(name, []).append(rest)
    return first.partition(",")[2], histories


def collapse_bound(chance: float) -> float:
    """The accuracy in percent below which a run has collapsed: twice that of guessing.

    With two or three classes that would be too much to ask: there, halfway between guessing and all correct.
    """
    return min(2 * chance, (100 + chance) / 2)


def collapsed(runs: pd.DataFrame) -> pd.Series:
    """Whether each run has collapsed in the end, whatever it reached before."""
    return runs["final"] < (100 / runs["classes"]).map(collapse_bound)


def read_histories(runs: pd.DataFrame) -> pd.DataFrame:
    """Every round of every run: the grid's columns, then those of history.csv, whose clients are the participants."""
    return pd.concat([_read_history(run) for run in table_rows(runs)], ignore_index=True)


def _read_history(run: dict[str, Any]) -> pd.DataFrame:
    folder = Path(run["folder"])
    source: Path | StringIO = folder / "history.csv"
    if folder.name == "runs.csv":  # of a reference
        header, histories = _kept_histories(folder.with_name("histories.csv.gz"))
        source = StringIO("".join([header, *histories[short_name(run)]]))
    else:
        read(folder)  # refuses a history that is not the one that the run was read with
    history = pd.read_csv(source, dtype={"clients": str}).rename(columns={"clients": "participants"})
    return pd.DataFrame({**{name: run[name] for name in GRID}, **history})
