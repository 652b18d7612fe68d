"""What docs/method.md promises of one step, on gradients chosen to break it."""

import math

import pytest
import torch
from backends import CPU_BACKENDS
from covering import covering
from hypothesis import given, settings
from hypothesis import strategies as st

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.optim import _rule
from qlocaladam.states import stored

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


def error_of_storing(bits, rounding):
    """The most that storing changes a ratio: half a level, or less than a whole one."""
    level = LARGEST / (2 ** (bits - 1) - 1)
    return level / 2 if rounding == "nearest" else level


@covering(backend=CPU_BACKENDS, variance=["log", "fp32"], rounding=["nearest", "stochastic"], bits=[8, 4])
@settings(max_examples=40)
@given(history=histories)
def test_what_the_normalised_code_puts_into_a_step(backend, variance, rounding, bits, history):
    """Whatever the gradients, and however far off the stored variance is: by one storing, and by all so far."""
    param = torch.zeros(SIZE, requires_grad=True)
    options = {**ARMS["normalised"], "bits": bits, "variance": variance, "rounding": rounding}
    optimizer = QLocalAdam([param], lr=1.0, backend=backend, **options)
    # The ratio if the last storing had been exact, and if none had ever changed it.
    once = ever = torch.zeros(SIZE, dtype=torch.float64)
    most, fading = error_of_storing(bits, rounding), BETAS[0] / math.sqrt(BETAS[1])
    for step, row in enumerate(history, 1):
        grad = torch.tensor(row)
        before = decoded(optimizer, param) if step > 1 else (once, torch.zeros_like(once))
        param.data.zero_()
        param.grad = grad
        optimizer.step()
        moved = -param.detach().double()
        assert (moved.abs() <= corrections(step) * LARGEST * (1 + 1e-3)).all()
        for exact, bound in ((once, fading * most), (ever, fading / (1 - fading) * most)):
            wanted = taken(*updated(exact, before[1], grad.double()), step)
            assert ((moved - wanted).abs() <= corrections(step) * bound * (1 + 1e-3) + 1e-4).all()
        read = decoded(optimizer, param)[0]
        after = []
        for exact in (before[0], ever):
            momentum, square = updated(exact, before[1], grad.double())
            # Below float32's smallest numbers a variance is 0, and so is its ratio.
            after.append(torch.where(square >= 2.0**-126, momentum / square.sqrt(), read))
        once, ever = after
        assert (once.abs() <= LARGEST * (1 + 1e-3)).all()


def test_the_bounds_in_numbers():
    """As docs/method.md has them: in learning rates, one storing and all of them."""
    fading = BETAS[0] / math.sqrt(BETAS[1])
    bounds = {
        (bits, rounding): (
            fading * error_of_storing(bits, rounding),
            fading / (1 - fading) * error_of_storing(bits, rounding),
        )
        for bits in (8, 4)
        for rounding in ("nearest", "stochastic")
    }
    assert bounds[8, "nearest"] == pytest.approx((0.026, 0.26), abs=0.005)
    assert bounds[8, "stochastic"] == pytest.approx((0.052, 0.52), abs=0.005)
    assert bounds[4, "nearest"] == pytest.approx((0.47, 4.7), abs=0.05)
    assert bounds[4, "stochastic"] == pytest.approx((0.94, 9.4), abs=0.05)


def death_beside_the_living(backend, bits, rounding, steps, blocks=1):
    """In each block gradients of one weight stop at step 20. How far it has moved since after every step, in learning
    rates, and its last ratio."""
    param = torch.zeros(blocks, 64, requires_grad=True)
    options = {**ARMS["normalised"], "bits": bits, "rounding": rounding}
    optimizer = QLocalAdam([param], lr=1.0, backend=backend, **options)
    draw, places = torch.Generator().manual_seed(0), []
    for step in range(steps):
        param.grad = 1e-3 * torch.randn(blocks, 64, generator=draw)
        if step >= 20:
            param.grad[:, 5] = 0.0
        optimizer.step()
        places.append(param[:, 5].detach().clone())
    travels = [(place - places[19]).abs().max().item() for place in places]
    return travels, decoded(optimizer, param)[0].view(blocks, 64)[:, 5]


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("bits", [8, 4])
def test_a_weight_that_dies_beside_living_ones_comes_to_rest(backend, bits):
    """FP32 Adam moves it by its last ratio times 9. Stochastic rounding ends at an exact zero; nearest never does."""
    travels, ratios = death_beside_the_living(backend, bits, "stochastic", 600, blocks=3)
    assert (ratios == 0).all()
    assert travels[-1] < 9 * LARGEST
    travels, (ratio,) = death_beside_the_living(backend, bits, "nearest", 800)
    assert ratio != 0
    assert travels[799] > travels[399] + 400 * 0.9 * ratio.abs() * 0.5, "it walks on for ever"


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_stochastic_errors_cancel(backend):
    """The mean ratio over many blocks is the exact one: what is lost in one step is not lost for good."""
    blocks = 400
    param = torch.zeros(blocks, 64, requires_grad=True)
    optimizer = QLocalAdam([param], backend=backend, **{**ARMS["normalised-4bit"], "variance": "fp32"})
    exact, variance = (torch.zeros(64, dtype=torch.float64) for _ in range(2))
    for step in range(8):
        grad = torch.randn(64, generator=torch.Generator().manual_seed(step))
        param.grad = grad.repeat(blocks, 1)
        optimizer.step()
        momentum, variance = updated(exact, variance, grad.double())
        exact = momentum / variance.sqrt()
    ratios = decoded(optimizer, param)[0].view(blocks, 64)
    assert ratios.std(0).max() > 0.1
    assert ((ratios.mean(0) - exact).abs() <= 5 * ratios.std(0) / math.sqrt(blocks) + 1e-3).all()


@pytest.mark.parametrize("backend", CPU_BACKENDS)
def test_the_linear_code_puts_any_multiple_of_the_learning_rate_into_a_step(backend):
    """One block: a weight of large gradients beside weights whose gradients are ever smaller."""
    errors = {}
    for momentum, floor in (("linear", 0.0), ("linear", 1e-8), ("normalised", 0.0)):
        for small in (1e-4, 1e-6, 1e-8):
            grad = torch.tensor([1.0, -1.0, small, 0.3 * small])
            param = torch.zeros(4, requires_grad=True)
            options = {"variance": "fp32", "variance_floor": floor, "least_ranges": False, "pad_blocks": False}
            optimizer = QLocalAdam([param], lr=1.0, backend=backend, momentum=momentum, **options)
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


@pytest.mark.parametrize("backend", CPU_BACKENDS)
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


@pytest.mark.parametrize("backend", CPU_BACKENDS)
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


@pytest.mark.parametrize("backend", CPU_BACKENDS)
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
