"""What holds of what the paper prints, what does not, what was not tried.

Compare each number and claim of the paper with what was computed, and print a summary by kind and verdict. `snakemake
claims` writes all of it to files.

python -m qlocaladam claims --scale quick
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from qlocaladam.project import project_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scale", default="quick", metavar="NAME", help="whose results are judged (default: quick)")
    parser.add_argument(
        "--published",
        type=Path,
        default=Path(project_file("paper/published.yaml")),
        metavar="FILE",
        help="what the paper prints (default: paper/published.yaml)",
    )
    parser.add_argument(
        "--numbers", type=Path, metavar="FILE", help="what was computed (default: results/<scale>/numbers.json)"
    )


def run(arguments: argparse.Namespace) -> None:
    path = arguments.numbers or Path("results", arguments.scale, "numbers.json")
    if not path.exists():
        raise ValueError(f"{path} is not there; `snakemake claims --config scale={arguments.scale}` makes it")
    from qlocaladam.ledger import claims, form, presentation

    verdicts = claims.judge(form.load(arguments.published), json.loads(path.read_text()), arguments.scale)
    print(presentation.summary(verdicts))
