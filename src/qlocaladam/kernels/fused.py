"""The update in compiled code: one pass over the blocks of all tensors, shared out among torch's own threads.

The library is built when the package is installed, once for each instruction set, and chosen by what the CPU has.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qlocaladam.codecs import ROUNDINGS, Codec, Encoded, dynamic_map
from qlocaladam.kernels import Rule, Work, dense

VALUES_PER_THREAD = 2**16
"""Below this, waking another thread costs more than it saves."""

PARTS_PER_THREAD = 8
"""Into how many parts a thread's share is cut, so that others can take over from one that is held up."""

KINDS = {"linear": 1, "normalised": 1, "log": 2, "dynamic": 3}

# The two structures of fused.c.
TENSOR = np.dtype(
    [(name, np.uintp) for name in ("param", "grad", "momentum", "momentum_ranges", "variance", "variance_ranges")]
    + [("numel", np.int64), ("first_block", np.int64), ("step_size", np.float32), ("root_correction", np.float32)]
    + [("momentum_key", np.uint32), ("variance_key", np.uint32)],
    align=True,
)


class Settings(ctypes.Structure):
    _fields_ = (
        ("block_size", ctypes.c_int64),
        ("signed_map", ctypes.c_void_p),
        ("unsigned_map", ctypes.c_void_p),
        ("momentum_kind", ctypes.c_int32),
        ("variance_kind", ctypes.c_int32),
        ("rounding", ctypes.c_int32),
        ("relative", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("beta1", ctypes.c_float),
        ("beta2", ctypes.c_float),
        ("one_minus_beta1", ctypes.c_float),
        ("one_minus_beta2", ctypes.c_float),
        ("eps", ctypes.c_float),
        ("variance_floor", ctypes.c_float),
        ("log_offset", ctypes.c_float),
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


def update(work: Sequence[Work], rule: Rule) -> None:
    rows, copies, first_block, values = [], [], 0, 0
    # A block longer than every tensor is as long as the longest: scratch is never longer than a tensor.
    size = min(rule.block_size, max(2, *(one.param.numel() for one in work)))
    for one in work:
        param, grad = dense(one.param), dense(one.grad)
        copies.append((one.param, param, grad))
        numel = param.numel()
        rows.append(
            (
                *(param.data_ptr(), grad.data_ptr(), *_pointers(one.momentum), *_pointers(one.variance)),
                *(numel, first_block, rule.step_size(one.step), 1 / rule.root_correction(one.step)),
                *(one.momentum_key, one.variance_key),
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


def _pointers(state: Tensor | Encoded) -> tuple[int, int]:
    if isinstance(state, Encoded):
        return state.codes.data_ptr(), state.ranges.data_ptr()
    return state.data_ptr(), 0


def _kind(codec: Codec | None) -> int:
    return KINDS[codec.name] if codec else 0


def _settings(rule: Rule, block_size: int) -> Settings:
    decoupled_decay = rule.weight_decay if rule.decoupled else 0.0
    return Settings(
        block_size,
        dynamic_map(signed=True).data_ptr(),
        dynamic_map(signed=False).data_ptr(),
        _kind(rule.momentum),
        _kind(rule.variance),
        ROUNDINGS.index(rule.rounding),
        rule.momentum is not None and rule.momentum.relative,
        next((codec.bits for codec in (rule.momentum, rule.variance) if codec), 8),
        rule.beta1,
        rule.beta2,
        1 - rule.beta1,
        1 - rule.beta2,
        rule.eps,
        rule.variance_floor,
        rule.log_offset,
        -1.0 if rule.maximize else 1.0,
        rule.weight_decay - decoupled_decay,
        1 - rule.lr * decoupled_decay,
    )
