"""python -m qlocaladam: what the rules of the workflow call, and what a person can call alone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def _memory(arguments: argparse.Namespace) -> None:
    import torch

    from qlocaladam import ARMS, optimizer_bytes, state_codecs
    from qlocaladam.models import PAPER_MODELS, ResNet18

    print("Optimizer state of the paper's models, MB = 10^6 bytes. 'published' is the paper's layout: padded blocks")
    print("with 12 bytes of metadata; 'held' is what this package stores; the ratio is FP32 to held.\n")
    print(f"{'model':<10}{'arm':<16}{'block':>6}{'published':>11}{'held':>9}{'ratio':>8}")
    for dataset, shape in PAPER_MODELS.items():
        with torch.device("meta"):
            model = ResNet18(shape["classes"], shape["width"])
        sizes = [parameter.numel() for parameter in model.parameters()]
        for arm in ("fp32", "momentum-only", "variance-only", "naive-int8", "q-localadam"):
            for block in arguments.block_size if arm == "q-localadam" else (64,):
                codecs = state_codecs(ARMS[arm]["momentum"], ARMS[arm]["variance"], block, "nearest", 1e-8)
                published, held = (optimizer_bytes(sizes, *codecs, layout) for layout in ("published", "held"))
                ratio = 8 * sum(sizes) / held
                print(f"{dataset:<10}{arm:<16}{block:>6}{published / 1e6:>11.2f}{held / 1e6:>9.2f}{ratio:>8.3f}")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="qlocaladam", description="8-bit Adam for the clients of federated learning.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    memory = commands.add_parser(
        "memory",
        help="the paper's memory figures, rebuilt",
        description="Print the optimizer memory of every arm for both of the paper's models, in the paper's layout and "
        "as held here. Needs no training and no data.",
        epilog="example: python -m qlocaladam memory --block-size 32 64 128 256",
    )
    memory.add_argument(
        "--block-size",
        type=int,
        nargs="+",
        default=[32, 64, 128],
        metavar="N",
        help="block sizes of Q-LocalAdam (default: 32 64 128, as in the paper)",
    )
    memory.set_defaults(run=_memory)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    arguments = parser.parse_args(argv)
    try:
        arguments.run(arguments)
    except ValueError as error:
        parser.exit(2, f"qlocaladam: {error}\n")
    return 0
