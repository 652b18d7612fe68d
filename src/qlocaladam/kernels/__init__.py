"""One Adam update of a list of tensors, twice: `reference` in torch operations, `fused` in compiled code for CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from qlocaladam.codecs import Codec, Encoded


class Work(NamedTuple):
    """One tensor to update in place, with its states as they are stored."""

    param: Tensor
    grad: Tensor
    momentum: Tensor | Encoded
    variance: Tensor | Encoded
    step: int
    """1 on the first update."""
    momentum_key: int
    variance_key: int
    weight_key: int
    """Streams of stochastic rounding: of the codes, and of a weight of 16 bits."""


@dataclass(frozen=True)
class Rule:
    """Everything that the tensors of one update have in common."""

    momentum: Codec | None
    """None: the state is not quantized."""
    variance: Codec | None
    block_size: int
    rounding: str
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    decoupled: bool
    maximize: bool
    variance_floor: float
    floor_first_step: bool
    log_offset: float
    weight_rounding: str

    def step_size(self, step: int) -> float:
        return self.lr / (1 - self.beta1**step)

    def root_correction(self, step: int) -> float:
        return float((1 - self.beta2**step) ** 0.5)

    def floor(self, step: int) -> float:
        """What a variance is read as at least. Before the first step there is nothing to read but zeros."""
        return self.variance_floor if step > 1 or self.floor_first_step else 0.0
