"""The two kernels do the same: parameters to float32 rounding, codes equal but for rare ties."""

import os
import subprocess
import sys
import tempfile
import threading

import pytest
import torch

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.codecs import BITS, ROUNDINGS, _unpacked
from qlocaladam.kernels import fused
from qlocaladam.optim import _rule
from qlocaladam.states import stored

requires_kernel = pytest.mark.skipif(fused.library() is None, reason="the fused kernel was not built: no C compiler")
pytestmark = requires_kernel

# Codes of a block decay together, so floored values sit right on the edge between two codes, where rounding of the
# last bit decides. Elsewhere a tie is an accident.
TIES = {"nearest": 1e-4, "stochastic": 1e-4, "floor": 2e-2}


def pair(shapes, seed=0, **options):
    rng = torch.Generator().manual_seed(seed)
    values = [torch.randn(shape, generator=rng) for shape in shapes]
    return [
        QLocalAdam([v.clone().requires_grad_() for v in values], backend=backend, **options)
        for backend in ("reference", "fused")
    ]


def params(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def give(optimizer, grads):
    for param, grad in zip(params(optimizer), grads, strict=True):
        param.grad = grad.clone()


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
        codes = [_unpacked(coded.codes)[: param.numel()] if codec.bits == 4 else coded.codes for coded in (one, two)]
        yield (codes[0].int() - codes[1].int()).abs()


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("arm", ARMS)
def test_kernels_agree_step_by_step(arm, rounding, resnet_shapes, gradients):
    reference, compiled = pair(resnet_shapes, **{**ARMS[arm], "rounding": rounding})
    different = total = 0
    steps = 300 if arm == "q-localadam" else 60
    for _, grads in zip(range(steps), gradients(1), strict=False):
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


def check_twenty_steps(reference, compiled):
    """With gradients of one size the bound is simple."""
    for step in range(20):
        grads = [torch.randn(p.shape, generator=torch.Generator().manual_seed(step)) for p in params(reference)]
        give(reference, grads)
        give(compiled, grads)
        reference.step()
        compiled.step()
        for one, other in zip(params(reference), params(compiled), strict=True):
            assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)
        copy_over(reference, compiled)


@pytest.mark.parametrize("block_size", [2, 3, 37, 64, 128, 700, 5000, 2**40])
@pytest.mark.parametrize("arm", ["q-localadam", "naive-int8", "dynamic-8bit"])
def test_kernels_agree_at_any_block_size(arm, block_size):
    reference, compiled = pair([(1500,), (5001,), (64,)], **{**ARMS[arm], "block_size": block_size})
    check_twenty_steps(reference, compiled)


@pytest.mark.parametrize("block_size", [2, 38, 64, 128, 700, 5000, 2**40])
@pytest.mark.parametrize("momentum", ["linear", "normalised", "fp32"])
@pytest.mark.parametrize("variance", ["log", "linear", "fp32"])
def test_kernels_agree_at_4_bits(momentum, variance, block_size):
    """Odd sizes too: 5001 and 1023 leave half a byte over."""
    options = {"momentum": momentum, "variance": variance, "block_size": block_size, "bits": 4, "variance_floor": 1e-3}
    reference, compiled = pair([(1500,), (5001,), (1023,), (1,)], **options)
    check_twenty_steps(reference, compiled)


@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"maximize": True},
        {"maximize": True, "weight_decay": 0.1},
        {"betas": (0.0, 0.0)},
        {"variance_floor": 0.0},
        {"variance_floor": 1e-4, "eps": 1e-3},
        {"log_offset": 1e-16},
        {"momentum": "normalised", "weight_decay": 0.1, "maximize": True},
        {"momentum": "normalised", "variance": "fp32"},
        {"momentum": "normalised", "variance": "dynamic", "weight_decay": 0.1, "decoupled_weight_decay": True},
    ],
    ids=str,
)
def test_kernels_agree_with_every_option(options):
    reference, compiled = pair([(1000,), (3, 5)], **options)
    check_twenty_steps(reference, compiled)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("arm", ARMS)
def test_kernels_agree_on_what_is_not_finite(arm, bad):
    """1e30 is finite, its square is not: the variance is spoiled and the momentum is not."""
    reference, compiled = pair([(300,)], **ARMS[arm])
    for step in range(3):
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


@pytest.mark.parametrize("bits", BITS)
def test_results_do_not_depend_on_threads(bits):
    shapes, results = [(300_000,), (100_001,), (7,)], []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            _, compiled = pair(shapes, rounding="stochastic", bits=bits)
            for step in range(3):
                give(compiled, [torch.randn(s, generator=torch.Generator().manual_seed(step)) for s in shapes])
                compiled.step()
            results.append(params(compiled) + [compiled.state[p]["variance_codes"] for p in params(compiled)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


def test_steps_in_several_threads_do_not_disturb_each_other():
    def run(seed, out):
        _, compiled = pair([(200_000,)], seed=seed)
        for step in range(5):
            give(compiled, [torch.randn(200_000, generator=torch.Generator().manual_seed(step))])
            compiled.step()
        out[seed] = params(compiled)[0].detach()

    alone, together = {}, {}
    for seed in range(4):
        run(seed, alone)
    threads = [threading.Thread(target=run, args=(seed, together)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone[seed], together[seed]) for seed in range(4))


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_older_processors_get_the_same_numbers(capability):
    code = """
import sys, torch
from qlocaladam import QLocalAdam
torch.manual_seed(0)
p = torch.randn(10_000, requires_grad=True)
optimizer = QLocalAdam([p], backend="fused")
for step in range(20):
    p.grad = torch.randn(10_000, generator=torch.Generator().manual_seed(step))
    optimizer.step()
torch.save(p.detach(), sys.argv[1])
"""
    results = {}
    for name in (capability, None):
        environment = {k: v for k, v in os.environ.items() if k != "ATEN_CPU_CAPABILITY"}
        environment |= {"ATEN_CPU_CAPABILITY": name} if name else {}
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            subprocess.run([sys.executable, "-c", code, file.name], env=environment, check=True)
            results[name] = torch.load(file.name, weights_only=True)
    # Without fused multiply-add a code may differ here and there, which moves a parameter by a fraction of a step.
    difference = (results[capability] - results[None]).abs()
    assert difference.max() < 1e-3
    assert (difference < 1e-6).float().mean() > 0.99


def test_the_kernel_holds_no_fp32_copy_of_a_state():
    """A step of a tensor of 120 MB allocates next to nothing, seen from the process's peak memory."""
    code = """
import resource, torch
from qlocaladam import QLocalAdam
torch.set_num_threads(2)
p = torch.zeros(30_000_000, requires_grad=True); p.grad = torch.ones_like(p)
optimizer = QLocalAdam([p], backend="fused"); optimizer.step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(2): optimizer.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 10_000, "KB; one FP32 state would be 120,000"
