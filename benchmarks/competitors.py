"""Who is compared: torch's Adam, the 8-bit and 4-bit Adams of torchao and bitsandbytes, and this package's arms.

All start from the same tensors with the same gradients and torch's default learning rate, betas and eps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.optim import Optimizer

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.kernels import fused

Params = Sequence[Tensor]
PEERS = "pip install -r envs/benchmark.txt"


@dataclass(frozen=True)
class Competitor:
    name: str
    make: Callable[[Params], Optimizer]
    package: str | None = None
    compiles: bool = False
    """Its first step calls a C++ compiler for every new shape of tensor."""
    kernel: bool = False
    """Runs on our compiled kernel."""

    def absent(self) -> str | None:
        """How to get what is missing, or None."""
        if self.package and find_spec(self.package) is None:
            return f"{self.package} is not installed: {PEERS}"
        if self.kernel and fused.library() is None:
            return "the kernel was not built: install a C compiler, then pip install --no-build-isolation -e ."
        return None


def _torchao(name: str) -> Callable[[Params], Optimizer]:
    def make(params: Params) -> Optimizer:
        from torchao import optim

        made: Optimizer = getattr(optim, name)(params)
        return made

    return make


def _bitsandbytes(params: Params) -> Optimizer:
    import bitsandbytes

    made: Optimizer = bitsandbytes.optim.Adam8bit(params)
    return made


def _ours(backend: str, arm: str, **options: object) -> Callable[[Params], Optimizer]:
    return lambda params: QLocalAdam(params, backend=backend, **{**ARMS[arm], **options})


FP32 = "torch Adam, fused"
TORCHAO, TORCHAO_4 = "torchao Adam8bit", "torchao Adam4bit"
BITSANDBYTES = "bitsandbytes Adam8bit"
Q_LOCALADAM = "ours, fused: q-localadam"
Q_LOCALADAM_4 = "ours, fused: q-localadam, 4 bits"
NORMALISED, NORMALISED_4 = "ours, fused: normalised", "ours, fused: normalised-4bit"
DYNAMIC = "ours, fused: dynamic-8bit"

COMPETITORS = {
    one.name: one
    for one in (
        Competitor(FP32, lambda params: torch.optim.Adam(params, fused=True)),
        Competitor("torch Adam, foreach", lambda params: torch.optim.Adam(params, foreach=True)),
        Competitor(TORCHAO, _torchao("Adam8bit"), package="torchao", compiles=True),
        Competitor(TORCHAO_4, _torchao("Adam4bit"), package="torchao", compiles=True),
        Competitor(BITSANDBYTES, _bitsandbytes, package="bitsandbytes"),
        Competitor("ours, reference: q-localadam", _ours("reference", "q-localadam")),
        Competitor(Q_LOCALADAM, _ours("fused", "q-localadam"), kernel=True),
        Competitor(Q_LOCALADAM_4, _ours("fused", "q-localadam", bits=4), kernel=True),
        Competitor(NORMALISED, _ours("fused", "normalised"), kernel=True),
        Competitor(NORMALISED_4, _ours("fused", "normalised-4bit"), kernel=True),
        Competitor("ours, fused: naive-int8", _ours("fused", "naive-int8"), kernel=True),
        Competitor("ours, fused: fp32", _ours("fused", "fp32"), kernel=True),
        Competitor(DYNAMIC, _ours("fused", "dynamic-8bit"), kernel=True),
    )
}


def parameters(shapes: Sequence[Sequence[int]]) -> list[Tensor]:
    """Parameters with gradients of the size that training has. The same numbers every time."""
    generator = torch.Generator().manual_seed(42)
    params = [torch.randn(*shape, generator=generator).mul_(0.05).requires_grad_() for shape in shapes]
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator).mul_(1e-3)
    return params
