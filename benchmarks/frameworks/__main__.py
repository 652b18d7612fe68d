"""One run of a peer: trains, and writes when each of its rounds ended, as seconds since the epoch, to OUT."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch


def main(name: str, data: str, partition: str, out: str, rounds: str) -> None:
    torch.set_num_threads(1)
    ends = importlib.import_module(f"benchmarks.frameworks.{name}").run(Path(data), Path(partition), int(rounds))
    Path(out).write_text(json.dumps(ends))


if __name__ == "__main__":
    main(*sys.argv[1:])
