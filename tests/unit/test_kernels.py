"""Both kernels do what the reference does: parameters to float32 rounding, codes equal but for rare ties.

That of Triton runs in its interpreter here, which takes a twentieth of a second for a step.
"""

import math
import threading

import pytest
import torch
from agreement import (
    check_some_steps,
    check_step_by_step,
    check_what_is_not_finite,
    copy_over,
    gaps,
    give,
    pair,
    params,
    step_both,
)
from backends import KERNELS, requires_fused, requires_triton

from qlocaladam import ARMS, QLocalAdam
from qlocaladam.codecs import BITS, ROUNDINGS
from qlocaladam.optim import _rule

every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def steps_of(kernel, arm, rounding):
    """Each step begins from the reference's state with gradients of its own, so that one more is one more sample: most
    of them for what an arm does by itself, and for the one arm of which the roundings are told apart."""
    if rounding == ARMS[arm].get("rounding", "nearest") or arm == "normalised":
        return 20 if kernel == "fused" else 10
    return 10 if kernel == "fused" else 2


@every_kernel
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("arm", ARMS)
def test_kernels_agree_step_by_step(kernel, arm, rounding, resnet_shapes, gradients):
    shapes = resnet_shapes
    if kernel == "triton":  # one tensor of each kind, so that the interpreter runs full rows once and short rows once
        shapes = [shape for shape in dict.fromkeys(shapes) if math.prod(shape) <= 4608]
    check_step_by_step(kernel, arm, rounding, shapes, gradients(1, shapes), steps_of(kernel, arm, rounding))


def of_every_size(sizes):
    """With each kernel."""
    cases = [(kernel, size) for kernel in KERNELS for size in sizes[kernel.values[0]]]
    return pytest.mark.parametrize(
        ("kernel", "block_size"), [pytest.param(*kernel.values, size, marks=kernel.marks) for kernel, size in cases]
    )


@of_every_size({"fused": [2, 3, 37, 64, 128, 700, 5000, 2**40], "triton": [32, 64, 128, 256]})
@pytest.mark.parametrize("arm", ["q-localadam", "naive-int8", "dynamic-8bit"])
def test_kernels_agree_at_any_block_size(kernel, arm, block_size):
    reference, compiled = pair(kernel, [(1500,), (5001,), (64,)], **{**ARMS[arm], "block_size": block_size})
    check_some_steps(kernel, reference, compiled)


@of_every_size({"fused": [2, 38, 64, 128, 700, 5000, 2**40], "triton": [32, 256]})
@pytest.mark.parametrize("momentum", ["linear", "normalised", "fp32"])
@pytest.mark.parametrize("variance", ["log", "linear", "fp32"])
def test_kernels_agree_at_4_bits(kernel, momentum, variance, block_size):
    """Odd sizes too: 5001 and 1023 leave half a byte over."""
    options = {"momentum": momentum, "variance": variance, "block_size": block_size, "bits": 4, "variance_floor": 1e-3}
    reference, compiled = pair(kernel, [(1500,), (5001,), (1023,), (1,)], **options)
    check_some_steps(kernel, reference, compiled)


@every_kernel
@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        {"maximize": True},
        {"maximize": True, "weight_decay": 0.1},
        {"betas": (0.0, 0.0)},
        {"variance_floor": 0.0},
        {"variance_floor": 1e-4, "eps": 1e-3},
        {"eps_floor": 1e-4},
        {"log_offset": 1e-16},
        {"momentum": "normalised", "weight_decay": 0.1, "maximize": True},
        {"momentum": "normalised", "variance": "fp32"},
        {"momentum": "normalised", "variance": "dynamic", "weight_decay": 0.1, "decoupled_weight_decay": True},
    ],
    ids=str,
)
def test_kernels_agree_with_every_option(kernel, options):
    reference, compiled = pair(kernel, [(1000,), (3, 5)], **options)
    check_some_steps(kernel, reference, compiled)


