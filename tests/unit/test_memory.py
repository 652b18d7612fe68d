"""Memory to the last byte: what is held, and what the paper's layout would take. Its figures are in the ledger."""

import pytest
import torch

from qlocaladam import ARMS, QLocalAdam, optimizer_bytes, state_codecs
from qlocaladam.memory import state_bytes
from qlocaladam.models import PAPER_MODELS, ResNet18


@pytest.fixture(scope="module")
def paper_sizes():
    with torch.device("meta"):
        return {name: [p.numel() for p in ResNet18(**shape).parameters()] for name, shape in PAPER_MODELS.items()}


def codecs(arm, block_size=64):
    options = ARMS[arm]
    bits = options.get("bits", 8)
    return state_codecs(options["momentum"], options["variance"], block_size, "nearest", 1e-8, bits)


@pytest.mark.parametrize("arm", ARMS)
def test_report_counts_what_is_there(arm):
    model = ResNet18(classes=10, width=4)
    optimizer = QLocalAdam(model.named_parameters(), **ARMS[arm])
    assert optimizer.memory_report().total == 0
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    report = optimizer.memory_report()
    tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    assert report.total == sum(t.untyped_storage().nbytes() for t in tensors)
    sizes = [p.numel() for p in model.parameters()]
    block = ARMS[arm].get("block_size", 64)
    assert report.total == optimizer_bytes(sizes, *codecs(arm, block))
    assert optimizer.memory_report("published").total == optimizer_bytes(sizes, *codecs(arm, block), "published")
    assert report.fp32_total == 8 * sum(sizes)
    assert [row.tensor for row in report.rows[::2]] == [name for name, _ in model.named_parameters()]
    assert {row.state for row in report.rows} == {"momentum", "variance"}
    assert "layer1.0.conv1.weight" in str(report)
    assert "times less than FP32" in str(report)


@pytest.mark.parametrize("dataset", PAPER_MODELS)
def test_normalised_states_of_4_bits_take_6_point_7_times_less(dataset):
    """1.1875 bytes a parameter, and a few bytes for last blocks that are not full."""
    shape = PAPER_MODELS[dataset]
    with torch.device("meta"):
        sizes = [p.numel() for p in ResNet18(shape["classes"], shape["width"]).parameters()]
    held = optimizer_bytes(sizes, *codecs("normalised-4bit", 64))
    assert 1.1875 * sum(sizes) <= held <= 1.1875 * sum(sizes) + 18 * len(sizes)
    assert round(8 * sum(sizes) / held, 2) == 6.74


def test_unnamed_parameters_are_numbered_across_groups():
    params = [torch.zeros(3, requires_grad=True) for _ in range(3)]
    optimizer = QLocalAdam([{"params": params[:2]}, {"params": params[2:]}])
    for p in params:
        p.grad = torch.ones(3)
    optimizer.step()
    assert [row.tensor for row in optimizer.memory_report().rows[::2]] == ["param0", "param1", "param2"]


def test_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="layout must be one of held, published, got 'packed'"):
        state_bytes(3, None, "packed")
    with pytest.raises(ValueError, match="layout must be one of held, published, got 'packed'"):
        QLocalAdam([torch.zeros(1)]).memory_report("packed")
