"""QLocalAdam: Adam whose two states are kept as codes of 8 or 4 bits, each by a codec of its own, or in FP32.

Every arm of the paper is this class with two words changed; `ARMS` has the words. `Adam8bit` and `Adam4bit` are the
arms for everyday training.
"""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from qlocaladam import states
from qlocaladam.codecs import SIGNED_CODECS, UNSIGNED_CODECS, Codec, Encoded, LogCodec
from qlocaladam.kernels import Rule, Work, fused, memory, reference
from qlocaladam.memory import MemoryReport, StateBytes, check_layout, state_bytes

NORMALISED: dict[str, Any] = {
    "momentum": "normalised",
    "variance": "log",
    "rounding": "stochastic",
    "variance_floor": 0.0,
    "log_offset": 1e-16,
    "pad_blocks": False,
    "least_ranges": False,
}
"""Bounded steps without a floor. The offset is the square of eps: a variance below it has a root that eps outweighs.
Rounded to nearest, small ratios would never fade (docs/method.md)."""

ARMS: dict[str, dict[str, Any]] = {
    "fp32": {"momentum": "fp32", "variance": "fp32"},
    "q-localadam": {"momentum": "linear", "variance": "log"},
    "naive-int8": {"momentum": "linear", "variance": "linear", "variance_floor": 0.0},
    "momentum-only": {"momentum": "linear", "variance": "fp32"},
    "variance-only": {"momentum": "fp32", "variance": "log"},
    "dynamic-8bit": {"momentum": "dynamic", "variance": "dynamic", "block_size": 256, "variance_floor": 0.0},
    "normalised": NORMALISED,
    "normalised-4bit": {**NORMALISED, "bits": 4},
}
"""The arms by the paper's names, the 8-bit Adam of Dettmers et al., and ours, as options of `QLocalAdam`.

The paper's quantized arms do what its released code does, its floor, its padding and its least ranges included. Only
Q-LocalAdam and variance-only have the floor there.
"""

LEAST_LINEAR_RANGE = 1e-8
LEAST_LOG_RANGE = 1e-4
"""The least ranges of the released code: of values, and of natural logarithms."""

MOMENTUM_CODECS = (*SIGNED_CODECS, "fp32")
VARIANCE_CODECS = (*UNSIGNED_CODECS, "fp32")
CODEC_OPTIONS = ("momentum", "variance", "block_size", "rounding", "log_offset", "bits", "pad_blocks", "least_ranges")
BACKENDS = ("auto", "fused", "triton", "reference")
WEIGHT_ROUNDINGS = ("nearest", "stochastic")
PARAMETER_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

SETTINGS = (
    *CODEC_OPTIONS,
    "variance_floor",
    "floor_first_step",
    "eps_floor",
    "weight_rounding",
    "min_quantized_size",
    "seed",
)
"""What a saved state and the optimizer that loads it must have in common."""

BEFORE: dict[str, Any] = {
    "bits": 8,
    "pad_blocks": False,
    "least_ranges": False,
    "floor_first_step": True,
    "eps_floor": 0.0,
    "weight_rounding": "nearest",
    "min_quantized_size": 0,
    "maximize": False,
    "decoupled_weight_decay": False,
    "amsgrad": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": None,
}
"""What a state was made with that is older than the option."""

Batches = dict[tuple[Callable[..., None], bool], list[tuple[Tensor, states.State, Work]]]

TABLES: dict[Callable[..., None], Callable[[Sequence[Work], Rule], memory.Table]] = {fused.update: fused.Table}
"""What the steps of a kernel can use again; of Triton once it is imported."""

NOT_OFFERED = ("amsgrad", "foreach", "capturable", "differentiable", "fused")
"""Options of torch.optim.Adam that are accepted only where they ask for nothing."""


