"""Tables for the terminal, Markdown and JSON, what machine they were measured on, and progress on stderr.

Numbers stay numbers until they are printed: the JSON has all their digits.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).with_name("results")
PATIENCE = 10.0
"""Seconds that may pass without a word."""


@dataclass(frozen=True)
class Table:
    """Rows by column, and what a reader must know to read them. Text in place of a number is printed as it is."""

    title: str
    columns: dict[str, Callable[[Any], str]]
    """How the numbers of each column are printed."""
    rows: Sequence[dict[str, Any]]
    notes: Sequence[str] = ()

    def cells(self) -> list[list[str]]:
        def cell(value: Any, form: Callable[[Any], str]) -> str:
            if value is None:
                return "-"
            return value if isinstance(value, str) else form(value)

        return [list(self.columns)] + [[cell(r.get(c), form) for c, form in self.columns.items()] for r in self.rows]

    def _numeric(self) -> list[bool]:
        return [any(isinstance(r.get(c), int | float) for r in self.rows) for c in self.columns]

    def text(self) -> str:
        cells, numeric = self.cells(), self._numeric()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(f"{c:{'>' if n else '<'}{w}}" for c, n, w in zip(line, numeric, widths, strict=True)).rstrip()
            for line in cells
        ]
        return "\n".join(
            [self.title, "", lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:], *self._tail()]
        )

    def markdown(self) -> str:
        cells, numeric = self.cells(), self._numeric()
        rule = ["---:" if n else "---" for n in numeric]
        lines = [f"| {' | '.join(line)} |" for line in (cells[0], rule, *cells[1:])]
        return "\n".join([f"## {self.title}", "", *lines, "", *(f"- {note}" for note in self.notes)])

    def _tail(self) -> list[str]:
        return ["", *self.notes] if self.notes else []


def save(suite: str, tables: Sequence[Table], machine: dict[str, Any], quick: bool) -> list[str]:
    """Write the tables as Markdown and JSON; the names of the files. A smoke run does not replace a full one."""
    RESULTS.mkdir(exist_ok=True)
    name = f"{suite}-quick" if quick else suite
    facts = "\n".join(f"- {what}: {fact}" for what, fact in machine.items())
    content = {
        "machine": machine,
        "tables": [{"title": table.title, "rows": table.rows, "notes": table.notes} for table in tables],
    }
    files = {
        f"{name}.md": f"# {suite}\n\n{facts}\n\n" + "\n\n".join(table.markdown() for table in tables) + "\n",
        f"{name}.json": json.dumps(content, indent=2) + "\n",
    }
    for file, text in files.items():
        temporary = RESULTS / f".{file}"
        temporary.write_text(text)
        temporary.replace(RESULTS / file)
    return [f"benchmarks/results/{file}" for file in files]


def machine() -> dict[str, Any]:
    """What the numbers depend on: no names, no dates."""
    packages = {name: _version(name) for name in ("torch", "torchao", "bitsandbytes", "numpy")}
    return {
        "CPU": _cpu(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "compiler": _compiler_version(),
        "Python": platform.python_version(),
        **packages,
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def compiler() -> str:
    """The C compiler that building a Python extension would call."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def _compiler_version() -> str:
    try:
        found = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return found.stdout.splitlines()[0]


class Progress:
    """How far `work` is and how long the rest will take, on stderr, once it has taken or will take 10 seconds.

    After `limit` seconds the work is ended, done or not.
    """

    def __init__(self, title: str, work: float, expected_seconds: float = 0.0, limit: float = math.inf) -> None:
        self.title, self.work, self.done, self.limit = title, work, 0.0, limit
        self.started = self.said = time.monotonic()
        if expected_seconds > PATIENCE:
            self._say(f"about {expected_seconds:.0f} s")

    def advance(self, work: float) -> None:
        self.done += work
        now = time.monotonic()
        # Less than a twentieth says too little about the rest.
        if now - self.said >= PATIENCE and self.work / 20 < self.done < self.work:
            spent = now - self.started
            left = max(0.0, min(spent * (self.work / self.done - 1), self.limit - spent))
            self._say(f"{self.done / self.work:.0%}, about {left:.0f} s left")

    def _say(self, what: str) -> None:
        print(f"{self.title}: {what}", file=sys.stderr, flush=True)
        self.said = time.monotonic()
