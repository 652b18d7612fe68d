"""Cells of tables: one of each row of a group, because what is bold depends on the others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from qlocaladam.experiments.runs import METRICS
from qlocaladam.results.latex import BREAK, NONE, Column, bold, marked, power_of_ten, signed
from qlocaladam.results.rows import Row, as_number

HEADS = {
    "best": rf"Best acc.{BREAK}(\%)",
    "final": rf"Final acc.{BREAK}(\%)",
    "last_third": rf"Last third{BREAK}(\%)",
    "mean": rf"All rounds{BREAK}(\%)",
    "memory": rf"Opt. mem.{BREAK}(MB)",
    "bytes": rf"State bytes{BREAK}a parameter",
    "difference": rf"Difference{BREAK}(pp)",
}
ERRORS = {
    "median": Column("Median", over="Error (learning rates)"),
    "p99": Column(rf"99th{BREAK}perc.", over="Error (learning rates)"),
    "max": Column("Largest", over="Error (learning rates)"),
}
"""Columns of how far steps are off."""


def fixed(value: float, digits: int = 2) -> str:
    return NONE if math.isnan(value) else f"{value:.{digits}f}"


def _extreme(values: Sequence[float], choose: Callable[[Iterable[float]], float]) -> list[int]:
    """Where the highest or lowest stand, as printed; nowhere if all are equal: there is nothing to point out."""
    printed = {i: round(value, 2) for i, value in enumerate(values) if not math.isnan(value)}
    if len(set(printed.values())) < 2:
        return []
    extreme = choose(printed.values())
    return [i for i, value in printed.items() if value == extreme]


def accuracies(rows: Sequence[Row], name: str = "best") -> list[str]:
    """Mean and, of several runs, deviation; the highest is bold."""
    highest = _extreme([row[name] for row in rows], max)
    deviations = [row.get(f"{name}_std", math.nan) for row in rows]
    spreads = ["" if math.isnan(deviation) else rf"$\pm${deviation:.2f}" for deviation in deviations]
    return [bold(fixed(row[name]) + spreads[i], i in highest) for i, row in enumerate(rows)]


def means(rows: Sequence[Row], name: str) -> list[str]:
    """Without deviations, for which there is no room where a metric is not the one that counts."""
    return accuracies([{name: row[name]} for row in rows], name)


def metrics(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Every metric of these rows; the first has marks and deviations."""
    yield flagged(accuracies(rows, METRICS[0]), rows)
    yield from (means(rows, name) for name in METRICS[1:])


def flagged(cells: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """With marks where an arm collapsed or diverged, or where runs are missing."""
    flags = [
        "c" * bool(row.get("collapsed")) + "d" * bool(row.get("diverged")) + "m" * bool(row.get("missing"))
        for row in rows
    ]
    return list(itertools.starmap(marked, zip(cells, flags, strict=True)))


def memories(rows: Sequence[Row]) -> list[str]:
    """The lowest is bold; of several that share it, the most accurate."""
    megabytes = [row["memory_bytes"] / 1e6 for row in rows]
    # A model that was trained here is not compared with the paper's.
    own = all(map(measured_here, rows))
    compared = [size if own or not measured_here(row) else math.nan for size, row in zip(megabytes, rows, strict=True)]
    lowest = _extreme(compared, min)
    most_accurate = max(lowest, key=lambda i: -math.inf if math.isnan(rows[i]["best"]) else rows[i]["best"], default=-1)
    return [
        marked(bold(fixed(size), i == most_accurate), r"\dagger" if measured_here(row) else "")
        for i, (size, row) in enumerate(zip(megabytes, rows, strict=True))
    ]


def state_bytes(rows: Sequence[Row]) -> list[str]:
    """What the optimizer held of the model that was trained, small tensors that it left in FP32 included."""
    return [fixed(row["held_bytes"] / row["parameters"]) if row["runs"] else NONE for row in rows]


def measured_here(row: Row) -> bool:
    return row["runs"] > 0 and row["paper_published_bytes"] is None


def differences(rows: Sequence[Row]) -> list[str]:
    """Against the first row."""
    return [NONE if not i or math.isnan(row["difference"]) else signed(row["difference"]) for i, row in enumerate(rows)]


CELLS: dict[str, Callable[[Sequence[Row]], list[str]]] = {
    "best": accuracies,
    **{name: partial(accuracies, name=name) for name in METRICS if name != "best"},
    "memory": memories,
    "bytes": state_bytes,
    "difference": differences,
}


def difference_with_interval(row: Row) -> str:
    difference, low, high = (as_number(row[name]) for name in ("difference", "ci_low", "ci_high"))
    if math.isnan(difference):
        return NONE
    return signed(difference) + ("" if math.isnan(low) else f" [{signed(low)}, {signed(high)}]")


def interval(row: Row, name: str) -> str:
    low, high = (as_number(row[f"{name}_{end}"]) for end in ("low", "high"))
    return NONE if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"


def p_text(p: float) -> str:
    if math.isnan(p):
        return NONE
    return "$<$0.001" if p < 0.001 else f"{p:.3f}"


def two_digits(value: float) -> str:
    rounded = float(f"{value:.1e}")
    if rounded == 0:
        return "0"
    if not 1e-3 <= rounded < 1e3:
        return power_of_ten(rounded)
    return f"{rounded:.{max(0, 1 - math.floor(math.log10(rounded)))}f}"
