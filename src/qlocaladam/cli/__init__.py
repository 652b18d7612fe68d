"""python -m qlocaladam: one module a command. What only rules call is in workflow/scripts.

torch and what comes with extras are imported by the command that needs them, so that --help and mistakes are fast.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from qlocaladam.cli import analyse, check, claims, data, memory, partition, reference, train
from qlocaladam.jobs import mistakes_in_one_line

COMMANDS = (memory, data, partition, train, analyse, claims, check, reference)
"""Each has `add_arguments(parser)` and `run(arguments)`. Its docstring has its line in the list of commands, its
description and an example."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qlocaladam", description="8-bit Adam for the clients of federated learning."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in COMMANDS:
        title, description, example = (module.__doc__ or "").split("\n\n")
        command = commands.add_parser(
            module.__name__.rpartition(".")[2],
            help=title[0].lower() + title[1:].rstrip("."),
            description=description,
            epilog=f"example: {example}",
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    with mistakes_in_one_line(lambda: train.newest_checkpoint(arguments) if arguments.run is train.run else ""):
        arguments.run(arguments)
    return 0
