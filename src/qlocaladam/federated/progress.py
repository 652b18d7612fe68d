"""What a run says while it runs: one line that renews itself on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from typing import NamedTuple, TextIO

NO_KERNEL = (
    "The compiled kernel is not there: the same updates run in torch operations, many times slower and rounded "
    "otherwise. Where a C compiler is, `pip install .` builds it (`make .venv/development` in the project)."
)


def duration(seconds: float) -> str:
    """Seconds as people write them: 42s, 3m 05s, 2h 07m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


class PlannedRun(NamedTuple):
    """What is known of a training run before it starts."""

    name: str
    """In words, for people."""
    dataset: str
    arm: str
    work: float
    """Samples that it trains on in all its rounds and epochs."""


class Progress:
    """Rounds done, accuracy, speed and time left, to a log file and to whoever watches."""

    def __init__(self, log: TextIO, rounds: int, done: int = 0, screen: TextIO = sys.stderr) -> None:
        self.log, self.screen, self.rounds = log, screen, rounds
        self.first, self.start = done, time.monotonic()
        self.renewing = False

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(text, stays=True)

    def round(self, done: int, accuracy: float, loss: float | None, images_per_second: float) -> None:
        left = (time.monotonic() - self.start) / (done - self.first) * (self.rounds - done)
        trained = "-" if loss is None else f"{loss:.4f}"
        self._write(
            f"round {done}/{self.rounds}  accuracy {accuracy:.2f} %  training loss {trained}  "
            f"{images_per_second:.0f} images/s  {duration(left)} left",
            stays=done == self.rounds,
        )

    def _write(self, text: str, stays: bool) -> None:
        print(text, file=self.log, flush=True)
        if self.screen.isatty():
            end = "\n" if stays else ""
            print(f"\r\x1b[K{text}" if self.renewing or not stays else text, end=end, file=self.screen, flush=True)
            self.renewing = not stays
        else:
            print(text, file=self.screen, flush=True)
