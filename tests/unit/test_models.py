"""The paper's models, the transformer, and torchvision beside a torch that it was not built for."""

from pathlib import Path

import pytest
import torch
import yaml

from qlocaladam import vision
from qlocaladam.models import ResNet18, Transformer

SCALES = yaml.safe_load(Path(__file__).parents[2].joinpath("config.yaml").read_text())["scales"]


def test_width_64_is_torchvisions_own():
    torch.manual_seed(0)
    theirs = vision.torchvision.models.resnet18(num_classes=100)
    torch.manual_seed(0)
    ours = ResNet18(classes=100, width=64)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    images = torch.randn(2, 3, 64, 64)
    for model in (ours, theirs):
        model(images).square().sum().backward()
    for (name, own), (_, other) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert torch.equal(own, other), name
        assert torch.equal(own.grad, other.grad), name
    assert torch.equal(ours.eval()(images), theirs.eval()(images))


@pytest.mark.parametrize("stem", ["7x7", "3x3"])
@pytest.mark.parametrize("width", [4, 16])
@pytest.mark.parametrize("size", [(32, 32), (8, 16), (224, 224)])
def test_any_width_stem_and_size(width, stem, size):
    model = ResNet18(classes=7, width=width, stem=stem).eval()
    assert model(torch.randn(1, 3, *size)).shape == (1, 7)


@pytest.mark.parametrize(
    "options", [{"classes": 0}, {"classes": 10, "width": 0}, {"classes": 10, "stem": "5x5"}], ids=str
)
def test_nonsense_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        ResNet18(**options)


def test_the_transformer_has_its_size():
    """Two layers of 12 width^2 + 13 width; embeddings of 97 symbols and 64 places; a norm; a head with its bias."""
    with torch.device("meta"):
        model = Transformer(97, 64, 64)
    assert sum(p.numel() for p in model.parameters()) == 2 * 49_984 + (97 + 64) * 64 + 2 * 64 + 65 * 97 == 116_705
    assert not any(isinstance(module, torch.nn.Dropout) and module.p for module in model.modules())


def test_the_transformer_sees_what_was_and_not_what_comes():
    torch.manual_seed(0)
    model, symbols = Transformer(97, 64, 8), torch.arange(64)[None]
    logits = model(symbols)
    assert logits.shape == (1, 64, 97)
    for place in (0, 1, 40, 63):
        other = symbols.clone()
        other[0, place] = 96
        changed = (model(other) != logits).any(2)[0]
        assert not changed[:place].any()
        assert changed[place:].all()
    assert torch.allclose(model(symbols[:, :10]), logits[:, :10], atol=1e-6)
    assert not torch.equal(model.layers[0].linear1.weight, model.layers[1].linear1.weight)


def test_the_transformer_evaluates_as_it_trains():
    """torch has a path of its own for layers that are only evaluated."""
    torch.manual_seed(0)
    model, symbols = Transformer(97, 64, 16), torch.randint(97, (5, 64))
    trained = model(symbols)
    with torch.no_grad():
        assert torch.allclose(model.eval()(symbols), trained, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{"width": 0}, {"width": 6}, {"symbols": 0, "width": 8}, {"length": 0, "width": 8}], ids=str
)
def test_a_nonsense_transformer_is_refused(options):
    with pytest.raises(ValueError, match="must be"):
        Transformer(**{"symbols": 97, "length": 64, **options})


@pytest.mark.parametrize("scale", SCALES)
def test_no_scale_has_a_weight_that_sees_nothing_but_padding(scale):
    """At 32x32 the last stage of the 7x7 stem is one pixel, and eight of nine taps of its kernels see only padding."""
    for entry in SCALES[scale]["datasets"].values():
        how = {**SCALES[scale]["training"], **entry.get("training", {})}
        if entry["data"] != "text":
            assert live_taps(ResNet18(10, 4), how["image_size"]) == 1
    assert live_taps(ResNet18(10, 4), 32) < 0.9


def live_taps(model, size):
    """The share of all kernel taps that have a gradient for some pair of channels."""
    seen = {}
    for seed in range(3):
        images = torch.randn(8, 3, size, size, generator=torch.Generator().manual_seed(seed))
        model.zero_grad()
        model(images).square().sum().backward()
        for name, param in model.named_parameters():
            if param.dim() == 4:
                seen[name] = seen.get(name, False) | (param.grad != 0).any(0).any(0)
    taps = torch.cat([live.flatten() for live in seen.values()])
    return taps.float().mean().item()
