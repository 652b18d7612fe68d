"""The update in plain torch operations, on any device: what the fused kernel is tested against.

With neither state quantized these are the operations of torch.optim.Adam in its order: the results are equal bit for
bit. Arithmetic is in FP32, and in float64 for parameters of that type.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from qlocaladam.codecs import Codec, Encoded, noise_bits
from qlocaladam.kernels import Rule, Work

CHUNK_VALUES = 2**17
"""Values decoded at a time, so that the temporaries of a step stay in a cache and do not grow with the tensor."""


def update(work: Sequence[Work], rule: Rule) -> None:
    for one in work:
        _update_tensor(one, rule)


def _update_tensor(work: Work, rule: Rule) -> None:
    arithmetic = torch.float64 if work.param.dtype == torch.float64 else torch.float32
    flat, grad = work.param.contiguous().view(-1), work.grad.reshape(-1)
    chunk = max(1, CHUNK_VALUES // rule.block_size) * rule.block_size
    for first in range(0, flat.numel(), chunk):
        part = slice(first, min(first + chunk, flat.numel()))
        values = flat[part].to(arithmetic)
        _update_values(values, grad[part].to(arithmetic), part, work, rule)
        if values.dtype != flat.dtype:
            stochastic = rule.weight_rounding == "stochastic"
            flat[part] = stochastically_rounded(values, flat.dtype, rule.key(work, 2), first) if stochastic else values
    if not work.param.is_contiguous():
        work.param.copy_(flat.view(work.param.shape))


def _update_values(param: Tensor, grad: Tensor, part: slice, work: Work, rule: Rule) -> None:
    if rule.maximize:
        grad = -grad
    if rule.weight_decay and rule.decoupled:
        param.mul_(1 - rule.lr * rule.weight_decay)
    elif rule.weight_decay:
        grad = grad.add(param, alpha=rule.weight_decay)

    variance = _read(work.variance, rule.variance, part, param.dtype)
    if floor := rule.floor(work.step):
        variance.clamp_(min=floor)
    momentum = _read(work.momentum, rule.momentum, part, param.dtype)
    relative = rule.momentum is not None and rule.momentum.relative
    if relative:
        momentum.mul_(variance.sqrt())

    momentum.lerp_(grad, 1 - rule.beta1)
    variance.mul_(rule.beta2).addcmul_(grad, grad, value=1 - rule.beta2)
    root = variance.sqrt()
    denominator = (root / rule.root_correction(work.step)).add_(rule.eps)
    param.addcdiv_(momentum, denominator, value=-rule.step_size(work.step))

    if relative:
        momentum = torch.where(root == 0, 0.0, momentum / root)  # NaN stays NaN
    _write(work.momentum, rule.momentum, part, momentum, rule.key(work, 0))
    _write(work.variance, rule.variance, part, variance, rule.key(work, 1))


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


def stochastically_rounded(values: Tensor, dtype: torch.dtype, key: int, first: int) -> Tensor:
    """FP32 values as numbers of 16 bits: one of the two neighbours, the nearer one with the greater probability.

    The probability of either is such that the expected value is the value itself. What is not finite stays as it is.
    """
    noise = noise_bits(key, first, values.numel(), values.device)
    dropped = 16 if dtype == torch.bfloat16 else 13  # bits of the significand that a number of 16 bits does not have
    lost = (1 << dropped) - 1
    noise = noise & lost
    rounded = ((values.view(torch.int32) + noise) & ~lost).view(torch.float32)
    if dtype == torch.float16:  # below 2^-14 its numbers are 2^-24 apart
        steps = (values.abs() * 2.0**24 + noise.to(torch.float32) * 2.0**-dropped).floor()
        rounded = torch.where(values.abs() < 2.0**-14, (steps * 2.0**-24).copysign(values), rounded)
    stored = torch.where(values.isfinite(), rounded, values).to(dtype)
    return torch.where(stored.isinf(), values.to(dtype), stored)  # the upper neighbour of the largest number is none
