"""Arguments that several commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

from qlocaladam.project import project_file


def add_data(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--data", type=Path, required=required, metavar="FILE", help="what the data command wrote")
    for part in ("train", "test"):
        parser.add_argument(
            f"--{part}-images",
            type=int,
            metavar="N",
            help=f"a fixed stratified subset of N {part} images, or windows of text",
        )


def add_partition(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--partition", type=Path, required=True, metavar="FILE", help="what the partition command wrote"
    )


def add_rounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, metavar="N", help="default: 120")


def add_client(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ("clients-per-round", "default: 5"),
        ("epochs", "local epochs (default: 2)"),
        ("batch-size", "default: 64"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument("--loss-scale", type=float, metavar="N", help="what clients multiply the loss by (default: 1)")
    parser.add_argument(
        "--states", metavar="S", help="of a client's optimizer: reset every round (default), or persist between rounds"
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lr", type=float, metavar="N", help="learning rate (default: 0.001)")
    for name, text in (
        ("seed", "of the model, the sampling and the batches (default: 42)"),
        ("width", "channels of the first stage of ResNet-18, or width of the transformer for text (default: 64)"),
        ("image-size", "images are resized to this (default: 224); text has none, no stem and no flip"),
    ):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument("--stem", metavar="STEM", help="7x7 (default) or 3x3")
    parser.add_argument("--flip", action=argparse.BooleanOptionalAction, help="mirror images at random (default: yes)")
    parser.add_argument("--precision", metavar="P", help="fp32 (default) or bf16, which trains under autocast")
    parser.add_argument("--device", metavar="DEVICE", help="cpu (default), cuda, cuda:1, ...")
    parser.add_argument(
        "--threads",
        type=_threads,
        default=1,
        metavar="N",
        help="default: 1, which with several runs side by side uses a machine best while models are small",
    )


def _threads(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--configfile",
        type=Path,
        nargs="*",
        default=[Path(project_file("config.yaml"))],
        metavar="FILE",
        help="default: config.yaml",
    )
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="on top of it, as for snakemake: scale=test"
    )