@lru_cache(maxsize=None, typed=True)  # 8.0 is no number of bits
def state_codecs(
    momentum: str,
    variance: str,
    block_size: int,
    rounding: str,
    log_offset: float,
    bits: int = 8,
    pad_blocks: bool = False,
    least_ranges: bool = False,
) -> states.Codecs:
    """The codecs that these options mean; None for a state in FP32. Raises ValueError for what does not exist."""
    if momentum not in MOMENTUM_CODECS:
        raise ValueError(f"momentum must be one of {', '.join(MOMENTUM_CODECS)}, got {momentum!r}")
    if variance not in VARIANCE_CODECS:
        raise ValueError(f"variance must be one of {', '.join(VARIANCE_CODECS)}, got {variance!r}")
    LogCodec(block_size, rounding, log_offset, bits=bits)  # refuses what would be wrong for any

    def made(kind: type[Codec] | None) -> Codec | None:
        if kind is None:
            return None
        options: dict[str, Any] = {"bits": bits}
        if kind.released:
            least = LEAST_LOG_RANGE if kind is LogCodec else LEAST_LINEAR_RANGE
            options |= {"pad_blocks": pad_blocks, "least_range": least if least_ranges else 0.0}
        if kind is LogCodec:
            options["offset"] = log_offset
        return kind(block_size, rounding, **options)

    return made(SIGNED_CODECS.get(momentum)), made(UNSIGNED_CODECS.get(variance))


def _check_options(group: dict[str, Any]) -> None:
    def need(name: str, ok: bool, accepted: str) -> None:
        if not ok:
            raise ValueError(f"{name} must be {accepted}, got {group[name]!r}")

    def number(value: Any, low: float = 0.0, high: float = math.inf) -> bool:
        if isinstance(value, Tensor):
            return value.numel() == 1 and not value.is_complex() and low <= float(value) < high
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        return low <= float(value) < high

    need("lr", number(group["lr"]), "a finite number of at least 0, or a tensor of one")
    need("eps", number(group["eps"]), "a finite number of at least 0")
    need("weight_decay", number(group["weight_decay"]), "a finite number of at least 0")
    betas = group["betas"]
    need(
        "betas",
        isinstance(betas, tuple | list) and len(betas) == 2 and all(number(beta, high=1.0) for beta in betas),
        "two numbers in [0, 1)",
    )
    floor = group["variance_floor"]
    need("variance_floor", floor is None or number(floor), "None or a finite number of at least 0")
    for name in ("pad_blocks", "least_ranges", "floor_first_step", "decoupled_weight_decay", "maximize"):
        need(name, isinstance(group[name], bool), "True or False")
    for name in ("momentum", "variance", "rounding"):
        need(name, isinstance(group[name], str), "a word")
    need("eps_floor", number(group["eps_floor"]), "a finite number of at least 0")
    need("log_offset", number(group["log_offset"]), "a number above 0")
    for name in ("seed", "min_quantized_size"):
        need(name, isinstance(group[name], int) and not isinstance(group[name], bool), "a whole number")
    need("backend", group["backend"] in BACKENDS, f"one of {', '.join(BACKENDS)}")
    need("weight_rounding", group["weight_rounding"] in WEIGHT_ROUNDINGS, f"one of {', '.join(WEIGHT_ROUNDINGS)}")
    for name in NOT_OFFERED:
        if group[name]:
            raise ValueError(f"{name}={group[name]!r} is not offered by QLocalAdam; leave it at {BEFORE[name]}")
    state_codecs(*(group[name] for name in CODEC_OPTIONS))
    _rule(group)


