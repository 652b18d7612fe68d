"""Whether one's own runs agree with results that are kept.

Compare one's own runs with those in paper/reference, which `snakemake reference` collects.

python -m qlocaladam reference verify --scale small
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qlocaladam.cli.arguments import add_configuration
from qlocaladam.files import table_rows
from qlocaladam.project import project_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = "compare one's own runs with a reference; ends with 1 where any differs by more than seeds do"
    verify = actions.add_parser("verify", help=text, description=text)
    verify.add_argument("--scale", default="quick", metavar="NAME", help="default: quick")
    verify.add_argument(
        "--reference",
        type=Path,
        default=Path(project_file("paper/reference")),
        metavar="FOLDER",
        help="of all references (default: paper/reference)",
    )
    add_configuration(verify)
    verify.add_argument("--runs", type=Path, metavar="FOLDER", help="of all runs (default: results/<scale>/runs)")
    verify.add_argument("--csv", type=Path, metavar="FILE", help="write every verdict to this file, too")
    verify.add_argument("--text", type=Path, metavar="FILE", help="write what is printed to this file, too")


def run(arguments: argparse.Namespace) -> None:
    from qlocaladam.experiments.grid import short_name
    from qlocaladam.jobs import write
    from qlocaladam.report import reference
    from qlocaladam.results.layout import Layout

    kept = reference.read(arguments.reference, arguments.scale)
    overrides = [f"scale={arguments.scale}", *arguments.config]
    layout = Layout.load(arguments.configfile, overrides)
    asked = [short_name(place) for place in table_rows(layout.runs)]
    others = len(kept) - kept["run"].isin(asked).sum()
    kept = kept[kept["run"].isin(asked)].reset_index(drop=True)
    verdicts = reference.verify(kept, arguments.runs or Path("results", arguments.scale, "runs"))
    text = reference.summary(verdicts, arguments.scale, others)
    print(text, end="", flush=True)
    if arguments.csv:
        write(arguments.csv, verdicts)
    if arguments.text:
        write(arguments.text, text)
    if different := verdicts.loc[verdicts["verdict"] == reference.DIFFERS, "run"].tolist():
        count = f"{len(different)} of {len(verdicts)} runs"
        raise SystemExit(f"qlocaladam: {count} differ from the reference by more than seeds do, first {different[0]}")
