"""The files of a finished run: written whole, and read back by whoever shows a number of it.

Who reads a run computes its summary anew from the history and the settings that the summary hashes: a file that was
edited, cut off or put in the place of another is named and never believed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from qlocaladam.federated.settings import OF_IMAGES
from qlocaladam.files import csv_text, json_text, write_text

FILES = ("timings.csv", "history.csv", "settings.json", "summary.json")
"""The summary comes last: where it is, everything is."""
HISTORY = ("round", "accuracy", "test_loss", "train_loss", "images", "clients", "finite_clients")
TIMINGS = ("round", "seconds", "images_per_second")
MEASURED = ("parameters", "diverged", "optimizer_bytes")
"""What a summary has that neither history nor settings say."""
SECTIONS = ("settings", "optimizer", "dataset", "partition")
"""Of settings.json, whose keys are compared one by one."""
SEAL = "sha256"
AGAIN = "delete the run's folder and run snakemake again"

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What the files of a finished run say, once they agree with each other."""

    summary: Json
    made: Json
    """settings.json: everything that made the run."""
    history: Sequence[Mapping[str, str]]


def write(
    folder: Path, made: Json, rounds: list[list[Any]], timings: list[list[float]], measured: Json
) -> dict[str, Any]:
    """Write all files of a run. Returns the summary."""
    history = csv_text(HISTORY, rounds)
    write_text(folder / "timings.csv", csv_text(TIMINGS, timings))
    write_text(folder / "history.csv", history)
    write_text(folder / "settings.json", json_text(made))
    summary = _summarise(made, history.encode(), measured)
    write_text(folder / "summary.json", json_text(summary))
    return summary


def _summarise(made: Json, history: bytes, measured: Json) -> dict[str, Any]:
    settings, rows = made["settings"], _rows(history)
    accuracies = [float(row["accuracy"]) for row in rows]
    summary = {
        "arm": settings["arm"],
        "dataset": made["dataset"]["name"],
        "alpha": made["partition"]["alpha"],
        "seed": settings["seed"],
        "lr": settings["lr"],
        "parameters": measured["parameters"],
        "best_accuracy": max(accuracies),
        "best_round": accuracies.index(max(accuracies)) + 1,
        "final_accuracy": accuracies[-1],
        "last_third_accuracy": last_third(accuracies),
        "mean_accuracy": fmean(accuracies),
        "rounds": len(rows),
        "diverged": measured["diverged"],
        "optimizer_bytes": measured["optimizer_bytes"],
        "history_sha256": hashlib.sha256(history).hexdigest(),
        "settings_sha256": hashlib.sha256(json_text(made).encode()).hexdigest(),
    }
    return sealed(summary)


def last_third(accuracies: Sequence[float]) -> float:
    """The mean over the last third of the rounds: what a run has come to, with less noise than any single round."""
    return fmean(accuracies[-math.ceil(len(accuracies) / 3) :])


def _rows(history: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(history.decode())))


def read(folder: Path) -> Run:
    """The run in a folder; ValueError with the file, what it says and what it should."""
    summary, made = (read_json(folder / name) for name in ("summary.json", "settings.json"))
    path = folder / "history.csv"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; {AGAIN}")
    history = path.read_bytes()
    for key in (*MEASURED, "history_sha256", "settings_sha256", SEAL):
        if key not in summary:
            raise ValueError(f"{folder / 'summary.json'} lacks the key {key!r}; {AGAIN}")
    for file, content in (("history.csv", history), ("settings.json", json_text(made).encode())):
        if hashlib.sha256(content).hexdigest() != summary[f"{Path(file).stem}_sha256"]:
            raise ValueError(f"{folder / file} is not the file that its summary.json was written with; {AGAIN}")
    try:
        expected = _summarise(made, history, summary)
        whole = summary["diverged"] is not None or expected["rounds"] == made["settings"]["rounds"]
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f"{folder} is not what a run leaves ({error!r}); {AGAIN}") from None
    for key, value in expected.items():
        if summary.get(key) != value:
            says = f"{key} is {summary.get(key)!r}, but history.csv and settings.json make it {value!r}"
            raise ValueError(f"{folder / 'summary.json'}: {says}; {AGAIN}")
    if not whole:
        asked = made["settings"]["rounds"]
        raise ValueError(f"{path} has {expected['rounds']} rounds, but settings.json says {asked!r}; {AGAIN}")
    return Run(summary, made, _rows(history))


def differences(made: Any, asked: Json) -> list[str]:
    """Where what was made is not what is asked for: the key, its value, and the value asked for."""
    return [f"{key} is {own!r}, not {value!r}" for key, own, value in _compared(made, asked) if own != value]


def _compared(made: Any, asked: Json) -> Iterator[tuple[str, Any, Any]]:
    made = made if isinstance(made, Mapping) else {}
    for key, value in asked.items():
        own = made.get(key)
        if key in SECTIONS and isinstance(value, Mapping):
            yield from ((f"{key}.{name}", *pair) for name, *pair in _compared(own, value))
        elif not (key in OF_IMAGES and own is None):  # text has none of these
            yield key, own, value


def sealed(content: Json) -> dict[str, Any]:
    """The content with a hash of all of it: a value that was changed without the hash is noticed."""
    own = {key: value for key, value in content.items() if key != SEAL}
    return {**own, SEAL: hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()}


def file_sha256(path: Path) -> str | None:
    """None where the file is not there."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is not there; {AGAIN}") from None
    except ValueError as error:  # not JSON, or not even text
        raise ValueError(f"{path} is not whole ({error}); {AGAIN}") from None
    return content