class QLocalAdam(Optimizer):
    r"""Adam with block-wise states of 8 or 4 bits, a drop-in for :class:`torch.optim.Adam`.

    Each step reads the stored states, updates them and the parameter in FP32, and stores the new states. Between steps
    nothing is kept but codes and block ranges: at blocks of 64, 2.25 bytes a parameter instead of 8, or 1.25 at 4 bits.

    The default is the paper's method as it was released. Its floor makes it another optimizer than Adam where gradients
    are small; `Adam8bit` and `Adam4bit` follow Adam at any scale of the loss.

    Args:
        params: parameters, named parameters or parameter groups, as for any torch optimizer.
        lr, betas, eps, weight_decay, maximize: as for :class:`torch.optim.Adam`.
        amsgrad, foreach, capturable, differentiable, fused: accepted so that a call written for torch.optim.Adam works
            unchanged, and refused where they ask for something.
        decoupled_weight_decay: decay the parameter as AdamW does, instead of adding to the gradient.
        momentum: how the first moment is stored: ``linear`` (the paper), ``normalised`` (divided by the root of the
            second, which needs no floor; betas must satisfy beta1^2 < beta2), ``dynamic``, ``softsign`` or ``fp32``.
        variance: how the second moment is stored: ``log`` (the paper), ``linear``, ``dynamic``, ``root``, ``nonzero``
            or ``fp32``.
        block_size: values that share a range; at least 2.
        rounding: of codes: ``nearest``, ``floor`` (the paper's equations 3 and 8) or ``stochastic``.
        variance_floor: every stored variance is read as at least this. ``None`` means `eps` for a quantized
            variance, as in the paper's released code, and no floor for FP32. Without a floor, momentum's absolute
            rounding error is divided by roots close to 0, and training collapses; 0 turns it off.
        floor_first_step: apply the floor to the zeros before the first step as well. The released code does not.
        eps_floor: `eps` is at least sqrt(eps_floor / (1 - beta2^step)), which is what a floor of this size under the
            variance is worth in the denominator: large in the first steps, and fading.
        log_offset: what is added to the variance before the logarithm. Variances far below it are read as 0.
        bits: of a code, 8 or 4; 4 needs an even `block_size`.
        pad_blocks, least_ranges: details of the released code's linear and log codes: a short last block is padded with
            zeros (log: with `log_offset`), which its range includes; a range below 1e-8 (of logarithms: 1e-4) counts as
            that.
        weight_rounding: of parameters of 16 bits: ``nearest``, or ``stochastic``, with which they move even where a
            step is smaller than the distance to the next such number.
        min_quantized_size: tensors of fewer values keep both states in FP32.
        seed: of stochastic rounding. Draws depend on nothing but the seed, the step, the tensor and the position, so
            nothing of them needs to be saved.
        backend: ``fused`` (compiled, CPU), ``triton`` (GPU, blocks of 32, 64, 128 or 256), ``reference`` (torch
            operations, any device and code), or ``auto``: the first two wherever they can be had, which have no code
            for ``softsign``, ``root``, ``nonzero`` and ``dynamic`` of 4 bits. All give the same numbers up to float32
            rounding.

    States are FP32 numbers or codes of them; parameters of 16 bits are updated in FP32 and rounded back. Parameters in
    float64 are updated in float64, by the reference. A NaN or infinity in a gradient makes that parameter NaN or
    infinite at once, and in a quantized state it makes the range of its block NaN, so that from the next step on the
    parameters of that one block are NaN: damage is seen, and does not spread to other blocks.
    """

    _kept: dict[int, memory.Kept]
    """What the steps of a group can use again, by the group's number."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        momentum: str = "linear",
        variance: str = "log",
        block_size: int = 64,
        rounding: str = "nearest",
        variance_floor: float | None = None,
        floor_first_step: bool = False,
        eps_floor: float = 0.0,
        log_offset: float = 1e-8,
        bits: int = 8,
        pad_blocks: bool = True,
        least_ranges: bool = True,
        weight_rounding: str = "nearest",
        min_quantized_size: int = 0,
        seed: int = 0,
        backend: str = "auto",
    ) -> None:
        defaults = {name: value for name, value in locals().items() if name not in ("self", "params", "__class__")}
        self._kept = {}
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._kept = {}
        super().__setstate__(state)
        for group in self.param_groups:  # of an optimizer that was pickled before an option existed
            for name, value in BEFORE.items():
                group.setdefault(name, value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if isinstance(param_group, dict):  # torch says what is wrong with anything else
            _check_options({**self.defaults, **param_group})
        self._kept = {}
        _without_dynamo(Optimizer.add_param_group)(self, param_group)
        try:
            for param in self.param_groups[-1]["params"]:
                if not is_lazy(param):
                    _refuse_parameter(param)
                    _kernel(self.param_groups[-1], _codecs(self.param_groups[-1], param), states.local(param))
        except (ValueError, RuntimeError):
            self.param_groups.pop()
            raise
        _say_what_is_slow(self.param_groups[-1])

    def zero_grad(self, set_to_none: bool = True) -> None:
        _without_dynamo(Optimizer.zero_grad)(self, set_to_none)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient. `closure` recomputes the loss, which is returned."""
        if (
            not torch.compiler.is_compiling()
            and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            and torch.cuda.is_current_stream_capturing()
        ):
            raise RuntimeError("QLocalAdam.step() in a CUDA graph would repeat the step that it recorded: leave it out")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        updates, first = [], 0
        for number, group in enumerate(self.param_groups):  # everything is looked at before anything is changed
            updates.append(self._prepared(number, group, first))
            first += len(group["params"])
        for update in updates:
            update()
        return loss

    def _prepared(self, number: int, group: dict[str, Any], first: int) -> Callable[[], None]:
        """The step of a group, which cannot fail any more. `first` numbers its parameters."""
        kept = self._kept.get(number)
        rules = {quantized: _rule(group, quantized) for quantized in (kept.quantized if kept else (False, True))}
        if kept and group["backend"] != "reference" and kept.fits(group["params"], self.state, rules):
            return partial(kept.run, rules)
        self._kept.pop(number, None)
        rules = rules if len(rules) == 2 else {quantized: _rule(group, quantized) for quantized in (False, True)}
        gradients = _gradients(group)
        # A parameter that stands in the group twice is updated twice, the second time with what the first has left.
        rounds: list[dict[int, Tensor]] = []
        seen: Counter[int] = Counter()
        for index, grad in gradients.items():
            turn = seen[id(group["params"][index])]
            seen[id(group["params"][index])] += 1
            rounds.extend({} for _ in range(turn + 1 - len(rounds)))
            rounds[turn][index] = grad
        if not rounds:
            return _nothing
        work = self._work(group, rounds[0], first, rules)
        return partial(self._update, number, group, work, rounds[1:], first, rules)

    def _update(
        self,
        number: int,
        group: dict[str, Any],
        work: Batches,
        again: list[dict[int, Tensor]],
        first: int,
        rules: dict[bool, Rule],
    ) -> None:
        for (kernel, quantized), batch in work.items():
            kernel([one for _, _, one in batch], rules[quantized])
            for param, state, one in batch:
                self.state[param] = state
                state["step"] = one.step
        for gradients in again:
            self._update(number, group, self._work(group, gradients, first, rules), [], first, rules)
        kernels = {kernel for kernel, _ in work}
        if not again and len(kernels) == 1 and kernels <= TABLES.keys():
            batches = {quantized: [one for _, _, one in batch] for (_, quantized), batch in work.items()}
            table = TABLES[kernels.pop()]
            self._kept.update(memory.kept(number, group["params"], self.state, batches, rules, table))

    def _work(
        self, group: dict[str, Any], gradients: dict[int, Tensor], first: int, rules: dict[bool, Rule]
    ) -> Batches:
        """The tensors of a group to update, by what does it and whether they are quantized."""
        work: Batches = {}
        for index, grad in gradients.items():
            param = group["params"][index]
            quantized = param.numel() >= group["min_quantized_size"]
            rule = rules[quantized]
            state = self.state.get(param) or states.new_state(param, (rule.momentum, rule.variance))
            own = states.local(param)
            one = Work(
                own,
                grad,
                states.stored(state, "momentum", rule.momentum, param),
                states.stored(state, "variance", rule.variance, param),
                states.step_of(state, param) + 1,
                first + index,
            )
            kernel = _kernel(group, (rule.momentum, rule.variance), own, grad)
            work.setdefault((kernel, quantized), []).append((param, state, one))
        return work

    def state_dict(self) -> dict[str, Any]:
        """As of any torch optimizer; refused for parameters of FullyShardedDataParallel, which cannot gather codes."""
        for group in self.param_groups:
            quantized = any(codec is not None for codec in state_codecs(*(group[name] for name in CODEC_OPTIONS)))
            if quantized and any(hasattr(param, "_fsdp_flattened") for param in group["params"]):
                raise NotImplementedError(
                    "FullyShardedDataParallel (FSDP1) gathers states by the shapes of their parameters, which codes do "
                    "not have; use fully_shard (FSDP2), or pass optim_state_dict=optimizer.adam_state_dict()"
                )
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state made with the same settings, bit for bit, or the state of a torch.optim.Adam or AdamW.

        Other settings are refused by name, and so is a state that does not fit its parameter; then nothing changes. The
        learning rate, betas, eps and weight decay come from the state, as in torch; the backend does not.
        """
        loaded: dict[Tensor, states.State] = {}

        # torch casts every floating-point state to the type of its parameter, which would ruin codes and ranges. So
        # torch gets the groups, and the states are put in their place between its hooks.
        def take(_: Optimizer, given: dict[str, Any]) -> dict[str, Any]:
            groups = self._matching_groups(given["param_groups"])
            loaded.update(self._fitting_states(given, groups))
            names = {name for group in groups for name in group["params"]}
            others = {name: value for name, value in given["state"].items() if name not in names}
            for name, value in others.items():  # torch keeps what belongs to no parameter
                if isinstance(value, dict) and "step" in value:
                    raise ValueError(f"the state has an entry for a parameter {name!r} that none of its groups has")
            return {**given, "param_groups": groups, "state": others}

        def put(_: Optimizer) -> None:
            self._kept = {}
            self.state.update(loaded)

        hooks = (
            self.register_load_state_dict_pre_hook(take),
            self.register_load_state_dict_post_hook(put, prepend=True),
        )
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _matching_groups(self, saved_groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The saved groups with what they lack. Raises ValueError for settings that are not the optimizer's."""
        if len(saved_groups) != len(self.param_groups):
            raise ValueError(
                f"the state has {len(saved_groups)} parameter groups, the optimizer has {len(self.param_groups)}"
            )
        groups = []
        for saved, own in zip(saved_groups, self.param_groups, strict=True):
            if len(saved["params"]) != len(own["params"]):
                raise ValueError(
                    f"the state has {len(saved['params'])} parameters in a group in which the optimizer has "
                    f"{len(own['params'])}"
                )
            for name in ("betas", "lr", "eps", "weight_decay"):
                if name not in saved:
                    raise ValueError(
                        f"the state was made neither by QLocalAdam nor by torch.optim.Adam: it has no {name!r}"
                    )
            if "variance" in saved:
                group = {**BEFORE, **saved, "backend": own["backend"]}
                self._refuse_other_settings(group, own)
            else:  # of torch.optim.Adam
                group = {**own, **saved, **dict.fromkeys(("foreach", "fused")), "capturable": False}
            _check_options(group)
            groups.append(group)
        return groups

    @staticmethod
    def _refuse_other_settings(saved: dict[str, Any], own: dict[str, Any]) -> None:
        for name in SETTINGS:
            if name not in saved:
                raise ValueError(f"the state has no setting {name!r}: it was not made by QLocalAdam")
            if saved[name] != own[name]:
                raise ValueError(
                    f"the state was made with {name}={saved[name]!r}, the optimizer has {name}={own[name]!r}"
                )

    def _fitting_states(
        self, given: dict[str, Any], groups: list[dict[str, Any]]
    ) -> Iterator[tuple[Tensor, states.State]]:
        """The saved states by the parameters that they belong to. Raises ValueError for one that does not fit."""
        for saved, own in zip(groups, self.param_groups, strict=True):
            for name, param in zip(saved["params"], own["params"], strict=True):
                state = given["state"].get(name)
                if state is not None and not isinstance(state, dict):
                    raise ValueError(f"the state of parameter {name!r} must be a dict, got {type(state).__name__}")
                if state:
                    fit = states.from_adam if states.is_adam(state) else states.checked
                    yield param, fit(state, param, _codecs(own, param), name)

    def adam_state_dict(self) -> dict[str, Any]:
        """The state as torch.optim.Adam and AdamW load it, with moments as numbers.

        Also the way to change settings, or the number of processes of FSDP2, in the middle: `load_state_dict` of an
        optimizer with other settings takes it.
        """
        packed = super().state_dict()
        params = {
            name: (param, own)
            for group, own in zip(packed["param_groups"], self.param_groups, strict=True)
            for name, param in zip(group["params"], own["params"], strict=True)
        }
        state = {
            name: states.to_adam(kept, params[name][0], _codecs(params[name][1], params[name][0]))
            for name, kept in packed["state"].items()
            if kept and name in params
        }
        ours = {*SETTINGS, "backend"}
        groups = [{k: v for k, v in group.items() if k not in ours} for group in packed["param_groups"]]
        return {**packed, "state": state, "param_groups": groups}

    def memory_report(self, layout: str = "held") -> MemoryReport:
        """Bytes of the states that exist, by tensor and state; of sharded ones, those that this process holds.

        `held` counts what is stored. `published` counts the same states in the layout behind the paper's figures:
        padded blocks with 12 bytes of metadata each.
        """
        check_layout(layout)
        rows = []
        index = 0
        for group in self.param_groups:
            names = group.get("param_names", [f"param{index + i}" for i in range(len(group["params"]))])
            for name, param in zip(names, group["params"], strict=True):
                if not self.state.get(param):
                    continue
                numel = states.local(param).numel()
                for moment, codec in zip(states.MOMENTS, _codecs(group, param), strict=True):
                    stored = states.stored(self.state[param], moment, codec, param)
                    held = sum(t.nbytes for t in (stored if isinstance(stored, Encoded) else (stored,)))
                    size = held if layout == "held" else state_bytes(numel, codec, layout)
                    rows.append(StateBytes(name, moment, numel, size))
            index += len(group["params"])
        return MemoryReport(layout, tuple(rows))


