"""The update in compiled code: one pass over the blocks of all tensors, shared out among torch's own threads.

The library is built when the package is installed, once for each instruction set, and chosen by what the CPU has.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qlocaladam.codecs import ROUNDINGS, Codec, Encoded, LogCodec, dynamic_map
from qlocaladam.kernels import Rule, Work

VALUES_PER_THREAD = 2**16
"""Below this, waking another thread costs more than it saves."""

PARTS_PER_THREAD = 8
"""Into how many parts a thread's share is cut, so that others can take over from one that is held up."""

# What fused.c calls by these numbers.
KINDS = {"linear": 1, "log": 2, "dynamic": 3, "normalised": 4}
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

# The structures of fused.c.
TENSOR = np.dtype(
    [(name, np.uintp) for name in ("param", "grad", "momentum", "momentum_ranges", "variance", "variance_ranges")]
    + [(name, np.int64) for name in ("numel", "first_block")]
    + [(name, np.float32) for name in ("step_size", "inv_root_correction", "variance_floor")]
    + [(name, np.uint32) for name in ("momentum_key", "variance_key", "weight_key")]
    + [(name, np.int32) for name in ("param_type", "grad_type")],
    align=True,
)


class Settings(ctypes.Structure):
    _fields_ = (
        ("block_size", ctypes.c_int64),
        ("padded_size", ctypes.c_int64),
        ("signed_map", ctypes.c_void_p),
        ("unsigned_map", ctypes.c_void_p),
        ("momentum_kind", ctypes.c_int32),
        ("variance_kind", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("stochastic_weights", ctypes.c_int32),
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
    # Subclasses that handle operations themselves (FakeTensor, quantized weights) need not have any memory.
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__ or tensor.is_neg():
        return f"takes plain tensors, got one of {type(tensor).__name__}; use 'auto'"
    if tensor.dtype not in TYPES:
        return f"updates float32, bfloat16 and float16, got a tensor of {tensor.dtype}; use 'auto'"
    return None


def update(work: Sequence[Work], rule: Rule) -> None:
    """Update tensors for which there is no reason against it."""
    # Parameters that share memory are updated one after the other, as torch does it.
    for batch in [[one] for one in work] if _overlap(work) else [work]:
        _update(batch, rule)


def _overlap(work: Sequence[Work]) -> bool:
    """Whether the memory of two parameters may be the same; an interval is taken for used as a whole."""
    ends = []
    for one in work:
        reach = sum((size - 1) * stride for size, stride in zip(one.param.shape, one.param.stride(), strict=True))
        if one.param.numel():
            start = one.param.data_ptr()
            ends.append((start, start + (reach + 1) * one.param.element_size()))
    ends.sort()
    return any(end > start for (_, end), (start, _) in pairwise(ends))


def _update(work: Sequence[Work], rule: Rule) -> None:
    rows, copies, first_block, values = [], [], 0, 0
    # A block longer than every tensor is as long as the longest: scratch is never longer than a tensor.
    size = min(rule.block_size, max(2, *(one.param.numel() for one in work)))
    for one in work:
        param, grad = one.param.contiguous(), one.grad.contiguous()
        copies.append((one.param, param, grad))
        numel = param.numel()
        states = (*_pointers(one.momentum, rule.momentum, numel), *_pointers(one.variance, rule.variance, numel))
        rows.append(
            (
                *(param.data_ptr(), grad.data_ptr(), *states, numel, first_block),
                *(rule.step_size(one.step), 1 / rule.root_correction(one.step), rule.floor(one.step)),
                *(one.momentum_key, one.variance_key, one.weight_key, TYPES[param.dtype], TYPES[grad.dtype]),
            )
        )
        first_block += -(-numel // size)
        values += numel
    with np.errstate(over="ignore"):  # a step size beyond float32 is infinite, as it is for torch
        table = np.array(rows, TENSOR)
    _run(table, _settings(rule, size), first_block, values)
    for original, updated, _ in copies:
        if updated is not original:
            original.copy_(updated)
    torch.autograd.graph.increment_version([original for original, updated, _ in copies if updated is original])


def _run(table: np.ndarray, settings: Settings, blocks: int, values: int) -> None:
    kernel = library()
    assert kernel is not None
    threads = min(torch.get_num_threads(), values // VALUES_PER_THREAD) if _openmp() else 1
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
    plain = tensor.device.type == "cpu" and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__
    if not plain or tensor.dtype != dtype or tensor.numel() != numel or not tensor.is_contiguous():
        raise RuntimeError(
            f"the optimizer's state must be {numel} contiguous values of {dtype} on the CPU, got "
            f"{tensor.numel()} of {tensor.dtype} on {tensor.device}: was the parameter or its state replaced?"
        )


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
        rule.block_size if any(codec.pad_blocks for codec in codecs) else 0,
        dynamic_map(signed=True).data_ptr(),
        dynamic_map(signed=False).data_ptr(),
        _kind(rule.momentum),
        _kind(rule.variance),
        ROUNDINGS.index(rule.rounding),
        codecs[0].bits if codecs else 8,
        rule.weight_rounding == "stochastic",
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
