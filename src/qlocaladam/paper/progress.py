"""What the workflow says while it runs: training runs finished and in all, and the time left."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from qlocaladam.federated.progress import duration
from qlocaladam.paper.grid import place, short_name

TRAINING = "training_run"
"""The rule that is counted."""
LOG_LINES = 5
"""Of a failed job's log that are shown at once."""
FULL = 2**16
"""Bytes left on a disk below which a log may lack its end."""
STATUS = re.compile(r"SLURM status is: '(\w+)'")
"""In what the SLURM plugin says of a job that failed, among advice."""

REPLACED = {"run_info", "job_started", "job_finished", "progress"}
"""Events of which Snakemake writes several lines a job, and this module one a training run."""


def listen(logger: logging.Logger, quiet: bool) -> TrainingProgress:
    """Write progress, and where Snakemake was told to be quiet, take from its screen the lines that this replaces."""
    for handler in logger.handlers:
        if isinstance(handler, TrainingProgress):
            return handler
    if quiet:
        for handler in logger.handlers:
            handler.addFilter(_is_not_replaced)
    progress = TrainingProgress()
    logger.addHandler(progress)
    return progress


def _is_not_replaced(record: logging.LogRecord) -> bool:
    return str(getattr(record, "event", "")) not in REPLACED and record.getMessage() != "Select jobs to execute..."


class TrainingProgress(logging.Handler):
    """Listens to Snakemake's events; writes what is to do, each training run that ends, and each job that fails."""

    def __init__(self, screen: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.screen, self.clock = screen, clock
        self.planned: dict[str, int] = {}
        self.total = self.done = 0
        self.failed: set[int] = set()
        self.running: dict[int, tuple[str, float]] = {}
        self.first = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            handle = {
                "run_info": self._planned,
                "job_info": self._started,
                "job_finished": self._finished,
                "job_error": self._failed,
            }.get(str(getattr(record, "event", "")))
            if handle:
                handle(record)
        except Exception:  # a line less must never stop a run
            self.handleError(record)

    def _planned(self, record: Any) -> None:
        if not self.planned:
            self.planned = {rule: count for rule, count in record.stats.items() if rule not in ("total", "all")}
            self.total = self.planned.get(TRAINING, 0)
            rules = sorted(self.planned.items(), key=lambda item: -item[1])
            self._write("to do: " + ", ".join(f"{count} {rule}" for rule, count in rules))

    def _started(self, record: Any) -> None:
        if record.rule_name != TRAINING:
            return
        self.first = self.first or self.clock()
        self.failed.discard(record.jobid)  # tried again
        name = short_name(place(Path(dict(record.wildcards)["run"]))).replace("/", " ")
        self.running[record.jobid] = (name, self.clock())

    def _finished(self, record: Any) -> None:
        if record.job_id not in self.running:
            return
        name, start = self.running.pop(record.job_id)
        self.done += 1
        failed = len(self.failed)
        left = (self.clock() - self.first) / self.done * (self.total - self.done - failed)
        counts = f"{self.done} of {self.total} training runs finished" + f", {failed} failed" * bool(failed)
        self._write(f"{counts}, {duration(left)} left ({name}: {duration(self.clock() - start)})")

    def _failed(self, record: Any) -> None:
        """Any rule's failure: what it was, where its log is, and the end of that log."""
        name, _ = self.running.pop(record.jobid, (", ".join(record.output), 0.0))
        logs = [Path(str(path)) for path in record.log]
        if record.rule_name == TRAINING:
            self.failed.add(record.jobid)
        ends = [line for path in logs if path.exists() for line in _end_of(path)]
        if any(path.exists() and shutil.disk_usage(path).free < FULL for path in logs):
            ends.append("the disk is full: free some space and run snakemake again, nothing that was saved is lost")
        where = " ".join(map(str, logs)) or "none"
        self._write("\n  ".join([f"FAILED: {record.rule_name} {name}{_reason(record)}; its log is {where}", *ends]))

    def _write(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=self.screen, flush=True)


def _reason(record: Any) -> str:
    """What the executor says of it, if anything: for a job that SLURM ended, its status, such as TIMEOUT."""
    told = (record.rule_msg or "").partition("\n")[0]
    status = STATUS.search(told)
    return f": {status[1] if status else told}" if told else ""


def _end_of(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LOG_LINES:]
