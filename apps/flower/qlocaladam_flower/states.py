"""Optimizer states that outlive a round: kept in the `context.state` of the client, in 8 or 4 bits as they are."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch.optim import Optimizer

KEY = "optimizer"


def kept(fresh: Optimizer, state: RecordDict) -> dict[str, Any] | None:
    """What the client's optimizer goes on with, for an optimizer like `fresh`; None in its first round."""
    if KEY not in state.array_records:
        return None
    content: dict[str, Any] = fresh.state_dict()
    for name, array in state.array_records[KEY].items():
        number, _, entry = name.partition(".")
        value = torch.from_numpy(array.numpy().copy())
        content["state"].setdefault(int(number), {})[entry] = int(value) if entry == "step" else value
    return content


def keep(optimizer: Optimizer, state: RecordDict) -> None:
    """Put the states where the client finds them in its next round."""
    entries = optimizer.state_dict()["state"]
    state[KEY] = ArrayRecord(
        {
            f"{number}.{name}": Array(torch.as_tensor(value).numpy())
            for number, content in entries.items()
            for name, value in content.items()
        }
    )
