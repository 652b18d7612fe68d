"""One federated training run.

Train one arm on one partition. A run that was stopped goes on where it was when the same command is given again. Leaves
history.csv, summary.json, settings.json, timings.csv and run.log in the folder.

python -m qlocaladam train --data data/digits.npz --partition data/p.npz --arm naive-int8 --rounds 20 --width 8
--image-size 32 --batch-size 16 --no-flip --out results/naive
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from qlocaladam.cli.arguments import add_client, add_data, add_model, add_partition, add_rounds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser, required=True)
    add_partition(parser)
    parser.add_argument("--out", "-o", type=Path, required=True, metavar="FOLDER", help="where results go")
    parser.add_argument(
        "--arm",
        metavar="ARM",
        help="fp32, q-localadam (default), naive-int8, momentum-only, variance-only, dynamic-8bit, normalised, "
        "normalised-4bit, torchao-8bit, torchao-4bit, bitsandbytes-8bit, laprop",
    )
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the optimizer on top of the arm's, such as rounding=floor; may be repeated",
    )
    add_rounds(parser)
    add_client(parser)
    add_model(parser)
    parser.add_argument(
        "--checkpoint-every", type=int, default=1, metavar="N", help="rounds between checkpoints (default: 1)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a finished run in the folder that was made otherwise"
    )


def _option(text: str) -> tuple[str, Any]:
    """NAME=VALUE for an option of QLocalAdam; numbers, true, false and none are understood, the rest are words."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    words = {"none": None, "true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def run(arguments: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(arguments.threads)
    from qlocaladam.data.dataset import load_subset
    from qlocaladam.federated.partition import load_partition
    from qlocaladam.federated.run import run
    from qlocaladam.federated.settings import RunSettings

    names = RunSettings.__dataclass_fields__
    given = {name: value for name, value in vars(arguments).items() if name in names and value is not None}
    settings = RunSettings(**given, optimizer=dict(arguments.option))
    data = load_subset(arguments.data, arguments.train_images, arguments.test_images)
    partition = load_partition(arguments.partition)
    run(settings, data, partition, arguments.out, arguments.checkpoint_every, arguments.overwrite)


def newest_checkpoint(arguments: argparse.Namespace) -> str:
    """What a run that could not go on has saved."""
    from qlocaladam.federated import checkpoint

    content, _ = checkpoint.load(arguments.out / "checkpoint.pt")
    return f"; the newest checkpoint is of round {len(content['rows'])}" if content else ""
