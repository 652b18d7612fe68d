"""PyTorch's generic optimizer checks (`TestOptimRenewed` in its test/test_optim.py), over every arm and both backends.

The inputs are those that `torch.testing._internal.common_optimizers` has for Adam. They are restated here: to import
that module needs a package that torch does not bring, and freezes the flags of `torch.backends` for the whole process.
Left out is what needs an accelerator, what is refused by name (amsgrad, capturable, differentiable, foreach, fused),
and what test_optim.py asks already: wrong options, memory layouts.

Every check is made of every arm, and of every arm with each backend where it depends on their numbers. Cases that a
check has beside them are thinned out to all pairs, or to one case for each of the arms (see `covering`): options,
schedules, groups and names are the work of the optimizer's class, for which arms differ in the entries of their states.
"""

import copy
import inspect
import io
import pickle
from functools import cache, partial

import pytest
import torch
from backends import CPU_BACKENDS
from bits import content
from covering import covering
from torch.nn import Parameter
from torch.optim import SGD, Adam, AdamW, lr_scheduler, swa_utils
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import qlocaladam
from qlocaladam import ARMS, QLocalAdam

KINDS = [*ARMS, "Adam8bit", "Adam4bit"]

INPUTS = {
    "default": {},
    "lr": {"lr": 0.01},
    "weight decay": {"weight_decay": 0.1},
    "maximize": {"weight_decay": 0.1, "maximize": True},
    "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "tensor lr": {"lr": torch.tensor(0.001)},
}
NUMBERS = {name: options for name, options in INPUTS.items() if name != "tensor lr"} | {
    "betas": {"betas": (0.8, 0.9), "eps": 1e-4},
    "maximize decoupled": {"weight_decay": 0.1, "maximize": True, "decoupled_weight_decay": True},
}

LATER_FLAGS = ("foreach", "fused", "capturable", "differentiable", "amsgrad", "maximize", "decoupled_weight_decay")
"""Options that torch.optim.Adam did not have from the start: an older state, or pickle, may be without them."""

FORMER = {
    "pad_blocks": False,
    "least_ranges": False,
    "floor_first_step": True,
    "weight_rounding": "nearest",
    "min_quantized_size": 0,
}
"""Options that states of this package did not have from the start, and what it did then."""

SHAPES = ((80, 64), (80,))
"""A weight and a bias: the first is large enough for `Adam8bit` and `Adam4bit` to quantize it, the second is not."""


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=CPU_BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def make(kind, backend):
    """The optimizer's constructor, to be called like that of torch.optim.Adam."""
    cls = QLocalAdam if kind in ARMS else getattr(qlocaladam, kind)
    return partial(cls, backend=backend, **ARMS.get(kind, {}))


every_arm = {"kind": KINDS, "backend": CPU_BACKENDS}
every_input = covering(options=INPUTS, **every_arm)
an_input_for_each_arm = covering(**every_arm, each={"options": INPUTS})
an_arm_for_each_input = covering(options=INPUTS, backend=CPU_BACKENDS, each={"kind": KINDS})


def parameters(dtype=torch.float32, layout=torch.Tensor.clone):
    """A weight and a bias whose gradients (see `evaluate`) are of one sign and size: every arm has to follow them."""
    rng = torch.Generator().manual_seed(0)
    return [Parameter(layout((torch.rand(shape, generator=rng) + 0.5).to(dtype))) for shape in SHAPES]


def clones(params):
    return [Parameter(p.detach().clone()) for p in params]


def params_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def evaluate(params):
    """The loss, as torch's checks have it, with the gradients set."""
    weight, bias = params
    for p in params:
        p.grad = None
    inputs = torch.linspace(0.5, 1.5, weight.shape[1]).to(weight.dtype)
    loss = (weight.mv(inputs) + bias).pow(2).mean()
    loss.backward()
    return loss


def advance(optimizer, params, steps=3):
    for _ in range(steps):
        optimizer.step(lambda: evaluate(params))


def draw_grads(params, seed=0):
    rng = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.rand(p.shape, generator=rng).to(p.dtype) + 0.5


