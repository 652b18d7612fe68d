"""One client's part of a round: local epochs of Adam from fresh states, on its own samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from qlocaladam.federated.batches import Samples
from qlocaladam.federated.peers import make_peer
from qlocaladam.optim import QLocalAdam
from qlocaladam.streams import torch_stream


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
    loss_scale: float = 1.0
    """What the loss is multiplied by before its gradient is taken. Adam does not care; a floor does."""
    persist: bool = False
    """Whether a client goes on with the states of its last round instead of fresh ones."""
    peer: str | None = None
    """The arm, if it is not QLocalAdam's but somebody else's."""

    def make_optimizer(self, params: Iterable[Tensor], round_: int = 0, client: int = 0) -> Optimizer:
        """With fresh states. Each client draws its own noise for stochastic rounding, in each round anew."""
        if self.peer:
            return make_peer(self.peer, params, self.optimizer)
        seed = torch_stream(self.seed, "rounding", 0 if self.persist else round_, client).initial_seed() & 0xFFFFFFFF
        return QLocalAdam(params, seed=seed, **self.optimizer)


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
    model: nn.Module,
    data: Samples,
    indices: Tensor,
    how: LocalTraining,
    round_: int,
    client: int,
    states: dict[str, Any] | None = None,
) -> ClientResult:
    """Train `model` in place on the samples at `indices`; at least one.

    `states`: those that its optimizer goes on with, instead of fresh ones.
    """
    optimizer = how.make_optimizer(model.parameters(), round_, client)
    if states is not None:
        optimizer.load_state_dict(states)
    total = torch.zeros((), device=data.labels.device)
    for inputs, targets in batches(data, indices, how, round_, client):
        optimizer.zero_grad()
        total += backward(model, inputs, targets, how) * len(targets)
        optimizer.step()
    seen = how.epochs * len(indices)
    return ClientResult(total.item() / seen, seen, is_finite(model), optimizer)


def batches(
    data: Samples, indices: Tensor, how: LocalTraining, round_: int, client: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The inputs and targets of every local step."""
    device = data.labels.device
    draw = torch_stream(how.seed, "batches", round_, client)
    for _ in range(how.epochs):
        # Once an epoch: to copy a batch's indices to a GPU would make each step wait for the one before.
        order = indices[torch.randperm(len(indices), generator=draw)].to(device)
        flips = (torch.rand(len(indices), generator=draw) < 0.5).to(device) if how.flip else None
        for first in range(0, len(order), how.batch_size):
            part = slice(first, first + how.batch_size)
            yield data.batch(order[part], None if flips is None else flips[part])


def backward(model: nn.Module, inputs: Tensor, targets: Tensor, how: LocalTraining) -> Tensor:
    """Add the gradients of a batch to those of the model. Returns its loss, which is not scaled."""
    # One image has no statistics to normalise by; it is trained with the running ones.
    if model.training != (len(targets) > 1):
        model.train(len(targets) > 1)
    with torch.autocast(targets.device.type, torch.bfloat16, enabled=how.autocast):
        # Text has a target at every place of a window, an image has one.
        loss = cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
    (loss * how.loss_scale).backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def is_finite(model: nn.Module) -> bool:
    """Whether every weight and statistic of the model is a number."""
    return all(bool(value.isfinite().all()) for value in model.state_dict().values())
