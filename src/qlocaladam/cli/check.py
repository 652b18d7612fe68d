"""Whether results are what the configuration makes.

Compare every run with the configuration, its history, data and partition, and every table, number, page and figure with
what its inputs make; list what is wrong and end with 1 if anything is.

python -m qlocaladam check --config scale=test
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qlocaladam.cli.arguments import add_configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_configuration(parser)
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every verdict to this file, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write them as a page, too")
    parser.add_argument(
        "--only", nargs="+", metavar="KIND", help="data, partition, run, analysis, exact, test, table, figure, ..."
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="make results again in N processes")


def run(arguments: argparse.Namespace) -> None:
    from qlocaladam.jobs import write
    from qlocaladam.report import check
    from qlocaladam.results.layout import Layout

    layout = Layout.load(arguments.configfile, arguments.config)
    if layout.kept:
        raise ValueError("reference is True; accepted: false, for what is kept is checked where it is read")
    findings = check.check(layout, arguments.only or check.KINDS, arguments.processes)
    print(check.summary(findings, layout), end="", flush=True)
    if arguments.csv:
        write(arguments.csv, findings)
    if arguments.html:
        write(arguments.html, check.as_html(findings, layout))
    if len(check.failed(findings)):
        raise SystemExit(1)
