"""Whole processes side by side: how long until the last one ends, and the memory of all of them at its highest.

Every 50 ms the resident memory (RSS) of the processes and of all that they started is summed up. Shared pages count in
each of them there, so whenever that sum has grown, the proportional memory (PSS) is read too, which takes longer.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
INTERVAL = 0.05
GROWTH = 1.01
LOOKS = 20
MARK = "QLOCALADAM_BENCHMARK"
"""An environment variable that children inherit: it finds daemons too, which are nobody's children any more."""


class CannotRun(Exception):
    """A process ended with an error; the message is its last line."""


@dataclass(frozen=True)
class Command:
    """Arguments of this Python, and what its environment has besides ours."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Usage:
    """What a group of processes took."""

    seconds: float
    rss: int
    pss: int
    processes: int
    """The most at a time."""


class _Family:
    """The processes that carry a mark, now."""

    def __init__(self, mark: str) -> None:
        self.mark = f"{MARK}={mark}".encode()
        self.looks: dict[str, int] = {}
        """How often a process was looked at without finding the mark."""
        self.pids: set[str] = set()

    def members(self) -> list[str]:
        pids = {name for name in os.listdir("/proc") if name.isdigit()}
        self.pids &= pids
        self.looks = {pid: looks for pid, looks in self.looks.items() if pid in pids}
        for pid in pids - self.pids:
            # A process that is just starting has no environment yet, so one look is not enough.
            if self.looks.get(pid, 0) < LOOKS:
                if self._belongs(pid):
                    self.pids.add(pid)
                self.looks[pid] = self.looks.get(pid, 0) + 1
        return sorted(self.pids)

    def _belongs(self, pid: str) -> bool:
        try:
            return self.mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False


def _rss(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # it has just ended
        return 0


def _pss(pid: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def run_together(commands: Sequence[Command], python: str, folder: Path) -> Usage:
    """Start all at once, wait for all; CannotRun if one of them fails. What they print goes to files in `folder`."""
    mark = uuid.uuid4().hex
    family = _Family(mark)
    logs = [folder / f"output-{number}.txt" for number in range(len(commands))]
    begin = time.monotonic()
    started = []
    for command, log in zip(commands, logs, strict=True):
        environment = {**os.environ, **command.environment, MARK: mark}
        with log.open("w") as file:
            arguments = [python, *command.arguments]
            started.append(subprocess.Popen(arguments, cwd=ROOT, env=environment, stdout=file, stderr=file))
    try:
        rss, pss, processes = _watch(started, family)
        seconds = time.monotonic() - begin
    finally:
        for process in started:
            process.kill()
            process.wait()
    for process, log in zip(started, logs, strict=True):
        if process.returncode:
            lines = [line for line in log.read_text().splitlines() if line.strip()]
            raise CannotRun(lines[-1].strip()[:200] if lines else f"ended with {process.returncode}")
    return Usage(seconds, rss, pss, processes)


def _watch(started: Sequence[subprocess.Popen[bytes]], family: _Family) -> tuple[int, int, int]:
    rss = pss = processes = 0
    while any(process.poll() is None for process in started):
        members = family.members()
        now = sum(map(_rss, members))
        if now > GROWTH * rss:
            rss = now
            pss = max(pss, sum(map(_pss, members)))
        processes = max(processes, len(members))
        time.sleep(INTERVAL)
    if processes < len(started):
        raise RuntimeError(f"{len(started)} processes were started, but no more than {processes} were seen")
    return rss, pss, processes
