"""QLocalAdam: Adam whose two states are kept as codes of 8 or 4 bits, each by a codec of its own, or in FP32.

Every arm of the paper is this class with two words changed; `ARMS` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from qlocaladam.codecs import (
    Codec,
    DynamicCodec,
    Encoded,
    LinearCodec,
    LogCodec,
    NormalisedCodec,
    UnsignedDynamicCodec,
)
from qlocaladam.kernels import Rule, Work, fused, reference
from qlocaladam.keys import stream_key
from qlocaladam.memory import MemoryReport, StateBytes, check_layout, state_bytes

ARMS: dict[str, dict[str, Any]] = {
    "fp32": {"momentum": "fp32", "variance": "fp32"},
    "q-localadam": {"momentum": "linear", "variance": "log"},
    "naive-int8": {"momentum": "linear", "variance": "linear", "variance_floor": 0.0},
    "momentum-only": {"momentum": "linear", "variance": "fp32"},
    "variance-only": {"momentum": "fp32", "variance": "log"},
    "dynamic-8bit": {"momentum": "dynamic", "variance": "dynamic", "block_size": 256, "variance_floor": 0.0},
    "normalised": {"momentum": "normalised", "variance": "log", "variance_floor": 0.0, "log_offset": 1e-16},
    "normalised-4bit": {
        "momentum": "normalised",
        "variance": "log",
        "variance_floor": 0.0,
        "log_offset": 1e-16,
        "bits": 4,
    },
}
"""The arms by the paper's names, the 8-bit Adam of Dettmers et al., and ours, as options of `QLocalAdam`.

