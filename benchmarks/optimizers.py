"""One optimizer step on the tensors of three ResNet-18: time, state held and temporary memory, beside the peers.

Times come from interleaved rounds in one process (`timing`), memory from processes apart (`footprint`).
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import breakdown
from benchmarks.competitors import (
    BITSANDBYTES,
    COMPETITORS,
    DYNAMIC,
    FP32,
    NORMALISED,
    NORMALISED_4,
    Q_LOCALADAM,
    Q_LOCALADAM_4,
    TORCHAO,
    Competitor,
    parameters,
)
from benchmarks.footprint import CannotRunError, Shapes, build_counter, measure
from benchmarks.report import Progress, Table
from benchmarks.timing import FULL, QUICK, OtherWork, Plan, Step, Times, take_turns
from qlocaladam.federated.peers import quiet
from qlocaladam.models import PAPER_MODELS, ResNet18

NARROW, CIFAR10, CIFAR100 = "narrow, 0.18 M", "CIFAR-10, 6.3 M", "CIFAR-100, 11.2 M"
ONE_THREAD = "CIFAR-100, 11.2 M, one thread"
PARTS: dict[str, dict[str, int]] = {
    NARROW: {"width": 8, "classes": 10},
    CIFAR10: PAPER_MODELS["cifar10"],
    CIFAR100: PAPER_MODELS["cifar100"],
    ONE_THREAD: PAPER_MODELS["cifar100"],
}

COLUMNS: dict[str, Callable[[Any], str]] = {
    "model": str,
    "optimizer": str,
    "ms per step": lambda ms: f"{ms:.2f}",
    "10 to 90 %": lambda ms: f"{ms[0]:.2f} to {ms[1]:.2f}",
    "rounds": str,
    "ratio": lambda ratio: f"{ratio:.2f}",
    "state bytes": "{:,}".format,
    "temporary bytes": "{:,}".format,
}

BUSY = 0.25
"""Cores that may be busy with other work before a time means nothing."""


@dataclass(frozen=True)
class Reach:
    """What the fused kernel should reach: `name` takes at least or at most `limit` times what `other` takes."""

    model: str
    name: str
    other: str
    words: str
    limit: float

    def line(self, times: Mapping[str, Times], others: float) -> str:
        rounds = times[self.model].rounds if self.model in times else {}
        goal = f"{self.name} takes {self.words} {self.limit:g} times the time of {self.other} on {self.model}"
        if self.name not in rounds or self.other not in rounds:
            return f"not measured: {goal}"
        ratio, count = times[self.model].ratio(self.name, self.other), times[self.model].count(self.name, self.other)
        reached = ratio <= self.limit if self.words == "at most" else ratio >= self.limit
        verdict = "reached" if reached else "MISSED"
        if count < FULL.fewest or others > BUSY:
            verdict = "undecided (too few rounds)" if count < FULL.fewest else "undecided (busy machine)"
        return f"{verdict}: {goal}: {ratio:.2f} times"


QUANTIZED = (Q_LOCALADAM, Q_LOCALADAM_4, NORMALISED, NORMALISED_4)
REACHES = (
    *(Reach(CIFAR100, name, FP32, "at most", 0.9) for name in QUANTIZED),
    *(Reach(ONE_THREAD, name, FP32, "at most", 1.3 if name == NORMALISED else 1.15) for name in QUANTIZED),
    *(Reach(NARROW, name, FP32, "at most", 1.0) for name in QUANTIZED),
    Reach(CIFAR100, DYNAMIC, FP32, "at most", 4.0),
    Reach(CIFAR100, TORCHAO, Q_LOCALADAM, "at least", 3.0),
    Reach(CIFAR100, BITSANDBYTES, Q_LOCALADAM, "at least", 15.0),
)


def shapes_of(classes: int, width: int) -> list[list[int]]:
    with torch.device("meta"):
        return [list(param.shape) for param in ResNet18(classes, width).parameters()]


def run(quick: bool, only: Sequence[str] = ()) -> list[Table]:
    """Of all models, or `only` of these: a part that fits into a short time in which the machine is quiet."""
    chosen = list(only) or ([NARROW, CIFAR100, ONE_THREAD] if quick else list(PARTS))
    running = {model: [FP32, *QUANTIZED] if model == ONE_THREAD else list(COMPETITORS) for model in chosen}
    competing = [one for name, one in COMPETITORS.items() if any(name in names for names in running.values())]
    missing = {one.name: why for one in competing if (why := _left_out(one, quick))}
    models = {_sized(model): shapes_of(**PARTS[model]) for model in chosen}
    memory = _footprints([one for one in competing if one.name not in missing], models, missing)
    plan = QUICK if quick else FULL
    other_work = OtherWork()
    with quiet():
        times = {
            model: _timed(model, models[_sized(model)], [name for name in running[model] if name not in missing], plan)
            for model in chosen
        }
        where = [breakdown.table(models[CIFAR100], plan)] if CIFAR100 in chosen else []
    others = other_work.cores()
    rows = [
        _row(model, name, times[model], memory.get((name, _sized(model))))
        for model in chosen
        for name in running[model]
    ]
    notes = [*_reading(others), *(f"{name}: left out. {why}." for name, why in missing.items())]
    if any(found["temporary"] is None for found in memory.values()):
        notes.append("temporary bytes: not measured. Counting them needs Linux, glibc and a C compiler.")
    if any((TORCHAO, model) in memory for model in models):
        notes.append(_compiling(models, memory))
    notes += [reach.line(times, others) for reach in REACHES if reach.model in chosen]
    return [Table("One optimizer step, ResNet-18 of three sizes", COLUMNS, rows, notes), *where]


def _sized(model: str) -> str:
    """The model whose tensors are used: one thread works on the same ones."""
    return CIFAR100 if model == ONE_THREAD else model


def _left_out(competitor: Competitor, quick: bool) -> str | None:
    if why := competitor.absent():
        return why
    return "Compiling for it takes minutes, which --quick does not have" if quick and competitor.compiles else None


def _footprints(
    competitors: Sequence[Competitor], models: Mapping[str, Shapes], missing: dict[str, str]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Memory by optimizer and model. Who cannot run is added to `missing`, with the reason."""
    # A process for each package, so that a peer that fails takes nobody along. Compiling takes by far the longest, so
    # it is first, each model apart.
    jobs = [([one.name], [model]) for one in competitors if one.compiles for model in reversed(list(models))]
    for package in {one.package: None for one in competitors if not one.compiles}:
        jobs.append(([one.name for one in competitors if one.package == package], list(models)))
    threads = torch.get_num_threads()
    progress = Progress("memory, optimizers in processes of their own", len(jobs))
    answers: dict[tuple[str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        counter = build_counter(Path(folder))
        futures = {
            pool.submit(measure, names, [models[model] for model in chosen], threads, counter): (names, chosen)
            for names, chosen in jobs
        }
        for future in as_completed(futures):
            names, chosen = futures[future]
            try:
                answers.update(zip(itertools.product(names, chosen), future.result(), strict=True))
            except CannotRunError as error:
                missing.update(dict.fromkeys(names, f"It could not run: {error}"))
            progress.advance(1)
    return answers


def _timed(model: str, shapes: Shapes, names: Sequence[str], plan: Plan) -> Times:
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if model == ONE_THREAD else threads)
    try:
        steps: dict[str, Step] = {name: COMPETITORS[name].make(parameters(shapes)).step for name in names}
        return take_turns(f"times, {model}", steps, plan)
    finally:
        torch.set_num_threads(threads)


def _row(model: str, name: str, times: Times, memory: dict[str, Any] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"model": model, "optimizer": name}
    if name not in times.rounds or memory is None:
        return {**row, "ms per step": "left out"}
    median, low, high = times.milliseconds(name)
    return {
        **row,
        "ms per step": median,
        "10 to 90 %": (low, high),
        "rounds": times.count(name),
        "ratio": times.ratio(name, FP32),
        "state bytes": memory["state"],
        "temporary bytes": memory["temporary"],
    }


def _reading(others: float) -> list[str]:
    return [
        "ms per step: the median over rounds in which the optimizers take turns; slow ones take part in fewer rounds.",
        f"ratio: to {FP32}, the median of the ratios within a round, which noise of the machine moves least.",
        "state bytes: storages of all tensors in the optimizer's state after a step. torchao and bitsandbytes keep",
        "  tensors below 4,096 values in FP32; ours codes all of them.",
        "temporary bytes: the most that was allocated during a step over what was before it, everything counted: "
        "tensors,",
        "  C and C++ scratch, Python objects.",
        f"Meanwhile other work kept {max(others, 0):.2f} cores busy"
        + (": measure again when the machine is quiet." if others > BUSY else "."),
    ]


def _compiling(models: Mapping[str, Shapes], memory: dict[tuple[str, str], dict[str, Any]]) -> str:
    seconds = ", ".join(f"{memory[TORCHAO, model]['first_step']:.0f} s ({model})" for model in models)
    return (
        f"{TORCHAO} calls torch.compile and a C++ compiler in its first step, which is not in its times: {seconds}. "
        "A minute or more a model means that nothing was compiled before, seconds that torch found it in its cache."
    )
