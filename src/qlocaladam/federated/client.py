"""One client's part of a round: local epochs of Adam from fresh states, on its own samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from qlocaladam.federated.images import ImageSet
from qlocaladam.federated.streams import stream
from qlocaladam.optim import QLocalAdam


@dataclass(frozen=True)
class LocalTraining:
    """How every client trains."""

    optimizer: dict[str, Any]
    """Options of QLocalAdam: the arm and the learning rate."""
    epochs: int
    batch_size: int
    flip: bool
    autocast: bool
    seed: int


@dataclass(frozen=True)
class ClientResult:
    """What a client reports besides its weights."""

    loss: float
    """Mean over its images and epochs."""
    images: int
    finite: bool
    """Whether all of its weights are numbers."""
    optimizer: QLocalAdam


def train_client(
    model: nn.Module, data: ImageSet, indices: Tensor, how: LocalTraining, round_: int, client: int
) -> ClientResult:
    """Train `model` in place on the samples at `indices`; at least one."""
    device = data.labels.device
    optimizer = QLocalAdam(model.parameters(), seed=how.seed, **how.optimizer)
    draw = stream(how.seed, "batches", round_, client)
    total = torch.zeros((), device=device)
    for _ in range(how.epochs):
        order = indices[torch.randperm(len(indices), generator=draw)]
        flips = torch.rand(len(indices), generator=draw) < 0.5 if how.flip else None
        for first in range(0, len(order), how.batch_size):
            part = slice(first, first + how.batch_size)
            images, labels = data.batch(order[part].to(device), None if flips is None else flips[part].to(device))
            # One image has no statistics to normalise by; it is trained with the running ones.
            if model.training != (len(labels) > 1):
                model.train(len(labels) > 1)
            with torch.autocast(device.type, torch.bfloat16, enabled=how.autocast):
                loss = cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(labels)
    seen = how.epochs * len(indices)
    return ClientResult(total.item() / seen, seen, is_finite(model), optimizer)


def is_finite(model: nn.Module) -> bool:
    """Whether every weight and statistic of the model is a number."""
    return all(bool(value.isfinite().all()) for value in model.state_dict().values())
