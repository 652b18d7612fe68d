"""A client's own training with each arm, step by step, beside an exact Adam that sees the same gradients.

The arm stores its states after every step and goes on from what it reads back, so that errors add up as they do in
training. Beside it stand exact states, made of the gradients that the arm has met: they say how far each step should
have gone, and how large the variance is.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qlocaladam import RELEASED_FLOOR
from qlocaladam.checks import whole_number
from qlocaladam.federated.batches import Samples
from qlocaladam.federated.client import LocalTraining, backward, batches

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
FAR = 10
"""Learning rates by which a step that is farther off is counted."""


class Step(NamedTuple):
    """One step of all weights together; lengths and errors in learning rates."""

    step: int
    loss: float
    """Of the batch, before the step."""
    way: float
    """Length of the step."""
    exact_way: float
    """Length of the step that exact states would have made."""
    median: float
    p99: float
    max: float
    """Distance of a weight's step from the exact one."""
    far: float
    """Share of weights whose step is more than `FAR` learning rates off."""
    zero: float
    """Share of weights whose exact variance is 0: they had no gradient so far."""
    below: float
    """Share of weights whose exact variance is above 0 and below the floor of the released code."""


def follow(
    model: nn.Module,
    data: Samples,
    indices: Tensor,
    how: LocalTraining,
    *,
    steps: int | None = None,
    round_: int = 1,
    client: int = 0,
) -> list[Step]:
    """Train `model` in place as a client would, at most so many steps, and say what each of them did."""
    if steps is not None:
        whole_number("steps", steps, 1)
    params = list(model.parameters())
    optimizer = how.make_optimizer(params, round_, client)
    exact = _Exact(params)
    taken: list[Step] = []
    for inputs, targets in itertools.islice(batches(data, indices, how, round_, client), steps):
        optimizer.zero_grad()
        loss = backward(model, inputs, targets, how)
        wanted = exact.step(params)
        before = _joined(params)
        optimizer.step()
        moved = (_joined(params) - before) / how.optimizer["lr"]
        taken.append(Step(len(taken) + 1, loss.item(), **_compared(moved, wanted), **exact.shares()))
    return taken


class _Exact:
    """States of Adam in FP32, of all weights together."""

    def __init__(self, params: list[nn.Parameter]) -> None:
        self.momentum, self.variance = (torch.zeros(sum(p.numel() for p in params)) for _ in range(2))
        self.steps = 0

    def step(self, params: list[nn.Parameter]) -> Tensor:
        """The step for the gradients that the parameters have, in learning rates."""
        gradient = _joined([torch.zeros_like(p) if p.grad is None else p.grad for p in params])
        self.steps += 1
        self.momentum.lerp_(gradient, 1 - BETA1)
        self.variance.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        root = (self.variance / (1 - BETA2**self.steps)).sqrt_().add_(EPS)
        return -self.momentum / (1 - BETA1**self.steps) / root

    def shares(self) -> dict[str, float]:
        zero = (self.variance == 0).sum().item()
        below = (self.variance < RELEASED_FLOOR).sum().item() - zero
        return {"zero": zero / len(self.variance), "below": below / len(self.variance)}


def _joined(tensors: list[Any]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1).float().cpu() for tensor in tensors])


def _compared(moved: Tensor, exact: Tensor) -> dict[str, float]:
    error: NDArray[np.float32] = (moved - exact).abs_().numpy()
    median, p99 = np.quantile(error, [0.5, 0.99])
    lengths = {"way": moved, "exact_way": exact}
    return {
        **{name: float(torch.linalg.vector_norm(values.double())) for name, values in lengths.items()},
        "median": float(median),
        "p99": float(p99),
        "max": float(error.max()),
        "far": float((error > FAR).mean()),
    }