class Adam8bit(QLocalAdam):
    """Adam with 8-bit states that follows FP32 Adam whatever the scale of the loss; where torch.optim.Adam was.

    The normalised arm: momentum as m / sqrt(v), no floor, steps that are bounded whatever the gradients were. 2.19
    bytes a parameter instead of 8. With ``decoupled_weight_decay=True`` it stands for AdamW. Tensors of fewer than
    `min_quantized_size` values keep FP32 states, and weights of 16 bits are rounded stochastically. `QLocalAdam`
    explains the arguments.
    """

    _bits = 8

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        decoupled_weight_decay: bool = False,
        min_quantized_size: int = 4096,
        weight_rounding: str = "stochastic",
        **options: Any,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            **{
                **NORMALISED,
                "bits": self._bits,
                "decoupled_weight_decay": decoupled_weight_decay,
                "min_quantized_size": min_quantized_size,
                "weight_rounding": weight_rounding,
                **options,
            },
        )


class Adam4bit(Adam8bit):
    """`Adam8bit` with codes of 4 bits: 1.19 bytes a parameter, and a coarser momentum."""

    _bits = 4


def _without_dynamo(method: Callable[..., None]) -> Callable[..., None]:
    """A method of torch's optimizer that first loads the compiler, to be left alone by it.

    Loading it takes as long as loading torch. Where nobody has, nothing is being compiled.
    """
    unwrapped: Callable[..., None] = getattr(method, "__wrapped__", method)
    return method if "torch._dynamo" in sys.modules else unwrapped


