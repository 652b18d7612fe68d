"""Measure results, partitions, codecs and optimizer states.

Write one analysis as files into a folder. Those from `distributions` on train a model or a client themselves; the
others need no training of their own.

python -m qlocaladam analyse precision --out results/exact
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from qlocaladam.cli.arguments import add_client, add_data, add_model, add_partition, add_rounds

SUMMARIES = {
    "scaling": "optimizer memory against model size -> scaling.csv",
    "precision": "error against magnitude of every code -> precision*.csv",
    "data-distribution": "the paper's partitions, full size -> clients.csv, data_distribution.csv",
    "significance": "tests over seeds against FP32 -> significance.csv",
    "contrasts": "how far arms are from one of them -> contrasts.csv, differences.csv",
    "distributions": "optimizer states after 50 steps of FP32 Adam -> five files",
    "step-errors": "what each arm does to single steps of a client -> step_errors*.csv, summary.json",
    "variance": "the variance of clients by round and layer -> variance.csv, summary.json",
    "model-size": "first steps of transformers, by their width -> model_size.csv, summary.json",
    "microscope": "every step of one client with each arm -> microscope*.csv, summary.json",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(title="analyses", required=True, metavar="ANALYSIS", dest="analysis")
    for name, text in SUMMARIES.items():
        kind = kinds.add_parser(name, help=text, description=text)
        kind.add_argument("--out", "-o", type=Path, required=True, metavar="FOLDER", help="where the files go")
        if name in ("significance", "contrasts"):
            kind.add_argument("--runs", type=Path, nargs="+", required=True, metavar="FOLDER", help="of training runs")
        if name == "contrasts":
            kind.add_argument(
                "--margin", type=float, default=0.05, metavar="N", help="share of the baseline (default: 0.05)"
            )
            kind.add_argument("--baseline", default="fp32", metavar="ARM", help="compared with (default: fp32)")
        if name in ("distributions", "step-errors", "variance", "model-size", "microscope"):
            _add_training(name, kind)


def _add_training(name: str, kind: argparse.ArgumentParser) -> None:
    add_data(kind, required=True)
    if name in ("step-errors", "variance"):
        add_partition(kind)
        add_client(kind)
    if name in ("step-errors", "model-size", "microscope"):
        kind.add_argument("--arms", nargs="+", required=True, metavar="ARM", help="arms, as for train")
    if name == "step-errors":
        kind.add_argument("--after", type=int, metavar="N", help="rounds before (default: 3)")
    if name == "variance":
        add_rounds(kind)
    if name in ("model-size", "microscope"):
        kind.add_argument("--batch-size", type=int, metavar="N", help="default: 64")
    if name == "model-size":
        kind.add_argument("--widths", type=int, nargs="+", default=[48, 128, 256, 512], metavar="N")
        kind.add_argument("--steps", type=int, default=20, metavar="N", help="default: 20")
    if name == "microscope":
        kind.add_argument("--epochs", type=int, metavar="N", help="local epochs (default: 2)")
        kind.add_argument("--steps", type=int, metavar="N", help="at most so many (default: all of a round)")
    add_model(kind)


def run(arguments: argparse.Namespace) -> None:
    from qlocaladam.jobs import write_analysis

    write_analysis(arguments.out, _made(**vars(arguments)))


def _made(analysis: str, **given: Any) -> dict[str, Any]:
    name = analysis.replace("-", "_")
    if name in ("scaling", "precision", "data_distribution"):
        return dict(import_module(f"qlocaladam.analysis.{name}").files())
    if name in ("significance", "contrasts"):
        from qlocaladam.experiments.runs import read_runs

        runs, given = read_runs(given["runs"]), {key: given[key] for key in given.keys() & {"margin", "baseline"}}
        return dict(import_module(f"qlocaladam.analysis.{name}").files(runs, **given))
    import torch

    torch.set_num_threads(given.pop("threads"))
    from qlocaladam.analysis import trained
    from qlocaladam.results.kinds import ANALYSES

    arms = {arm: {"arm": arm, "options": {}} for arm in given.pop("arms", ())}
    data, partition = given.pop("data"), given.pop("partition", None)
    options = {option: value for option, value in given.items() if option not in ("out", "run")}
    made = trained.analyse(name, options, data, partition, arms)
    return dict(zip(ANALYSES[name].files, made, strict=True))
