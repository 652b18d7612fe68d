"""The paper's arms against its released arithmetic, written down once more in double precision.

Source: github.com/ved2201/Q-LocalAdam, commit 27d709d, `qlocaladam_cifar10.py`, lines 132 to 184 (codes) and 222 to 268
(optimizer). Nothing of this model is shared with the package.
"""

import numpy as np
import pytest
import torch
from backends import BACKENDS
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy, interpolate

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.models import ResNet18

STEPS, BLOCK, LR, BETA1, BETA2, EPS = 100, 64, 1e-3, 0.9, 0.999, 1e-8

LOG = {"padding": EPS, "least": 1e-4, "levels": lambda x: np.log(x + EPS)}
LINEAR = {"padding": 0.0, "least": 1e-8, "levels": lambda x: x}
CODES = {
    "q-localadam": (LINEAR, LOG),
    "naive-int8": (LINEAR, LINEAR),
    "momentum-only": (LINEAR, None),
    "variance-only": (None, LOG),
}


def in_blocks(values, padding):
    return np.append(values, np.full(-len(values) % BLOCK, padding)).reshape(-1, BLOCK)


def quantized(values, code):
    """Codes, minima and maxima of each block."""
    levels = in_blocks(code["levels"](values), code["levels"](np.array(code["padding"])))
    low, high = levels.min(1, keepdims=True), levels.max(1, keepdims=True)
    exact = (levels - low) / np.maximum(high - low, code["least"]) * 255
    return np.clip(np.round(exact), 0, 255), low, high


def restored(codes, low, high, code, count):
    levels = codes / 255 * np.maximum(high - low, code["least"]) + low
    values = np.maximum(np.exp(levels) - EPS, EPS) if code is LOG else levels
    return values.reshape(-1)[:count]


class Model:
    """The states of one tensor in double precision, read before a step from what the optimizer has stored."""

    def __init__(self, codes):
        self.codes = codes

    def read(self, state, count):
        values = []
        for name, code in zip(("momentum", "variance"), self.codes, strict=True):
            if not state or state["step"] == 0:
                values.append(np.zeros(count))
            elif code is None:
                values.append(state[name].double().numpy().reshape(-1))
            else:
                low, high = code["levels"](state[f"{name}_ranges"].double().numpy()).T[:, :, None]
                kept = in_blocks(state[f"{name}_codes"].double().numpy(), 0)
                values.append(restored(kept, low, high, code, count))
        return values

    def step(self, state, grad, step):
        """How far the parameter moves, the two moments after that, and by how much float32 may miss each of them."""
        read = self.read(state, len(grad))
        momentum = BETA1 * read[0] + (1 - BETA1) * grad
        variance = BETA2 * read[1] + (1 - BETA2) * grad**2
        size, correction = LR / (1 - BETA1**step), np.sqrt(1 - BETA2**step)
        moved = -size * momentum / (np.sqrt(variance) / correction + EPS)
        # A few units in the last place of the largest value of the block that either state was decoded from.
        m_error = 2e-6 * largest(read[0]) + 1e-6 * np.abs(grad)
        v_error = 3e-5 * (variance + EPS) if self.codes[1] is LOG else 2e-6 * largest(read[1]) + 1e-6 * variance
        least = np.sqrt(np.maximum(variance - v_error, 0)) / correction + EPS
        error = size * (np.abs(momentum) + m_error) / least - np.abs(moved)
        return (moved, error), (momentum, m_error), (variance, v_error)


def largest(values):
    return np.repeat(np.abs(in_blocks(values, 0)).max(1), BLOCK)[: len(values)]


@pytest.fixture(scope="module")
def real_gradients():
    """Of a narrow ResNet-18 on real digits: kernels that fill blocks and some that do not, vectors of 4 to 32."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None].expand(-1, 3, -1, -1)
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = ResNet18(classes=10, width=4)
    optimizer = torch.optim.Adam(model.parameters())
    recorded = []
    for _ in range(STEPS):
        batch = torch.randint(200, (8,))  # few images: gradients fade as they are learned
        loss = cross_entropy(model(interpolate(images[batch], 32)), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        recorded.append([p.grad.clone() for p in list(model.parameters())[::5]])
        optimizer.step()
    return recorded


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("arm", CODES)
def test_the_arms_of_the_paper_are_the_released_ones(arm, backend, real_gradients):
    """Each of 100 steps starts from what the optimizer stored, so that a code on the edge counts in one step only."""
    params = [torch.zeros(g.shape, requires_grad=True) for g in real_gradients[0]]
    optimizer = QLocalAdam(params, backend=backend, **ARMS[arm])
    model, codes = Model(CODES[arm]), CODES[arm]
    apart = total = 0
    for step, gradients in enumerate(real_gradients[: 25 if backend == "triton" else None], 1):
        for param, grad in zip(params, gradients, strict=True):
            param.data.zero_()
            param.grad = grad
        before = [{k: torch.clone(v) if k != "step" else v for k, v in optimizer.state[p].items()} for p in params]
        optimizer.step()
        for param, grad, state in zip(params, gradients, before, strict=True):
            flat = grad.double().numpy().reshape(-1)
            (moved, bound), *moments = model.step(state, flat, step)
            assert (np.abs(param.detach().double().numpy().reshape(-1) - moved) <= bound).all()
            for name, code, (values, error) in zip(("momentum", "variance"), codes, moments, strict=True):
                if code is None:
                    continue
                wanted, low, high = quantized(values, code)
                error = in_blocks(error / (values + EPS) if code is LOG else error, 0).max(1, keepdims=True)
                ranges = code["levels"](optimizer.state[param][f"{name}_ranges"].double().numpy())
                assert (np.abs(ranges - np.hstack((low, high))) <= error + 1e-12).all()
                # Where a block is narrow, what float32 may miss is more than one code.
                reach = np.repeat(3 * error / np.maximum(high - low, code["least"]) * 255, BLOCK)[: len(flat)]
                gap = np.abs(in_blocks(optimizer.state[param][f"{name}_codes"].double().numpy(), 0) - wanted)
                gap = gap.reshape(-1)[: len(flat)]
                assert (gap <= 1 + reach).all()
                sharp = reach < 0.01
                apart += np.count_nonzero(gap[sharp])
                total += np.count_nonzero(sharp)
    assert total > 1e5
    assert apart < 1e-3 * total


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("arm", "detail"),
    [("naive-int8", "pad_blocks"), ("naive-int8", "least_ranges"), ("q-localadam", "floor_first_step")],
)
def test_each_detail_of_the_released_code_can_be_left_out(arm, detail, backend):
    """And is seen in a tensor of 10 values with gradients of 1e-6."""
    results = []
    for value in (True, False):
        param = torch.zeros(10, requires_grad=True)
        optimizer = QLocalAdam([param], backend=backend, **{**ARMS[arm], detail: value})
        for step in range(5):
            param.grad = 1e-6 * torch.randn(10, generator=torch.Generator().manual_seed(step))
            optimizer.step()
        results.append(param.detach())
    assert not torch.allclose(*results, rtol=1e-3)
