"""The pieces of a round: streams, batches, clients, the average, the evaluation."""

from itertools import chain

import numpy as np
import pytest
import torch
from torch import nn

from qlocaladam import ARMS
from qlocaladam.federated.batches import ImageSet, Normalisation
from qlocaladam.federated.client import LocalTraining, is_finite, train_client
from qlocaladam.federated.progress import Progress, duration
from qlocaladam.federated.server import WeightedAverage, evaluate, load_state
from qlocaladam.models import ResNet18
from qlocaladam.streams import torch_stream

CPU = torch.device("cpu")


def images(count, size=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8), rng.integers(0, 4, count)


@pytest.fixture
def data():
    x, y = images(40)
    return ImageSet(x, y, Normalisation.of(x), 32, CPU)


def how(**changes):
    options = {
        "optimizer": ARMS["q-localadam"],
        "epochs": 2,
        "batch_size": 16,
        "flip": True,
        "autocast": False,
        "seed": 1,
    }
    return LocalTraining(**{**options, **changes})


def test_streams_are_named_and_independent_of_order():
    first = torch.rand(5, generator=torch_stream(42, "batches", 3, 7))
    torch.rand(100, generator=torch_stream(42, "batches", 3, 6))
    assert torch.equal(first, torch.rand(5, generator=torch_stream(42, "batches", 3, 7)))
    others = [
        (42, "batches", 7, 3),
        (43, "batches", 3, 7),
        (42, "model", 3, 7),
        (42, "batches", 3),
        (42, "batches", 3, 8),
    ]
    for seed, purpose, *place in others:
        assert not torch.equal(first, torch.rand(5, generator=torch_stream(seed, purpose, *place)))