def advance_alike(*optimizers, steps=3):
    """Give the optimizers the same gradients, in the order of their parameters."""
    for seed in range(steps):
        for optimizer in optimizers:
            draw_grads(params_of(optimizer), seed)
            optimizer.step()


def unnamed(state_dict):
    """The state dict without the names of parameters, which two optimizers need not share."""
    groups = [{k: v for k, v in group.items() if k != "param_names"} for group in state_dict["param_groups"]]
    return {**state_dict, "param_groups": groups}


def saved_and_loaded(thing, **how):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **how)


def strided(tensor):
    return torch.stack((tensor, tensor), -1)[..., 0]


# --- construction ---


def test_a_call_written_for_adam_works(make):
    """Every argument of torch.optim.Adam at its default, by position where torch has it so; False for None too."""
    _, *given = inspect.signature(Adam).parameters.values()
    positional = [p.default for p in given if p.kind is p.POSITIONAL_OR_KEYWORD]
    named = {p.name: p.default for p in given if p.kind is p.KEYWORD_ONLY}
    for options in (named, {**named, "foreach": False, "fused": False}):
        params = parameters()
        advance(make(params, *positional, **options), params)


WRONG_PARAMETERS = {
    "tensor": (lambda p, q: p, TypeError, "should be an iterable of Tensors or dicts"),
    "empty": (lambda p, q: [], ValueError, "empty parameter list"),
    "None": (lambda p, q: None, TypeError, "not iterable"),
    "text": (lambda p, q: ["weight"], TypeError, "can only optimize Tensors"),
    "non-leaf": (lambda p, q: [p * 2], ValueError, "can't optimize a non-leaf Tensor"),
    "set": (lambda p, q: [{"params": {p, q}}], TypeError, "ordered collections"),
    "twice": (lambda p, q: [{"params": p}, {"params": p}], ValueError, "appear in more than one parameter group"),
    "some named": (lambda p, q: [("weight", p), q], ValueError, "Some param names are missing"),
    "one group named": (
        lambda p, q: [{"params": [p], "lr": 1e-2}, {"params": [("weight", q)]}],
        ValueError,
        "param group with names",
    ),
}


@covering(wrong=WRONG_PARAMETERS, backend=CPU_BACKENDS, each={"kind": KINDS})
def test_wrong_parameters_are_refused(make, wrong):
    given, error, message = wrong
    with pytest.raises(error, match=message):
        make(given(*parameters()))


@an_arm_for_each_input
def test_it_can_be_printed(make, options):
    optimizer = make(parameters(), **options)
    assert repr(optimizer).startswith(type(optimizer).__name__)
    for name in options:
        assert f"{name}: " in repr(optimizer)


# --- steps ---


@covering(options=INPUTS, layout={"contiguous": torch.Tensor.clone, "strided": strided}, **every_arm)
def test_the_loss_goes_the_right_way(make, options, layout):
    params = parameters(layout=layout)
    before = evaluate(params)
    advance(make(params, **options), params, 10)
    assert (evaluate(params) > before) == options.get("maximize", False)


def test_it_converges_on_a_quadratic(make, kind):
    """The naive arm aside: that it does not get near a minimum is what the paper says of it."""
    if kind == "naive-int8":
        pytest.skip("collapses by design")
    param, target = parameters()[0], torch.linspace(-1, 1, 64)
    optimizer = make([param], lr=0.05)

    def closure():
        optimizer.zero_grad()
        loss = (param - target).pow(2).sum()
        loss.backward()
        return loss

    start = closure().item()
    for _ in range(100):
        last = optimizer.step(closure)
    assert last < 0.01 * start


@covering(dtype=[torch.bfloat16, torch.float16, torch.float64], **every_arm)
def test_the_loss_goes_the_right_way_in_every_type(make, backend, dtype):
    params = parameters(dtype)
    if dtype == torch.float64 and backend == "fused":
        with pytest.raises(ValueError, match="float64"):
            make(params)
        return
    before, optimizer = evaluate(params), make(params, lr=0.01)
    advance(optimizer, params, 10)
    assert evaluate(params) < before
    assert {p.dtype for p in params} == {dtype}
    ranges = {v.dtype for state in optimizer.state.values() for name, v in state.items() if name.endswith("_ranges")}
    assert ranges <= {torch.float32}


