"""The update in Triton, for GPUs: decode, update and encode the blocks of all tensors of a group in one launch.

codecs.py is the specification; the arithmetic here differs from it by float32 rounding only, and the noise of
stochastic rounding is the same bit for bit. A row is one block. A program takes `PROGRAM_VALUES` / block size rows,
whichever tensors they belong to, and no row depends on another: the result does not depend on how rows are dealt out to
programs.

NaN is compared and never passed to a minimum or a maximum, which GPUs and the interpreter treat differently.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from qlocaladam.codecs import Codec, dynamic_map
from qlocaladam.kernels import CODES, Rule, Work, memory, missing_code
from qlocaladam.kernels.memory import ADDRESSES, TYPES, update_dense
from qlocaladam.streams import stream_key

BLOCK_SIZES = (32, 64, 128, 256)
PROGRAM_VALUES = 512
"""Values of the rows of one program: four for each thread."""
WARPS = 4
REGISTERS = {True: 128, False: 168}
"""Of a thread, at most, if tensors are aligned and if not: no aligned one needs so many; others need addresses for each
value, and with 128 some spill. Not told a number the assembler keeps to one of its own, and spills."""

KINDS = {"fp32": 0, **CODES}

FP32 = tl.constexpr(KINDS["fp32"])
LINEAR = tl.constexpr(KINDS["linear"])
LOG = tl.constexpr(KINDS["log"])
DYNAMIC = tl.constexpr(KINDS["dynamic"])
NORMALISED = tl.constexpr(KINDS["normalised"])
BFLOAT16 = tl.constexpr(1)
FLOAT16 = tl.constexpr(2)

# The fields of a record: consecutive rows of one tensor that are full, or its last row if that is short.
RECORD = (*ADDRESSES, "row", "block", "length", "number")
TENSOR = np.dtype([(name, np.int64) for name in (*ADDRESSES, "numel", "number")])
FIELDS = tl.constexpr(len(RECORD))

INFINITE = tl.constexpr(0x7F800000)
NAN = tl.constexpr(0x7FC00000)
BELOW_INFINITE = tl.constexpr(-2139095041)  # what `_ordered` makes of the bits of -infinity


@triton.jit
def _bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _float(x):
    return x.to(tl.float32, bitcast=True)


@triton.jit
def _ordered(bits):
    """The bits of floats as integers of the same order, NaN beyond the infinities; its own inverse."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _mix(x):
    """As `mix` of streams.py."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _key(stream, number, use):
    """As `stream_key` of streams.py goes on after seed and step."""
    key = _mix((stream.to(tl.uint32) + 0x9E3779B9) ^ number.to(tl.uint32))
    return _mix((key + 0x9E3779B9) ^ use)


@triton.jit
def _noise(key, block, SIZE: tl.constexpr):
    """As `noise_bits` of codecs.py: one number for each value of the blocks, as uint32."""
    column = tl.arange(0, SIZE).to(tl.uint32)[None, :]
    block, key = block.to(tl.uint32)[:, None], key[:, None]
    if SIZE >= 64:
        lane, run = column % 64, block * (SIZE // 64) + column // 64
    else:
        lane, run = block % (64 // SIZE) * SIZE + column, block // (64 // SIZE)
    return _mix(lane * 0x9E3779B9 + key) + _mix(run * 0x85EBCA6B + (key ^ 0x5BD1E995))


@triton.jit
def _log2(x):
    """log2(x) for normal x, exact at powers of two: the minimax polynomial of fused.c, absolute error below 4e-7."""
    exponent = (_bits(x) - 0x3F3504F3) >> 23
    f = _float(_bits(x) - (exponent << 23)) - 1.0
    y = 0.170627996 * f - 0.272696435
    y = y * f + 0.297263831
    y = y * f - 0.358962029
    y = y * f + 0.480464965
    y = y * f - 0.721375883
    y = y * f + 1.44269967
    return exponent.to(tl.float32) + f * y


@triton.jit
def _root(x):
    """The hardware's root takes denormals for zero, and without eps a step would be divided by it."""
    small = x < 1.262177448353619e-29  # 2^-96
    return tl.sqrt(tl.where(small, x * 7.922816251426434e28, x)) * tl.where(small, 3.552713678800501e-15, 1.0)


