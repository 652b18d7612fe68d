"""Who takes part in which round, how often that is each client, and how many steps a client takes.

A round's draw depends on nothing but the seed and the rounds before it: longer runs begin like shorter ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qlocaladam.checks import whole_number
from qlocaladam.streams import numpy_stream


def sample_clients(seed: int, rounds: int, clients: int, per_round: int) -> NDArray[np.int64]:
    """The clients of each round, (rounds, per_round), in the order drawn and none twice in a round."""
    rounds, clients = whole_number("rounds", rounds, 1), whole_number("clients", clients, 1)
    per_round = whole_number("per_round", per_round, 1, clients)
    stream = numpy_stream(seed)
    draws = [stream.choice(clients, per_round, replace=False) for _ in range(rounds)]
    return np.stack(draws).astype(np.int64)


def participation(samples: ArrayLike, clients: int) -> NDArray[np.int64]:
    """How many rounds each client takes part in."""
    drawn, clients = np.asarray(samples), whole_number("clients", clients, 1)
    if drawn.ndim != 2 or drawn.dtype.kind not in "iu":
        raise ValueError(
            f"samples must be whole numbers, a row for each round, got {drawn.dtype} of shape {drawn.shape}"
        )
    outside = drawn[(drawn < 0) | (drawn >= clients)]
    if outside.size:
        raise ValueError(f"samples must be clients from 0 to {clients - 1}, got {outside[0]}")
    return np.bincount(drawn.ravel(), minlength=clients).astype(np.int64)


@dataclass(frozen=True)
class ParticipationSummary:
    """Rounds a client takes part in, over all clients. The paper's: mean 60.0, std 6.3, 50 to 74."""

    mean: float
    std: float
    """With n, not n - 1: the clients are all there are."""
    min: int
    max: int


def participation_summary(counts: ArrayLike) -> ParticipationSummary:
    """Sum up what `participation` counted."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"counts must be one number a client and at least one, got shape {array.shape}")
    return ParticipationSummary(float(array.mean()), float(array.std()), int(array.min()), int(array.max()))


def steps_per_round(samples: int, epochs: int, batch: int) -> int:
    """Optimizer steps of a client with this many samples; the last batch of an epoch may be short.

    The paper's approximate figures are samples * epochs / batch: 33 and 307 where it takes 34 and 308 steps.
    """
    samples, epochs = whole_number("samples", samples, 0), whole_number("epochs", epochs, 0)
    return -(-samples // whole_number("batch", batch, 1)) * epochs