@covering(options=NUMBERS, dtype=[torch.float32, torch.float64])
def test_uncompressed_is_adam_bit_for_bit(options, dtype):
    """A tensor as the learning rate aside, with which torch computes the step size in float32."""
    ours, theirs = parameters(dtype), parameters(dtype)
    optimizer = QLocalAdam(ours, backend="reference", **ARMS["fp32"], **options)
    peer = Adam(theirs, foreach=False, fused=False, **options)
    advance(optimizer, ours, 10)
    advance(peer, theirs, 10)
    assert content(ours) == content(theirs)
    assert {optimizer.state[p][moment].dtype for p in ours for moment in ("momentum", "variance")} == {dtype}


@covering(dims=range(3), backend=CPU_BACKENDS, each={"kind": KINDS})
def test_a_learning_rate_may_be_a_tensor(make, dims):
    """Of one element: equal to the number bit for bit, kept as it is, and read anew at each step."""
    options = {"weight_decay": 0.1, "decoupled_weight_decay": True}
    plain, other = parameters(), parameters()
    lr = torch.tensor(2.0**-10).reshape((1,) * dims)
    optimizer = make(other, lr=lr, **options)
    advance(make(plain, lr=2.0**-10, **options), plain)
    advance(optimizer, other)
    assert content(plain) == content(other)
    assert optimizer.param_groups[0]["lr"] is lr
    lr.zero_()
    advance(optimizer, other)
    assert content(plain) == content(other)
    assert content(saved_and_loaded(optimizer.state_dict(), weights_only=True)) == content(optimizer.state_dict())


def test_betas_may_be_tensors(make):
    plain, other = parameters(), parameters()
    advance(make(plain, betas=(0.5, 0.75)), plain)
    advance(make(other, betas=(torch.tensor(0.5), torch.tensor([0.75]))), other)
    assert content(plain) == content(other)


@an_arm_for_each_input
def test_a_step_without_gradients_does_nothing(make, options):
    params = [*parameters(), Parameter(torch.zeros(0, 3))]
    before = content(params)
    optimizer = make(params, **options)
    assert optimizer.step(lambda: 1.5) == 1.5
    assert content(params) == before
    assert not any(optimizer.state.values())


@every_input
def test_zero_gradients_only_decay(make, options):
    params = parameters()
    before = clones(params)
    optimizer = make(params, **options)
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    if "weight_decay" not in options:
        assert content(params) == content(before)
    elif "decoupled_weight_decay" in options:
        torch.testing.assert_close(params, [p * (1 - 1e-3 * 0.1) for p in before])
    else:  # the first step is of one learning rate, towards 0 whichever way the gradients are followed
        torch.testing.assert_close(params, [p - 1e-3 for p in before], atol=1e-5, rtol=0)


def test_a_closure_is_called_once_with_gradients_and_its_loss_returned(make):
    params = parameters()
    optimizer = make(params)
    seen = []

    def closure():
        seen.append(torch.is_grad_enabled())
        return evaluate(params)

    expected = evaluate(params)
    with torch.no_grad():
        assert torch.equal(optimizer.step(closure), expected)
    assert seen == [True]
    assert optimizer.step() is None


def test_steps_are_counted_as_adam_counts_them(make, kind):
    """Per parameter: not without a gradient, not while frozen. A scalar and an empty tensor are there as well."""

    def setup():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, 1))
        extra = [Parameter(torch.ones(())), Parameter(torch.empty(0, 2))]
        draw_grads(extra)
        return model, [*model.parameters(), *extra]

    (model, ours), (their_model, theirs) = setup(), setup()
    optimizer, peer = make(ours), Adam(theirs, foreach=False, fused=False)
    for i in range(7):
        for net, opt in ((model, optimizer), (their_model, peer)):
            net.zero_grad()
            net[2].requires_grad_(i not in (3, 4))
            if i != 2:
                net(torch.linspace(0.1, 0.6, 6).reshape(3, 2)).sum().backward()
            opt.step()
        assert [int(optimizer.state[p].get("step", 0)) for p in ours] == [
            int(peer.state[p].get("step", 0)) for p in theirs
        ]
    if kind in ("fp32", "Adam8bit", "Adam4bit"):  # nothing here is large enough to be quantized
        torch.testing.assert_close(ours, theirs)