@triton.jit
def _rows(address, first, TYPE: tl.constexpr, BYTES: tl.constexpr, ALIGNED: tl.constexpr):
    """Pointers to the first entry of each row. `BYTES`: of four values, which a thread has of whatever it reads and
    writes. Were it told of more, it would read eight codes at once, but write four parameters: data would be moved
    from thread to thread through shared memory."""
    pointers = address.to(tl.pointer_type(TYPE)) + first
    if ALIGNED:
        pointers = tl.multiple_of(pointers, BYTES)
    return pointers[:, None]


@triton.jit
def _reads(length, there, SIZE: tl.constexpr, TAIL: tl.constexpr):
    """What a row reads, and whether. Beyond its end it reads its last value again: no minimum or maximum changes."""
    column = tl.arange(0, SIZE)[None, :]
    if TAIL:
        column = tl.minimum(column, length[:, None] - 1)
    return column, tl.broadcast_to(there[:, None], (there.shape[0], SIZE))


@triton.jit
def _writes(length, there, SIZE: tl.constexpr, TAIL: tl.constexpr):
    """What a row writes, and whether."""
    column = tl.arange(0, SIZE)[None, :]
    mask = tl.broadcast_to(there[:, None], (there.shape[0], SIZE))
    if TAIL:
        mask = mask & (column < length[:, None])
    return column, mask


@triton.jit
def _load(address, place, TYPE: tl.constexpr, SIZE: tl.constexpr, TAIL: tl.constexpr, ALIGNED: tl.constexpr):
    """Numbers in FP32. bfloat16 is read and rounded in integers: the interpreter truncates it."""
    block, length, there = place
    column, mask = _reads(length, there, SIZE, TAIL)
    if TYPE == BFLOAT16:
        half = tl.load(_rows(address, block * SIZE, tl.uint16, 8, ALIGNED) + column, mask=mask, other=0)
        return _float(half.to(tl.int32) << 16)
    elif TYPE == FLOAT16:
        half = tl.load(_rows(address, block * SIZE, tl.float16, 8, ALIGNED) + column, mask=mask, other=0.0)
        return half.to(tl.float32)
    else:
        return tl.load(_rows(address, block * SIZE, tl.float32, 16, ALIGNED) + column, mask=mask, other=0.0)


@triton.jit
def _store(x, address, place, TYPE: tl.constexpr, SIZE: tl.constexpr, TAIL: tl.constexpr, ALIGNED: tl.constexpr):
    block, length, there = place
    column, mask = _writes(length, there, SIZE, TAIL)
    if TYPE == BFLOAT16:
        bits = _bits(x).to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        half = tl.where((bits & 0x7FFFFFFF) > INFINITE, (bits >> 16) | 0x40, rounded)
        tl.store(_rows(address, block * SIZE, tl.uint16, 8, ALIGNED) + column, half.to(tl.uint16), mask=mask)
    elif TYPE == FLOAT16:
        tl.store(_rows(address, block * SIZE, tl.float16, 8, ALIGNED) + column, x.to(tl.float16), mask=mask)
    else:
        tl.store(_rows(address, block * SIZE, tl.float32, 16, ALIGNED) + column, x, mask=mask)


