"""A kernel beside the reference: what is compared, and how close it has to be."""

import torch

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.codecs import unpacked
from qlocaladam.optim import _rule
from qlocaladam.states import stored

# Codes of a block decay together, so floored values sit right on the edge between two codes, where rounding of the
# last bit decides. Elsewhere a tie is an accident.
TIES = {"nearest": 1e-4, "stochastic": 1e-4, "floor": 2e-2}


def pair(kernel, shapes, seed=0, dtype=torch.float32, **options):
    rng = torch.Generator().manual_seed(seed)
    values = [torch.randn(shape, generator=rng).to(dtype) for shape in shapes]
    return [
        QLocalAdam([v.clone().requires_grad_() for v in values], backend=backend, **options)
        for backend in ("reference", kernel)
    ]


def params(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def give(optimizer, grads):
    for param, grad in zip(params(optimizer), grads, strict=True):
        param.grad = grad.to(param.dtype, copy=True)


def copy_over(source, target):
    """Make the second optimizer's parameters and states those of the first."""
    for one, other in zip(params(source), params(target), strict=True):
        other.data.copy_(one)
        for key, value in source.state[one].items():
            if isinstance(value, torch.Tensor):
                target.state[other][key].copy_(value)


def step_bound(optimizer, param):
    """What float32 rounding of a decoded momentum may do to a parameter in the step that was just taken."""
    group = optimizer.param_groups[0]
    rule, state = _rule(group), optimizer.state[param]
    momentum, variance = (
        codec.decode(stored(state, name, codec, param), param.numel()) if codec else state[name].reshape(-1)
        for name, codec in (("momentum", rule.momentum), ("variance", rule.variance))
    )
    if rule.momentum and rule.momentum.relative:
        momentum = momentum * variance.sqrt()
    root = variance.clamp(min=rule.variance_floor * rule.beta2).sqrt() / rule.root_correction(state["step"]) + rule.eps
    size = rule.step_size(state["step"]) * 1.5
    bound = size * (momentum.abs() / root * 4e-6 + momentum.abs().amax() * 4e-7 / root)
    return bound.reshape(param.shape) + 3e-7 * param.abs()


def gaps(optimizer, other_optimizer, param, other):
    """How far apart the codes of either state are."""
    rule = _rule(optimizer.param_groups[0])
    for name, codec in (("momentum", rule.momentum), ("variance", rule.variance)):
        if codec is None:
            continue
        one, two = (stored(o.state[p], name, codec, p) for o, p in ((optimizer, param), (other_optimizer, other)))
        codes = [unpacked(coded.codes)[: param.numel()] if codec.bits == 4 else coded.codes for coded in (one, two)]
        yield (codes[0].int() - codes[1].int()).abs()


def check_step_by_step(kernel, arm, rounding, shapes, gradients, steps):
    reference, compiled = pair(kernel, shapes, **{**ARMS[arm], "rounding": rounding})
    different = total = 0
    for _, grads in zip(range(steps), gradients, strict=False):
        give(reference, grads)
        give(compiled, grads)
        reference.step()
        compiled.step()
        for one, other in zip(params(reference), params(compiled), strict=True):
            if not one.numel():
                continue
            assert ((one - other).abs() <= step_bound(reference, one)).all()
            for gap in gaps(reference, compiled, one, other):
                assert (gap <= 1).all()
                different += gap.count_nonzero().item()
                total += gap.numel()
        copy_over(reference, compiled)
    assert different <= TIES[rounding] * total


def step_both(reference, compiled, seed):
    """Both with the same gradients, of one size."""
    grads = [torch.randn(p.shape, generator=torch.Generator().manual_seed(seed)) for p in params(reference)]
    for optimizer in (reference, compiled):
        give(optimizer, grads)
        optimizer.step()


def check_some_steps(kernel, reference, compiled):
    """With gradients of one size the bound is simple."""
    for step in range(20 if kernel == "fused" else 2):
        step_both(reference, compiled, step)
        for one, other in zip(params(reference), params(compiled), strict=True):
            assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)
        copy_over(reference, compiled)


def check_what_is_not_finite(kernel, arm, bad):
    reference, compiled = pair(kernel, [(300,)], **ARMS[arm])
    for step in range(3 if kernel == "fused" else 2):
        grad = torch.randn(300, generator=torch.Generator().manual_seed(step))
        if step == 0:
            grad[70] = bad
        give(reference, [grad])
        give(compiled, [grad])
        reference.step()
        compiled.step()
        one, other = params(reference)[0], params(compiled)[0]
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-7, equal_nan=True)
        for key, value in reference.state[one].items():
            if key.endswith("_ranges"):
                assert torch.equal(value.isnan(), compiled.state[other][key].isnan())