# --- groups and schedules ---


@every_input
def test_groups_are_as_several_optimizers(make, options):
    """With options of their own: learning rate and weight decay; and one that is added later.

    Stochastic rounding would draw other numbers, which depend on the place of a parameter.
    """
    own = [{**options, "rounding": "nearest", **more} for more in ({}, {"weight_decay": 0.0}, {"lr": 0.05})]
    first, second = ([Parameter(torch.ones(200)) for _ in own] for _ in range(2))
    groups = [{"params": [p], **o} for p, o in zip(first, own, strict=True)]
    together = make(groups[:2])
    together.add_param_group(groups[2])
    alone = [make([p], **o) for p, o in zip(second, own, strict=True)]
    for seed in range(5):
        draw_grads(first, seed)
        for p, same in zip(first, second, strict=True):
            same.grad = p.grad.clone()
        together.step()
        for optimizer in alone:
            optimizer.step()
    assert content(first) == content(second)


@an_arm_for_each_input
def test_a_group_takes_what_it_does_not_say_from_the_defaults(make, options):
    """As torch checks it: a group left to a learning rate of almost 0 stays where it is."""
    params, idle = parameters(), Parameter(torch.rand(2))
    before, old = evaluate(params), idle.detach().clone()
    optimizer = make([{"params": params, "lr": 1e-3, **options}, {"params": [idle]}], lr=1e-28)
    idle.grad = torch.rand(2)
    advance(optimizer, params, 5)
    assert (evaluate(params) > before) == options.get("maximize", False)
    torch.testing.assert_close(idle.detach(), old, rtol=1e-6, atol=0)


SCHEDULERS = {
    "step": [lambda o: lr_scheduler.StepLR(o, step_size=2, gamma=0.9)],
    "multi-step": [lambda o: lr_scheduler.MultiStepLR(o, [2, 5], gamma=0.5)],
    "exponential": [lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9)],
    "linear": [lambda o: lr_scheduler.LinearLR(o, start_factor=0.4, total_iters=4)],
    "constant": [lambda o: lr_scheduler.ConstantLR(o, factor=0.4, total_iters=4)],
    "polynomial": [lambda o: lr_scheduler.PolynomialLR(o, power=0.9, total_iters=4)],
    "lambda": [lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch)],
    "multiplicative": [lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.95)],
    "cosine": [lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=8)],
    "warm restarts": [lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3)],
    "cyclic": [lambda o: lr_scheduler.CyclicLR(o, base_lr=1e-3, max_lr=1e-2, step_size_up=3)],
    "one cycle": [lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.01, total_steps=12)],
    "averaging": [lambda o: swa_utils.SWALR(o, swa_lr=0.005, anneal_epochs=3)],
    "plateau": [lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1)],
    "chained": [
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ConstantLR(o, factor=0.4, total_iters=4), lr_scheduler.ExponentialLR(o, gamma=0.9)]
        )
    ],
    "sequential": [
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, total_iters=3), lr_scheduler.ExponentialLR(o, gamma=0.9)], milestones=[3]
        )
    ],
    "constant and exponential": [
        lambda o: lr_scheduler.ConstantLR(o, factor=0.4, total_iters=4),
        lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9),
    ],
    "exponential and plateau": [
        lambda o: lr_scheduler.ExponentialLR(o, gamma=0.9),
        lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=1),
    ],
}


