"""The update in compiled code: one pass over the blocks of all tensors, shared out among torch's own threads.

The library is built when the package is installed, once for each instruction set, and chosen by what the CPU has.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qlocaladam.codecs import DYNAMIC_VALUES, ROUNDINGS, Codec
from qlocaladam.kernels import CODES, Rule, Work, memory, missing_code
from qlocaladam.kernels.memory import ADDRESSES, TYPES, update_dense

VALUES_PER_THREAD = 2**16
"""Below this, waking another thread costs more than it saves."""

PARTS_PER_THREAD = 8
"""Into how many parts a thread's share is cut, so that others can take over from one that is held up."""

CELLS = 3073

# The structures of fused.c.
TENSOR = np.dtype(
    [(name, np.uintp) for name in ADDRESSES]
    + [(name, np.int64) for name in ("numel", "first_block")]
    + [(name, np.float32) for name in ("step_size", "inv_root_correction", "eps", "variance_floor")]
    + [(name, np.uint32) for name in ("step", "number")]
    + [(name, np.int32) for name in ("param_type", "grad_type")],
    align=True,
)


class Settings(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("block_size", "padded_size")),
        *((name, ctypes.c_void_p) for name in ("signed_code", "unsigned_code")),
        *((name, ctypes.c_int32) for name in ("momentum_kind", "variance_kind", "rounding", "bits")),
        ("stochastic_weights", ctypes.c_int32),
        ("seed", ctypes.c_uint32),
        *((name, ctypes.c_float) for name in ("beta1", "beta2", "one_minus_beta1", "one_minus_beta2", "log_offset")),
        *((name, ctypes.c_float) for name in ("least_momentum", "least_variance", "variance_padding")),
        *((name, ctypes.c_float) for name in ("grad_sign", "weight_decay", "shrink")),
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
        path = Path(__file__).with_name(f"_fused_{variant}.so")
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


def reason_against(tensor: Tensor, codecs: tuple[Codec | None, Codec | None]) -> str | None:
    """Why the kernel cannot update this tensor, whose states these codecs store; None if it can."""
    if library() is None:
        return "was not built: install the package where a C compiler is, or use 'reference'"
    reason = missing_code(codecs) or memory.reason_against(tensor, "cpu", "the CPU")
    return f"{reason}; use 'auto'" if reason else None


def update(work: Sequence[Work], rule: Rule) -> None:
    """Update tensors for which there is no reason against it."""
    update_dense(work, rule, Table)


class Table(memory.Table):
    """As fused.c takes it."""

    def __init__(self, work: Sequence[Work], rule: Rule) -> None:
        super().__init__(work, rule, TENSOR)
        # A block longer than every tensor is as long as the longest: scratch is never longer than a tensor.
        self.size = min(rule.block_size, max(2, *(param.numel() for param in self.params)))
        self.rows["param_type"] = [TYPES[one.param.dtype] for one in work]
        self.rows["grad_type"] = [TYPES[one.grad.dtype] for one in work]
        blocks = -(-self.rows["numel"] // self.size)
        self.rows["first_block"] = np.cumsum(blocks) - blocks
        self.blocks, self.values = int(blocks.sum()), int(self.rows["numel"].sum())

    def run(self, rule: Rule, steps: Sequence[int]) -> None:
        rows = self.rows
        numbers = dict.fromkeys(steps)
        with np.errstate(over="ignore"):  # a step size beyond float32 is infinite, as it is for torch
            for step in numbers:
                where: Any = slice(None) if len(numbers) == 1 else np.equal(steps, step)
                rows["step"][where] = step & 0xFFFFFFFF
                rows["step_size"][where] = rule.step_size(step)
                rows["inv_root_correction"][where] = 1 / rule.root_correction(step)
                rows["eps"][where] = rule.eps_at(step)
                rows["variance_floor"][where] = rule.floor(step)
        _run(rows, _settings(rule, self.size), self.blocks, self.values)
        torch.autograd.graph.increment_version(self.params)


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


@cache
def _dynamic_code(signed: bool) -> np.ndarray:
    """The structure Dynamic of fused.c."""
    values = DYNAMIC_VALUES[signed, 8]
    middle = np.append((values[1:] + values[:-1]) / 2, np.float32(np.inf))
    edges = (np.arange(CELLS + 1, dtype=np.uint32) + 0x3380 << 16).view(np.float32)
    edges[0] = 0.0
    below = np.searchsorted(middle, np.concatenate((-edges[:0:-1], edges[:-1])), side="right")
    assert np.diff(below).max() <= 1, "a cell with two middles"
    made = np.zeros((), [("map", np.float32, 256), ("middle", np.float32, 256), ("below", np.int32, 2 * CELLS)])
    made["map"], made["middle"], made["below"] = values, middle, below
    return made


def _kind(codec: Codec | None) -> int:
    return CODES[codec.name] if codec else 0


def _settings(rule: Rule, block_size: int) -> Settings:
    decoupled_decay = rule.weight_decay if rule.decoupled else 0.0
    codecs = [codec for codec in (rule.momentum, rule.variance) if codec]
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
        rule.log_offset,
        *rule.least_ranges(),
        rule.variance.padding if rule.variance else 0.0,
        -1.0 if rule.maximize else 1.0,
        rule.weight_decay - decoupled_decay,
        1 - rule.lr * decoupled_decay,
    )
