"""The update in plain torch operations, on any device: what the fused kernel is tested against.

With both states in FP32 these are the operations of torch.optim.Adam in its order: the results are equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from qlocaladam.codecs import Codec, Encoded
from qlocaladam.kernels import Rule, Work, dense

CHUNK_VALUES = 2**20
"""Values decoded at a time, so that the temporaries of a step do not grow with the tensor."""


def update(work: Sequence[Work], rule: Rule) -> None:
    for one in work:
        _update_tensor(one, rule)


def _update_tensor(work: Work, rule: Rule) -> None:
    param = dense(work.param)
    flat, grad = param.view(-1), work.grad.reshape(-1)
    chunk = max(1, CHUNK_VALUES // rule.block_size) * rule.block_size
    for first in range(0, flat.numel(), chunk):
        part = slice(first, min(first + chunk, flat.numel()))
        _update_values(flat[part], grad[part].to(torch.float32), part, work, rule)
    if param is not work.param:
        work.param.copy_(param)


def _update_values(param: Tensor, grad: Tensor, part: slice, work: Work, rule: Rule) -> None:
    if rule.maximize:
        grad = -grad
    if rule.weight_decay and rule.decoupled:
        param.mul_(1 - rule.lr * rule.weight_decay)
    elif rule.weight_decay:
        grad = grad.add(param, alpha=rule.weight_decay)

    variance = _read(work.variance, rule.variance, part)
    if rule.variance_floor:
        variance.clamp_(min=rule.variance_floor)
    momentum = _read(work.momentum, rule.momentum, part)
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
    _write(work.momentum, rule.momentum, part, momentum, work.momentum_key)
    _write(work.variance, rule.variance, part, variance, work.variance_key)


def _stored(state: Encoded, codec: Codec, part: slice) -> Encoded:
    blocks = slice(part.start // codec.block_size, codec.blocks(part.stop))
    codes = slice(codec.code_bytes(part.start), codec.code_bytes(part.stop))
    return Encoded(state.codes[codes], state.ranges[blocks])


def _read(state: Tensor | Encoded, codec: Codec | None, part: slice) -> Tensor:
    if codec is None or isinstance(state, Tensor):
        assert isinstance(state, Tensor)
        return state.view(-1)[part]
    return codec.decode(_stored(state, codec, part), part.stop - part.start)


def _write(state: Tensor | Encoded, codec: Codec | None, part: slice, values: Tensor, key: int) -> None:
    if codec is None or isinstance(state, Tensor):
        return  # FP32 states are updated where they are
    stored, encoded = _stored(state, codec, part), codec.encode(values, key=key, first=part.start)
    stored.codes.copy_(encoded.codes)
    stored.ranges.copy_(encoded.ranges)
