"""Statistics of a partition: the rows of the paper's tables of who holds what."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qlocaladam.checks import whole_number
from qlocaladam.federated.partition import Indices, Partition, checked_alpha


@dataclass(frozen=True)
class ClientRow:
    """A row of the per-client tables. A client without samples has no dominant class."""

    client: int
    samples: int
    dominant: int | None
    """The most frequent class; of equally frequent ones the lowest."""
    dominant_percent: float | None
    classes: int
    """How many classes the client has at least one sample of."""


@dataclass(frozen=True)
class Summary:
    """A row of the two heterogeneity tables."""

    clients: int
    samples: int
    """Samples that some client holds."""
    dropped: int
    """Samples that nobody holds."""
    empty_clients: int
    dominant_percent: float | None
    """Average over the clients that hold anything; None if none does."""
    ratio: float | None
    """How many times a uniform distribution over the classes that is."""
    published_percent: float | None
    """The average of the percentages rounded to one decimal, which is what gives every cell of the paper. It
    differs once: CIFAR-100, alpha=1.0, is 4.55 and printed as 4.5, where the average itself is 4.56."""
    published_ratio: float | None
    sample_std: float | None
    """Spread of the clients' sizes, empty ones included, with n - 1; None for a single client. The paper
    truncates it to a whole number."""
    min_samples: int
    max_samples: int
    heterogeneity: str


def class_counts(part: Partition, labels: ArrayLike, classes: int | None = None) -> Indices:
    """Samples by client (rows) and class (columns). Without `classes`, up to the highest label."""
    array = part.check(labels)
    highest = int(array.max())
    classes = highest + 1 if classes is None else whole_number("classes", classes, highest + 1)
    cells = np.repeat(np.arange(part.clients), part.sizes) * classes + array[np.concatenate(part.indices)]
    counts = np.bincount(cells, minlength=part.clients * classes)
    return counts.reshape(part.clients, classes).astype(np.int64)


def client_rows(part: Partition, labels: ArrayLike) -> list[ClientRow]:
    """The rows of the paper's per-client tables (cifar10_detailed, cifar100_detailed)."""
    rows = []
    for client, counts in enumerate(class_counts(part, labels)):
        samples, dominant = int(counts.sum()), int(counts.argmax())
        percent = 100 * int(counts[dominant]) / samples if samples else None
        rows.append(ClientRow(client, samples, dominant if samples else None, percent, int((counts > 0).sum())))
    return rows


def heterogeneity_word(alpha: float | str) -> str:
    """The paper's word for a concentration; 'Low', for those above its highest, is ours.

    The paper says that the words follow the ratio to a uniform distribution, but no thresholds give them: 4.3
    is High for CIFAR-10 and 4.5 is Moderate for CIFAR-100. They follow alpha.
    """
    alpha = checked_alpha(alpha)
    if isinstance(alpha, str):
        return "Balanced"
    words = ((0.1, "Extreme"), (0.5, "High"), (1.0, "Moderate"))
    return next((word for highest, word in words if alpha <= highest), "Low")


def _mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def summary(part: Partition, labels: ArrayLike) -> Summary:
    """The row of the paper's heterogeneity tables (data_distribution, data_distribution_summary)."""
    percents = [row.dominant_percent for row in client_rows(part, labels) if row.dominant_percent is not None]
    average, published = _mean(percents), _mean([round(percent, 1) for percent in percents])
    uniform = 100 / len(np.unique(np.asarray(labels)))
    sizes = part.sizes
    return Summary(
        clients=part.clients,
        samples=int(sizes.sum()),
        dropped=part.dropped,
        empty_clients=part.clients - len(percents),
        dominant_percent=average,
        ratio=None if average is None else average / uniform,
        published_percent=published,
        published_ratio=None if published is None else published / uniform,
        sample_std=float(sizes.std(ddof=1)) if part.clients > 1 else None,
        min_samples=int(sizes.min()),
        max_samples=int(sizes.max()),
        heterogeneity=heterogeneity_word(part.alpha),
    )
