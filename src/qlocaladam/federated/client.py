"""One client's part of a round: local epochs of Adam from fresh states, on its own samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from qlocaladam.federated.images import ImageSet
from qlocaladam.federated.peers import make_peer
from qlocaladam.federated.streams import stream
from qlocaladam.federated.text import TextSet
from qlocaladam.optim import QLocalAdam


@dataclass(frozen=True)
class LocalTraining:
    """How every client trains."""

    optimizer: dict[str, Any]
    """Options of the optimizer: those of the arm and the learning rate."""
    epochs: int
    batch_size: int
    flip: bool
    autocast: bool
    seed: int
    peer: str | None = None
    """The arm, if it is not QLocalAdam's but somebody else's."""

    def make_optimizer(self, params: Iterable[Tensor]) -> Optimizer:
        """With fresh states."""
        if self.peer:
            return make_peer(self.peer, params, self.optimizer)
        return QLocalAdam(params, seed=self.seed, **self.optimizer)


@dataclass(frozen=True)
class ClientResult:
    """What a client reports besides its weights."""

    loss: float
    """Mean over its images, or windows of text, and epochs."""
    images: int
    finite: bool
    """Whether all of its weights are numbers."""
    optimizer: Optimizer


def train_client(
    model: nn.Module, data: ImageSet | TextSet, indices: Tensor, how: LocalTraining, round_: int, client: int
) -> ClientResult:
    """Train `model` in place on the samples at `indices`; at least one."""
    device = data.labels.device
    optimizer = how.make_optimizer(model.parameters())
    draw = stream(how.seed, "batches", round_, client)
    total = torch.zeros((), device=device)
    for _ in range(how.epochs):
        order = indices[torch.randperm(len(indices), generator=draw)]
        flips = torch.rand(len(indices), generator=draw) < 0.5 if how.flip else None
        for first in range(0, len(order), how.batch_size):
            part = slice(first, first + how.batch_size)
            inputs, targets = data.batch(order[part].to(device), None if flips is None else flips[part].to(device))
            # One image has no statistics to normalise by; it is trained with the running ones.
            if model.training != (len(targets) > 1):
                model.train(len(targets) > 1)
            with torch.autocast(device.type, torch.bfloat16, enabled=how.autocast):
                # Text has a target at every place of a window, an image has one.
                loss = cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(targets)
    seen = how.epochs * len(indices)
    return ClientResult(total.item() / seen, seen, is_finite(model), optimizer)


def is_finite(model: nn.Module) -> bool:
    """Whether every weight and statistic of the model is a number."""
    return all(bool(value.isfinite().all()) for value in model.state_dict().values())
