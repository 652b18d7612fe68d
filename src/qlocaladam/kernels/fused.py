"""The update in compiled code: one pass over the blocks of all tensors, shared out among torch's own threads.

The library is built when the package is installed, once for each instruction set, and chosen by what the CPU has.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from operator import is_
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qlocaladam.codecs import ROUNDINGS, Codec, Encoded, LogCodec, dynamic_values
from qlocaladam.kernels import Rule, Work
from qlocaladam.states import has_memory

VALUES_PER_THREAD = 2**16
"""Below this, waking another thread costs more than it saves."""

PARTS_PER_THREAD = 8
"""Into how many parts a thread's share is cut, so that others can take over from one that is held up."""

# What fused.c calls by these numbers.
KINDS = {"linear": 1, "log": 2, "dynamic": 3, "normalised": 4}
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

CELLS = 3073

# The structures of fused.c.
TENSOR = np.dtype(
    [(name, np.uintp) for name in ("param", "grad", "momentum", "momentum_ranges", "variance", "variance_ranges")]
    + [(name, np.int64) for name in ("numel", "first_block")]
    + [(name, np.float32) for name in ("step_size", "inv_root_correction", "variance_floor")]
    + [(name, np.uint32) for name in ("step", "index")]
    + [(name, np.int32) for name in ("param_type", "grad_type")],
    align=True,
)


