"""How often clients take part, and how many optimizer steps the smallest and the largest of them take when they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qlocaladam.federated.sampling import sample_clients, steps_per_round
from qlocaladam.files import json_text


def sampling(seed: int = 42, rounds: int = 120, clients: int = 10, per_round: int = 5) -> dict[str, Any]:
    """Rounds that each client takes part in; and their mean, deviation (with n: these are all clients), least and most.

    The paper's: mean 60.0, deviation 6.3, 50 to 74.
    """
    counts = np.bincount(sample_clients(seed, rounds, clients, per_round).ravel(), minlength=clients)
    summary = {"mean": counts.mean(), "std": counts.std(), "min": counts.min(), "max": counts.max()}
    return {"counts": counts.tolist(), **{name: number.item() for name, number in summary.items()}}


def steps(clients: pd.DataFrame, epochs: int = 2, batch: int = 64) -> pd.DataFrame:
    """Steps a round of the smallest and the largest client of each partition; the first of equals counts.

    `clients` is what `data_distribution.clients` gives. `steps` is what a client takes, `approximate` the paper's
    samples * epochs / batch, `ratio` the client's samples over those of the smallest, empty where that has none.
    """
    rows = []
    for (dataset, alpha), held in clients.groupby(["dataset", "alpha"], sort=False):
        samples = held.set_index("client")["samples"]
        least, most = int(samples.min()), int(samples.max())
        for which, client, count in (("smallest", samples.idxmin(), least), ("largest", samples.idxmax(), most)):
            taken = {"steps": steps_per_round(count, epochs, batch), "approximate": count * epochs / batch}
            row = {"dataset": dataset, "alpha": alpha, "which": which, "client": client, "samples": count, **taken}
            rows.append({**row, "ratio": count / least if least else None})
    return pd.DataFrame(rows)


def files(clients: Path) -> dict[str, pd.DataFrame | str]:
    """By the names of the files, from clients.csv of `data_distribution`."""
    held = pd.read_csv(clients, dtype={"alpha": str})
    return {"sampling.json": json_text(sampling()), "steps.csv": steps(held)}
