"""Get a data set, check it, keep it as one file.

Write a data set as one .npz of uint8 images, or windows of text, with its SHA-256 and origin beside it. digits,
digit-pairs and text need no download.

python -m qlocaladam data digits --out data/digits.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="digits, digit-pairs, text, cifar10, cifar100, or any name together with --source")
    parser.add_argument("--out", "-o", type=Path, required=True, metavar="FILE.npz", help="the file to write")
    parser.add_argument(
        "--source",
        type=Path,
        metavar="PATH",
        help="a file or folder of your own; otherwise QLOCALADAM_<NAME> counts, then downloads are tried",
    )


def run(arguments: argparse.Namespace) -> None:
    from qlocaladam.data import sources

    made = sources.prepare(arguments.name, arguments.out, arguments.source)
    samples = f"{len(made.y_train):,} training and {len(made.y_test):,} test {made.samples}"
    samples += f" of {made.classes} {'sections' if made.is_text else 'classes'}"
    print(f"{arguments.out}: {samples}\norigin: {made.origin}\nSHA-256: {made.sha256}")
