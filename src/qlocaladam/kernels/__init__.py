"""One Adam update of a list of tensors: `reference` in torch operations, `fused` in C for CPUs, `triton` for GPUs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from qlocaladam.codecs import Codec, Encoded, LogCodec
from qlocaladam.streams import stream_key

CODES = {"linear": 1, "log": 2, "dynamic": 3, "normalised": 4}
"""The codes that compiled kernels have, and what they call them; the dynamic one of 8 bits."""


def missing_code(codecs: tuple[Codec | None, Codec | None]) -> str | None:
    """Why a compiled kernel cannot store states by these codecs; None if it can."""
    for codec in filter(None, codecs):
        if codec.name not in CODES or (codec.name == "dynamic" and codec.bits != 8):
            return f"has no {codec.name} code of {codec.bits} bits"
    return None


class Work(NamedTuple):
    """One tensor to update in place, with its states as they are stored."""

    param: Tensor
    grad: Tensor
    momentum: Tensor | Encoded
    variance: Tensor | Encoded
    step: int
    """1 on the first update."""
    number: int
    """Of the tensor among all of the optimizer: stochastic rounding draws for each of them apart."""


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
    eps_floor: float
    weight_decay: float
    decoupled: bool
    maximize: bool
    variance_floor: float
    floor_first_step: bool
    log_offset: float
    weight_rounding: str
    seed: int

    def key(self, work: Work, use: int) -> int:
        """The stream that stochastic rounding draws from: of momentum (0), of variance (1), of the weight (2)."""
        return stream_key(self.seed, work.step, work.number, use)

    def step_size(self, step: int) -> float:
        return self.lr / (1 - self.beta1**step)

    def root_correction(self, step: int) -> float:
        return float((1 - self.beta2**step) ** 0.5)

    def eps_at(self, step: int) -> float:
        """What is added to the root of the variance: at least the root of what `eps_floor` is after bias correction."""
        return max(self.eps, self.eps_floor**0.5 / self.root_correction(step)) if self.eps_floor else self.eps

    def floor(self, step: int) -> float:
        """What a variance is read as at least. Before the first step there is nothing to read but zeros."""
        return self.variance_floor if step > 1 or self.floor_first_step else 0.0

    def least_ranges(self) -> tuple[float, float]:
        """What a narrower range of a block counts as, of momentum and of variance; of logarithms in powers of two."""
        momentum, variance = (codec.least_range if codec else 0.0 for codec in (self.momentum, self.variance))
        return momentum, variance / math.log(2) if isinstance(self.variance, LogCodec) else variance
