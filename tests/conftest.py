"""What several test files share: real parameter shapes and gradients of realistic spread."""

import pytest
import torch
from hypothesis import HealthCheck, settings

from qlocaladam.models import ResNet18

# Machines are noisy: no example has a deadline. The same examples everywhere, so that a failure can be repeated.
settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")

torch.set_num_threads(1)  # one test process a core: see the Makefile


@pytest.fixture(scope="session")
def resnet_shapes():
    """The shapes of a narrow ResNet-18, and the awkward ones: a scalar, an empty tensor, one value, one too many."""
    with torch.device("meta"):
        model = ResNet18(classes=10, width=4)
    return [tuple(p.shape) for p in model.parameters()] + [(), (0,), (1,), (65,)]


@pytest.fixture
def gradients(resnet_shapes):
    """An endless source of gradients whose magnitudes spread over eight orders, as client gradients do."""

    def draw(seed):
        rng = torch.Generator().manual_seed(seed)
        while True:
            yield [torch.randn(s, generator=rng) * 10 ** (torch.rand(s, generator=rng) * 8 - 8) for s in resnet_shapes]

    return draw
