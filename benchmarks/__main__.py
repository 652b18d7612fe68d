"""python -m benchmarks: runs the suites that are named, prints their tables and saves them under benchmarks/results."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Sequence

import torch

from benchmarks import report

SUITES = {
    "optimizers": "one optimizer step beside torch, torchao and bitsandbytes: time, state, temporary memory",
    "federated": "whole training runs beside a bare loop, Flower and pfl-research: speed, memory, start-up",
    "gpu": "the first ten minutes on a GPU: parity with the reference, step ratio, images per second",
    "code": "what the Triton kernel is compiled to: registers, bytes, expected times; 40 minutes of one core, no GPU",
}
DEFAULT = ("optimizers", "federated")


def build_parser() -> argparse.ArgumentParser:
    suites = "\n".join(f"  {name:<12} {what}" for name, what in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Measure side by side and save tables under benchmarks/results.\n\nsuites:\n{suites}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"suites to run (default: {' '.join(DEFAULT)})")
    parser.add_argument("--quick", action="store_true", help="a smoke run: few rounds, nothing that must be compiled")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of torch (default: one per core)")
    parser.add_argument(
        "--model", action="append", help="of the suite optimizers, only this model's part, saved apart; may be repeated"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if unknown := [name for name in arguments.suites if name not in SUITES]:
        parser.error(f"no suite {', '.join(unknown)}; there are: {', '.join(SUITES)}")
    if arguments.model and arguments.suites != ["optimizers"]:
        parser.error("--model is an option of the suite optimizers alone")
    parts = importlib.import_module("benchmarks.optimizers").PARTS if arguments.model else ()
    if unknown := [model for model in arguments.model or () if model not in parts]:
        parser.error(f"no model {', '.join(map(repr, unknown))}; there are: {', '.join(map(repr, parts))}")
    if arguments.threads is not None:
        if arguments.threads < 1:
            parser.error(f"--threads must be at least 1, got {arguments.threads}")
        os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # for the processes that a suite starts
        torch.set_num_threads(arguments.threads)
    machine = report.machine()
    print("\n".join(f"{what}: {fact}" for what, fact in machine.items()), flush=True)
    for name in arguments.suites or DEFAULT:
        suite, only = importlib.import_module(f"benchmarks.{name}"), arguments.model
        tables = suite.run(arguments.quick, only) if only else suite.run(arguments.quick)
        print("\n" + "\n\n".join(table.text() for table in tables))
        saved = "-".join([name, *(re.sub(r"[^\w.]+", "-", model) for model in only or ())])
        print(f"\nsaved: {', '.join(report.save(saved, tables, machine, arguments.quick))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
