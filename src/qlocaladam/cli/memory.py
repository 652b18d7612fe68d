"""The paper's memory figures, rebuilt.

Print the optimizer memory of every arm for both of the paper's models, in the paper's layout and as held here. Needs no
training and no data.

python -m qlocaladam memory --block-size 32 64 128 256
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--block-size",
        type=int,
        nargs="+",
        default=[32, 64, 128],
        metavar="N",
        help="block sizes of Q-LocalAdam (default: 32 64 128, as in the paper)",
    )


def run(arguments: argparse.Namespace) -> None:
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
        arms = ("fp32", "momentum-only", "variance-only", "naive-int8", "q-localadam", "normalised", "normalised-4bit")
        for arm in arms:
            options = ARMS[arm]
            for block in arguments.block_size if arm == "q-localadam" else (64,):
                names = (options["momentum"], options["variance"], block, "nearest", 1e-8, options.get("bits", 8))
                codecs = state_codecs(*names)
                published, held = (optimizer_bytes(sizes, *codecs, layout) for layout in ("published", "held"))
                ratio = 8 * sum(sizes) / held
                print(f"{dataset:<10}{arm:<16}{block:>6}{published / 1e6:>11.2f}{held / 1e6:>9.2f}{ratio:>8.3f}")
