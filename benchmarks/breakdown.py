"""Where the time of a fused Q-LocalAdam step goes: arithmetic, memory, threads, Python.

Arithmetic is a tensor small enough to stay in the cache, Python as many tensors with one value each, and memory what
the model takes beyond both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.competitors import COMPETITORS, Q_LOCALADAM, parameters
from benchmarks.footprint import Shapes
from benchmarks.report import Table
from benchmarks.timing import Plan, Step, take_turns

BLOCK = 64
CACHED_VALUES = 2**17
BYTES_MOVED = 16.5
"""A value: parameter read and written, gradient read, two codes and their share of two ranges read and written."""

COLUMNS: dict[str, Callable[[Any], str]] = {
    "what": str,
    "threads": str,
    "values": "{:,}".format,
    "ms per step": lambda ms: f"{ms:.3f}",
    "ns per block of 64": lambda ns: f"{ns:.1f}",
    "GB/s": lambda rate: f"{rate:.1f}",
}


def _with_threads(step: Step, threads: int) -> Step:
    def stepped() -> None:
        torch.set_num_threads(threads)
        step()

    return stepped


def _copy(values: int) -> Step:
    """Copies half as many bytes as a step moves: each is read and written."""
    source = torch.zeros(int(values * BYTES_MOVED / 2), dtype=torch.uint8)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def _cases(shapes: Shapes) -> dict[str, tuple[Step, int]]:
    """What is measured, and of how many values. Python's share of a case follows it."""
    make = COMPETITORS[Q_LOCALADAM].make
    values = sum(math.prod(shape) for shape in shapes)
    return {
        "the model": (make(parameters(shapes)).step, values),
        f"{len(shapes)} tensors of one value": (make(parameters([[1]] * len(shapes))).step, len(shapes)),
        "a tensor that stays in the cache": (make(parameters([[CACHED_VALUES]])).step, CACHED_VALUES),
        "1 tensor of one value": (make(parameters([[1]])).step, 1),
        "plain copy of as many bytes as the model's": (_copy(values), values),
    }


def table(shapes: Shapes, plan: Plan) -> Table:
    title = "Where the time of a fused Q-LocalAdam step goes, CIFAR-100, 11.2 M"
    if why := COMPETITORS[Q_LOCALADAM].absent():
        return Table(title, COLUMNS, [], [f"Not measured: {why}."])
    cases, everyone = _cases(shapes), torch.get_num_threads()
    counts = sorted({1, everyone})
    steps = {(what, threads): _with_threads(step, threads) for threads in counts for what, (step, _) in cases.items()}
    try:
        times = take_turns("where the time goes", {f"{w}, {t}": step for (w, t), step in steps.items()}, plan)
    finally:
        torch.set_num_threads(everyone)
    rows, notes = [], ["ns per block: without Python's share, which is a step on as many tensors of one value."]
    for threads in counts:
        ms = {what: times.milliseconds(f"{what}, {threads}")[0] for what in cases}
        part = [{"what": w, "threads": threads, "values": cases[w][1], "ms per step": ms[w]} for w in cases]
        notes.append(_fill(*part))
        rows += part
    return Table(title, COLUMNS, rows, notes)


def _fill(
    model: dict[str, Any],
    python: dict[str, Any],
    cached: dict[str, Any],
    python_of_one: dict[str, Any],
    copy: dict[str, Any],
) -> str:
    """Put in what follows from the times, and say it in a sentence."""
    for row, overhead in ((model, python["ms per step"]), (cached, python_of_one["ms per step"]), (copy, 0.0)):
        ms = row["ms per step"] - overhead
        row["GB/s"] = row["values"] * BYTES_MOVED / ms / 1e6
        if row is not copy:
            row["ns per block of 64"] = ms * 1e6 * BLOCK / row["values"]
    total, overhead = model["ms per step"], python["ms per step"]
    arithmetic = cached["ns per block of 64"] * model["values"] / BLOCK / 1e6
    return (
        f"{model['threads']} thread(s): {total:.1f} ms = {arithmetic:.1f} arithmetic, at the speed of the cache "
        f"+ {overhead:.1f} Python + {total - arithmetic - overhead:.1f} memory and everything else."
    )
