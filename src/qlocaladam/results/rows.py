"""What goes into a table: runs that differ only in their seed are one result; analyses are rows of text."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.experiments.grid import GRID, as_list, text, typed
from qlocaladam.experiments.runs import METRICS, collapsed
from qlocaladam.files import table_rows

Spec = Mapping[str, Any]
Files = Mapping[str, Path]
Row = dict[str, Any]


def trained(spec: Spec, runs: pd.DataFrame | None) -> pd.DataFrame:
    if runs is None or runs.empty:
        raise ValueError(f"table {spec['name']}: kind {spec['kind']!r} needs training runs, got none")
    return runs.drop_duplicates(list(GRID))


def summarised(spec: Spec, runs: pd.DataFrame, files: Files, keys: Sequence[str]) -> list[Row]:
    """One result for each data set and value of the keys, in the order of the runs, also where there is no run."""
    names, asked = ["dataset", *keys], places_asked(spec, runs)
    by_place = {place: table_rows(same) for place, same in runs.groupby(names, sort=False)}
    sizes = {_memory_key(row): row for row in read(files["memory"])} if "memory" in files else {}
    places = itertools.product(*(asked[name].unique() for name in names))
    results = [_result(spec, dict(zip(names, p, strict=True)), by_place.get(p, []), sizes) for p in places]
    count_missing(spec, results, names)
    for _, rows in grouped(results, *names[:-1]):
        for row in rows:
            row["difference"] = row["best"] - rows[0]["best"]
    return results


def places_asked(spec: Spec, runs: pd.DataFrame) -> pd.DataFrame:
    """The places of all runs that the configuration asks for: those of the runs, unless some are missing."""
    if "places" not in spec:
        return runs
    return pd.DataFrame([typed(place) for place in spec["places"]])


def count_missing(spec: Spec, rows: Iterable[Row], names: list[str]) -> None:
    """Where runs are missing, how many of each row."""
    if "places" in spec:
        wanted = Counter(tuple(str(place[name]) for name in names) for place in spec["places"])
        for row in rows:
            row["missing"] = wanted[tuple(str(row[name]) for name in names)] - int(row["runs"] or 0)


def _result(spec: Spec, place: Row, runs: list[Row], sizes: Mapping[tuple[str, ...], Row]) -> Row:
    if not runs:
        return {**place, "runs": 0, **dict.fromkeys((*METRICS, "memory_bytes"), math.nan)}
    _check_only_seeds_differ(spec, place, runs)
    run, accuracies = runs[0], pd.DataFrame(runs)[list(METRICS)].astype(float)
    mean, deviation = accuracies.mean(skipna=False), accuracies.std(ddof=1, skipna=False)
    paper = sizes.get(_memory_key(run), {})
    return {
        **{name: run[name] for name in GRID if name != "seed"},
        **place,
        "runs": len(runs),
        "seeds": " ".join(str(run["seed"]) for run in runs),
        **{name: mean[name] for name in METRICS},
        **{f"{name}_std": deviation[name] for name in METRICS},
        "best_round": " ".join(str(run["best_round"]) for run in runs),
        "diverged": sum(bool(run["diverged"]) for run in runs),
        "chance": 100 / run["classes"],
        "collapsed": bool(collapsed(pd.DataFrame(runs)).any()),
        **{name: run[name] for name in ("parameters", "held_bytes", "published_bytes")},
        **{f"paper_{name}": paper.get(name) for name in ("parameters", "held_bytes", "published_bytes")},
        "memory_bytes": int((paper or run)["published_bytes"]),
    }


def _check_only_seeds_differ(spec: Spec, place: Row, runs: list[Row]) -> None:
    for name in GRID[:-1]:
        values = unique(str(run[name]) for run in runs)
        if len(values) > 1:
            where = ", ".join(f"{key}={value}" for key, value in place.items())
            raise ValueError(
                f"table {spec['name']}: {name} is {', '.join(values)} in the one row for {where}; "
                f"runs of a row may differ in their seed only: choose one {name} with `where`, or rows: {name}"
            )


def _memory_key(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["arm"], str(row["block_size"])


def place(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["alpha"], row["arm"]


def read(path: Path) -> list[Row]:
    """The rows of an analysis, as text: an alpha may be a word, and numbers stay as they were written."""
    rows: list[Row] = table_rows(pd.read_csv(path, dtype=str, keep_default_na=False))
    return rows


def analysed(spec: Spec, files: Files, name: str) -> list[Row]:
    """The rows of an analysis that `where` selects."""
    rows = read(files[name])
    columns = list(rows[0]) if rows else []
    for key, wanted in spec.get("where", {}).items():
        known(spec, "where", key, columns)
        accepted = {word for value in as_list(wanted) for word in (str(value), text(value))}
        rows = [row for row in rows if row[key] in accepted]
    if not rows:
        raise ValueError(f"table {spec['name']}: where {dict(spec.get('where', {}))} selects no row of {files[name]}")
    return rows


def client_analysis(spec: Spec, files: Files, name: str, **where: str) -> Iterator[tuple[str, list[Row], Row]]:
    """Of each data set of an entry: the rows of an analysis of a client, of the arms that `where` names, and what its
    summary says."""
    chosen = {**spec, "where": {"arm": spec["where"]["arm"], **where}}
    for dataset in as_list(spec["where"]["dataset"]):
        summary = json.loads(files[f"summary.{dataset}"].read_text())
        yield dataset, analysed(chosen, files, f"{name}.{dataset}"), summary


def as_number(cell: object) -> float:
    return math.nan if cell in ("", None) else float(str(cell))


def frame(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, dtype=object)  # whole numbers stay whole beside cells that are empty


def grouped(rows: Iterable[Row], *names: str) -> list[tuple[Any, list[Row]]]:
    """Rows by what these columns hold, in order of appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        groups.setdefault(key, []).append(row)
    return list(groups.items())


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def known(spec: Spec, key: str, value: str, accepted: Collection[str]) -> str:
    if value not in accepted:
        raise ValueError(f"table {spec['name']}: {key} must be one of {', '.join(accepted)}, got {value!r}")
    return value
