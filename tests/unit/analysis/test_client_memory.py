"""What a whole client holds: counted by hand, on tensors with data, and as published where the paper has it."""

import pytest
import torch
from torch import nn

from qlocaladam.analysis.client_memory import PARTS, client_memory, saved_bytes, training_bytes
from qlocaladam.models import ResNet18

ARMS = {name: {"arm": name} for name in ("fp32", "q-localadam", "normalised-4bit")}


def test_a_model_that_can_be_counted_by_hand():
    """A linear layer keeps its input; ReLU in place keeps what it writes, which the next layer keeps as its input."""
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 3))
    images, labels = torch.zeros(2, 5), torch.zeros(2, dtype=torch.long)
    total_weight = 4  # a number that the mean of the losses is divided by
    by_hand = 4 * 2 * 5 + 4 * 2 * 7 + 4 * 2 * 3 + 8 * 2 + total_weight  # inputs, hidden, log-probabilities, labels
    assert saved_bytes(model, images, labels) == by_hand
    assert saved_bytes(model.to("meta"), images.to("meta"), labels.to("meta")) == by_hand


def test_tensors_without_data_are_counted_as_those_with_data():
    model = ResNet18(10, width=4)
    images, labels = torch.zeros(3, 3, 40, 40), torch.zeros(3, dtype=torch.long)
    counted = training_bytes(10, 4, 3, 40)
    assert counted["activations"] == saved_bytes(model, images, labels)
    assert counted["gradients"] == 4 * sum(param.numel() for param in model.parameters())
    assert counted["weights"] - counted["gradients"] == sum(buffer.nbytes for buffer in model.buffers())
    assert list(counted) == list(PARTS[:3])


def test_activations_grow_with_the_batch_and_weights_do_not():
    one, two, three = (training_bytes(10, 4, batch, 40) for batch in (1, 2, 3))
    assert two["activations"] - one["activations"] == three["activations"] - two["activations"] > 0
    assert one["weights"] == two["weights"]


def test_how_much_of_a_client_the_published_reduction_is():
    """3.37 times less optimizer memory, at the paper's size and with images as they come."""
    found = client_memory(ARMS).set_index(["dataset", "image_size", "arm"])
    assert (found["states_bytes"] / 1e6).loc[:, 224, "q-localadam"].round(2).tolist() == [14.95, 26.67]  # published
    assert found["saved_percent"].loc[:, 224, "q-localadam"].round(1).tolist() == [3.0, 3.9]
    assert found["saved_percent"].loc[:, 32, "q-localadam"].round(0).tolist() == [29, 30]
    assert (found["saved_percent"].loc[:, :, "fp32"] == 0).all()
    assert (found["total_bytes"] == found[[f"{part}_bytes" for part in PARTS]].sum(axis=1)).all()
    less = found["fp32_total_bytes"] - found["total_bytes"]
    assert found["saved_percent"].to_numpy() == pytest.approx((100 * less / found["fp32_total_bytes"]).to_numpy())
    assert (found["held_saved_percent"] >= found["saved_percent"]).all()


def test_an_arm_may_have_blocks_of_its_own_and_other_packages_have_no_row():
    arms = {
        "q": {"arm": "q-localadam", "block_size": 128},
        "q64": {"arm": "q-localadam"},
        "ao": {"arm": "torchao-8bit"},
    }
    found = client_memory(arms, image_sizes=[32]).set_index("arm")
    assert found["block_size"].loc[["q", "q64"]].tolist() == [128, 128, 64, 64]
    assert "ao" not in found.index


@pytest.mark.parametrize(("name", "value"), [("batch_size", 0), ("image_size", 0), ("image_size", 1.5)])
def test_sizes_that_are_none_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be .* got {value}"):
        training_bytes(10, 4, **{"batch_size": 1, "image_size": 40, name: value})
