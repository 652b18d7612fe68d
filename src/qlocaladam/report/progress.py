"""What the workflow says while it runs: training runs finished and in all, on which data, and the time left."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from qlocaladam.federated.progress import PlannedRun, duration

TRAINING = "training_run"
"""The rule that is counted. In a workflow that has this one as a module something may stand before its name."""
LOG_LINES = 5
"""Of a failed job's log that are shown at once."""
FULL = 2**16
"""Bytes left on a disk below which a log may lack its end."""
STATUS = re.compile(r"SLURM status is: '(\w+)'")
"""In what the SLURM plugin says of a job that failed, among advice."""

REPLACED = {"run_info", "job_started", "job_finished", "progress"}
"""Events of which Snakemake writes several lines a job, and this module one a training run."""


def listen(
    logger: logging.Logger, quiet: bool, runs: Mapping[str, PlannedRun], lacking: Iterable[str], data: str
) -> TrainingProgress:
    """Write progress, and where Snakemake was told to be quiet, take from its screen the lines that this replaces."""
    for handler in logger.handlers:
        if isinstance(handler, TrainingProgress):
            return handler
    if quiet:
        for handler in logger.handlers:
            handler.addFilter(_is_not_replaced)
    progress = TrainingProgress(runs, lacking, data)
    logger.addHandler(progress)
    return progress


def _is_not_replaced(record: logging.LogRecord) -> bool:
    return str(getattr(record, "event", "")) not in REPLACED and record.getMessage() != "Select jobs to execute..."


class TrainingProgress(logging.Handler):
    """Listens to Snakemake's events; writes what is to do, each training run that ends, and each job that fails.

    `runs` has all that may be trained by their names, `lacking` the names of those that are missing or outdated, and
    `data` says what they are trained on.
    """

    def __init__(
        self,
        runs: Mapping[str, PlannedRun],
        lacking: Iterable[str],
        data: str,
        screen: TextIO = sys.stderr,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.runs, self.data, self.screen, self.clock = runs, data, screen, clock
        self.planned: dict[str, int] = {}
        self.total = self.trained = 0
        self.done: dict[str, int] = defaultdict(int)
        self.failed: set[int] = set()
        self.running: dict[int, tuple[str, PlannedRun | None, float]] = {}
        self.times: list[tuple[str, PlannedRun | None, float]] = []
        self.waiting = set(lacking)
        self.begun, self.first = self.clock(), 0.0
        self.abreast = 1
        self.queued = False
        """Whether jobs wait for a cluster, so that those that were started need not be running."""

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
        if self.planned:
            return
        self.planned = {rule: count for rule, count in record.stats.items() if rule not in ("total", "all")}
        rules = sorted(self.planned.items(), key=lambda item: -item[1])
        self._write("to do: " + ", ".join(f"{count} {rule}" for rule, count in rules))
        self.total = sum(count for rule, count in self.planned.items() if rule.endswith(TRAINING))
        if self.total:
            self._write(f"data: {self.data}")

    def since_start(self) -> str:
        return duration(self.clock() - self.begun)

    def _started(self, record: Any) -> None:
        run = None
        if record.rule_name.endswith(TRAINING):
            name = dict(record.wildcards)["run"]
            run = self.runs[name]
            self.waiting.discard(name)
            self.first = self.first or self.clock()
        self.failed.discard(record.jobid)  # tried again
        self.running[record.jobid] = (record.rule_name, run, self.clock())
        self.abreast = max(self.abreast, len(self.running))

    def _finished(self, record: Any) -> None:
        if record.job_id not in self.running:
            return
        rule, run, start = self.running.pop(record.job_id)
        self.done[rule] += 1
        seconds = self.clock() - start
        self.times.append((rule, run, seconds))
        if run is None:
            return
        self.trained += 1
        failed = len(self.failed)
        counts = f"{self.trained} of {self.total} training runs finished" + f", {failed} failed" * bool(failed)
        self._write(f"{counts}, about {duration(self._left())} left ({run.name}: {duration(seconds)})")

    def _left(self) -> float:
        """Seconds until the end: by the times of jobs like those that are left, as many abreast as there have been."""
        training = [run for _, run, _ in self.running.values() if run]
        count = self.total - self.trained - len(self.failed) - len(training)
        # Where some that are not there are not asked for, the average is that of all.
        waiting = fmean(self._expected(self.runs[name]) for name in self.waiting) * count if self.waiting else 0.0
        if self.queued:
            done = sum(self._expected(run) for _, run, _ in self.times if run)
            return (self.clock() - self.first) * (waiting + sum(map(self._expected, training))) / done
        now = [
            (self._expected(run) if run else self._usual(rule)) - (self.clock() - start)
            for rule, run, start in self.running.values()
        ]
        started = [rule for rule, _, _ in self.running.values()]
        others = sum(
            self._usual(rule) * (count - self.done[rule] - started.count(rule))
            for rule, count in self.planned.items()
            if not rule.endswith(TRAINING)
        )
        return max([0.0, *now, (waiting + others + sum(max(0.0, seconds) for seconds in now)) / self.abreast])

    def _expected(self, run: PlannedRun) -> float:
        """Seconds of a run, by its share of work in those of its data and arm, or of its data, or of any."""
        made = [(other, seconds) for _, other, seconds in self.times if other]
        alike = [(other, seconds) for other, seconds in made if other.dataset == run.dataset] or made
        alike = [(other, seconds) for other, seconds in alike if other.arm == run.arm] or alike
        return fmean(seconds / other.work for other, seconds in alike) * run.work

    def _usual(self, rule: str) -> float:
        """Seconds of a job that does not train, by those of its rule, or of any."""
        others = [(other, seconds) for other, run, seconds in self.times if not run]
        alike = [seconds for other, seconds in others if other == rule] or [seconds for _, seconds in others]
        return fmean(alike) if alike else 0.0

    def _failed(self, record: Any) -> None:
        """Any rule's failure: what it was, where its log is, and the end of that log."""
        _, run, _ = self.running.pop(record.jobid, ("", None, 0.0))
        name = run.name if run else ", ".join(record.output)
        logs = [Path(str(path)) for path in record.log]
        if record.rule_name.endswith(TRAINING):
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
    message = (record.rule_msg or "").partition("\n")[0]
    status = STATUS.search(message)
    return f": {status[1] if status else message}" if message else ""


def _end_of(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LOG_LINES:]
