"""The update in plain torch operations, on any device: what the other kernels are tested against.

With neither state quantized these are the operations of torch.optim.Adam in its order: the results are equal bit for
bit. Arithmetic is in FP32, and in float64 for parameters of that type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from qlocaladam.codecs import Codec, Encoded, LargestCodec, LogCodec, Rows, noise_bits, noise_of_rows, packed, unpacked
from qlocaladam.kernels import Rule, Work
from qlocaladam.kernels.memory import overlap
from qlocaladam.states import has_memory
from qlocaladam.streams import stream_key

CHUNK_VALUES = 2**17
"""Values decoded at a time, so that the temporaries of a step stay in a cache and do not grow with the tensor."""

SMALL, TOGETHER = 2**13, 2**15
"""Tensors of up to `SMALL` values are updated together, up to `TOGETHER` at a time: fewer operations, which on a GPU
are launches. So many values torch leaves to one thread, so that results do not depend on the number of threads."""


def update(work: Sequence[Work], rule: Rule) -> None:
    """Update tensors of any kind. A compiler, which joins operations itself, sees one after the other."""
    for batch in [[one] for one in work] if torch.compiler.is_compiling() else _batches(work, rule):
        if len(batch) == 1:
            _update_tensor(batch[0], rule)
        else:
            _update_together(batch, rule)


def _update_tensor(work: Work, rule: Rule) -> None:
    arithmetic = _arithmetic(work)
    flat, grad = work.param.contiguous().view(-1), work.grad.reshape(-1)
    for part in _parts(flat.numel(), rule.block_size):
        values = flat[part].to(arithmetic)
        momentum = _read(work.momentum, rule.momentum, part, arithmetic)
        variance = _read(work.variance, rule.variance, part, arithmetic)
        momentum, variance = _adam(values, grad[part].to(arithmetic), momentum, variance, work.step, rule)
        _write(work.momentum, rule.momentum, part, momentum, rule.key(work, 0))
        _write(work.variance, rule.variance, part, variance, rule.key(work, 1))
        if values.dtype != flat.dtype:
            if rule.weight_rounding == "stochastic":
                noise = noise_bits(rule.key(work, 2), part.start, values.numel(), values.device)
                values = stochastically_rounded(values, flat.dtype, noise)
            flat[part] = values
    if not work.param.is_contiguous():
        work.param.copy_(flat.view(work.param.shape))


def _parts(numel: int, block_size: int) -> Iterator[slice]:
    """What is decoded at a time. When it is compiled, a short last block is a part of its own, which needs no padding:
    torch's Inductor computes the last value anew for each place of the padding, of states that it has overwritten."""
    starts = [*range(0, numel, max(1, CHUNK_VALUES // block_size) * block_size)]
    if torch.compiler.is_compiling() and 0 < (full := numel - numel % block_size) < numel:
        starts = sorted({*starts, full})
    return map(slice, starts, [*starts[1:], numel])


def _arithmetic(work: Work) -> torch.dtype:
    return torch.float64 if work.param.dtype == torch.float64 else torch.float32


def _adam(
    param: Tensor, grad: Tensor, momentum: Tensor, variance: Tensor, step: int, rule: Rule
) -> tuple[Tensor, Tensor]:
    """Update the parameter in place, and the moments, which are returned as they are stored."""
    if rule.maximize:
        grad = -grad
    if rule.weight_decay and rule.decoupled:
        param.mul_(1 - rule.lr * rule.weight_decay)
    elif rule.weight_decay:
        grad = grad.add(param, alpha=rule.weight_decay)

    if floor := rule.floor(step):
        variance.clamp_(min=floor)
    relative = rule.momentum is not None and rule.momentum.relative
    if relative:
        momentum.mul_(variance.sqrt())

    momentum.lerp_(grad, 1 - rule.beta1)
    variance.mul_(rule.beta2)
    # Not as methods: those torch.compile replaces by other arithmetic.
    torch.addcmul(variance, grad, grad, value=1 - rule.beta2, out=variance)
    root = variance.sqrt()
    denominator = (root / rule.root_correction(step)).add_(rule.eps_at(step))
    torch.addcdiv(param, momentum, denominator, value=-rule.step_size(step), out=param)
    if relative:
        momentum = torch.where(root == 0, 0.0, momentum / root)  # NaN stays NaN
    return momentum, variance


def _stored(state: Encoded, codec: Codec, part: slice) -> Encoded:
    blocks = slice(part.start // codec.block_size, codec.blocks(part.stop))
    codes = slice(codec.code_bytes(part.start), codec.code_bytes(part.stop))
    return Encoded(state.codes[codes], state.ranges[blocks])


def _read(state: Tensor | Encoded, codec: Codec | None, part: slice, arithmetic: torch.dtype) -> Tensor:
    if codec is None or isinstance(state, Tensor):
        assert isinstance(state, Tensor)
        return state.view(-1)[part]
    return codec.decode(_stored(state, codec, part), part.stop - part.start).to(arithmetic)


def _write(state: Tensor | Encoded, codec: Codec | None, part: slice, values: Tensor, key: int) -> None:
    if codec is None or isinstance(state, Tensor):
        return  # updated where it is
    stored, encoded = _stored(state, codec, part), codec.encode(values, key=key, first=part.start)
    stored.codes.copy_(encoded.codes)
    stored.ranges.copy_(encoded.ranges)


def _batches(work: Sequence[Work], rule: Rule) -> Iterator[Sequence[Work]]:
    """What is updated together."""
    alike: dict[object, list[Work]] = {}
    for one in work:
        kind = (one.step, one.param.dtype, one.grad.dtype, one.param.device) if _can_join(one, rule) else id(one)
        alike.setdefault(kind, []).append(one)
    # Parameters that share memory are updated one after the other, as torch does it.
    together = any(len(some) > 1 for some in alike.values()) and not overlap([one for one in work if one.param.numel()])
    if not together:
        yield from ([one] for one in work)
        return
    for some in alike.values():
        batch: list[Work] = []
        size = 0
        for one in sorted(some, key=lambda one: one.param.numel() < rule.block_size):  # lone blocks are last
            padded = -(-one.param.numel() // rule.block_size) * rule.block_size
            if batch and size + padded > TOGETHER:
                yield batch
                batch, size = [], 0
            batch.append(one)
            size += padded
        yield batch


def _can_join(one: Work, rule: Rule) -> bool:
    param, grad = one.param, one.grad
    if not 0 < param.numel() <= SMALL or rule.block_size > SMALL or not param.is_contiguous():
        return False
    if not all(has_memory(tensor, param.device.type) for tensor in (param, grad)):
        return False
    # On a CPU torch computes the last values of a tensor apart. There the last bit of a power may be another (see
    # LogCodec), and so may the sign of a zero, which is the range of a block of zeros in a LargestCodec.
    codecs = rule.momentum, rule.variance
    uneven = isinstance(rule.variance, LogCodec) and rule.block_size % 32
    return param.device.type != "cpu" or not (uneven or any(isinstance(codec, LargestCodec) for codec in codecs))


class Layout(NamedTuple):
    """The blocks of several tensors, one a row: where values go and where they come from, as in `Rows`."""

    rows: Rows
    number: Tensor
    """Of the tensor that a row belongs to."""
    source: Tensor
    """Which of the tensors' values, one tensor after the other, is at each place of the rows."""
    places: Tensor
    """Where in the rows each of the tensors' values is."""
    nibble_source: Tensor
    nibble_places: Tensor
    """The same for codes of 4 bits, of which every tensor has an even number; the place after the last is for none."""


@lru_cache(maxsize=64)
def _layout(sizes: tuple[int, ...], numbers: tuple[int, ...], block_size: int, device: torch.device) -> Layout:
    numel = np.array(sizes)
    blocks = -(-numel // block_size)
    tensor = np.repeat(np.arange(len(sizes)), blocks * block_size)  # of each place
    starts = np.cumsum(blocks * block_size) - blocks * block_size
    within = np.arange(len(tensor)) - starts[tensor]
    real = within < numel[tensor]
    at = np.minimum(within, numel[tensor] - 1)
    even = numel + numel % 2
    places, nibbles = np.flatnonzero(real), np.flatnonzero(within < even[tensor])
    first = slice(None, None, block_size)
    short = (blocks * block_size > numel)[tensor[first]] & (within[first] // block_size == blocks[tensor[first]] - 1)
    lone = tuple(size for size in sizes if size < block_size) if device.type == "cpu" else ()

    def on_device(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    block, some_short = on_device(within[first] // block_size), on_device(short) if short.any() else None
    rows = Rows(block, some_short, lone, on_device(at + starts[tensor]))
    return Layout(
        rows,
        on_device(np.array(numbers)[tensor[first]]),
        on_device(at + (np.cumsum(numel) - numel)[tensor]),
        on_device(places),
        on_device(at + (np.cumsum(even) - even)[tensor]),
        on_device(np.where(real[nibbles], nibbles, len(tensor))),
    )


def _update_together(work: Sequence[Work], rule: Rule) -> None:
    """As `_update_tensor` of one after the other, to the same bits."""
    sizes, device, step = tuple(one.param.numel() for one in work), work[0].param.device, work[0].step
    layout = _layout(sizes, tuple(one.number for one in work), rule.block_size, device)
    arithmetic = _arithmetic(work[0])
    values = _joined((one.param for one in work), layout).to(arithmetic)
    grads = _joined((one.grad for one in work), layout).to(arithmetic)
    momentum = _read_together([one.momentum for one in work], rule.momentum, layout, arithmetic)
    variance = _read_together([one.variance for one in work], rule.variance, layout, arithmetic)
    momentum, variance = _adam(values, grads, momentum, variance, step, rule)

    keys = [stream_key(rule.seed, step, layout.number, use) for use in range(3)]
    _write_together([one.momentum for one in work], rule.momentum, layout, momentum, keys[0])
    _write_together([one.variance for one in work], rule.variance, layout, variance, keys[1])
    params = [one.param.view(-1) for one in work]
    if values.dtype != params[0].dtype and rule.weight_rounding == "stochastic":
        noise = noise_of_rows(keys[2], layout.rows.block, rule.block_size)
        values = stochastically_rounded(values, params[0].dtype, noise)
    _separate(values[layout.places], params)


def _joined(tensors: Iterable[Tensor], layout: Layout) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])[layout.source]


def _separate(whole: Tensor, into: Sequence[Tensor]) -> None:
    parts = whole.split([part.numel() for part in into])  # type: ignore[no-untyped-call]
    torch._foreach_copy_(list(into), parts)


def _read_together(
    states: Sequence[Tensor | Encoded], codec: Codec | None, layout: Layout, arithmetic: torch.dtype
) -> Tensor:
    encoded = [state for state in states if isinstance(state, Encoded)]
    if codec is None or not encoded:
        return _joined((state for state in states if isinstance(state, Tensor)), layout)
    codes, ranges = (torch.cat(parts) for parts in zip(*encoded, strict=True))
    codes = codes[layout.source] if codec.bits == 8 else unpacked(codes)[layout.nibble_source]
    return codec.decode_rows(Encoded(codes, ranges), layout.rows).to(arithmetic)


def _write_together(
    states: Sequence[Tensor | Encoded], codec: Codec | None, layout: Layout, values: Tensor, keys: Tensor
) -> None:
    encoded = [state for state in states if isinstance(state, Encoded)]
    if codec is None or not encoded:
        _separate(values[layout.places], [state.view(-1) for state in states if isinstance(state, Tensor)])
        return
    blocks = values.to(torch.float32).view(-1, codec.block_size)
    codes, ranges = codec.encode_rows(blocks, layout.rows, keys if codec.rounding == "stochastic" else None)
    if codec.bits == 8:
        codes = codes[layout.places]
    else:
        codes = packed(torch.nn.functional.pad(codes, (0, 1))[layout.nibble_places])
    _separate(codes, [state.codes for state in encoded])
    _separate(ranges.view(-1), [state.ranges.view(-1) for state in encoded])


def stochastically_rounded(values: Tensor, dtype: torch.dtype, noise: Tensor) -> Tensor:
    """FP32 values as numbers of 16 bits: one of the two neighbours, the nearer one with the greater probability.

    The probability of either is such that the expected value is the value itself. What is not finite stays as it is.
    """
    dropped = 16 if dtype == torch.bfloat16 else 13  # bits of the significand that a number of 16 bits does not have
    lost = (1 << dropped) - 1
    noise = noise & lost
    rounded = ((values.view(torch.int32) + noise) & ~lost).view(torch.float32)
    if dtype == torch.float16:  # below 2^-14 its numbers are 2^-24 apart
        steps = (values.abs() * 2.0**24 + noise.to(torch.float32) * 2.0**-dropped).floor()
        rounded = torch.where(values.abs() < 2.0**-14, (steps * 2.0**-24).copysign(values), rounded)
    stored = torch.where(values.isfinite(), rounded, values).to(dtype)
    return torch.where(stored.isinf(), values.to(dtype), stored)  # the upper neighbour of the largest number is none
