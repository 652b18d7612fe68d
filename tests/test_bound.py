"""What docs/method.md promises of one step, on gradients chosen to break it."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qlocaladam import ARMS, QLocalAdam, state_codecs
from qlocaladam.kernels import fused
from qlocaladam.optim import _rule
from qlocaladam.states import stored

BACKENDS = ["reference", pytest.param("fused", marks=pytest.mark.skipif(fused.library() is None, reason="not built"))]
BETAS = (0.9, 0.999)
LARGEST = (1 - BETAS[0]) / math.sqrt((1 - BETAS[1]) * (1 - BETAS[0] ** 2 / BETAS[1]))
"""The largest |m| / sqrt(v) that Adam can reach."""
SIZE = 7

# Gradients of one weight that come from anywhere in twenty orders of magnitude, and often from nowhere at all.
magnitudes = st.one_of(st.just(0.0), st.floats(-18.0, 2.0).map(lambda power: 10.0**power))
gradients = st.builds(lambda size, sign: size * sign, magnitudes, st.sampled_from([-1.0, 1.0]))
histories = st.lists(st.lists(gradients, min_size=SIZE, max_size=SIZE), min_size=1, max_size=12)


def decoded(optimizer, param):
    """The ratio and the variance as they will be read, in double precision."""
    rule, state = _rule(optimizer.param_groups[0]), optimizer.state[param]
    ratio = rule.momentum.decode(stored(state, "momentum", rule.momentum, param), param.numel())
    kept = stored(state, "variance", rule.variance, param)
    variance = rule.variance.decode(kept, param.numel()) if rule.variance else kept.clone()
    return ratio.double(), variance.double()


def corrections(step):
    return math.sqrt(1 - BETAS[1] ** step) / (1 - BETAS[0] ** step)


def updated(ratio, variance, grad):
    """Both moments after a gradient, in double precision."""
    momentum = BETAS[0] * ratio * variance.sqrt() + (1 - BETAS[0]) * grad
    return momentum, BETAS[1] * variance + (1 - BETAS[1]) * grad.square()


def taken(momentum, variance, step, eps=1e-8):
    """Adam's step in units of the learning rate."""
    root = variance.sqrt() / math.sqrt(1 - BETAS[1] ** step) + eps
    return momentum / (1 - BETAS[0] ** step) / root