class Settings(ctypes.Structure):
    _fields_ = (
        ("block_size", ctypes.c_int64),
        ("padded_size", ctypes.c_int64),
        ("signed_code", ctypes.c_void_p),
        ("unsigned_code", ctypes.c_void_p),
        ("momentum_kind", ctypes.c_int32),
        ("variance_kind", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("stochastic_weights", ctypes.c_int32),
        ("seed", ctypes.c_uint32),
        ("beta1", ctypes.c_float),
        ("beta2", ctypes.c_float),
        ("one_minus_beta1", ctypes.c_float),
        ("one_minus_beta2", ctypes.c_float),
        ("eps", ctypes.c_float),
        ("log_offset", ctypes.c_float),
        ("least_momentum", ctypes.c_float),
        ("least_variance", ctypes.c_float),
        ("variance_padding", ctypes.c_float),
        ("grad_sign", ctypes.c_float),
        ("weight_decay", ctypes.c_float),
        ("shrink", ctypes.c_float),
    )


class Job(ctypes.Structure):
    _fields_ = (
        ("tensors", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("settings", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("parts", ctypes.c_int64),
        ("next", ctypes.c_int64),
        ("out_of_memory", ctypes.c_int32),
    )


@cache
def library() -> ctypes.CDLL | None:
    """The kernel for this CPU, or None where it was not built."""
    variants = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}
    for variant in variants.get(torch.backends.cpu.get_cpu_capability(), ("default",)):
        for suffix in EXTENSION_SUFFIXES:
            path = Path(__file__).with_name(f"_fused_{variant}{suffix}")
            if path.is_file():
                return ctypes.CDLL(str(path))
    return None


_forked = False
"""The threads of the OpenMP runtime stay behind when a process forks; the child that calls them waits for ever."""


def _in_child() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_in_child)


@cache
def _openmp() -> Any:
    """GOMP_parallel(function, data, threads, flags) of the OpenMP runtime that torch has loaded, or None.

    Threads of our own would compete with torch's, which keep spinning for a while after each backward pass.
    """
    return getattr(ctypes.CDLL(None), "GOMP_parallel", None)


def reason_against(tensor: Tensor) -> str | None:
    """Why the kernel cannot be given the memory of this tensor; None if it can."""
    if library() is None:
        return "was not built: install the package where a C compiler is, or use 'reference'"
    if tensor.device.type != "cpu":
        return f"runs on the CPU, got a tensor on {tensor.device}; use 'auto'"
    if tensor.dtype not in TYPES:
        return f"updates float32, bfloat16 and float16, got a tensor of {tensor.dtype}; use 'auto'"
    if not has_memory(tensor):
        return f"takes tensors as they are in memory, got a {type(tensor).__name__} that is not; use 'auto'"
    return None


def update(work: Sequence[Work], rule: Rule) -> None:
    """Update tensors for which there is no reason against it."""
    # Parameters that share memory are updated one after the other, as torch does it.
    for batch in [[one] for one in work] if _overlap(work) else [work]:
        dense = [one._replace(param=one.param.contiguous(), grad=_apart(one.grad, one.param)) for one in batch]
        Table(dense, rule).run(rule, [one.step for one in dense])
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


def _overlap(work: Sequence[Work]) -> bool:
    return _meet(*(one.param for one in work))


def _apart(grad: Tensor, param: Tensor) -> Tensor:
    """The gradient in logical order, in memory that the parameter has no part of."""
    return grad.clone(memory_format=torch.contiguous_format) if _meet(grad, param) else grad.contiguous()


class Table:
    """Contiguous tensors that do not overlap, as fused.c takes them."""

    def __init__(self, work: Sequence[Work], rule: Rule) -> None:
        self.params = [one.param for one in work]
        self.codecs = rule.momentum, rule.variance
        # A block longer than every tensor is as long as the longest: scratch is never longer than a tensor.
        self.size = min(rule.block_size, max(2, *(param.numel() for param in self.params)))
        self.rows = np.zeros(len(work), TENSOR)
        self.blocks = self.values = 0
        for row, one in zip(self.rows, work, strict=True):
            numel = one.param.numel()
            row["param"], row["grad"] = one.param.data_ptr(), one.grad.data_ptr()
            row["momentum"], row["momentum_ranges"] = _pointers(one.momentum, rule.momentum, numel)
            row["variance"], row["variance_ranges"] = _pointers(one.variance, rule.variance, numel)
            row["numel"], row["first_block"], row["index"] = numel, self.blocks, one.number
            row["param_type"], row["grad_type"] = TYPES[one.param.dtype], TYPES[one.grad.dtype]
            self.blocks += -(-numel // self.size)
            self.values += numel

    def run(self, rule: Rule, steps: Sequence[int]) -> None:
        """Take the step with this number, for each tensor."""
        rows = self.rows
        numbers = dict.fromkeys(steps)
        with np.errstate(over="ignore"):  # a step size beyond float32 is infinite, as it is for torch
            for step in numbers:
                where: Any = slice(None) if len(numbers) == 1 else np.equal(steps, step)
                rows["step"][where] = step & 0xFFFFFFFF
                rows["step_size"][where] = rule.step_size(step)
                rows["inv_root_correction"][where] = 1 / rule.root_correction(step)
                rows["variance_floor"][where] = rule.floor(step)
        _run(rows, _settings(rule, self.size), self.blocks, self.values)
        torch.autograd.graph.increment_version(self.params)


class Kept:
    """The tables of a group, for as long as its tensors stay where they are: half of a small model's step is saved.

    What is watched is compared list by list: a loop with a condition for each tensor would cost more than it saves.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        states: Mapping[Tensor, dict[str, Any]],
        batches: Mapping[bool, Sequence[Work]],
        rules: Mapping[bool, Rule],
    ) -> None:
        work = [one for batch in batches.values() for one in batch]
        self.all_params, self.params = list(params), [one.param for one in work]
        self.idle = [param for param in params if not any(param is other for other in self.params)]
        self.states = [states[param] for param in self.params]
        self.entries = [
            (state, name) for state in self.states for name, value in state.items() if isinstance(value, Tensor)
        ]
        self.tensors = [state[name] for state, name in self.entries]
        self.watched = [*self.params, *self.tensors]
        self.places, self.sizes = list(map(Tensor.data_ptr, self.watched)), list(map(Tensor.numel, self.watched))
        self.grad_types, self.grad_sizes = [one.grad.dtype for one in work], self.sizes[: len(work)]
        self.reach = [size * param.element_size() for size, param in zip(self.sizes, self.params, strict=False)]
        self.quantized = tuple(batches)
        self.tables = []
        first = 0
        for quantized, batch in batches.items():
            part = slice(first, first + len(batch))
            self.tables.append((quantized, Table(batch, rules[quantized]), part))
            first = part.stop

    def fits(
        self, params: Sequence[Tensor], states: Mapping[Tensor, dict[str, Any]], rules: Mapping[bool, Rule]
    ) -> bool:
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
        if set(map(type, grads)) != {Tensor} or {grad.layout for grad in grads} != {torch.strided}:
            return False
        if [grad.dtype for grad in grads] != self.grad_types or list(map(Tensor.numel, grads)) != self.grad_sizes:
            return False
        if not all(map(Tensor.is_contiguous, grads)) or any(map(Tensor.is_neg, grads)):
            return False
        if not all(map(is_, map(states.get, self.params), self.states)):
            return False
        if not all(map(is_, (state.get(name) for state, name in self.entries), self.tensors)):
            return False
        if (
            list(map(Tensor.data_ptr, self.watched)) != self.places
            or list(map(Tensor.numel, self.watched)) != self.sizes
        ):
            return False
        pointers = list(map(Tensor.data_ptr, grads))
        if 0 in pointers and any(size and not pointer for size, pointer in zip(self.grad_sizes, pointers, strict=True)):
            return False  # of zeros that autograd has not written down
        if any(abs(grad - own) < reach for grad, own, reach in zip(pointers, self.places, self.reach, strict=False)):
            return False  # a gradient that shares memory with its parameter
        if not all(isinstance(state.get("step"), int) for state in self.states):
            return False
        for _, table, part in self.tables:
            table.rows["grad"] = pointers[part]
        return True

    def run(self, rules: Mapping[bool, Rule]) -> None:
        """Take a step with the gradients that fit."""
        for quantized, table, part in self.tables:
            states = self.states[part]
            steps = [state["step"] + 1 for state in states]
            table.run(rules[quantized], steps)
            for state, step in zip(states, steps, strict=True):
                state["step"] = step


def kept(
    number: int,
    params: Sequence[Tensor],
    states: Mapping[Tensor, dict[str, Any]],
    batches: Mapping[bool, Sequence[Work]],
    rules: Mapping[bool, Rule],
) -> dict[int, Kept]:
    """The tables of a group by its number; none where something has to be looked at anew at every step."""
    work = [one for batch in batches.values() for one in batch]
    own = {id(param) for param in params}  # a part of a sharded parameter is none of them
    dense = (id(one.param) in own and one.param.is_contiguous() and one.grad.is_contiguous() for one in work)
    once = len(own) == len(params)  # one that stands there twice is updated twice
    return {number: Kept(params, states, batches, rules)} if once and all(dense) and not _overlap(work) else {}


def _run(table: np.ndarray, settings: Settings, blocks: int, values: int) -> None:
    kernel = library()
    assert kernel is not None
    threads = min(torch.get_num_threads(), values // VALUES_PER_THREAD) if _openmp() and not _forked else 1
    parts = threads * PARTS_PER_THREAD if threads > 1 else 1
    job = Job(table.ctypes.data, len(table), ctypes.addressof(settings), blocks, parts, 0, 0)
    if threads > 1:
        _openmp()(kernel.qlocaladam_work, ctypes.byref(job), threads, 0)
    else:
        kernel.qlocaladam_work(ctypes.byref(job))
    if job.out_of_memory and job.next < parts:
        raise MemoryError("the fused kernel could not allocate its scratch rows")


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
    if not has_memory(tensor) or tensor.dtype != dtype or tensor.numel() != numel or not tensor.is_contiguous():
        raise RuntimeError(
            f"the optimizer's state must be {numel} contiguous values of {dtype} in memory, got "
            f"{tensor.numel()} of {tensor.dtype} on {tensor.device}: was the parameter or its state replaced?"
        )


@cache
def _dynamic_code(signed: bool) -> np.ndarray:
    """The structure Dynamic of fused.c."""
    values = dynamic_values(signed)
    middle = np.append((values[1:] + values[:-1]) / 2, np.float32(np.inf))
    edges = (np.arange(CELLS + 1, dtype=np.uint32) + 0x3380 << 16).view(np.float32)
    edges[0] = 0.0
    below = np.searchsorted(middle, np.concatenate((-edges[:0:-1], edges[:-1])), side="right")
    assert np.diff(below).max() <= 1, "a cell with two middles"
    made = np.zeros((), [("map", np.float32, 256), ("middle", np.float32, 256), ("below", np.int32, 2 * CELLS)])
    made["map"], made["middle"], made["below"] = values, middle, below
    return made


def _kind(codec: Codec | None) -> int:
    return KINDS[codec.name] if codec else 0


def _settings(rule: Rule, block_size: int) -> Settings:
    decoupled_decay = rule.weight_decay if rule.decoupled else 0.0
    codecs = [codec for codec in (rule.momentum, rule.variance) if codec]
    least = [codec.least_range if codec else 0.0 for codec in (rule.momentum, rule.variance)]
    if isinstance(rule.variance, LogCodec):
        least[1] /= math.log(2)
    return Settings(
        block_size,
        min(rule.block_size, 2**62) if any(codec.pad_blocks for codec in codecs) else 0,
        _dynamic_code(signed=True).ctypes.data,
        _dynamic_code(signed=False).ctypes.data,
        _kind(rule.momentum),
        _kind(rule.variance),
        ROUNDINGS.index(rule.rounding),
        codecs[0].bits if codecs else 8,
        rule.weight_rounding == "stochastic",
        rule.seed & 0xFFFFFFFF,
        rule.beta1,
        rule.beta2,
        1 - rule.beta1,
        1 - rule.beta2,
        rule.eps,
        rule.log_offset,
        *least,
        rule.variance.padding if rule.variance else 0.0,
        -1.0 if rule.maximize else 1.0,
        rule.weight_decay - decoupled_decay,
        1 - rule.lr * decoupled_decay,
    )