def test_no_global_generator_is_touched(data):
    before = torch.random.get_rng_state()
    train_client(ResNet18(4, 4), data, torch.arange(20), how(), 1, 0)
    torch.random.set_rng_state(before)
    model = ResNet18(4, 4)
    before = torch.random.get_rng_state()
    train_client(model, data, torch.arange(20), how(), 1, 0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_normalisation_is_exact():
    x, _ = images(50)
    found = Normalisation.of(x)
    for channel in range(3):
        assert found.mean[channel] == pytest.approx(x[..., channel].astype(np.float64).mean(), rel=1e-12)
        assert found.std[channel] == pytest.approx(x[..., channel].astype(np.float64).std(), rel=1e-12)
    assert Normalisation.of(np.full((3, 2, 2, 3), 7, np.uint8)).std == (1.0, 1.0, 1.0), "a flat channel divides by 1"


def test_batches_are_picked_flipped_and_normalised():
    x, y = images(10, size=4)
    normalisation = Normalisation.of(x)
    data = ImageSet(x, y, normalisation, 4, CPU)
    picked = torch.tensor([7, 2])
    batch, labels = data.batch(picked, torch.tensor([True, False]))
    assert labels.tolist() == y[[7, 2]].tolist()
    expected = (x[[7, 2]] - np.array(normalisation.mean)) / np.array(normalisation.std)
    assert np.allclose(batch[0].permute(1, 2, 0).numpy(), expected[0][:, ::-1], atol=1e-5)
    assert np.allclose(batch[1].permute(1, 2, 0).numpy(), expected[1], atol=1e-5)
    assert data.images.dtype == torch.uint8
    assert batch.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("shape", [(8, 8), (8, 16), (32, 32)])
def test_images_of_any_size_are_resized(shape):
    x = np.zeros((3, *shape, 3), np.uint8)
    x[:, :, : shape[1] // 2] = 255
    data = ImageSet(x, np.zeros(3, np.int64), Normalisation.of(x), 32, CPU)
    batch, _ = data.batch(torch.arange(3))
    assert batch.shape == (3, 3, 32, 32)
    assert (batch[..., :12] > 0).all()
    assert (batch[..., 20:] < 0).all()


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("count", [1, 2, 17, 33])
def test_clients_of_any_size_train(data, arm, count):
    """17 and 33 leave a last batch of one image, whose statistics cannot be normalised by."""
    model = ResNet18(4, 4).to(memory_format=torch.channels_last)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    result = train_client(model, data, torch.arange(count), how(optimizer=ARMS[arm]), 1, 0)
    assert result.images == 2 * count
    assert result.finite
    assert np.isfinite(result.loss)
    assert not torch.equal(before["fc.weight"], model.state_dict()["fc.weight"])
    assert next(iter(result.optimizer.state.values()))["step"] == 2 * -(-count // 16)


def test_a_client_of_one_class_trains(data):
    only = torch.nonzero(data.labels == 2).flatten()
    result = train_client(ResNet18(4, 4), data, only, how(epochs=20, optimizer={"lr": 0.01}), 1, 0)
    assert result.loss < 0.5


def test_every_image_is_seen_once_an_epoch(data, monkeypatch):
    seen = []
    original = ImageSet.batch
    monkeypatch.setattr(ImageSet, "batch", lambda self, i, f=None: seen.append(i.tolist()) or original(self, i, f))
    train_client(ResNet18(4, 4), data, torch.arange(5, 38), how(), 1, 0)
    first, second = [*chain(*seen[:3])], [*chain(*seen[3:])]
    assert sorted(first) == sorted(second) == list(range(5, 38))
    assert first != second


def test_client_training_depends_on_seed_round_and_client_only(data):
    def weights(seed, round_, client):
        torch.manual_seed(0)
        model = ResNet18(4, 4)
        train_client(model, data, torch.arange(20), how(seed=seed), round_, client)
        return model.state_dict()["fc.weight"]

    assert torch.equal(weights(1, 2, 3), weights(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not torch.equal(weights(1, 2, 3), weights(*other))


def test_average_is_weighted_by_samples_buffers_too():
    torch.manual_seed(0)
    models = [ResNet18(3, 4) for _ in range(3)]
    for i, model in enumerate(models):
        model.bn1.running_mean += i
        model.bn1.num_batches_tracked += 10 * i
    samples = [5, 20, 75]
    average = WeightedAverage(100)
    for model, count in zip(models, samples, strict=True):
        average.add(model.state_dict(), count)
    result = average.result(models[0].state_dict())
    for name, value in result.items():
        expected = sum(m.state_dict()[name].double() * n / 100 for m, n in zip(models, samples, strict=True))
        assert value.dtype == models[0].state_dict()[name].dtype
        assert torch.allclose(value.double(), expected, rtol=1e-6, atol=1e-7)
    assert result["bn1.num_batches_tracked"] == round(0.2 * 10 + 0.75 * 20)
    load_state(models[0], result)
    assert torch.equal(models[0].state_dict()["bn1.running_mean"], result["bn1.running_mean"])


def test_one_client_alone_is_its_own_average():
    model = ResNet18(3, 4)
    average = WeightedAverage(7)
    average.add(model.state_dict(), 7)
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in average.result(model.state_dict()).items())


def test_evaluation_counts(data):
    class Fixed(nn.Module):
        def forward(self, x):
            return torch.eye(4)[torch.full((len(x),), 2)] * 10

    accuracy, loss = evaluate(Fixed(), data, 7)
    share = (data.labels == 2).double().mean().item()
    assert accuracy == pytest.approx(100 * share)
    right, wrong = -np.log(np.exp(10) / (np.exp(10) + 3)), -np.log(1 / (np.exp(10) + 3))
    assert loss == pytest.approx(share * right + (1 - share) * wrong, rel=1e-5)


def test_not_finite_is_seen():
    model = ResNet18(3, 4)
    assert is_finite(model)
    model.bn1.running_var[0] = torch.inf
    assert not is_finite(model)


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59, "59s"), (185, "3m 05s"), (7620, "2h 07m")])
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text


class Screen:
    def __init__(self, terminal):
        self.terminal, self.text = terminal, ""

    def isatty(self):
        return self.terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_renews_a_line_on_a_terminal_and_writes_lines_elsewhere(terminal):
    log, screen = Screen(False), Screen(terminal)
    progress = Progress(log, 2, 0, screen)
    progress.say("going on")
    progress.round(1, 50.0, 1.5, 100.0)
    progress.round(2, 75.123, None, 100.0)
    progress.say("done")
    lines = log.text.splitlines()
    assert lines[0] == "going on"
    assert lines[1].startswith("round 1/2  accuracy 50.00 %  training loss 1.5000  100 images/s  ")
    assert lines[1].endswith(" left")
    assert "training loss -" in lines[2]
    assert screen.text.count("\r") == (2 if terminal else 0)
    assert screen.text.count("\n") == (3 if terminal else 4)
