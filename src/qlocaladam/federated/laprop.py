"""LaProp (Ziyin et al. 2020, arXiv 2002.04839): an average of normalised gradients, where Adam normalises an average.

Another algorithm than Adam with normalised momentum as its code: there each step divides the whole average by the
newest root of the variance, here each gradient keeps the root of its own time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer


class LaProp(Optimizer):
    """States in FP32, as published."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "no client's training has one"
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state.update(step=0, momentum=torch.zeros_like(param), variance=torch.zeros_like(param))
                state["step"] += 1
                state["variance"].lerp_(param.grad.square(), 1 - beta2)
                root = (state["variance"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
                state["momentum"].lerp_(param.grad / root, 1 - beta1)
                param.sub_(state["momentum"], alpha=group["lr"] / (1 - beta1 ** state["step"]))