def scheduled(constructor, schedule, lr):
    """The learning rates and betas of two groups after each step, the loss before the first and after the last."""
    params = parameters()
    losses, course = [evaluate(params).item()], []
    optimizer = constructor([{"params": params[:1]}, {"params": params[1:], "lr": lr(0.02)}], lr=lr(0.01))
    schedulers = [scheduler(optimizer) for scheduler in SCHEDULERS[schedule]]
    for _ in range(6):
        losses.append(optimizer.step(lambda: evaluate(params)).item())
        for scheduler in schedulers:
            scheduler.step(*[1.0] * isinstance(scheduler, lr_scheduler.ReduceLROnPlateau))
        course.append([(float(group["lr"]), *map(float, group["betas"])) for group in optimizer.param_groups])
    return course, losses


scheduled_adam = cache(partial(scheduled, Adam))


@covering(
    schedule=list(SCHEDULERS), lr={"number": float, "tensor": torch.tensor}, backend=CPU_BACKENDS, each={"kind": KINDS}
)
def test_schedulers_drive_it_as_they_drive_adam(make, schedule, lr):
    """The learning rates and betas of two groups follow the same course, and the loss goes down."""
    course, losses = scheduled(make, schedule, lr)
    assert course == scheduled_adam(schedule, lr)[0]
    assert losses[-1] < losses[0]


# --- states ---


@covering(
    names=[(True, True), (True, False), (False, True), (False, False)],
    rounding={"own": {}, "stochastic": {"rounding": "stochastic"}},
    **every_arm,
)
def test_a_loaded_state_goes_on_as_the_original(make, names, rounding):
    """Bit for bit, with the noise of its rounding and with parameters named or not on either side; the state that was
    loaded stays as it was."""
    make = partial(make, **rounding)

    def given(params, named):
        return [("weight", params[0]), ("bias", params[1])] if named else params

    params = parameters()
    optimizer = make(given(params, names[0]), weight_decay=0.1)
    advance(optimizer, params)
    others = clones(params)
    restored = make(given(others, names[1]))
    saved = copy.deepcopy(optimizer.state_dict())
    before = content(saved)
    restored.load_state_dict(saved)
    for _ in range(3):
        advance(optimizer, params, 1)
        advance(restored, others, 1)
        assert content(params) == content(others)
    assert content(saved) == before
    assert content(unnamed(optimizer.state_dict())) == content(unnamed(restored.state_dict()))
    if any(names):
        assert restored.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    restored.param_groups.extend(restored.param_groups)  # repeated parameters are written the same way
    first, second = unnamed(restored.state_dict())["param_groups"]
    assert first == second


def test_states_of_several_groups_go_to_their_parameters(make):
    """Equal shapes: nothing but the order tells the states apart. One parameter has no state yet."""

    def groups(params):
        return [
            {"params": params[:2]},
            {"params": params[2:3], "lr": 0.01},
            {"params": params[3:], "weight_decay": 0.1},
        ]

    params = [Parameter(torch.full((70,), float(i))) for i in range(6)]
    optimizer = make(groups(params))
    draw_grads(params)
    params[1].grad = None
    optimizer.step()
    others = clones(params)
    restored = make(groups(others))
    restored.load_state_dict(optimizer.state_dict())
    assert [set(restored.state.get(p, ())) for p in others] == [set(optimizer.state.get(p, ())) for p in params]
    advance_alike(optimizer, restored)
    assert content(params) == content(others)
    assert content(optimizer.state_dict()) == content(restored.state_dict())


@an_input_for_each_arm
def test_saving_and_loading_changes_nothing(make, options):
    params = parameters()
    optimizer = make(params, **options)
    advance(optimizer, params)
    state = optimizer.state_dict()
    for weights_only in (True, False):
        assert content(saved_and_loaded(state, weights_only=weights_only)) == content(state)


STEPS = {"int": int, "float": float, "int tensor": torch.tensor, "float tensor": lambda step: torch.tensor(float(step))}


@covering(**every_arm, each={"written": STEPS})
def test_the_step_of_a_state_may_be_a_number_or_a_tensor(make, written):
    """As in states of older and newer versions of torch."""
    params = parameters()
    optimizer = make(params)
    advance(optimizer, params)
    others = clones(params)
    restored = make(others)
    saved = copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        state["step"] = written(int(state["step"]))
    restored.load_state_dict(saved)
    advance_alike(optimizer, restored)
    assert content(params) == content(others)
    assert {int(restored.state[p]["step"]) for p in others} == {6}


