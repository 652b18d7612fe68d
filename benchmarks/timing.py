"""Times steps that take turns, so that whatever else the machine does hits all of them alike.

A turn is some untimed steps, which bring caches and threads back, and as many timed ones.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import Progress

Step = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    seconds: float
    """That each competitor may take in all, its fewest rounds permitting."""
    fewest: int
    most: int
    turn_seconds: float = 0.005
    """Shorter steps are repeated until a turn takes this long."""
    patience: float = 60.0
    """After so many seconds no other round begins, however busy the machine is."""


FULL = Plan(seconds=6.0, fewest=9, most=100)
QUICK = Plan(seconds=0.3, fewest=3, most=20, patience=5.0)


class Times:
    """Seconds per step of every competitor by round; NaN where a slow one sat a round out."""

    def __init__(self, rounds: dict[str, np.ndarray]) -> None:
        self.rounds = rounds

    def milliseconds(self, name: str) -> tuple[float, float, float]:
        """Median, 10th and 90th percentile."""
        median, low, high = np.nanpercentile(self.rounds[name], [50, 10, 90]) * 1e3
        return float(median), float(low), float(high)

    def ratio(self, name: str, other: str) -> float:
        """The median over rounds of the ratio within a round: what slows a whole round down cancels out."""
        return float(np.nanmedian(self.rounds[name] / self.rounds[other]))

    def count(self, *names: str) -> int:
        """Rounds in which all of these took part."""
        return int(np.isfinite(sum(self.rounds[name] for name in names)).sum())


class OtherWork:
    """How many cores were busy with something that this process did not do, since this was made. Linux only."""

    def __init__(self) -> None:
        self.began, self.others = time.monotonic(), self._others()

    @staticmethod
    def _others() -> float:
        try:
            line = Path("/proc/stat").read_text().splitlines()[0]
        except OSError:
            return math.nan
        user, nice, system, _, _, irq, softirq, steal = (int(field) for field in line.split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return busy - sum(os.times()[:4])

    def cores(self) -> float:
        return (self._others() - self.others) / (time.monotonic() - self.began)


def seconds_per_step(step: Step, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - begin) / repeats


def take_turns(title: str, steps: Mapping[str, Step], plan: Plan) -> Times:
    """Measure round-robin. The first, which others are compared with, is in every round; slow ones are in some."""
    for step in steps.values():
        step()  # states are made, code is compiled
    rough = {name: min(seconds_per_step(step, 1) for _ in range(5)) for name, step in steps.items()}
    repeats = {name: max(1, round(plan.turn_seconds / seconds)) for name, seconds in rough.items()}
    cost = {name: 2 * repeats[name] * rough[name] for name in steps}
    turns = {name: int(np.clip(plan.seconds / cost[name], plan.fewest, plan.most)) for name in steps}
    rounds = turns[next(iter(steps))] = max(turns.values())
    total = sum(cost[name] * turns[name] for name in steps)
    progress = Progress(title, total, min(total, plan.patience), plan.patience)
    times = {name: np.full(rounds, np.nan) for name in steps}
    latest = time.monotonic() + plan.patience
    for number in range(rounds):
        if number and time.monotonic() > latest:
            break
        for name, step in steps.items():
            if number * turns[name] % rounds >= turns[name]:
                continue
            seconds_per_step(step, repeats[name])
            times[name][number] = seconds_per_step(step, repeats[name])
            progress.advance(cost[name])
    return Times(times)