@every_kernel
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_kernels_agree_on_weights_of_16_bits(kernel, dtype, rounding):
    """To the last bit but where FP32 rounding decides; the largest numbers and the tiniest among them."""
    reference, compiled = pair(kernel, [(1000,), (3, 5)], dtype=dtype, weight_rounding=rounding, lr=1e-4)
    extremes = torch.tensor([1e-7, -6e-8, 3e-5, 65504.0, -65504.0, float("inf"), -float("inf"), float("nan")])
    for optimizer in (reference, compiled):
        params(optimizer)[0].data[: len(extremes)] = extremes.to(dtype)
    for step in range(4):
        step_both(reference, compiled, step)
        for one, other in zip(params(reference), params(compiled), strict=True):
            same = (one == other) | (one.isnan() & other.isnan())
            assert same.float().mean() > 0.998
            assert torch.allclose(one.float(), other.float(), rtol=2 * torch.finfo(dtype).eps, equal_nan=True)
        copy_over(reference, compiled)


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("bits", BITS)
def test_kernels_write_to_nothing_but_their_tensors(kernel, bits, dtype):
    """Parameters and states that begin and end anywhere, between values that nobody may touch; one without a value."""
    around = []

    def surrounded(tensor):
        whole = torch.full((tensor.numel() + 10,), 77, dtype=tensor.dtype)
        inner = whole[5 : 5 + tensor.numel()]
        around.append((whole, inner.numel()))
        return inner.copy_(tensor.reshape(-1)).view(tensor.shape)

    shapes = [(1,), (31,), (64,), (65,), (0,), (200,)]
    reference, compiled = pair(kernel, shapes, dtype=dtype, bits=bits, rounding="stochastic")
    grads = [torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes]
    for optimizer in (reference, compiled):
        give(optimizer, grads)
        optimizer.step()
    copy_over(reference, compiled)
    for param in params(compiled):
        param.data = surrounded(param.data)
        state = compiled.state[param]
        state.update({name: surrounded(value) for name, value in state.items() if torch.is_tensor(value)})
        param.grad = surrounded(param.grad)
    reference.step()
    compiled.step()
    for one, other in zip(params(reference), params(compiled), strict=True):
        assert torch.allclose(one, other, rtol=4 * torch.finfo(dtype).eps, atol=1e-7)
        assert all((gap <= 1).all() for gap in gaps(reference, compiled, one, other))
    for whole, numel in around:
        assert (whole[:5] == 77).all()
        assert (whole[5 + numel :] == 77).all()


@every_kernel
@pytest.mark.parametrize(
    ("dtype", "grad_dtype"),
    [(torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16), (torch.float32, torch.float16)],
    ids=str,
)
def test_kernels_agree_on_gradients_of_another_type(kernel, dtype, grad_dtype):
    reference, compiled = pair(kernel, [(130,)], dtype=dtype)
    grad = torch.randn(130, generator=torch.Generator().manual_seed(0)).to(grad_dtype)
    for optimizer in (reference, compiled):
        (param,) = params(optimizer)
        if not hasattr(param, "grad_dtype"):
            pytest.skip("this torch has no gradients of another type")
        param.grad_dtype = grad_dtype
        param.grad = grad.clone()
        optimizer.step()
        optimizer.step()
    (one,), (other,) = params(reference), params(compiled)
    assert torch.allclose(one, other, rtol=torch.finfo(dtype).eps, atol=1e-7)
    assert all((gap == 0).all() for gap in gaps(reference, compiled, one, other))


SCALES = [1e-45, 1e-44, 1e-38, 1e-30, 1e-22, 1e-19, 1e-10, 1.0, 1e10, 1e18, 1e19, 1e20, 1e21, 1e30]
GROUPS = [({}, SCALES), ({"weight_decay": 0.1}, SCALES), ({"eps": 1e-25}, [1e-23]), ({"eps": 0.0}, [1e-20, 1e18])]


@every_kernel
@pytest.mark.parametrize("arm", ARMS)
def test_kernels_agree_on_gradients_of_any_size(kernel, arm):
    """Down to where gradients, or their squares, are denormal, and up to where their squares are infinite: a tensor for
    each size, in groups for some options."""
    scales = [scale for _, of_group in GROUPS for scale in of_group]
    values = torch.randn(130, generator=torch.Generator().manual_seed(0))
    reference, compiled = (
        QLocalAdam(
            [{"params": [values.clone().requires_grad_() for _ in of_group], **own} for own, of_group in GROUPS],
            backend=backend,
            **ARMS[arm],
        )
        for backend in ("reference", kernel)
    )
    for step in range(2):
        grad = torch.randn(130, generator=torch.Generator().manual_seed(step))
        for optimizer in (reference, compiled):
            give(optimizer, [scale * grad for scale in scales])
            optimizer.step()
        for one, other, scale in zip(params(reference), params(compiled), scales, strict=True):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True), scale
        copy_over(reference, compiled)