@an_input_for_each_arm
def test_a_state_from_before_torchs_later_options_loads(make, options):
    params = parameters()
    optimizer = make(params, **options)
    advance(optimizer, params)
    saved = copy.deepcopy(optimizer.state_dict())
    for flag in LATER_FLAGS:
        saved["param_groups"][0].pop(flag, None)
    restored = make(params)
    restored.load_state_dict(saved)
    assert restored.param_groups[0]["maximize"] is restored.param_groups[0]["decoupled_weight_decay"] is False
    before = content(params)
    advance(restored, params, 1)
    assert content(params) != before


@covering(kind=list(ARMS), backend=CPU_BACKENDS)
def test_a_state_from_before_our_later_options_is_what_was_done_then(make):
    """It goes on bit for bit in an optimizer that is told to do the same, and is refused by name by one that is not."""
    params = parameters()
    optimizer = make(params, **FORMER)
    advance(optimizer, params)
    saved = copy.deepcopy(optimizer.state_dict())
    for option in FORMER:
        del saved["param_groups"][0][option]
    with pytest.raises(ValueError, match="the state was made with pad_blocks=False, the optimizer has pad_blocks=True"):
        make(clones(params), **FORMER | {"pad_blocks": True}).load_state_dict(saved)
    others = clones(params)
    restored = make(others, **FORMER)
    restored.load_state_dict(saved)
    advance_alike(optimizer, restored)
    assert content(params) == content(others)
    assert content(optimizer.state_dict()) == content(restored.state_dict())


def test_an_older_pickle_gets_the_options_it_lacks(make):
    params = parameters()
    optimizer = make(params)
    advance(optimizer, params)
    pickled = copy.deepcopy(optimizer.__getstate__())
    for flag in LATER_FLAGS:
        pickled["param_groups"][0].pop(flag, None)
    restored = make(clones(params))
    restored.__setstate__(pickled)
    advance_alike(optimizer, restored)
    assert content(params) == content(params_of(restored))


OTHER_PARAMETERS = {"fewer": lambda p: [p[:1]], "groups": lambda p: [p[:1], p[1:]], "shapes": lambda p: [p[::-1]]}


@covering(wrong=OTHER_PARAMETERS, **every_arm)
def test_a_state_of_other_parameters_is_refused(make, wrong):
    """Fewer, in other groups, of other shapes; a refused state changes nothing."""
    params, others = parameters(), parameters()
    optimizer = make(params)
    advance(optimizer, params)
    other = make([{"params": group} for group in wrong(others)], lr=0.5)
    before = content(other.state_dict())
    with pytest.raises(ValueError, match=r"param|state"):
        other.load_state_dict(optimizer.state_dict())
    assert content(other.state_dict()) == before


def test_a_state_survives_a_cast_of_the_parameters(make):
    params = parameters()
    optimizer = make(params)
    advance(optimizer, params)
    cast = [Parameter(p.detach().to(torch.bfloat16)) for p in params]
    restored = make(cast)
    restored.load_state_dict(optimizer.state_dict())
    assert content(restored.state_dict()["state"]) == content(optimizer.state_dict()["state"])
    advance(restored, cast)


DUPLICATES = {
    "deep copy": copy.deepcopy,
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    "save": partial(saved_and_loaded, weights_only=False),
}
TENSOR_LR = {"lr": torch.tensor(0.01), "weight_decay": 0.1}


@covering(duplicate=DUPLICATES, options={"default": {}, "tensor lr": TENSOR_LR}, **every_arm)
def test_a_duplicate_goes_on_by_itself(make, options, duplicate):
    """With all public attributes, and nothing shared."""
    params = parameters()
    optimizer = make(params, **options)
    advance(optimizer, params)
    before = content((params, optimizer.state_dict()))
    twin = duplicate(optimizer)
    assert type(twin) is type(optimizer)
    assert {k for k in vars(twin) if k[0] != "_"} == {k for k in vars(optimizer) if k[0] != "_"}
    assert content(twin.state_dict()) == content(optimizer.state_dict())
    advance_alike(twin)
    assert content((params, optimizer.state_dict())) == before
    advance_alike(optimizer)
    assert content(params) == content(params_of(twin))
    assert content(twin.state_dict()) == content(optimizer.state_dict())


