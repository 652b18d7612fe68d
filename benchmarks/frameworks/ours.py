"""A run of ours with a stopwatch: `python -m benchmarks.frameworks.ours BEGIN OUT UNTIL train ...`.

BEGIN is when the process was started, UNTIL is `batch`, the first batch trained, or `end`. OUT gets how many seconds
each step took and the most memory that was resident, which the system keeps by process from its start.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


class _FirstBatch(Exception):
    """The first batch has been trained."""


class Stopwatch:
    """Seconds of each step, one after the other."""

    def __init__(self, begin: float) -> None:
        self.last, self.steps = begin, {}

    def lap(self, step: str) -> None:
        now = time.time()
        self.steps[step], self.last = now - self.last, now


def _stop_after_first_step(stopwatch: Stopwatch) -> None:
    from qlocaladam.federated import rounds
    from qlocaladam.optim import QLocalAdam

    step, train_client = QLocalAdam.step, rounds.train_client

    def first_step(self: QLocalAdam, *arguments: Any) -> None:
        step(self, *arguments)
        stopwatch.lap("first batch")
        raise _FirstBatch

    def first_client(*arguments: Any) -> Any:
        stopwatch.lap("read data, make model")
        return train_client(*arguments)

    QLocalAdam.step, rounds.train_client = first_step, first_client  # type: ignore[method-assign, assignment]


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main(begin: str, out: str, until: str, arguments: Sequence[str]) -> None:
    stopwatch = Stopwatch(float(begin))
    stopwatch.lap("start Python")
    import torch  # noqa: F401

    stopwatch.lap("import torch")
    import qlocaladam.federated.run  # noqa: F401
    from qlocaladam import cli

    stopwatch.lap("import qlocaladam")
    if until == "batch":
        _stop_after_first_step(stopwatch)
    with suppress(_FirstBatch):
        cli.main(arguments)
    Path(out).write_text(json.dumps({"steps": stopwatch.steps, "peak": _peak()}))


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4:])