Only Q-LocalAdam and variance-only have the floor of the released code. With it the naive arm would not collapse; the
normalised arms do without. Their offset is the square of eps: a variance below it has a root that eps outweighs.
"""

SIGNED_CODECS: dict[str, type[Codec]] = {
    "linear": LinearCodec,
    "normalised": NormalisedCodec,
    "dynamic": DynamicCodec,
}
UNSIGNED_CODECS: dict[str, type[Codec]] = {"log": LogCodec, "linear": LinearCodec, "dynamic": UnsignedDynamicCodec}
MOMENTUM_CODECS = (*SIGNED_CODECS, "fp32")
VARIANCE_CODECS = (*UNSIGNED_CODECS, "fp32")
CODEC_OPTIONS = ("momentum", "variance", "block_size", "rounding", "log_offset", "bits")
BACKENDS = ("auto", "fused", "reference")


@cache
def state_codecs(
    momentum: str, variance: str, block_size: int, rounding: str, log_offset: float, bits: int = 8
) -> tuple[Codec | None, Codec | None]:
    """The codecs that these options mean; None for a state in FP32. Raises ValueError for what does not exist."""
    if momentum not in MOMENTUM_CODECS:
        raise ValueError(f"momentum must be one of {', '.join(MOMENTUM_CODECS)}, got {momentum!r}")
    if variance not in VARIANCE_CODECS:
        raise ValueError(f"variance must be one of {', '.join(VARIANCE_CODECS)}, got {variance!r}")
    LogCodec(block_size, rounding, log_offset, bits=bits)  # refuses what would be wrong for any
    first, second = SIGNED_CODECS.get(momentum), UNSIGNED_CODECS.get(variance)
    offset = {"offset": log_offset} if second is LogCodec else {}
    return (
        first(block_size, rounding, bits=bits) if first else None,
        second(block_size, rounding, bits=bits, **offset) if second else None,
    )


def _check_options(group: dict[str, Any]) -> None:
    def need(name: str, ok: bool, accepted: str) -> None:
        if not ok:
            raise ValueError(f"{name} must be {accepted}, got {group[name]!r}")

    def number(name: str, low: float = 0.0, high: float = math.inf) -> bool:
        value = group[name]
        return isinstance(value, float | int | Tensor) and low <= float(value) < high

    need("lr", number("lr"), "a finite number of at least 0")
    need("eps", number("eps"), "a finite number of at least 0")
    need("weight_decay", number("weight_decay"), "a finite number of at least 0")
    betas = group["betas"]
    need(
        "betas",
        isinstance(betas, tuple | list) and len(betas) == 2 and all(0 <= beta < 1 for beta in betas),
        "two numbers in [0, 1)",
    )
    floor = group["variance_floor"]
    need("variance_floor", floor is None or number("variance_floor"), "None or a finite number of at least 0")
    need("seed", isinstance(group["seed"], int), "a whole number")
    need("backend", group["backend"] in BACKENDS, f"one of {', '.join(BACKENDS)}")
    state_codecs(*(group[name] for name in CODEC_OPTIONS))


class QLocalAdam(Optimizer):
    r"""Adam with block-wise states of 8 or 4 bits, a drop-in for :class:`torch.optim.Adam`.

    Each step reads the stored states, updates them and the parameter in FP32, and stores the new states. Between steps
    nothing is kept but codes and block ranges: at blocks of 64, 2.25 bytes a parameter instead of 8, or 1.25 at 4 bits.

    Args:
        params: parameters, named parameters or parameter groups, as for any torch optimizer.
        lr, betas, eps, weight_decay, maximize: as for :class:`torch.optim.Adam`.
        decoupled_weight_decay: decay the parameter as AdamW does, instead of adding to the gradient.
        momentum: how the first moment is stored: ``linear`` (the paper), ``normalised`` (divided by the root of the
            second, which needs no floor), ``dynamic`` or ``fp32``.
        variance: how the second moment is stored: ``log`` (the paper), ``linear``, ``dynamic`` or ``fp32``.
        block_size: values that share a range; at least 2.
        rounding: ``nearest``, ``floor`` (the paper's equations 3 and 9) or ``stochastic``.
        variance_floor: every stored variance is read as at least this. ``None`` means `eps` for a quantized
            variance, as in the paper's released code, and no floor for FP32. Without a floor, momentum's absolute
            rounding error is divided by roots close to 0, and training collapses; 0 turns it off.
        log_offset: what is added to the variance before the logarithm. Variances far below it are read as 0.
        bits: of a code, 8 or 4; 4 needs an even `block_size`, and not ``dynamic``.
        seed: of stochastic rounding. Draws depend on nothing but the seed, the step, the tensor and the position, so
            nothing of them needs to be saved.
        backend: ``fused`` (compiled, CPU), ``reference`` (torch operations, any device), or ``auto``: fused wherever
            it can be had. Both give the same numbers up to float32 rounding.

    States are FP32 numbers or codes of them whatever the type of the parameter; parameters of 16 bits are updated in
    FP32 and rounded back. A NaN or infinity in a gradient makes that parameter NaN or infinite at once, and in a
    quantized state it makes the range of its block NaN, so that from the next step on the parameters of that one block
    are NaN: damage is seen, and does not spread to other blocks.
    """

    _setting_names: ClassVar = (
        "momentum",
        "variance",
        "block_size",
        "rounding",
        "variance_floor",
        "log_offset",
        "bits",
        "seed",
    )

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        momentum: str = "linear",
        variance: str = "log",
        block_size: int = 64,
        rounding: str = "nearest",
        variance_floor: float | None = None,
        log_offset: float = 1e-8,
        bits: int = 8,
        seed: int = 0,
        backend: str = "auto",
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        try:
            for param in self.param_groups[-1]["params"]:
                self._kernel(self.param_groups[-1], param)
        except (ValueError, RuntimeError):
            self.param_groups.pop()
            raise

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient. `closure` recomputes the loss, which is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first = 0
        for group in self.param_groups:
            rule = _rule(group)
            for kernel, work in self._work(group, rule, first).items():
                kernel(work, rule)
            first += len(group["params"])
        return loss

    def _work(self, group: dict[str, Any], rule: Rule, first: int) -> dict[Callable[..., None], list[Work]]:
        """The tensors of a group to update, by the kernel that does it. `first` numbers the group's parameters."""
        work: dict[Callable[..., None], list[Work]] = {}
        stochastic = rule.rounding == "stochastic"
        for index, param in enumerate(group["params"], first):
            if (grad := param.grad) is None:
                continue
            if grad.is_sparse:
                raise RuntimeError("QLocalAdam does not support sparse gradients")
            state = self.state[param]
            if not state:
                _make_state(state, "momentum", rule.momentum, param)
                _make_state(state, "variance", rule.variance, param)
                state["step"] = 0
            step = state["step"] = state["step"] + 1
            keys = [stream_key(group["seed"], step, index, moment) if stochastic else 0 for moment in (0, 1)]
            work.setdefault(self._kernel(group, param), []).append(
                Work(param, grad, _stored(state, "momentum"), _stored(state, "variance"), step, *keys)
            )
        return work

    @staticmethod
    def _kernel(group: dict[str, Any], param: Tensor) -> Callable[..., None]:
        if param.is_complex():
            raise ValueError(f"QLocalAdam updates real parameters only, got one of {param.dtype}")
        backend = group["backend"]
        if backend != "reference" and param.device.type == "cpu" and fused.library() is not None:
            return fused.update
        if backend == "fused" and param.device.type != "cpu":
            raise ValueError(f"backend 'fused' runs on the CPU, got a parameter on {param.device}; use 'auto'")
        if backend == "fused":
            raise RuntimeError(
                "backend 'fused' was not built: install the package where a C compiler is, or use 'reference'"
            )
        return reference.update

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state made with the same settings, bit for bit. Other settings are refused by name.

        The learning rate, betas, eps and weight decay come from the state, as in torch; the backend does not.
        """
        loaded: dict[str, Any] = {}

        # torch casts every floating-point state to the type of its parameter, which would ruin codes and ranges. So
        # torch gets the groups, and the states are put in their place between its hooks.
        def take(_: Optimizer, given: dict[str, Any]) -> dict[str, Any]:
            loaded.update(given)
            self._refuse_other_settings(given["param_groups"])
            groups = [
                {**saved, "backend": own["backend"]}
                for saved, own in zip(given["param_groups"], self.param_groups, strict=False)
            ]
            return {**given, "param_groups": groups, "state": {}}

        def put(_: Optimizer) -> None:
            names = chain.from_iterable(group["params"] for group in loaded["param_groups"])
            for group in self.param_groups:
                for name, param in zip(names, group["params"], strict=False):
                    if name in loaded["state"]:
                        self.state[param] = _placed(loaded["state"][name], param, name, group["bits"])

        hooks = (
            self.register_load_state_dict_pre_hook(take),
            self.register_load_state_dict_post_hook(put, prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _refuse_other_settings(self, saved_groups: list[dict[str, Any]]) -> None:
        if len(saved_groups) != len(self.param_groups):
            raise ValueError(
                f"the state has {len(saved_groups)} parameter groups, the optimizer has {len(self.param_groups)}"
            )
        for saved, own in zip(saved_groups, self.param_groups, strict=True):
            for name in self._setting_names:
                if name not in saved:
                    raise ValueError(f"the state has no setting {name!r}: it was not made by QLocalAdam")
                if saved[name] != own[name]:
                    raise ValueError(
                        f"the state was made with {name}={saved[name]!r}, the optimizer has {name}={own[name]!r}"
                    )

    def memory_report(self, layout: str = "held") -> MemoryReport:
        """Bytes of the states that exist, by tensor and state.

        `held` counts what is stored. `published` counts the same states in the layout behind the paper's figures:
        padded blocks with 12 bytes of metadata each.
        """
        check_layout(layout)
        rows = []
        index = 0
        for group in self.param_groups:
            names = group.get("param_names", [f"param{index + i}" for i in range(len(group["params"]))])
            rule = _rule(group)
            for name, param in zip(names, group["params"], strict=True):
                for moment, codec in (("momentum", rule.momentum), ("variance", rule.variance)):
                    if param not in self.state:
                        continue
                    stored = _stored(self.state[param], moment)
                    held = sum(t.nbytes for t in (stored if isinstance(stored, Encoded) else (stored,)))
                    numel = param.numel()
                    size = held if layout == "held" else state_bytes(numel, codec, layout)
                    rows.append(StateBytes(name, moment, numel, size))
            index += len(group["params"])
        return MemoryReport(layout, tuple(rows))


def _rule(group: dict[str, Any]) -> Rule:
    momentum, variance = state_codecs(*(group[name] for name in CODEC_OPTIONS))
    floor = group["variance_floor"]
    if floor is None:
        floor = 0.0 if variance is None else group["eps"]
    beta1, beta2 = group["betas"]
    return Rule(
        momentum=momentum,
        variance=variance,
        block_size=group["block_size"],
        rounding=group["rounding"],
        lr=float(group["lr"]),
        beta1=beta1,
        beta2=beta2,
        eps=group["eps"],
        weight_decay=group["weight_decay"],
        decoupled=group["decoupled_weight_decay"],
        maximize=group["maximize"],
        variance_floor=floor,
        log_offset=group["log_offset"],
    )


def _make_state(state: dict[str, Any], moment: str, codec: Codec | None, param: Tensor) -> None:
    if codec is None:
        state[moment] = torch.zeros(param.shape, dtype=torch.float32, device=param.device)
    else:
        state[f"{moment}_codes"], state[f"{moment}_ranges"] = codec.zeros(param.numel(), param.device)


def _stored(state: dict[str, Any], moment: str) -> Tensor | Encoded:
    if moment in state:
        fp32: Tensor = state[moment]
        return fp32
    return Encoded(state[f"{moment}_codes"], state[f"{moment}_ranges"])


def _placed(saved: dict[str, Any], param: Tensor, name: object, bits: int) -> dict[str, Any]:
    """A copy of a saved state on the parameter's device, refused if it belongs to a tensor of another size."""
    for key, value in saved.items():
        if not isinstance(value, Tensor) or key.endswith("_ranges"):
            continue
        wanted = -(-param.numel() * bits // 8) if key.endswith("_codes") else param.numel()
        if value.numel() != wanted:
            raise ValueError(f"state {name!r} has {value.numel()} values in {key!r}, its parameter needs {wanted}")
    return {
        key: value.to(param.device, copy=True) if isinstance(value, Tensor) else value for key, value in saved.items()
    }
