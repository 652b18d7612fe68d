"""Deal a data set out to clients.

Draw the paper's Dirichlet or IID partition, write it, and show who holds what.

python -m qlocaladam partition --labels-of cifar10 --alpha 0.1 --out cifar10.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qlocaladam.cli.arguments import add_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser, required=False)
    parser.add_argument(
        "--labels-of",
        metavar="NAME",
        choices=["cifar10", "cifar100"],
        help="instead of --data: the label order that ships with the package, at full size and offline",
    )
    parser.add_argument("--out", "-o", type=Path, required=True, metavar="FILE.npz", help="the file to write")
    parser.add_argument("--clients", type=int, default=10, metavar="N", help="default: 10")
    parser.add_argument(
        "--alpha", type=_alpha, default=0.1, metavar="A", help="Dirichlet concentration, or iid (default: 0.1)"
    )
    parser.add_argument("--seed", type=int, default=42, metavar="N", help="default: 42")
    parser.add_argument("--show", type=int, default=20, metavar="N", help="clients to list (default: 20)")


def _alpha(text: str) -> float | str:
    return text if text == "iid" else float(text)


def run(arguments: argparse.Namespace) -> None:
    from qlocaladam.data import sources
    from qlocaladam.data.dataset import load_subset, training_labels
    from qlocaladam.federated.partition import partition
    from qlocaladam.federated.partition_statistics import client_rows, summary

    if bool(arguments.data) == bool(arguments.labels_of):
        raise ValueError("partition needs either --data or --labels-of")
    if arguments.labels_of:
        name, labels = arguments.labels_of, training_labels(arguments.labels_of)
    else:
        data = load_subset(arguments.data, arguments.train_images, arguments.test_images)
        name, labels = data.name, data.y_train
    part = partition(labels, arguments.clients, arguments.alpha, arguments.seed)
    part.save(arguments.out)
    names = sources.class_names(name, int(labels.max()) + 1)
    print(f"{'client':>6}{'samples':>9}{'classes':>9}  dominant class")
    for row in client_rows(part, labels)[: arguments.show]:
        dominant = "-" if row.dominant is None else f"{names[row.dominant]} {row.dominant_percent:.1f} %"
        print(f"{row.client:>6}{row.samples:>9,}{row.classes:>9}  {dominant}")
    if part.clients > arguments.show:
        print(f"   ... and {part.clients - arguments.show:,} more clients")
    total = summary(part, labels)
    print(f"{total.samples:,} samples dealt out, {total.dropped:,} left over, {total.empty_clients} clients empty")