@every_kernel
@pytest.mark.parametrize("spread", [6e-6, 6e-5])
@pytest.mark.parametrize("arm", ["q-localadam", "naive-int8", "normalised", "normalised-4bit"])
def test_kernels_agree_on_blocks_that_are_narrow(kernel, arm, spread):
    """Levels are differences of numbers that are almost equal, and one below the lowest must not become the highest."""
    options = {"rounding": "nearest", "betas": (0.0, 0.999), "log_offset": 1e-16, "least_ranges": False}
    pairs = pair(kernel, [(6400,)], **{**ARMS[arm], **options, "variance_floor": 0.0})
    size = 10 ** torch.linspace(-3, 0, 100).repeat_interleave(64)
    grad = size * (1 + spread * torch.rand(6400, generator=torch.Generator().manual_seed(0)))
    moments = []
    for optimizer in pairs:
        give(optimizer, [grad])
        optimizer.step()
        (state,) = optimizer.adam_state_dict()["state"].values()
        moments.append((state["exp_avg"], state["exp_avg_sq"]))
    level = 2 * spread / (15 if arm.endswith("4bit") else 255)
    # Of logarithms float32 knows the difference less exactly; normalised momentum is a multiple of a variance's root.
    exact = arm == "naive-int8", arm in ("naive-int8", "q-localadam")
    for one, other, known in zip(*moments, exact[::-1], strict=True):
        assert ((one - other).abs() <= (level + (1e-6 if known else 1.5e-5)) * one).all()


@every_kernel
def test_a_floor_holds_above_zeros_that_another_kernel_has_stored(kernel):
    """The reference stores -0 as the largest magnitude of a block of zeros in the dynamic code."""
    options = {**ARMS["dynamic-8bit"], "variance_floor": 1e-4}
    reference, compiled = pair(kernel, [(300,)], **options)
    give(reference, [torch.zeros(300)])
    reference.step()
    compiled.load_state_dict(reference.state_dict())
    for optimizer in (reference, compiled):
        give(optimizer, [torch.full((300,), 1e-3)])
        optimizer.step()
    one, other = params(reference)[0], params(compiled)[0]
    assert torch.allclose(one, other, rtol=1e-6, atol=1e-8)
    ranges = [o.state[p]["variance_ranges"] for o, p in ((reference, one), (compiled, other))]
    assert torch.allclose(*ranges, rtol=1e-6)


@every_kernel
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("arm", ARMS)
def test_kernels_agree_on_what_is_not_finite(kernel, arm, bad):
    """1e30 is finite, its square is not: the variance is spoiled and the momentum is not."""
    check_what_is_not_finite(kernel, arm, bad)


