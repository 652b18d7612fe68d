"""One Adam update of a list of tensors, twice: `reference` in torch operations, `fused` in compiled code for CPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
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


@dataclass(frozen=True)
class Rule:
    """Everything that the tensors of one update have in common."""

    momentum: Codec | None
    """None: the state is kept in FP32."""
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
    log_offset: float

    def step_size(self, step: int) -> float:
        return self.lr / (1 - self.beta1**step)

    def root_correction(self, step: int) -> float:
        return float((1 - self.beta2**step) ** 0.5)


def dense(tensor: Tensor) -> Tensor:
    """The tensor itself if it is float32 in logical order, else a copy that is."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous():
        return tensor
    return tensor.to(torch.float32).contiguous()