@triton.jit
def _rounded_stochastically(x, noise, TYPE: tl.constexpr):
    """As `stochastically_rounded` of reference.py, still in FP32."""
    bits = _bits(x)
    magnitude = bits & 0x7FFFFFFF
    lost: tl.constexpr = 0xFFFF if TYPE == BFLOAT16 else 0x1FFF
    end: tl.constexpr = 0x7F800000 if TYPE == BFLOAT16 else 0x47800000  # 65536
    drawn = noise.to(tl.int32, bitcast=True) & lost
    rounded = (bits + drawn) & ~lost
    if TYPE == FLOAT16:  # below 2^-14 its numbers are 2^-24 apart
        steps = (_float(magnitude) * 16777216.0 + drawn.to(tl.float32) * 0.0001220703125).to(tl.int32)
        small = _bits(steps.to(tl.float32) * 5.9604644775390625e-08) | (bits & -0x80000000)
        rounded = tl.where(magnitude < 0x38800000, small, rounded)
    # The upper neighbour of the largest number is none.
    return _float(tl.where((magnitude < INFINITE) & ((rounded & 0x7FFFFFFF) < end), rounded, bits))


@triton.jit
def _load_state(
    address, place, KIND: tl.constexpr, SIZE: tl.constexpr, BITS: tl.constexpr, TAIL: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    """The numbers of a moment, or its codes."""
    if KIND == FP32:
        return _load(address, place, FP32, SIZE, TAIL, ALIGNED)
    else:
        block, length, there = place
        entries: tl.constexpr = SIZE * BITS // 8
        column, mask = _reads((length * BITS + 4) // 8, there, entries, TAIL)
        codes = tl.load(_rows(address, block * entries, tl.uint8, BITS // 2, ALIGNED) + column, mask=mask, other=0)
        if BITS == 4:
            low, high = codes & 15, codes >> 4
            if TAIL:
                first, end = 2 * tl.arange(0, entries)[None, :], length[:, None]
                last = tl.where(end % 2 == 1, low, high)
                low, high = tl.where(first < end, low, last), tl.where(first + 1 < end, high, last)
            codes = tl.interleave(low, high)
        return codes


@triton.jit
def _store_state(
    x, address, place, KIND: tl.constexpr, SIZE: tl.constexpr, BITS: tl.constexpr, TAIL: tl.constexpr,
    ALIGNED: tl.constexpr,
):  # fmt: skip
    if KIND == FP32:
        _store(x, address, place, FP32, SIZE, TAIL, ALIGNED)
    else:
        block, length, there = place
        entries: tl.constexpr = SIZE * BITS // 8
        column, mask = _writes((length * BITS + 4) // 8, there, entries, TAIL)
        if BITS == 4:
            if TAIL:  # a last one alone leaves the upper half 0
                x = tl.where(tl.arange(0, SIZE)[None, :] < length[:, None], x, 0)
            low, high = tl.split(tl.reshape(x, (x.shape[0], entries, 2)))
            x = low | (high << 4)
        tl.store(_rows(address, block * entries, tl.uint8, BITS // 2, ALIGNED) + column, x.to(tl.uint8), mask=mask)


@triton.jit
def _load_ranges(address, block, there, KIND: tl.constexpr):
    """Least and greatest value of each block; of a range that is one number, that number twice."""
    pointers = address.to(tl.pointer_type(tl.float32))
    if (KIND == DYNAMIC) | (KIND == NORMALISED):
        high = tl.load(pointers + block, mask=there, other=0.0)
        return high, high
    else:
        low = tl.load(pointers + 2 * block, mask=there, other=0.0)
        return low, tl.load(pointers + 2 * block + 1, mask=there, other=0.0)


@triton.jit
def _store_ranges(address, block, there, low, high, KIND: tl.constexpr, SIZE: tl.constexpr, ALIGNED: tl.constexpr):
    """By the threads that have the first values of a row: others would need the ranges moved to them. Told of 16 bytes
    the compiler gives a thread four columns, as everywhere; the mask lets it write no more than a range at once."""
    column = tl.arange(0, SIZE)[None, :]
    numbers: tl.constexpr = 1 if (KIND == DYNAMIC) | (KIND == NORMALISED) else 2
    pointers = _rows(address, numbers * block, tl.float32, 16, ALIGNED) + column
    ends = tl.where(column < numbers - 1, low[:, None], high[:, None])
    tl.store(pointers, ends, mask=there[:, None] & (column < numbers))


@triton.jit
def _linear_range(low, high, least):
    """A power of two that keeps the block inside float32, and its minimum and its range times that power."""
    magnitude = tl.where(tl.abs(low) > tl.abs(high), tl.abs(low), tl.abs(high))
    scale = tl.where(magnitude > 4.253529586511731e37, 0.25, 1.0)  # 2^125
    scale = tl.where(magnitude < 8.673617379884035e-19, 1.8446744073709552e19, scale)  # 2^-60, 2^64
    span = high * scale - low * scale
    return scale, low * scale, tl.where(span < least * scale, least * scale, span)


@triton.jit
def _log_range(low, high, offset, least):
    """In powers of two: the lowest logarithm, the range of levels, and whether that is the range of values too."""
    base = _log2(low + offset)
    span = _log2(high + offset) - base
    return base, tl.where(span < least, least, span), span >= least


@triton.jit
def _decode(codes, low, high, offset, least, values, KIND: tl.constexpr, TOP: tl.constexpr):
    if KIND == LINEAR:
        scale, base, span = _linear_range(low, high, least)
        unscale = tl.where(scale < 1, 4.0, tl.where(scale > 1, 5.421010862427522e-20, 1.0))  # 2^-64
        step = span * (1.000000476837158203125 / TOP)
        x = (codes * step[:, None] + base[:, None]) * unscale[:, None]
        highest = tl.where(high < low + least, low + least, high)[:, None]
        return tl.where(x > highest, highest, x)
    elif KIND == LOG:
        base, span, full = _log_range(low, high, offset, least)
        largest = tl.where(tl.abs(base) > tl.abs(base + span), tl.abs(base), tl.abs(base + span))
        hair = 1.9073486328125e-06 + 2.384185791015625e-07 * largest
        step = (span + 2 * hair) * (1 / TOP)
        bits = _bits(tl.exp2(codes * step[:, None] + (base - hair)[:, None]) - offset)
        # As integers: a range that is NaN lies above every number, so that the block is NaN.
        highest = tl.where(full | (high != high), _bits(high), INFINITE)[:, None]
        return _float(tl.maximum(tl.minimum(bits, highest), _bits(low)[:, None]))
    elif KIND == NORMALISED:
        half: tl.constexpr = TOP // 2
        return (codes - half) * (high * (1 / half))[:, None]
    else:
        return tl.load(values + codes.to(tl.int32)) * high[:, None]


@triton.jit
def _extremes(x, SIGNED: tl.constexpr):
    """Minimum and maximum of each block, NaN where anything in it is not finite, and whether it is."""
    bits = _bits(x)
    if SIGNED:
        bits = _ordered(bits)
    low, high = tl.min(bits, axis=1), tl.max(bits, axis=1)
    if SIGNED:
        usable = (low > BELOW_INFINITE) & (high < INFINITE)
        low, high = _ordered(low), _ordered(high)
    else:
        usable = (low >= 0) & (high < INFINITE)
    return _float(tl.where(usable, low, NAN)), _float(tl.where(usable, high, NAN)), usable


@triton.jit
def _per_level(span, TOP: tl.constexpr):
    """Levels per unit, rounded up, so that the maximum is at the top even when it floors."""
    levels = tl.div_rn(tl.full(span.shape, TOP, tl.float32), span) * 1.0000002384185791015625
    return tl.where(span > 0, levels, 0.0)


@triton.jit
def _levels(x, low, high, offset, least, values, KIND: tl.constexpr, TOP: tl.constexpr):
    if KIND == LINEAR:
        scale, base, span = _linear_range(low, high, least)
        return (x * scale[:, None] - base[:, None]) * _per_level(span, TOP)[:, None]
    elif KIND == LOG:
        base, span, full = _log_range(low, high, offset, least)
        levels = (_log2(x + offset) - base[:, None]) * _per_level(span, TOP)[:, None]
        at_top = (x == high[:, None]) & ((span > 0) & full)[:, None]
        return tl.where(at_top, TOP * 1.0, levels)
    elif KIND == NORMALISED:
        return x * _per_level(2 * high, TOP)[:, None] + TOP // 2
    else:
        relative = tl.where(high[:, None] > 0, x / high[:, None], 0.0)
        below = tl.zeros(x.shape, tl.int32)
        for i in tl.static_range(8):
            below += tl.where(tl.load(values + below + (128 >> i)) <= relative, 128 >> i, 0)
        below = tl.minimum(below, TOP - 1)
        at = tl.load(values + below)
        fraction = (relative - at) / (tl.load(values + below + 1) - at)
        fraction = tl.where(fraction > 0, fraction, 0.0)
        return below.to(tl.float32) + tl.where(fraction < 1, fraction, 1.0)


@triton.jit
def _decoded(x, ranges, place, coding, KIND: tl.constexpr, BITS: tl.constexpr):
    """A moment as numbers."""
    if KIND == FP32:
        return x
    else:
        block, _, there = place
        offset, least, _, values = coding
        top: tl.constexpr = (1 << BITS) - (2 if KIND == NORMALISED else 1)
        low, high = _load_ranges(ranges, block, there, KIND)
        return _decode(x.to(tl.float32), low, high, offset, least, values, KIND, top)


@triton.jit
def _encoded(
    x, ranges, place, coding, drawing, full, KIND: tl.constexpr, USE: tl.constexpr, SIZE: tl.constexpr,
    BITS: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    """Momentum (`USE` 0) or variance (1) as it is stored; the ranges are stored already."""
    if KIND == FP32:
        return x
    else:
        block, _, there = place
        offset, least, padding, values = coding
        stream, number, shift, stochastic = drawing
        top: tl.constexpr = (1 << BITS) - (2 if KIND == NORMALISED else 1)
        low, high, usable = _extremes(x, USE == 0)
        if (KIND == DYNAMIC) | (KIND == NORMALISED):
            high = tl.where(-low > high, -low, high)
            if KIND == NORMALISED:
                high = tl.where(high < 8.673617379884035e-19, 0.0, high)  # 2^-60
        else:
            if not full:  # padding is NaN where blocks are not padded
                low, high = tl.where(padding < low, padding, low), tl.where(padding > high, padding, high)
        _store_ranges(ranges, block, there, low, high, KIND, SIZE, ALIGNED)
        levels = tl.where(usable[:, None], _levels(x, low, high, offset, least, values, KIND, top), 0.0) + shift
        if stochastic:
            levels += (_noise(_key(stream, number, USE), block, SIZE) >> 16).to(tl.float32) * 1.52587890625e-05
        levels = tl.where(levels > 0, levels, 0.0)
        return tl.where(levels < top, levels, top * 1.0).to(tl.int32)


@triton.jit
def _load_all(
    param, grad, momentum, variance, place, grad_type,
    MOMENTUM: tl.constexpr, VARIANCE: tl.constexpr, SIZE: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr,
    TAIL: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    if ALIGNED:
        g = _load(grad, place, TYPE, SIZE, TAIL, ALIGNED)
    else:
        if grad_type == BFLOAT16:
            g = _load(grad, place, BFLOAT16, SIZE, TAIL, ALIGNED)
        elif grad_type == FLOAT16:
            g = _load(grad, place, FLOAT16, SIZE, TAIL, ALIGNED)
        else:
            g = _load(grad, place, FP32, SIZE, TAIL, ALIGNED)
    return (
        _load(param, place, TYPE, SIZE, TAIL, ALIGNED),
        g,
        _load_state(momentum, place, MOMENTUM, SIZE, BITS, TAIL, ALIGNED),
        _load_state(variance, place, VARIANCE, SIZE, BITS, TAIL, ALIGNED),
    )


@triton.jit
def _store_all(
    p, m, v, param, momentum, variance, place,
    MOMENTUM: tl.constexpr, VARIANCE: tl.constexpr, SIZE: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr,
    TAIL: tl.constexpr, ALIGNED: tl.constexpr,
):  # fmt: skip
    _store(p, param, place, TYPE, SIZE, TAIL, ALIGNED)
    _store_state(m, momentum, place, MOMENTUM, SIZE, BITS, TAIL, ALIGNED)
    _store_state(v, variance, place, VARIANCE, SIZE, BITS, TAIL, ALIGNED)


INTEGERS = ("full_programs", "full_rows", "all_rows", "grad_type", "stream", "stochastic", "stochastic_weights")


@triton.jit(do_not_specialize=INTEGERS)
def step_kernel(
    table, programs, full_programs, full_rows, all_rows, grad_type, stream,
    beta1, beta2, rest1, rest2, eps, sign, decay, shrink, step_size, correction, floor,
    stochastic, stochastic_weights, shift, offset, least_m, least_v, padding_m, padding_v, values_m, values_v,
    MOMENTUM: tl.constexpr, VARIANCE: tl.constexpr, SIZE: tl.constexpr, BITS: tl.constexpr, TYPE: tl.constexpr,
    ALIGNED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Full rows, which are read and written without a mask, in the first programs; the short last rows of all tensors
    in the rest."""
    program = tl.program_id(0)
    full = program < full_programs
    row = program.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row += tl.where(full, 0, full_rows - full_programs.to(tl.int64) * ROWS)
    there = row < tl.where(full, full_rows, all_rows)

    # Every record has a row of its own, so that the rows of a program are in as many records at most.
    first_record = tl.load(programs + program)
    later = tl.load(table + (first_record + 1 + tl.arange(0, ROWS)) * FIELDS + 6)
    fields = table + (first_record + tl.sum((later[None, :] <= row[:, None]).to(tl.int32), axis=1)) * FIELDS
    param = tl.load(fields, mask=there, other=0)
    grad = tl.load(fields + 1, mask=there, other=0)
    momentum = tl.load(fields + 2, mask=there, other=0)
    momentum_ranges = tl.load(fields + 3, mask=there, other=0)
    variance = tl.load(fields + 4, mask=there, other=0)
    variance_ranges = tl.load(fields + 5, mask=there, other=0)
    block = tl.load(fields + 7, mask=there, other=0) + row - tl.load(fields + 6, mask=there, other=0)
    length = tl.load(fields + 8, mask=there, other=0).to(tl.int32)
    number = tl.load(fields + 9, mask=there, other=0)
    place = (block, length, there)
    of_momentum, of_variance = (offset, least_m, padding_m, values_m), (offset, least_v, padding_v, values_v)
    drawing = (stream, number, shift, stochastic)

    if full:
        p, g, m, v = _load_all(
            param, grad, momentum, variance, place, grad_type, MOMENTUM, VARIANCE, SIZE, BITS, TYPE, False, ALIGNED
        )
    else:
        p, g, m, v = _load_all(
            param, grad, momentum, variance, place, grad_type, MOMENTUM, VARIANCE, SIZE, BITS, TYPE, True, ALIGNED
        )
    m = _decoded(m, momentum_ranges, place, of_momentum, MOMENTUM, BITS)
    v = _decoded(v, variance_ranges, place, of_variance, VARIANCE, BITS)

    g *= sign
    if decay != 0:  # a parameter that is infinite has no part in a gradient without decay
        g += decay * p
    p *= shrink
    v = tl.where(v < floor, floor, v)
    if MOMENTUM == NORMALISED:
        m *= _root(v)
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * g * g  # in this order: g * g alone can be infinite
    root = _root(v)
    p -= step_size * (m / (root * correction + eps))
    if MOMENTUM == NORMALISED:
        m = tl.where(root == 0, 0.0, m / root)

    if TYPE != FP32:
        if stochastic_weights:
            p = _rounded_stochastically(p, _noise(_key(stream, number, 2), block, SIZE), TYPE)
    m = _encoded(m, momentum_ranges, place, of_momentum, drawing, full, MOMENTUM, 0, SIZE, BITS, ALIGNED)
    v = _encoded(v, variance_ranges, place, of_variance, drawing, full, VARIANCE, 1, SIZE, BITS, ALIGNED)
    if full:
        _store_all(p, m, v, param, momentum, variance, place, MOMENTUM, VARIANCE, SIZE, BITS, TYPE, False, ALIGNED)
    else:
        _store_all(p, m, v, param, momentum, variance, place, MOMENTUM, VARIANCE, SIZE, BITS, TYPE, True, ALIGNED)
        tl.debug_barrier()  # so that the compiler does not join the stores of full rows, which are wide, with these


def constants(
    momentum: str, variance: str, size: int, bits: int, dtype: torch.dtype, aligned: bool = True
) -> dict[str, Any]:
    """What the kernel is compiled for: gradients too are of this type, if all tensors are aligned."""
    return {
        "MOMENTUM": KINDS[momentum],
        "VARIANCE": KINDS[variance],
        "SIZE": size,
        "BITS": bits,
        "TYPE": TYPES[dtype],
        "ALIGNED": aligned,
        "ROWS": PROGRAM_VALUES // size,
    }


def is_interpreted() -> bool:
    """Whether Triton runs in its interpreter, on the CPU, for tests: TRITON_INTERPRET=1 when this was imported."""
    return not isinstance(step_kernel, triton.runtime.JITFunction)


def reason_against(tensor: Tensor, codecs: tuple[Codec | None, Codec | None]) -> str | None:
    """Why the kernel cannot update this tensor, whose states these codecs store; None if it can."""
    if missing := missing_code(codecs):
        return missing
    if any(codec and codec.block_size not in BLOCK_SIZES for codec in codecs):
        sizes = ", ".join(map(str, BLOCK_SIZES))
        return f"takes blocks of {sizes}, got block_size={next(filter(None, codecs)).block_size}"
    device = "cpu" if is_interpreted() else "cuda"
    if torch.version.hip:  # whose devices are called cuda too
        return "is made for GPUs of NVIDIA, got a torch for ROCm"
    return memory.reason_against(tensor, device, "GPUs" if device == "cuda" else "the CPU when interpreted")


def update(work: Sequence[Work], rule: Rule) -> None:
    """Update tensors for which there is no reason against it."""
    update_dense(work, rule, Table)


class Table(memory.Table):
    """As the kernel takes it."""

    def __init__(self, work: Sequence[Work], rule: Rule) -> None:
        super().__init__(work, rule, TENSOR)
        self.size = rule.block_size if any(self.codecs) else 64  # without codes there are no blocks
        self.like = [(one.param.device, one.param.dtype, one.grad.dtype) for one in work]
        self.launches: dict[tuple[int, ...], Launch] = {}

    def run(self, rule: Rule, steps: Sequence[int]) -> None:
        """Take the step with this number, for each tensor: one launch for those of one device, type and step."""
        alike = defaultdict(list)
        for index, (like, step) in enumerate(zip(self.like, steps, strict=True)):
            alike[like, step].append(index)
        launches = {}
        for (like, step), members in alike.items():
            kept = self.launches.get(tuple(members))
            launch = launches[tuple(members)] = kept or Launch(self.rows, members, self.size, *like)
            launch.run(self.rows["grad"][members], rule, step)
        self.launches = launches
        torch.autograd.graph.increment_version(self.params)


class Launch:
    """The tensors of one launch: which rows there are, and where."""

    def __init__(
        self,
        rows: np.ndarray,
        members: list[int],
        size: int,
        device: torch.device,
        param: torch.dtype,
        grad: torch.dtype,
    ) -> None:
        self.device, self.types, self.size = device, (param, grad), size
        own = rows[members]
        full, short = own["numel"] // size, own["numel"] % size
        with_full, with_short = np.flatnonzero(full), np.flatnonzero(short)
        order = np.concatenate((with_full, with_short))
        counts = np.concatenate((full[with_full], np.ones_like(with_short)))
        per_program = PROGRAM_VALUES // size
        # As many records more, which no row reaches, so that a program may look ahead.
        self.records = np.full((len(order) + per_program, len(RECORD)), 2**62, np.int64)
        columns = {
            **{name: own[name][order] for name in (*ADDRESSES, "number")},
            "row": np.cumsum(counts) - counts,
            "block": np.concatenate((np.zeros_like(with_full), full[with_short])),
            "length": np.concatenate((np.full_like(with_full, size), short[with_short])),
        }
        for field, name in enumerate(RECORD):
            self.records[: len(order), field] = columns[name]
        self.full_rows, self.all_rows = int(full.sum()), int(counts.sum())
        first = [np.arange(0, self.full_rows, per_program), np.arange(self.full_rows, self.all_rows, per_program)]
        self.full_programs, self.programs = len(first[0]), len(first[0]) + len(first[1])
        first_records = np.searchsorted(columns["row"], np.concatenate(first), side="right") - 1
        self.first_records = self._on_device(first_records.astype(np.int32))
        self.order = order
        self.table: Tensor | None = None

    def run(self, grads: np.ndarray, rule: Rule, step: int) -> None:
        if not self.programs:
            return
        of_records = self.records[: len(self.order), RECORD.index("grad")]
        if self.table is None or not np.array_equal(of_records, grads[self.order]):
            of_records[:] = grads[self.order]
            self.table = self._on_device(self.records)
        codecs = rule.momentum, rule.variance
        param, grad = self.types
        decoupled_decay = rule.weight_decay if rule.decoupled else 0.0
        padding = [float(codec.padding) if codec and codec.pad_blocks else math.nan for codec in codecs]
        addresses = self.records[: len(self.order), : len(ADDRESSES)]
        aligned = param == grad and not (addresses % 16).any()
        momentum, variance = (codec.name if codec else "fp32" for codec in codecs)
        bits = next((codec.bits for codec in codecs if codec), 8)
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            step_kernel[(self.programs,)](
                self.table,
                self.first_records,
                self.full_programs,
                self.full_rows,
                self.all_rows,
                TYPES[grad],
                _signed(stream_key(rule.seed, step)),
                rule.beta1,
                rule.beta2,
                1 - rule.beta1,
                1 - rule.beta2,
                rule.eps_at(step),
                -1.0 if rule.maximize else 1.0,
                rule.weight_decay - decoupled_decay,
                1 - rule.lr * decoupled_decay,
                rule.step_size(step),
                1 / rule.root_correction(step),
                rule.floor(step),
                int(rule.rounding == "stochastic"),
                int(rule.weight_rounding == "stochastic"),
                0.5 if rule.rounding == "nearest" else 0.0,
                float(rule.log_offset),
                *rule.least_ranges(),
                *padding,
                _dynamic_map(True, self.device),
                _dynamic_map(False, self.device),
                **constants(momentum, variance, self.size, bits, param, aligned),
                num_warps=WARPS,
                maxnreg=REGISTERS[aligned],
            )

    def _on_device(self, numbers: np.ndarray) -> Tensor:
        """A copy, from pinned memory, so that nobody waits for the GPU; torch keeps that until the copy has run."""
        table = torch.from_numpy(numbers.copy())
        return table.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else table


@cache
def _dynamic_map(signed: bool, device: torch.device) -> Tensor:
    return dynamic_map(signed, device=device)


def _signed(number: int) -> int:
    """The low 32 bits as Triton passes them without compiling anew: as a signed integer."""
    return (number + 2**31) % 2**32 - 2**31
