"""Who takes part in which round, and how many steps a client takes.

A round's draw depends on nothing but the seed and the rounds before it: longer runs begin like shorter ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qlocaladam.checks import whole_number
from qlocaladam.streams import numpy_stream


def sample_clients(seed: int, rounds: int, clients: int, per_round: int) -> NDArray[np.int64]:
    """The clients of each round, (rounds, per_round), in the order drawn and none twice in a round."""
    rounds, clients = whole_number("rounds", rounds, 1), whole_number("clients", clients, 1)
    per_round = whole_number("per_round", per_round, 1, clients)
    stream = numpy_stream(seed)
    draws = [stream.choice(clients, per_round, replace=False) for _ in range(rounds)]
    return np.stack(draws).astype(np.int64)


def steps_per_round(samples: int, epochs: int, batch: int) -> int:
    """Optimizer steps of a client with this many samples; the last batch of an epoch may be short.

    The paper's approximate figures are samples * epochs / batch: 33 and 307 where it takes 34 and 308 steps.
    """
    samples, epochs = whole_number("samples", samples, 0), whole_number("epochs", epochs, 0)
    return -(-samples // whole_number("batch", batch, 1)) * epochs
