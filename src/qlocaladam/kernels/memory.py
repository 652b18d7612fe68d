"""What the kernels that write to memory have in common: tensors as they lie there, and tables of them that are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qlocaladam.codecs import Codec, Encoded
from qlocaladam.kernels import Rule, Work
from qlocaladam.states import has_memory

LAYOUT, DTYPE = attrgetter("layout"), attrgetter("dtype")


# What the kernels call these by.
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ADDRESSES = ("param", "grad", "momentum", "momentum_ranges", "variance", "variance_ranges")


class Table(ABC):
    """Contiguous tensors that do not overlap, as a kernel takes them: in a row of this `kind` for each, with addresses,
    size and number."""

    def __init__(self, work: Sequence[Work], rule: Rule, kind: np.dtype) -> None:
        self.params = [one.param for one in work]
        self.codecs = rule.momentum, rule.variance
        self.rows = np.zeros(len(work), kind)  # what else `kind` has is 0
        for row, one in zip(self.rows, work, strict=True):
            numel = one.param.numel()
            row["param"], row["grad"] = one.param.data_ptr(), one.grad.data_ptr()
            row["momentum"], row["momentum_ranges"] = _pointers(one.momentum, rule.momentum, numel)
            row["variance"], row["variance_ranges"] = _pointers(one.variance, rule.variance, numel)
            row["numel"], row["number"] = numel, one.number

    @abstractmethod
    def run(self, rule: Rule, steps: Sequence[int]) -> None:
        """Take the step with this number, for each tensor."""


States = Mapping[Tensor, dict[str, Any]]
Batches = Mapping[bool, Sequence[Work]]
Rules = Mapping[bool, Rule]
"""By whether the tensors are quantized."""
Make = Callable[[Sequence[Work], Rule], Table]


def reason_against(tensor: Tensor, device: str, place: str) -> str | None:
    """Why a kernel for such devices, on which it runs on this `place`, cannot update a tensor; None if it can."""
    if tensor.device.type != device:
        return f"runs on {place}, got a tensor on {tensor.device}"
    if tensor.dtype not in TYPES:
        return f"updates float32, bfloat16 and float16, got a tensor of {tensor.dtype}"
    if not has_memory(tensor, device):
        return f"takes tensors as they are in memory, got a {type(tensor).__name__} that is not"
    return None


def update_dense(work: Sequence[Work], rule: Rule, table: Make) -> None:
    """Update tensors of any layout by what takes contiguous ones that do not overlap."""
    # Parameters that share memory are updated one after the other, as torch does it.
    for batch in [[one] for one in work] if overlap(work) else [work]:
        dense = [one._replace(param=one.param.contiguous(), grad=_apart(one.grad, one.param)) for one in batch]
        table(dense, rule).run(rule, [one.step for one in dense])
        for one, copy in zip(batch, dense, strict=True):
            if copy.param is not one.param:
                one.param.copy_(copy.param)


def _interval(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor that is not empty begins and ends in memory."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (reach + 1) * tensor.element_size()


def _meet(*tensors: Tensor) -> bool:
    """Whether two of them may share memory; an interval is taken for used as a whole."""
    ends = sorted(_interval(tensor) for tensor in tensors if tensor.numel())
    return any(end > start for (_, end), (start, _) in pairwise(ends))


def overlap(work: Sequence[Work]) -> bool:
    return _meet(*(one.param for one in work))


def _apart(grad: Tensor, param: Tensor) -> Tensor:
    """The gradient in logical order, in memory that the parameter has no part of."""
    return grad.clone(memory_format=torch.contiguous_format) if _meet(grad, param) else grad.contiguous()


def _pointers(state: Tensor | Encoded, codec: Codec | None, numel: int) -> tuple[int, int]:
    """Where a moment is stored. Raises RuntimeError for memory that is not what the kernel takes it for."""
    if codec is None or isinstance(state, Tensor):
        assert isinstance(state, Tensor)
        _check(state, torch.float32, numel)
        return state.data_ptr(), 0
    _check(state.codes, torch.uint8, codec.code_bytes(numel))
    _check(state.ranges, torch.float32, codec.range_size * codec.blocks(numel))
    return state.codes.data_ptr(), state.ranges.data_ptr()


def _check(tensor: Tensor, dtype: torch.dtype, numel: int) -> None:
    if (
        not has_memory(tensor, tensor.device.type)
        or tensor.dtype != dtype
        or tensor.numel() != numel
        or not tensor.is_contiguous()
    ):
        raise RuntimeError(
            f"the optimizer's state must be {numel} contiguous values of {dtype} in memory, got "
            f"{tensor.numel()} of {tensor.dtype} on {tensor.device}: was the parameter or its state replaced?"
        )


class Kept:
    """The tables of a group, for as long as its tensors stay where they are: half of a small model's step is saved.

    Lists of them are compared: a loop with a condition for each tensor would cost more than it saves.
    """

    def __init__(self, params: Sequence[Tensor], states: States, batches: Batches, rules: Rules, make: Make) -> None:
        work = [one for batch in batches.values() for one in batch]
        self.all_params, self.params = list(params), [one.param for one in work]
        self.idle = [param for param in params if not any(param is other for other in self.params)]
        self.states = [states[param] for param in self.params]
        entries = [(state, name) for state in self.states for name, value in state.items() if isinstance(value, Tensor)]
        self.owners, self.names = [state for state, _ in entries], [name for _, name in entries]
        self.tensors = [state[name] for state, name in entries]
        self.compared = [*self.params, *self.tensors]
        self.places, self.sizes = list(map(Tensor.data_ptr, self.compared)), list(map(Tensor.numel, self.compared))
        self.grad_types, self.grad_sizes = [one.grad.dtype for one in work], self.sizes[: len(work)]
        self.own = np.array(self.places[: len(work)])
        self.reach = np.array([max(one.param.nbytes, one.grad.nbytes) for one in work])
        self.quantized = tuple(batches)
        self.tables = []
        first = 0
        for quantized, batch in batches.items():
            part = slice(first, first + len(batch))
            self.tables.append((quantized, make(batch, rules[quantized]), part))
            first = part.stop

    def fits(self, params: Sequence[Tensor], states: States, rules: Rules) -> bool:
        """Take this step's gradients; False if anything is not as it was, or a gradient is none for the kernel."""
        if any(
            (rules[quantized].momentum, rules[quantized].variance) != table.codecs
            for quantized, table, _ in self.tables
        ):
            return False
        if len(params) != len(self.all_params) or not all(map(is_, params, self.all_params)):
            return False
        if any(param.grad is not None for param in self.idle):
            return False
        grads: list[Any] = [param.grad for param in self.params]
        if set(map(type, grads)) != {Tensor} or set(map(LAYOUT, grads)) != {torch.strided}:
            return False
        if list(map(DTYPE, grads)) != self.grad_types or list(map(Tensor.numel, grads)) != self.grad_sizes:
            return False
        if not all(map(Tensor.is_contiguous, [*grads, *self.params])) or any(map(Tensor.is_neg, grads)):
            return False
        if not all(map(is_, map(states.get, self.params), self.states)):
            return False
        if not all(map(is_, map(dict.get, self.owners, self.names), self.tensors)):
            return False
        if (
            list(map(Tensor.data_ptr, self.compared)) != self.places
            or list(map(Tensor.numel, self.compared)) != self.sizes
        ):
            return False
        pointers = list(map(Tensor.data_ptr, grads))
        if 0 in pointers and any(size and not pointer for size, pointer in zip(self.grad_sizes, pointers, strict=True)):
            return False  # of zeros that autograd has not written down
        if (np.abs(np.array(pointers) - self.own) < self.reach).any():
            return False  # a gradient that shares memory with its parameter
        if set(map(type, map(dict.get, self.states, repeat("step")))) != {int}:
            return False
        for _, table, part in self.tables:
            table.rows["grad"] = pointers[part]
        return True

    def run(self, rules: Rules) -> None:
        """Take a step with the gradients that fit."""
        for quantized, table, part in self.tables:
            states = self.states[part]
            steps = [state["step"] + 1 for state in states]
            table.run(rules[quantized], steps)
            for state, step in zip(states, steps, strict=True):
                state["step"] = step


def kept(
    number: int, params: Sequence[Tensor], states: States, batches: Batches, rules: Rules, make: Make
) -> dict[int, Kept]:
    """The tables of a group by its number; none where something has to be looked at anew at every step."""
    work = [one for batch in batches.values() for one in batch]
    own = {id(param) for param in params}  # a part of a sharded parameter is none of them
    dense = (id(one.param) in own and one.param.is_contiguous() and one.grad.is_contiguous() for one in work)
    once = len(own) == len(params)  # one that stands there twice is updated twice
    return {number: Kept(params, states, batches, rules, make)} if once and all(dense) and not overlap(work) else {}
