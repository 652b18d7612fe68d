"""QLocalAdam behaves as torch users expect, in every arm."""

import copy
import math

import pytest
import torch
from backends import BACKENDS, CPU_BACKENDS
from covering import covering
from torch import nn

from qlocaladam import ARMS, QLocalAdam, state_codecs
from qlocaladam.kernels import fused


def problem(dtype=torch.float32, seed=0):
    """A small regression with a known minimum, its parameters and its loss."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 3)).to(dtype)
    inputs, targets = torch.randn(100, 20, dtype=dtype), torch.randn(100, 3, dtype=dtype)

    def loss():
        return (model(inputs) - targets).square().mean()

    return model, loss


def train(model, loss, optimizer, steps=30):
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
    return value.item()


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("rounding", ["nearest", "floor", "stochastic"])
def test_the_default_learns_like_fp32(backend, rounding):
    results = {}
    for arm in ("fp32", "q-localadam"):
        model, loss = problem()
        start = loss().item()
        optimizer = QLocalAdam(model.parameters(), lr=0.01, backend=backend, **{**ARMS[arm], "rounding": rounding})
        results[arm] = train(model, loss, optimizer, 150)
    assert results["fp32"] < 0.5 * start
    assert results["q-localadam"] == pytest.approx(results["fp32"], abs=0.05 * start)


def test_arms_are_the_papers_and_ours():
    codecs = {
        name: tuple(
            codec and codec.name
            for codec in state_codecs(arm["momentum"], arm["variance"], arm.get("block_size", 64), "nearest", 1e-8)
        )
        for name, arm in ARMS.items()
    }
    assert codecs == {
        "fp32": (None, None),
        "q-localadam": ("linear", "log"),
        "naive-int8": ("linear", "linear"),
        "momentum-only": ("linear", None),
        "variance-only": (None, "log"),
        "dynamic-8bit": ("dynamic", "dynamic"),
        "normalised": ("normalised", "log"),
        "normalised-4bit": ("normalised", "log"),
    }
    assert {name for name, arm in ARMS.items() if arm.get("bits") == 4} == {"normalised-4bit"}
    assert ARMS["normalised"]["log_offset"] == ARMS["normalised-4bit"]["log_offset"] == 1e-16
    default = QLocalAdam([torch.zeros(1)]).defaults
    assert {k: default[k] for k in ("momentum", "variance")} == ARMS["q-localadam"]


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_between_steps_there_are_codes_and_ranges_only(arm, backend):
    model, loss = problem()
    optimizer = QLocalAdam(model.parameters(), backend=backend, **ARMS[arm])
    train(model, loss, optimizer, 2)
    for param in model.parameters():
        state = dict(optimizer.state[param])
        assert state.pop("step") == 2
        for moment in ("momentum", "variance"):
            if ARMS[arm][moment] == "fp32":
                assert state.pop(moment).dtype == torch.float32
            else:
                assert state.pop(f"{moment}_codes").dtype == torch.uint8
                ranges = state.pop(f"{moment}_ranges")
                block = ARMS[arm].get("block_size", 64)
                numbers = 1 if ARMS[arm][moment] in ("dynamic", "normalised") else 2
                assert ranges.shape == (math.ceil(param.numel() / block), numbers)
        assert not state


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_floor_is_what_the_documentation_says(backend):
    """Two steps by hand: a stored variance is read as at least the floor, and so are the zeros before if asked."""
    for floor, expected in ((None, 1e-8), (1e-4, 1e-4), (0.0, 0.0)):
        for at_once in (False, True):
            param = torch.zeros(64, requires_grad=True)
            optimizer = QLocalAdam([param], backend=backend, variance_floor=floor, eps=1e-8, floor_first_step=at_once)
            momentum = variance = moved = 0.0
            for step in (1, 2):
                param.grad = torch.full((64,), 1e-6)
                optimizer.step()
                momentum = 0.9 * momentum + 0.1 * 1e-6
                variance = 0.999 * max(variance, expected if at_once or step > 1 else 0.0) + 0.001 * 1e-12
                root = math.sqrt(variance / (1 - 0.999**step)) + 1e-8
                moved -= 1e-3 * momentum / (1 - 0.9**step) / root
                assert param[0].item() == pytest.approx(moved, rel=1e-4)


def test_fp32_variance_has_no_floor_unless_asked():
    for floor, expected in ((None, 1.999e-15), (1e-8, 0.999e-8 + 1e-15)):
        param = torch.zeros(3, requires_grad=True)
        optimizer = QLocalAdam([param], variance_floor=floor, **ARMS["fp32"])
        param.grad = torch.full((3,), 1e-6)
        optimizer.step()
        optimizer.step()
        assert optimizer.state[param]["variance"][0].item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("momentum", "fp32"),
        ("variance", "linear"),
        ("block_size", 128),
        ("rounding", "floor"),
        ("variance_floor", 0.0),
        ("log_offset", 1e-16),
        ("seed", 3),
    ],
)
def test_a_state_made_with_other_settings_is_refused_by_name(setting, value):
    model, loss = problem()
    optimizer = QLocalAdam(model.parameters(), **{setting: value})
    train(model, loss, optimizer, 1)
    own = QLocalAdam(model.parameters())
    train(model, loss, own, 1)
    before = copy.deepcopy(own.state_dict())
    with pytest.raises(ValueError, match=f"the state was made with {setting}={value!r}, the optimizer has {setting}="):
        own.load_state_dict(optimizer.state_dict())
    assert str(before) == str(own.state_dict()), "a refused state changes nothing"


def test_a_state_of_another_optimizer_or_shape_is_refused():
    model, _ = problem()
    peer = torch.optim.SGD(model.parameters(), momentum=0.9)
    with pytest.raises(ValueError, match=r"neither by QLocalAdam nor by torch\.optim\.Adam: it has no 'betas'"):
        QLocalAdam(model.parameters()).load_state_dict(peer.state_dict())
    small = QLocalAdam([torch.zeros(5, requires_grad=True)])
    small.param_groups[0]["params"][0].grad = torch.ones(5)
    small.step()
    with pytest.raises(ValueError, match=r"parameter 0 has torch\.uint8 of 5 in 'momentum_codes'; .*uint8 of 6"):
        QLocalAdam([torch.zeros(6)]).load_state_dict(small.state_dict())
    with pytest.raises(ValueError, match="1 parameter groups, the optimizer has 2"):
        QLocalAdam([{"params": [torch.zeros(5)]}, {"params": [torch.zeros(5)]}]).load_state_dict(small.state_dict())


def test_loading_takes_the_learning_rate_and_keeps_the_backend():
    param = torch.zeros(3, requires_grad=True)
    saved = QLocalAdam([param], lr=0.5, backend="auto").state_dict()
    optimizer = QLocalAdam([param], lr=0.1, backend="reference")
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["backend"] == "reference"


@covering(backend=BACKENDS, each={"arm": list(ARMS)})
def test_memory_layout_changes_nothing(backend, arm):
    rng = torch.Generator().manual_seed(0)
    values, grads = torch.randn(6, 4, 3, 5, generator=rng), torch.randn(3, 6, 4, 3, 5, generator=rng)
    layouts = {
        "contiguous": lambda t: t.clone(),
        "channels last": lambda t: t.to(memory_format=torch.channels_last),
        "strided": lambda t: torch.stack((t, t), -1)[..., 0],
        "transposed": lambda t: t.transpose(0, 3).contiguous().transpose(0, 3),
    }
    results = {}
    for param_layout in layouts:
        for grad_layout in ("contiguous", "channels last"):
            param = layouts[param_layout](values).requires_grad_()
            optimizer = QLocalAdam([param], backend=backend, **ARMS[arm])
            for grad in grads:
                param.grad = layouts[grad_layout](grad)
                optimizer.step()
            assert param.stride() == layouts[param_layout](values).stride()
            results[param_layout, grad_layout] = param.detach().contiguous()
    for result in results.values():
        assert torch.equal(result, results["contiguous", "contiguous"])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("arm", ARMS)
def test_empty_scalar_and_idle_parameters(arm, backend):
    params = [torch.zeros(0), torch.zeros(()), torch.ones(3, 1), torch.ones(7)]
    params = [p.requires_grad_() for p in params]
    optimizer = QLocalAdam(params, backend=backend, **ARMS[arm])
    for _ in range(3):
        for p in params[:3]:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert params[1].item() == pytest.approx(-3e-3, rel=1e-2)
    assert torch.allclose(params[2], torch.tensor(1 - 3e-3), rtol=1e-4)
    assert (params[3] == 1).all()
    assert params[3] not in optimizer.state
    params[3].grad = torch.ones(7)  # its own first step, with its own bias correction
    optimizer.step()
    assert torch.allclose(params[3], torch.tensor(1 - 1e-3), rtol=1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_bad_gradient_is_seen_in_its_block_only(backend):
    param = torch.zeros(200, requires_grad=True)
    optimizer = QLocalAdam([param], backend=backend)
    for step in range(2):
        param.grad = torch.ones(200)
        if step == 0:
            param.grad[70] = torch.nan
        optimizer.step()
        bad = torch.arange(200) == 70 if step == 0 else (torch.arange(200) // 64) == 1
        assert torch.equal(param.isnan(), bad)


def test_in_place_updates_are_known_to_autograd():
    param = torch.ones(3, requires_grad=True)
    optimizer = QLocalAdam([param])
    product = (param * param).sum()
    param.grad = torch.ones(3)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


WRONG_VALUES = [
    ("lr", torch.tensor(-1.0)),
    ("lr", torch.tensor([0.001, 0.001])),
    ("lr", torch.tensor(1j)),
    ("betas", (1.0, 0.0)),
    ("betas", (torch.tensor([0.9, 0.9]), torch.tensor(0.99))),
    ("bits", 8.0),
    ("log_offset", "small"),
    ("momentum", ["linear"]),
]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "lr must be a finite number of at least 0, or a tensor of one, got -1.0"),
        ({"lr": math.nan}, "lr must be .* got nan"),
        ({"eps": -1e-8}, "eps must be .* got -1e-08"),
        ({"eps": "small"}, "eps must be .* got 'small'"),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers in \[0, 1\), got \(0.9, 1.0\)"),
        ({"betas": 0.9}, "betas must be .* got 0.9"),
        ({"weight_decay": -0.1}, "weight_decay must be .* got -0.1"),
        ({"momentum": "log"}, "momentum must be one of linear, normalised, dynamic, softsign, fp32, got 'log'"),
        ({"variance": "int8"}, "variance must be one of log, linear, dynamic, root, nonzero, fp32, got 'int8'"),
        ({"block_size": 0}, "block_size must be a whole number of at least 2, got 0"),
        ({"rounding": "up"}, "rounding must be one of .* got 'up'"),
        ({"variance_floor": -1.0}, "variance_floor must be .* got -1.0"),
        ({"log_offset": 0.0}, "log_offset must be .* got 0.0"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"backend": "cuda"}, "backend must be one of auto, fused, triton, reference, got 'cuda'"),
        *(({name: value}, rf"\b{name}\b") for name, value in WRONG_VALUES),
        *(({flag: True}, rf"\b{flag}\b") for flag in ("foreach", "fused", "capturable", "differentiable", "amsgrad")),
    ],
)
def test_wrong_arguments_say_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        QLocalAdam([torch.zeros(1)], **options)
    optimizer = QLocalAdam([torch.zeros(1)])
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": [torch.zeros(1)], **options})
    assert len(optimizer.param_groups) == 1


def test_what_cannot_be_updated_is_refused():
    with pytest.raises(ValueError, match=r"real parameters only, got one of torch\.complex64"):
        QLocalAdam([torch.zeros(3, dtype=torch.complex64)])
    with pytest.raises(ValueError, match="backend 'fused' runs on the CPU, got a tensor on meta"):
        QLocalAdam([torch.zeros(3, device="meta")], backend="fused")
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer = QLocalAdam(embedding.parameters())
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()


def test_a_missing_kernel_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(fused, "library", lambda: None)
    with pytest.raises(RuntimeError, match="'fused' was not built: install the package where a C compiler is"):
        QLocalAdam([torch.zeros(3)], backend="fused")
    param = torch.zeros(3, requires_grad=True)
    param.grad = torch.ones(3)
    QLocalAdam([param]).step()  # auto falls back
    assert (param < 0).all()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"momentum": "softsign", "variance": "root"}, "softsign code of 8 bits"),
        ({"momentum": "dynamic", "variance": "nonzero", "bits": 4}, "dynamic code of 4 bits"),
    ],
)
def test_codes_without_a_kernel_are_computed_by_the_reference(options, code):
    with pytest.raises(ValueError, match=f"backend 'fused' has no {code}; use 'auto'"):
        QLocalAdam([torch.ones(100, requires_grad=True)], backend="fused", **options)
    made = []
    for backend in ("auto", "reference"):
        param = torch.ones(100, requires_grad=True)
        optimizer = QLocalAdam([param], backend=backend, variance_floor=0.0, block_size=32, **options)
        for step in range(3):
            param.grad = torch.linspace(-1, 1, 100) + step
            optimizer.step()
        made.append(param.detach())
    assert torch.equal(*made)