@covering(peer=[Adam, AdamW], to_adam={"from Adam": False, "to Adam": True}, **every_arm)
def test_a_run_can_change_sides(make, kind, backend, peer, to_adam):
    """From torch.optim.Adam(W), or to it: the rest of the run is what it would have been, but for rounding."""
    shared = {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    theirs = partial(peer, foreach=False, fused=False)
    ours = partial(make, decoupled_weight_decay=peer is AdamW)
    first, second = (ours, theirs) if to_adam else (theirs, ours)
    params = parameters()
    start = clones(params)
    optimizer = first(params, **shared)
    advance(optimizer, params)
    others = clones(params)
    successor = second(others)
    saved = optimizer.adam_state_dict() if to_adam else optimizer.state_dict()
    successor.load_state_dict(saved_and_loaded(saved, weights_only=True))
    assert {name: successor.param_groups[0][name] for name in shared} == shared
    assert [int(successor.state[p]["step"]) for p in others] == [3, 3]
    advance(optimizer, params)
    advance(successor, others)
    for one, other, origin in zip(params, others, start, strict=True):
        assert (one - other).norm() < 0.05 * (one - origin).norm()
    if kind == "fp32" and backend == "reference":
        assert content(params) == content(others)


# --- hooks ---


def test_step_hooks_run_in_order_until_removed(make):
    """Those of all optimizers around those of one, another optimizer beside it."""
    params, seen = parameters(), []

    def note(mark):
        return lambda optimizer, args, kwargs: seen.append(mark)

    optimizers = [make(params), SGD(params)]
    handles = [register_optimizer_step_pre_hook(note(0)), register_optimizer_step_post_hook(note(3))]
    for optimizer in optimizers:
        handles += [optimizer.register_step_pre_hook(note(1)), optimizer.register_step_post_hook(note(2))]
    try:
        for optimizer in (*optimizers, optimizers[0]):
            optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    optimizers[0].step()
    assert seen == [0, 1, 2, 3] * 3


def test_a_step_hook_may_change_the_arguments(make):
    params = parameters()
    optimizer = make(params)
    optimizer.register_step_pre_hook(lambda *_: ((optimizer, lambda: evaluate(params)), {}))
    before = evaluate(params)
    assert optimizer.step() == before
    assert evaluate(params) < before


def test_state_dict_hooks_run(make):
    params = parameters()
    optimizer = make(params)

    def mark(optimizer):
        optimizer.state["test"] = 1

    def unmark(optimizer, state_dict):
        return {**state_dict, "marked": state_dict["state"].pop("test", None)}

    post = optimizer.register_state_dict_post_hook(unmark)
    assert optimizer.state_dict()["marked"] is None
    optimizer.register_state_dict_pre_hook(mark)
    assert optimizer.state_dict()["marked"] == 1
    post.remove()
    assert optimizer.state_dict()["state"]["test"] == 1


def test_load_state_dict_hooks_run_in_order(make):
    """One changes the state in place, one put before it returns another, and one sees all of it later."""
    params = parameters()
    source, optimizer = make(params), make(params)
    advance(source, params)
    saved, seen = source.state_dict(), []

    def in_place(_, state_dict):
        seen.append(state_dict["param_groups"][0]["lr"])
        state_dict["param_groups"][0]["lr"] = 0.002

    def anew(_, state_dict):
        changed = copy.deepcopy(state_dict)
        changed["param_groups"][0]["lr"] = 0.003
        return changed

    optimizer.register_load_state_dict_pre_hook(in_place)
    optimizer.register_load_state_dict_pre_hook(anew, prepend=True)
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append((o.param_groups[0]["lr"], len(o.state))))
    optimizer.load_state_dict(saved)
    assert seen == [0.003, (0.002, len(params))]
    assert saved["param_groups"][0]["lr"] == 0.001
