"""What can be known of training on a GPU without one: operations, launches, and who waits for whom."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from backends import requires_triton
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from qlocaladam import ARMS, QLocalAdam, optim
from qlocaladam.federated import client
from qlocaladam.federated.batches import ImageSet, Normalisation
from qlocaladam.federated.client import LocalTraining, train_client
from qlocaladam.kernels import reference


def stepped(shapes, gradients, steps, **options):
    """Everything that an optimizer has changed, as bytes."""
    rng = torch.Generator().manual_seed(0)
    dtype = options.pop("dtype", torch.float32)
    params = [torch.randn(shape, generator=rng).to(dtype).requires_grad_() for shape in shapes]
    optimizer = QLocalAdam(params, backend="reference", **options)
    for _, grads in zip(range(steps), gradients, strict=False):
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.to(dtype)
        optimizer.step()
    tensors = [*params, *(v for p in params for v in optimizer.state[p].values() if isinstance(v, torch.Tensor))]
    return [t.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for t in tensors if t.numel()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("arm", ARMS)
def test_small_tensors_are_updated_together_to_the_same_bits(
    arm, rounding, dtype, resnet_shapes, gradients, monkeypatch
):
    """Lone blocks of any length, values of one and many, zeros of both signs."""
    shapes = [*resnet_shapes[::3], (), (0,), (1,), (2,), (33,), (40,), (63,), (65,), (130,)]
    options = {**ARMS[arm], "rounding": rounding, "weight_rounding": rounding, "dtype": dtype}

    def draws():
        rng = torch.Generator().manual_seed(1)
        while True:
            grads = [torch.randn(s, generator=rng) * 10 ** (8 * torch.rand(s, generator=rng) - 8) for s in shapes]
            for grad in grads:
                grad.view(-1)[::7], grad.view(-1)[3::11] = 0.0, -0.0
            yield grads

    together = stepped(shapes, draws(), 2, **options)
    monkeypatch.setattr(reference, "SMALL", 0)
    assert together == stepped(shapes, draws(), 2, **options)


class Operations(TorchDispatchMode):
    """Names of the operations, and the devices that tensors were copied between."""

    def __init__(self):
        super().__init__()
        self.names, self.waits = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        self.names.append(name)
        if name in ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "unique"):
            self.waits.append(name)
            return 1.0
        if name in ("_to_copy", "copy_"):
            tensors = [value for value in args if isinstance(value, torch.Tensor)]
            places = {t.device.type for t in tensors} | {torch.device(kwargs.get("device") or tensors[0].device).type}
            if len(places) > 1 and not kwargs.get("non_blocking"):
                self.waits.append(name)
        return function(*args, **kwargs)


@pytest.mark.parametrize("arm", ["q-localadam", "normalised-4bit"])
def test_small_tensors_need_a_fraction_of_the_operations(arm, resnet_shapes, gradients, monkeypatch):
    counts = []
    for small in (reference.SMALL, 0):
        monkeypatch.setattr(reference, "SMALL", small)
        with Operations() as operations:
            stepped(resnet_shapes, gradients(0), 1, **ARMS[arm])
        counts.append(len(operations.names))
    assert counts[0] < counts[1] / 3, "those that make the tensors among them"


@pytest.fixture
def waits_of_a_client(monkeypatch):
    """What waits for the GPU while a client trains. The device `meta`, which computes nothing, stands for it."""
    monkeypatch.setattr(torch, "autocast", lambda *args, **options: nullcontext())  # which is not for `meta`
    monkeypatch.setattr(client, "is_finite", lambda model: True)

    def waits(epochs, images):
        how = LocalTraining({**ARMS["q-localadam"]}, epochs, 4, True, False, 0)
        pixels, labels = np.zeros((images, 8, 8, 3), np.uint8), np.zeros(images, np.int64)
        data = ImageSet(pixels, labels, Normalisation((0.0,) * 3, (1.0,) * 3), 32, torch.device("meta"))
        data.images = data.images.to("meta")
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(3600, 10)).to("meta")
        with Operations() as operations:
            train_client(model, data, torch.arange(images), how, 1, 0)
        return operations.waits

    return waits


def test_no_step_of_a_client_waits_for_the_gpu(waits_of_a_client):
    """Only the order and the flips of an epoch are copied to it, and a client's loss is fetched from it once."""
    assert waits_of_a_client(1, 8) == ["_to_copy", "_to_copy", "_local_scalar_dense"]
    assert waits_of_a_client(1, 24) == ["_to_copy", "_to_copy", "_local_scalar_dense"]
    assert waits_of_a_client(2, 8) == 4 * ["_to_copy"] + ["_local_scalar_dense"]


@requires_triton
@pytest.mark.parametrize("size", [2, 37, 96, 512])
def test_blocks_that_the_triton_kernel_does_not_take_are_refused_by_name(size):
    wrong = rf"backend 'triton' takes blocks of 32, 64, 128, 256, got block_size={size}; use 'auto'"
    with pytest.raises(ValueError, match=wrong):
        QLocalAdam([torch.zeros(3)], backend="triton", block_size=size)


def test_without_triton_its_backend_is_refused(monkeypatch):
    monkeypatch.setattr(optim, "_triton", lambda: None)
    with pytest.raises(RuntimeError, match="backend 'triton' needs Triton: pip install"):
        QLocalAdam([torch.zeros(3)], backend="triton")


@requires_triton
@pytest.mark.parametrize(
    ("installed", "size", "said"),
    [
        (True, 64, "runs on the CPU when interpreted, got a tensor on cuda"),
        (True, 96, "takes blocks of 32, 64, 128, 256, got block_size=96"),
        (False, 64, "needs Triton"),
    ],
)
def test_on_a_gpu_a_fall_back_to_the_reference_is_said(installed, size, said, monkeypatch):
    """Of parameters on a GPU that is only pretended."""
    if not installed:
        monkeypatch.setattr(optim, "_triton", lambda: None)
    with FakeTensorMode(), pytest.warns(UserWarning, match=f"on a GPU by its reference: the Triton kernel {said}"):
        QLocalAdam([torch.zeros(3, device="cuda")], block_size=size)


def test_a_step_in_a_cuda_graph_is_refused(monkeypatch):
    param = torch.ones(3, requires_grad=True)
    param.grad = torch.ones(3)
    optimizer = QLocalAdam([param])
    for name in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, name, lambda: True)
    with pytest.raises(RuntimeError, match="in a CUDA graph would repeat the step"):
        optimizer.step()
    assert (param == 1).all()
    assert not optimizer.state


@requires_triton
def test_a_step_of_the_triton_kernel_is_one_launch(monkeypatch, resnet_shapes):
    """Of all tensors of a group that have one type and step."""
    from qlocaladam.kernels import triton as kernel

    grids, interpreted = [], kernel.step_kernel

    class Launches:
        def __getitem__(self, grid):
            grids.append(grid)
            return interpreted[grid]

    monkeypatch.setattr(kernel, "step_kernel", Launches())
    params = [torch.zeros(shape).requires_grad_() for shape in resnet_shapes]
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer = QLocalAdam(params, backend="triton")
    for step in range(1, 3):
        optimizer.step()
        assert len(grids) == step
