"""Memory of optimizers, in a process of their own: the state, and the most that one step takes for a moment.

A small library, compiled here and preloaded, counts what malloc and its kin hand out and get back: torch's tensors,
C++'s and the kernel's own allocations, and Python's objects, all to the byte. Resident memory, as Linux reports it,
would do without a compiler, but it is counted in batches and misses whatever is below 128 KiB a core.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import compiler

COUNTER = Path(__file__).with_name("live_bytes.c")
STEPS = 3

Shapes = Sequence[Sequence[int]]


class CannotRunError(Exception):
    """The process ended with an error; the message is its last line."""


def build_counter(folder: Path) -> Path | None:
    """The library to preload, or None where it cannot be had: it needs Linux, glibc and a C compiler."""
    library = folder / "live_bytes.so"
    command = [compiler(), "-O2", "-shared", "-fPIC", "-o", str(library), str(COUNTER)]
    try:
        subprocess.run(command, check=True, capture_output=True)
        subprocess.run(["true"], check=True, capture_output=True, env={**os.environ, "LD_PRELOAD": str(library)})
    except (OSError, subprocess.CalledProcessError):
        return None
    return library if sys.platform == "linux" else None


def measure(names: Sequence[str], models: Sequence[Shapes], threads: int, counter: Path | None) -> list[dict[str, Any]]:
    """For each optimizer and model, in this order: bytes of state and of temporaries, and seconds of the first step."""
    # Python's own allocator would hide its objects from malloc. Several of these processes share the cores, where
    # threads that spin while they wait would hold each other up.
    preload = {"LD_PRELOAD": str(counter), "PYTHONMALLOC": "malloc"} if counter else {}
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.footprint"],
        input=json.dumps([names, models, threads]),
        capture_output=True,
        text=True,
        cwd=COUNTER.parents[1],
        env={**os.environ, **preload, "OMP_WAIT_POLICY": "passive"},
    )
    if finished.returncode:
        lines = [line.strip() for line in finished.stderr.splitlines() if line.strip()]
        raise CannotRunError(lines[-1][:200] if lines else f"its process ended with {finished.returncode}")
    answer: list[dict[str, Any]] = json.loads(finished.stdout.splitlines()[-1])
    return answer


def _temporary(step: Any) -> int | None:
    """Bytes at the peak of a step over those before it, the median of some steps; None without the counter."""
    counter = ctypes.CDLL(None)
    if not hasattr(counter, "live_bytes_mark"):
        return None
    counter.live_bytes_mark.restype = counter.live_bytes_peak.restype = ctypes.c_long
    growth = []
    for _ in range(STEPS):
        gc.collect()
        before = counter.live_bytes_mark()
        step()
        growth.append(counter.live_bytes_peak() - before)
    return int(statistics.median(growth))


def _main() -> None:
    import torch

    from benchmarks.competitors import COMPETITORS, parameters
    from qlocaladam.federated.peers import held_bytes, quiet

    names, models, threads = json.load(sys.stdin)
    torch.set_num_threads(threads)
    answers = []
    with quiet():
        for name, shapes in itertools.product(names, models):
            optimizer = COMPETITORS[name].make(parameters(shapes))
            begin = time.perf_counter()
            optimizer.step()
            first = time.perf_counter() - begin
            optimizer.step()
            temporary = _temporary(optimizer.step)
            answers.append({"state": held_bytes(optimizer), "temporary": temporary, "first_step": first})
    print(json.dumps(answers))


if __name__ == "__main__":
    _main()