def _refuse_parameter(param: Tensor) -> None:
    if param.is_complex():
        raise ValueError(f"QLocalAdam updates real parameters only, got one of {param.dtype}")
    if param.dtype not in PARAMETER_TYPES:
        raise ValueError(f"QLocalAdam updates parameters of {_words(PARAMETER_TYPES)}, got one of {param.dtype}")
    if states.keeps_its_own(param):
        raise ValueError(f"QLocalAdam updates plain tensors and DTensors, got a {type(param).__name__}")
    if param.layout != torch.strided:
        raise ValueError(f"QLocalAdam updates dense parameters only, got one of layout {param.layout}")
    if any(size > 1 and stride == 0 for size, stride in zip(param.shape, param.stride(), strict=True)):
        raise ValueError(f"QLocalAdam needs a place in memory for each value, got an expanded tensor of {param.shape}")
    states.refuse_unsummed(param)


def _words(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _nothing() -> None:
    """The step of a group without gradients."""


def _gradients(group: dict[str, Any]) -> dict[int, Tensor]:
    """This process's part of each gradient that is there, by the number of its parameter in the group."""
    given = {}
    for index, param in enumerate(group["params"]):
        if (grad := param.grad) is None:
            continue
        if grad.layout != torch.strided:
            raise RuntimeError(f"QLocalAdam does not support sparse gradients, got one of layout {grad.layout}")
        if grad.shape != param.shape:
            raise RuntimeError(
                f"a parameter of {tuple(param.shape)} has a gradient of {tuple(grad.shape)}: was its data replaced?"
            )
        if grad.is_complex():
            raise RuntimeError(f"QLocalAdam does not support complex gradients, got one of {grad.dtype}")
        if states.keeps_its_own(grad):
            raise RuntimeError(f"QLocalAdam takes plain gradients and DTensors, got a {type(grad).__name__}")
        grad = states.local_grad(param, grad)
        if grad._is_zerotensor():  # a tensor without memory, of which autograd knows that it is zero
            grad = torch.zeros_like(states.local(param))
        given[index] = grad.resolve_neg()
    return given


def _kernel(group: dict[str, Any], codecs: states.Codecs, *tensors: Tensor) -> Callable[..., None]:
    """What updates a parameter with this gradient, whose states these codecs store."""
    backend = group["backend"]
    if backend == "reference":
        return reference.update
    if backend == "triton" or (backend == "auto" and tensors[0].device.type == "cuda"):
        kernel = _triton()
        reason = _reason_against_triton(codecs, *tensors)
        if kernel is not None and reason is None:
            update: Callable[..., None] = kernel.update
            return update
        if backend == "triton":
            raise (RuntimeError if kernel is None else ValueError)(f"backend 'triton' {reason}; use 'auto'")
        return reference.update
    reason = next(filter(None, (fused.reason_against(tensor, codecs) for tensor in tensors)), None)
    if reason is None:
        return fused.update
    if backend == "fused":
        raise (RuntimeError if fused.library() is None else ValueError)(f"backend 'fused' {reason}")
    return reference.update


def _reason_against_triton(codecs: states.Codecs, *tensors: Tensor) -> str | None:
    kernel = _triton()
    if kernel is None:
        return "needs Triton: pip install 'qlocaladam[triton]'"
    return next(filter(None, (kernel.reason_against(tensor, codecs) for tensor in tensors)), None)


def takes_blocks(block_size: int) -> bool:
    """Whether Triton is there, with a kernel for blocks of this size."""
    kernel = _triton()
    return kernel is not None and block_size in kernel.BLOCK_SIZES


def _say_what_is_slow(group: dict[str, Any]) -> None:
    """On a GPU the reference takes many times as long as the kernel, and nothing else would show that it is used."""
    if group["backend"] != "auto":
        return
    for param in group["params"]:
        if param.device.type != "cuda" or is_lazy(param):
            continue
        if reason := _reason_against_triton(_codecs(group, param), states.local(param)):
            message = f"QLocalAdam updates parameters on a GPU by its reference: the Triton kernel {reason}"
            warnings.warn(message, stacklevel=4)
            return


@cache
def _triton() -> ModuleType | None:
    """The kernel for GPUs, which takes a while to import, or None where Triton is not installed."""
    if find_spec("triton") is None:
        return None
    from qlocaladam.kernels import triton

    TABLES[triton.update] = triton.Table
    return triton


def _codecs(group: dict[str, Any], param: Tensor) -> states.Codecs:
    if param.numel() < group["min_quantized_size"]:
        return None, None
    return state_codecs(*(group[name] for name in CODEC_OPTIONS))


def _rule(group: dict[str, Any], quantized: bool = True) -> Rule:
    """How tensors of a group are updated: those that are quantized, or those that are too small to be."""
    momentum, variance = state_codecs(*(group[name] for name in CODEC_OPTIONS)) if quantized else (None, None)
    floor = group["variance_floor"]
    if floor is None:
        floor = 0.0 if variance is None else group["eps"]
    beta1, beta2 = map(float, group["betas"])
    if momentum is not None and momentum.relative and 0 < beta1**2 >= beta2:
        raise ValueError(
            f"betas must satisfy beta1^2 < beta2 for normalised momentum, which has no bound otherwise, got "
            f"{group['betas']!r}"
        )
    return Rule(
        momentum=momentum,
        variance=variance,
        block_size=group["block_size"],
        rounding=group["rounding"],
        lr=float(group["lr"]),
        beta1=beta1,
        beta2=beta2,
        eps=float(group["eps"]),
        eps_floor=float(group["eps_floor"]),
        weight_decay=float(group["weight_decay"]),
        decoupled=group["decoupled_weight_decay"],
        maximize=group["maximize"],
        variance_floor=float(floor),
        floor_first_step=group["floor_first_step"],
        log_offset=group["log_offset"],
        weight_rounding=group["weight_rounding"],
        seed=group["seed"],
    )
