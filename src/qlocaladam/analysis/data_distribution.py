"""Who holds what in the paper's partitions, at full size: the label orders ship with the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from qlocaladam.data.dataset import Labels, training_labels
from qlocaladam.data.sources import class_names
from qlocaladam.federated.partition import Partition, partition
from qlocaladam.federated.partition_statistics import client_rows, summary


def clients(datasets: Sequence[str], alphas: Sequence[float | str], clients: int = 10, seed: int = 42) -> pd.DataFrame:
    """A row for each client of each partition. A client without samples has no dominant class."""
    rows = []
    for dataset, labels, part in _partitions(datasets, alphas, clients, seed):
        names = class_names(dataset)
        for row in client_rows(part, labels):
            name = None if row.dominant is None else names[row.dominant]
            rows.append({"dataset": dataset, "alpha": part.alpha, **vars(row), "dominant_name": name})
    columns = ["dataset", "alpha", "client", "samples", "dominant", "dominant_name", "dominant_percent", "classes"]
    return pd.DataFrame(rows, columns=columns).astype({"dominant": "Int64"})  # whole numbers beside empty cells


def overview(datasets: Sequence[str], alphas: Sequence[float | str], clients: int = 10, seed: int = 42) -> pd.DataFrame:
    """A row for each partition: the paper's averages, and what `Summary` says besides."""
    return pd.DataFrame(
        {"dataset": dataset, "alpha": part.alpha, **vars(summary(part, labels))}
        for dataset, labels, part in _partitions(datasets, alphas, clients, seed)
    )


def _partitions(
    datasets: Sequence[str], alphas: Sequence[float | str], clients: int, seed: int
) -> Iterator[tuple[str, Labels, Partition]]:
    for dataset in datasets:
        labels = training_labels(dataset)
        for alpha in alphas:
            yield dataset, labels, partition(labels, clients, alpha, seed)


PAPER = (("cifar10", "cifar100"), (0.1, 0.5, 1.0, "iid"))
"""The paper's data sets and concentrations."""


def files() -> dict[str, pd.DataFrame]:
    """Of the paper's partitions, by the names of the files."""
    return {"clients.csv": clients(*PAPER), "data_distribution.csv": overview(*PAPER)}