def test_the_largest_ratio():
    assert pytest.approx(7.2703, abs=1e-4) == LARGEST
    # It is reached: gradients that grow by beta2 / beta1 from each step to the next.
    m = v = 0.0
    for step in range(400):
        g = (BETAS[1] / BETAS[0]) ** (step - 400)
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g * g
    assert m / math.sqrt(v) == pytest.approx(LARGEST, rel=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variance", ["log", "fp32"])
@pytest.mark.parametrize("bits", [8, 4])
@settings(max_examples=60)
@given(history=histories)
def test_the_normalised_code_puts_at_most_half_a_level_into_a_step(backend, variance, bits, history):
    """Whatever the gradients, and however far off the stored variance is."""
    param = torch.zeros(SIZE, requires_grad=True)
    options = {**ARMS["normalised"], "bits": bits, "variance": variance}
    optimizer = QLocalAdam([param], lr=1.0, backend=backend, **options)
    exact = torch.zeros(SIZE, dtype=torch.float64)
    level = 2 * LARGEST / (2**bits - 1)
    for step, row in enumerate(history, 1):
        grad = torch.tensor(row)
        before = decoded(optimizer, param) if step > 1 else (exact, torch.zeros_like(exact))
        # The step with the ratio as it was before it was stored, and the variance as it was read.
        wanted = taken(*updated(exact, before[1], grad.double()), step)
        param.data.zero_()
        param.grad = grad
        optimizer.step()
        moved = -param.detach().double()
        bound = corrections(step) * BETAS[0] / math.sqrt(BETAS[1]) * level / 2
        assert ((moved - wanted).abs() <= bound * (1 + 1e-3) + 1e-4).all()
        assert (moved.abs() <= corrections(step) * LARGEST * (1 + 1e-3)).all()
        momentum, square = updated(*before, grad.double())
        # Below float32's smallest numbers a variance is 0, and so is its ratio.
        exact = torch.where(square >= 2.0**-126, momentum / square.sqrt(), decoded(optimizer, param)[0])
        assert (exact.abs() <= LARGEST * (1 + 1e-3)).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_linear_code_puts_any_multiple_of_the_learning_rate_into_a_step(backend):
    """One block: a weight of large gradients beside weights whose gradients are ever smaller."""
    errors = {}
    for momentum, floor in (("linear", 0.0), ("linear", 1e-8), ("normalised", 0.0)):
        for small in (1e-4, 1e-6, 1e-8):
            grad = torch.tensor([1.0, -1.0, small, 0.3 * small])
            param = torch.zeros(4, requires_grad=True)
            optimizer = QLocalAdam(
                [param], lr=1.0, backend=backend, momentum=momentum, variance="fp32", variance_floor=floor
            )
            for _ in range(3):
                param.data.zero_()
                param.grad = grad
                optimizer.step()
            exact = -grad / (grad.abs() + 1e-8)  # gradients that stay the same: Adam's step is the same too
            errors[momentum, floor, small] = (param.detach() - exact)[2:].abs().max().item()
    assert errors["linear", 0.0, 1e-4] > 10
    assert errors["linear", 0.0, 1e-6] > 1000
    assert errors["linear", 0.0, 1e-8] > 1e5
    # The floor keeps them bounded: half a level over 1e-4.
    assert all(errors["linear", 1e-8, small] < 1 / 255 / 1e-4 for small in (1e-4, 1e-6, 1e-8))
    assert all(errors["normalised", 0.0, small] < 0.026 for small in (1e-4, 1e-6, 1e-8))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("arm", ["normalised", "normalised-4bit"])
def test_a_weight_without_gradients_never_moves(backend, arm):
    """Its ratio may be read as anything: it is multiplied by a root that is exactly 0."""
    param = torch.zeros(64, requires_grad=True)
    optimizer = QLocalAdam([param], backend=backend, **ARMS[arm])
    idle = torch.arange(64) % 3 == 0
    for step in range(50):
        param.grad = torch.randn(64, generator=torch.Generator().manual_seed(step)).masked_fill(idle, 0.0)
        optimizer.step()
    assert (param[idle] == 0).all()
    assert (param[~idle] != 0).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [8, 4])
def test_the_first_step_is_exact(backend, bits):
    """All ratios have one magnitude then, so both signs are ends of the range."""
    grad = torch.tensor([1e-3, -5.0, 2e-6, 1.0, -1e-2])
    param = torch.zeros(5, requires_grad=True)
    optimizer = QLocalAdam([param], lr=1.0, backend=backend, **{**ARMS["normalised"], "bits": bits})
    param.grad = grad
    optimizer.step()
    assert torch.allclose(param.detach(), -grad / (grad.abs() + 1e-8), rtol=1e-5)
    ratio, _ = decoded(optimizer, param)
    assert torch.allclose(ratio.float(), grad.sign() * math.sqrt(10), rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_unit_that_dies_comes_to_rest(backend):
    """Gradients stop: what is left of the momentum fades with beta1 and the weight stays where it is."""
    param = torch.zeros(64, requires_grad=True)
    optimizer = QLocalAdam([param], lr=1.0, backend=backend, **ARMS["normalised"])
    for step in range(200):
        grad = torch.randn(64, generator=torch.Generator().manual_seed(step))
        param.grad = grad if step < 20 else torch.zeros(64)
        if step == 199:
            before = param.detach().clone()
        optimizer.step()
    # Half a level, which is all that a block whose ratios have shrunk together can hide.
    assert (param.detach() - before).abs().max() < 1e-3


def test_codecs_of_the_normalised_arms():
    for arm, bits in (("normalised", 8), ("normalised-4bit", 4)):
        options = ARMS[arm]
        codecs = state_codecs(options["momentum"], options["variance"], 64, "nearest", options["log_offset"], bits)
        assert [codec.bits for codec in codecs] == [bits, bits]
        assert codecs[0].relative
        assert not codecs[1].relative
        assert codecs[1].offset == 1e-16