@requires_fused
@pytest.mark.parametrize("bits", BITS)
def test_results_do_not_depend_on_threads(bits):
    """Nor does it which rows of blocks are left to the general path, because of one block that is next to nothing."""
    shapes, results = [(7,), (300_000,), (100_001,)], []
    before = torch.get_num_threads()

    def gradient(shape, step):
        grad = torch.randn(shape, generator=torch.Generator().manual_seed(step))
        grad[: 64 * (shape[0] // 64)].view(-1, 64)[::40] *= 1e-25
        return grad

    try:
        for threads in (1, 2, 3, 5):
            torch.set_num_threads(threads)
            _, compiled = pair("fused", shapes, rounding="stochastic", bits=bits)
            for step in range(3):
                give(compiled, [gradient(shape, step) for shape in shapes])
                compiled.step()
            results.append(params(compiled) + [compiled.state[p]["variance_codes"] for p in params(compiled)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@requires_triton
@pytest.mark.parametrize("bits", BITS)
def test_results_do_not_depend_on_the_launch_grid(bits, monkeypatch):
    from qlocaladam.kernels import triton as module

    shapes, results = [(1300,), (37,), (64,), (1,), (700,)], []
    for values in (64, 512, 2**15):
        monkeypatch.setattr(module, "PROGRAM_VALUES", values)
        _, compiled = pair("triton", shapes, rounding="stochastic", bits=bits)
        give(compiled, [torch.randn(s, generator=torch.Generator().manual_seed(0)) for s in shapes])
        compiled.step()
        results.append(params(compiled) + [compiled.state[p]["variance_codes"] for p in params(compiled)])
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other, strict=True))


@every_kernel
def test_kernels_agree_on_a_group_of_everything(kernel):
    """Types, layouts and numbers of steps; empty tensors, tails, memory that begins anywhere; one tensor twice."""
    optimizers = []
    for backend in ("reference", kernel):
        rng = torch.Generator().manual_seed(0)
        values = []
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            drawn = [torch.randn(size, generator=rng).to(dtype) for size in (131, 630, 0, 128)]
            values += [drawn[0][1:], drawn[1].view(21, 30).t(), drawn[2], drawn[3]]
        tensors = [value.requires_grad_() for value in values]
        with pytest.warns(UserWarning, match="duplicate"):
            optimizers.append(QLocalAdam([*tensors, tensors[0]], backend=backend, **ARMS["normalised-4bit"]))
    rng = torch.Generator().manual_seed(1)
    for step in range(3):
        pairs = list(zip(*map(params, optimizers), strict=True))[:-1]
        for number, (one, other) in enumerate(pairs):
            idle = number % 4 == 3 and step == 0
            grad = None if idle else torch.randn(one.shape[::-1], generator=rng).permute(*range(one.ndim)[::-1])
            one.grad = other.grad = None if grad is None else grad.to(one.dtype)
        for optimizer in optimizers:
            optimizer.step()
        for one, other in pairs:
            assert optimizers[0].state.get(one, {}).get("step") == optimizers[1].state.get(other, {}).get("step")
            assert torch.allclose(one, other, rtol=2 * torch.finfo(one.dtype).eps, atol=1e-6)
            for name, value in optimizers[0].state.get(one, {}).items():
                if name.endswith("_ranges"):
                    assert torch.allclose(value, optimizers[1].state[other][name], rtol=1e-5)
        copy_over(*optimizers)


@requires_triton
@pytest.mark.parametrize("arm", ["fp32", "q-localadam", "normalised-4bit", "dynamic-8bit"])
def test_the_triton_kernel_finds_values_beyond_2_to_the_31(arm, monkeypatch):
    """Full rows and short ones that are said to be so many blocks further on, of tensors that begin as much earlier."""
    from qlocaladam.kernels import triton as module

    class Moved(module.Launch):
        def __init__(self, rows, members, size, *like):
            super().__init__(rows, members, size, *like)
            records = dict(zip(module.RECORD, self.records[: len(self.order)].T, strict=True))
            rule = _rule(optimizer.param_groups[0])
            self.moved = 4 * size * self.blocks
            records["block"] += self.blocks
            records["param"] -= self.moved
            for name, codec in (("momentum", rule.momentum), ("variance", rule.variance)):
                records[name] -= self.moved if codec is None else size * codec.bits // 8 * self.blocks
                records[f"{name}_ranges"] -= 0 if codec is None else 4 * codec.range_size * self.blocks

        def run(self, grads, rule, step):
            super().run(grads - self.moved, rule, step)

    monkeypatch.setattr(module, "Launch", Moved)
    results = []
    for Moved.blocks in (0, 2**33):
        _, optimizer = pair("triton", [(700,), (130,)], **{**ARMS[arm], "rounding": "nearest"})
        for step in range(2):
            give(
                optimizer,
                [torch.randn(p.shape, generator=torch.Generator().manual_seed(step)) for p in params(optimizer)],
            )
            optimizer.step()
        results.append([t for p in params(optimizer) for t in (p, *optimizer.state[p].values()) if torch.is_tensor(t)])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@requires_fused
def test_steps_in_several_threads_do_not_disturb_each_other():
    def run(seed, out):
        _, compiled = pair("fused", [(200_000,)], seed=seed)
        for step in range(5):
            give(compiled, [torch.randn(200_000, generator=torch.Generator().manual_seed(step))])
            compiled.step()
        out[seed] = params(compiled)[0].detach()

    alone, together = {}, {}
    for seed in range(4):
        run(seed, alone)
    threads = [threading.Thread(target=run, args=(seed, together)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(alone[seed], together[seed]) for seed in range(4))
