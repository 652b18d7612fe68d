"""Other people's optimizers as arms of a run."""

import json

import pytest
import torch

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.data.dataset import load, subset
from qlocaladam.federated import peers
from qlocaladam.federated.partition import partition
from qlocaladam.federated.peers import held_bytes, make_peer
from qlocaladam.federated.run import run
from qlocaladam.federated.settings import PEERS, RunSettings


def stepped(optimizer, param, steps=5):
    for step in range(steps):
        param.grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(step))
        optimizer.step()
    return param.detach()


ADAMS = [arm for arm in PEERS if arm != "laprop"]


@pytest.mark.parametrize("arm", ADAMS)
def test_small_tensors_are_trained_as_torch_does(arm):
    """They are not quantized, so this tells whether torchao's step survives without its compiler."""
    ours, theirs = (torch.ones(100, requires_grad=True) for _ in range(2))
    stepped(make_peer(arm, [theirs], {"lr": 1e-2}), theirs)
    assert torch.allclose(stepped(torch.optim.Adam([ours], lr=1e-2), ours), theirs.detach(), atol=1e-6)


@pytest.mark.parametrize(
    ("arm", "bytes_a_value"),
    [("torchao-8bit", 1 + 4 / 256), ("torchao-4bit", 0.5 + 4 / 128), ("bitsandbytes-8bit", 1 + 4 / 256)],
)
def test_large_tensors_are_quantized(arm, bytes_a_value):
    param = torch.ones(2**16, requires_grad=True)
    optimizer = make_peer(arm, [param], {"lr": 1e-2})
    exact = torch.ones(2**16, requires_grad=True)
    difference = stepped(optimizer, param) - stepped(torch.optim.Adam([exact], lr=1e-2), exact)
    assert difference.abs().max() > 1e-5
    # Both states, the tables of their codes, and the number of the step.
    assert 2 * bytes_a_value * 2**16 < held_bytes(optimizer) < 2 * bytes_a_value * 2**16 + 3000


def test_laprop_averages_normalised_gradients():
    """Its two updates, as the paper has them, for a gradient of 3 and then of -4."""
    param = torch.zeros(1, requires_grad=True)
    optimizer = make_peer("laprop", [param], {"lr": 0.1, "betas": (0.8, 0.9), "eps": 0.0})
    average, variance, expected = 0.0, 0.0, 0.0
    for step, gradient in enumerate((3.0, -4.0), 1):
        param.grad = torch.tensor([gradient])
        optimizer.step()
        variance = 0.9 * variance + 0.1 * gradient**2
        average = 0.8 * average + 0.2 * gradient / (variance / (1 - 0.9**step)) ** 0.5
        expected -= 0.1 * average / (1 - 0.8**step)
        assert param.item() == pytest.approx(expected, rel=1e-6)
    assert held_bytes(optimizer) == 8


def test_held_bytes_are_those_of_a_report():
    param = torch.ones(1000, requires_grad=True)
    optimizer = QLocalAdam([param], **ARMS["normalised-4bit"])
    stepped(optimizer, param, 1)
    assert held_bytes(optimizer) == optimizer.memory_report().total == 2 * 500 + (4 + 8) * 16


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"arm .torchao-8bit.: torchao is not installed: pip install 'qlocaladam\[federated\]'"
    ):
        RunSettings(arm="torchao-8bit")


def test_options_that_are_ours_are_refused():
    with pytest.raises(ValueError, match=r"an option that Adam4bit of torchao does not have: .*'rounding'"):
        RunSettings(arm="torchao-4bit", optimizer={"rounding": "floor"})


@pytest.mark.parametrize("arm", PEERS)
def test_a_run_repeats(arm, digits, tmp_path):
    data = subset(load(digits), 60, 20)
    settings = RunSettings(arm=arm, rounds=1, epochs=1, width=8, image_size=32, batch_size=16, flip=False)
    dealt = partition(data.y_train, 10, 0.5, 42)
    first, second = (run(settings, data, dealt, tmp_path / name) for name in ("first", "second"))
    assert first == second
    assert first["arm"] == arm
    assert first["optimizer_bytes"]["held"] == first["optimizer_bytes"]["published"]
    share = first["optimizer_bytes"]["held"] / (8 * first["parameters"])
    assert share == 1 if arm == "laprop" else share < 0.6
    assert json.loads((tmp_path / "first/settings.json").read_text())["settings"]["arm"] == arm
