"""What other people's code does to an optimizer: it goes on as torch.optim.Adam would, or refuses and changes nothing.

What could kill a process, or hang it, happens in a child.
"""

import copy
import math
import os
import pickle
import signal
import weakref
from functools import cache, partial
from itertools import product

import pytest
import torch
from backends import CPU_BACKENDS
from bits import content
from covering import covering
from processes import PROCESSES
from torch import nn
from torch.nn import Parameter
from torch.optim import Adam, AdamW

from qlocaladam import ARMS, Adam4bit, Adam8bit, QLocalAdam, state_codecs
from qlocaladam.codecs import noise_bits
from qlocaladam.kernels import fused
from qlocaladam.kernels.reference import stochastically_rounded

REFUSALS = (ValueError, RuntimeError, TypeError, NotImplementedError)
SIZE = 200
"""Three blocks of 64 and a short one."""

every_arm = pytest.mark.parametrize("arm", ARMS)
SOME_ARMS = ["fp32", "q-localadam", "dynamic-8bit", "normalised-4bit"]
some_arms = pytest.mark.parametrize("arm", SOME_ARMS)
each_backend = pytest.mark.parametrize("backend", CPU_BACKENDS)
# Of arms, backends and one more axis all pairs: what a test does besides a step is not done in the kernels, or not by
# arm there.
all_pairs = partial(covering, arm=list(ARMS), backend=CPU_BACKENDS)
pairs_of_some = partial(covering, arm=SOME_ARMS, backend=CPU_BACKENDS)


def drawn(seed, *shape):
    return torch.randn(*shape or (SIZE,), generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


def step(optimizer, seed, form=lambda grad: grad):
    """A step with gradients that depend on nothing but the seed and the shapes."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = form(drawn(seed, *param.shape or (1,)).reshape(param.shape).to(param.dtype))
    optimizer.step()


def made(arm="q-localadam", backend="auto", seed=0, steps=2, **options):
    """A parameter and its optimizer after some steps."""
    param = Parameter(drawn(seed))
    optimizer = QLocalAdam([param], backend=backend, **{**ARMS[arm], **options})
    for number in range(steps):
        step(optimizer, seed + number + 1)
    return param, optimizer


def whole(optimizer):
    return content([optimizer.state_dict(), [group["params"] for group in optimizer.param_groups]])


def refused(action, *optimizers, match=None):
    """The action raises one error that says something, and changes no optimizer and no parameter."""
    before = [whole(optimizer) for optimizer in optimizers]
    with pytest.raises(REFUSALS, match=match):
        action()
    assert [whole(optimizer) for optimizer in optimizers] == before, "a refusal changes nothing"


def apart(task, arguments):
    """What the task returns in a fork, what it refuses with, or how the fork died."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(10)
        try:
            said = task(*arguments)
        except REFUSALS as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, pickle.dumps(said))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return pickle.loads(said) if code == 0 else f"the process died or hung: {code}"


def all_apart(pipe, task, cases):
    torch.set_num_threads(1)
    torch.optim.SGD([Parameter(torch.zeros(1))]).step()  # torch imports a good deal at the first one
    pipe.send({case: apart(task, case) for case in cases})


@cache
def in_children(task, *choices):
    """What the task says to every combination of arguments, each in a process of its own."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=all_apart, args=(theirs, task, list(product(*choices))), daemon=True)
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.kill()
        process.join()


# --- default dtypes and devices ---


@pytest.fixture(autouse=True)
def fresh_caches():
    """What is made once for the whole process is made in the test, and made again after it."""
    state_codecs.cache_clear()
    yield
    state_codecs.cache_clear()


@all_pairs(dtype=[torch.bfloat16, torch.float16, torch.float64])
def test_the_default_dtype_changes_nothing(arm, backend, dtype):
    """Neither while it is set nor afterwards, through what was made and kept meanwhile."""
    torch.set_default_dtype(dtype)
    try:
        param, optimizer = made(arm, backend, rounding="stochastic")
        later, _ = made(arm, backend, rounding="stochastic")
        exported = content(optimizer.adam_state_dict())
    finally:
        torch.set_default_dtype(torch.float32)
    after, _ = made(arm, backend, rounding="stochastic")
    state_codecs.cache_clear()
    plain, other = made(arm, backend, rounding="stochastic")
    assert content([param, later, after]) == content([plain] * 3)
    assert whole(optimizer) == whole(other)
    assert exported == content(other.adam_state_dict())


def steps_in_default_dtype(dtype, arm):
    torch.set_default_dtype(dtype)
    param = Parameter(torch.randn(64 * 512))
    optimizer = QLocalAdam([param], **ARMS[arm])
    for _ in range(5):
        param.grad = torch.randn(64 * 512)
        optimizer.step()
    return param.dtype, bool(param.isfinite().all())


@every_arm
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_parameters_of_the_default_dtype(arm, dtype):
    said = in_children(steps_in_default_dtype, (torch.bfloat16, torch.float64), tuple(ARMS))
    assert said[dtype, arm] == (dtype, True)


def steps_on_default_device(arm, backend):
    plain, _ = made(arm, backend, steps=0)
    param, optimizer = made(arm, backend, steps=0)
    optimizers = [QLocalAdam([plain], backend=backend, **ARMS[arm]), optimizer]
    for number in range(3):
        gradient = drawn(number)
        param.grad, plain.grad = gradient, gradient.clone()
        with torch.device("meta"):
            optimizer.step()
    with torch.device("meta"):
        optimizer.adam_state_dict()
    for number in range(3):
        plain.grad = drawn(number)
        optimizers[0].step()
    return content(plain) == content(param)


@every_arm
@each_backend
def test_the_default_device_changes_nothing(arm, backend):
    """As torch.set_default_device on a machine with an accelerator, and parameters on the CPU."""
    assert in_children(steps_on_default_device, tuple(ARMS), ("reference", "fused"))[arm, backend] is True


def test_an_export_is_where_its_state_is():
    _, optimizer = made()
    with torch.device("meta"):
        exported = optimizer.adam_state_dict()["state"][0]
    assert {value.device.type for value in exported.values()} == {"cpu"}


# --- layouts and subclasses ---


def lazily_negative(tensor):
    negative = torch._neg_view(-tensor)
    assert negative.is_neg()
    return negative


class Named(torch.Tensor):
    """A subclass that changes nothing."""


class Boxed(torch.Tensor):
    """A wrapper as quantized weights are: numbers kept elsewhere, and plain tensors made of them by most operations."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Boxed(args[0].inner)
        in_place = func._schema.name.endswith("_")
        values = [
            (arg.inner if in_place and not index else arg.inner.clone()) if isinstance(arg, Boxed) else arg
            for index, arg in enumerate(args)
        ]
        result = func(*values, **kwargs or {})
        return args[0] if in_place else result


@all_pairs(form={"negative": lazily_negative, "subclass": lambda g: g.as_subclass(Named)})
def test_gradients_of_other_kinds_are_their_numbers(arm, backend, form):
    (plain, one), (param, other) = made(arm, backend), made(arm, backend)
    for number in range(3):
        step(one, number)
        step(other, number, form)
    assert content(plain) == content(param)
    assert whole(one) == whole(other)


@every_arm
@each_backend
def test_zero_gradients_without_memory_are_zeros(arm, backend):
    (plain, one), (param, other) = made(arm, backend), made(arm, backend)
    plain.grad, param.grad = torch.zeros(SIZE), torch._efficientzerotensor(SIZE)
    one.step()
    other.step()
    assert content(plain) == content(param)


@every_arm
@pytest.mark.parametrize("form", [lazily_negative, lambda p: p.as_subclass(Named)], ids=["negative", "subclass"])
def test_parameters_of_other_kinds_are_their_numbers(arm, form):
    plain, param = Parameter(drawn(0)), form(drawn(0)).requires_grad_()
    for values in (plain, param):
        optimizer = QLocalAdam([values], backend="reference", **ARMS[arm])
        for number in range(3):
            step(optimizer, number)
    assert torch.equal(plain, param)
    assert not torch.equal(plain, drawn(0))


def without_memory(kind, backend, arm):
    """What is left of a step with one thing that has no memory; the error, if it is refused."""
    param, optimizer = made(arm, backend)
    param.grad = torch.ones(SIZE)
    given = {"parameter": param, "gradient": param.grad, "state": optimizer.state[param].get("momentum_codes")}
    if kind == "zeros":
        param = Parameter(torch._efficientzerotensor(SIZE))
        optimizer = QLocalAdam([param], backend=backend, **ARMS[arm])
        param.grad = torch.ones(SIZE)
    elif kind == "functional":
        param = Parameter(torch._to_functional_tensor(torch.zeros(SIZE)))
        optimizer = QLocalAdam([param], backend=backend, **ARMS[arm])
        param.grad = torch._to_functional_tensor(torch.ones(SIZE))
    else:
        given[kind].untyped_storage().resize_(0)
    optimizer.step()
    return "stepped"


WITHOUT_MEMORY = (
    ("parameter", "gradient", "state", "zeros", "functional"),
    ("auto", "reference"),
    ("q-localadam", "dynamic-8bit", "normalised-4bit"),
)


@pytest.mark.parametrize(("kind", "backend", "arm"), list(product(*WITHOUT_MEMORY)))
def test_what_has_no_memory_is_refused(kind, backend, arm):
    """Storages that were freed, as FSDP frees them, and tensors that never had one."""
    said = in_children(without_memory, *WITHOUT_MEMORY)[kind, backend, arm]
    assert said.startswith(("RuntimeError", "ValueError"))


@some_arms
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_fake_tensors_leave_nothing_behind(arm, backend):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        param = Parameter(torch.zeros(SIZE))
        optimizer = QLocalAdam([param], backend=backend, **ARMS[arm])
        for _ in range(2):
            param.grad = torch.ones(SIZE)
            optimizer.step()
    if fused.library() is not None:
        with pytest.raises(ValueError, match="'fused' takes tensors as they are in memory, got a FakeTensor"):
            QLocalAdam([param], backend="fused")
    real, _ = made(arm, backend)
    plain, _ = made(arm, backend)
    assert content(real) == content(plain)


@some_arms
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_state_that_was_made_of_fake_tensors_is_refused(arm, backend):
    """A step while something is traced: afterwards, either it never happened or the next one says so."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    param, optimizer = made(arm, backend, steps=0)
    param.grad = torch.ones(SIZE)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            optimizer.step()
    except REFUSALS:
        assert not any(optimizer.state.values())
    before = param.detach().clone()
    try:
        optimizer.step()
    except REFUSALS:
        return
    assert (param < before).all()


@every_arm
def test_tensors_without_data_have_states_of_the_same_size(arm):
    param = Parameter(torch.zeros(SIZE, device="meta"))
    optimizer = QLocalAdam([param], **ARMS[arm])
    for _ in range(2):
        param.grad = torch.ones_like(param)
        optimizer.step()
    assert optimizer.memory_report().total == made(arm)[1].memory_report().total


@some_arms
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_wrapped_weight_moves_as_with_adam_or_is_refused(arm, backend):
    params = {}
    for kind in (Adam, partial(QLocalAdam, backend=backend, **ARMS[arm])):
        params[kind] = Parameter(Boxed(drawn(0)))
        try:
            optimizer = kind([params[kind]])
            params[kind].grad = torch.ones(SIZE)
            optimizer.step()
        except REFUSALS as error:
            if kind is Adam or "Boxed" not in str(error):  # one error that says what it is about
                raise
            return
    moved = [param.detach().inner - drawn(0) for param in params.values()]
    torch.testing.assert_close(*moved, rtol=1e-3, atol=1e-6)


@each_backend
@pytest.mark.parametrize(
    "views",
    [
        lambda buffer: [buffer.view(40, 40), buffer.view(40, 40).t()],
        lambda buffer: [buffer[:1000], buffer[600:]],
        lambda buffer: [buffer[::2], buffer[1::2]],
        lambda buffer: [buffer[:64], buffer, buffer[32:96]],
    ],
    ids=["transposed", "shifted", "interleaved", "nested"],
)
def test_parameters_that_share_memory_are_updated_as_by_adam(backend, views):
    buffers = [drawn(0, 1600), drawn(0, 1600)]
    ours = QLocalAdam(views(buffers[0]), lr=0.1, backend=backend, **ARMS["fp32"])
    theirs = Adam(views(buffers[1]), lr=0.1, foreach=False, fused=False)
    for number in range(3):
        step(ours, number)
        step(theirs, number)
    torch.testing.assert_close(*buffers, rtol=1e-5, atol=1e-6)


@pairs_of_some(shift=[1, -1])
def test_a_gradient_may_lie_in_the_memory_of_its_parameter(backend, arm, shift):
    buffer = drawn(0, 3001)
    param, grad = (buffer[1:], buffer[:-1]) if shift > 0 else (buffer[:-1], buffer[1:])
    plain = param.clone()
    ours, apart = (QLocalAdam([p], lr=0.1, backend=backend, **ARMS[arm]) for p in (param, plain))
    param.grad, plain.grad = grad, grad.clone()
    ours.step()
    apart.step()
    assert torch.equal(param, plain)


@each_backend
def test_a_gradient_of_a_wider_type_may_reach_into_its_parameter(backend):
    """From far before it, in a step for which the tables of the one before are still there."""
    results = []
    for apart in (torch.clone, torch.Tensor.detach):
        buffer = drawn(0, 5120)
        grad, param = buffer[:4096], buffer[3072:].view(torch.bfloat16).copy_(drawn(2, 4096)).requires_grad_()
        if not hasattr(param, "grad_dtype"):
            pytest.skip("this torch has no gradients of another type")
        param.grad_dtype = torch.float32
        optimizer = QLocalAdam([param], lr=0.1, backend=backend)
        for given in (drawn(1, 4096), grad):
            param.grad = apart(given)
            optimizer.step()
        results.append(param.detach())
    assert results[0].isfinite().all()
    assert torch.equal(*results)


@each_backend
@some_arms
def test_a_parameter_may_be_transposed_where_it_lies(backend, arm):
    results = []
    for layout in (torch.Tensor.detach, torch.Tensor.contiguous):
        param = Parameter(drawn(0, 20, 20))
        optimizer = QLocalAdam([param], lr=0.1, backend=backend, **ARMS[arm])
        step(optimizer, 1)
        param.data = layout(param.data.t())
        step(optimizer, 2)
        results.append(param.detach())
    assert torch.equal(*results)


def test_a_tensor_with_one_place_for_several_values_is_refused():
    with pytest.raises(ValueError, match="expanded"):
        QLocalAdam([torch.zeros(1).expand(5).requires_grad_()])


def test_parameters_without_a_shape_yet_are_accepted():
    """Of lazy modules, whose optimizers may be made before the first batch."""
    model = nn.LazyLinear(3)
    optimizer = QLocalAdam(model.parameters())
    model(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    assert optimizer.state[model.weight]["step"] == 1


# --- states that do not fit ---


def freed(tensor):
    empty = tensor.clone()
    empty.untyped_storage().resize_(0)
    return empty


def fake(tensor):
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(tensor)


UNFIT = {
    "ranges in bfloat16": ("variance_ranges", lambda t: t.bfloat16()),
    "ranges in float64": ("variance_ranges", lambda t: t.double()),
    "signed codes": ("variance_codes", lambda t: t.view(torch.int8)),
    "codes cut short": ("momentum_codes", lambda t: t[:-1]),
    "ranges cut short": ("momentum_ranges", lambda t: t[:-1]),
    "flat ranges": ("momentum_ranges", lambda t: t.flatten()),
    "ranges as a list": ("momentum_ranges", lambda t: t.tolist()),
    "sparse ranges": ("momentum_ranges", lambda t: t.to_sparse()),
    "codes without data": ("momentum_codes", lambda t: t.to("meta")),
    "fake codes": ("momentum_codes", fake),
    **{f"step {value!r:.8}": ("step", lambda _, v=value: v) for value in (math.nan, math.inf, -1, 2.5, None, "2")},
    "a huge step": ("step", lambda _: 10**400),
    "steps": ("step", lambda _: torch.ones(2)),
    "a step without data": ("step", lambda _: torch.zeros((), device="meta")),
}


@each_backend
@pytest.mark.parametrize("case", UNFIT)
def test_an_entry_that_does_not_fit_is_refused_by_name(backend, case):
    entry, change = UNFIT[case]
    (_, source), (_, optimizer) = made(backend=backend), made(backend=backend, seed=7)
    saved = copy.deepcopy(source.state_dict())
    saved["state"][0][entry] = change(saved["state"][0][entry])
    refused(lambda: optimizer.load_state_dict(saved), optimizer, match=rf"parameter 0 has .*{entry}")
    optimizer.load_state_dict(source.state_dict())  # a refused state leaves an optimizer that works
    assert content(optimizer.state_dict()) == content(source.state_dict())


def load_freed(backend):
    (_, source), (_, optimizer) = made(backend=backend), made(backend=backend, seed=7)
    saved = copy.deepcopy(source.state_dict())
    saved["state"][0]["momentum_codes"] = freed(saved["state"][0]["momentum_codes"])
    before = whole(optimizer)
    try:
        optimizer.load_state_dict(saved)
    except REFUSALS as error:
        return whole(optimizer) == before and str(error)
    return "loaded"


@each_backend
def test_an_entry_without_memory_is_refused(backend):
    assert "momentum_codes" in in_children(load_freed, ("reference", "fused"))[backend,]


def without(*names):
    return lambda saved: [saved["state"][0].pop(name) for name in names]


UNFIT_STATES = {
    "no step": without("step"),
    "no ranges": without("variance_ranges"),
    "an entry too many": lambda s: s["state"][0].update(more=1),
    "of another kind": lambda s: s["state"].update({0: [1, 2]}),
    "of no parameter": lambda s: s["state"].update({7: s["state"].pop(0)}),
    "names as text": lambda s: s["state"].update({"0": s["state"].pop(0)}),
    "one too many": lambda s: s["state"].update({7: copy.deepcopy(s["state"][0])}),
    "a negative lr": lambda s: s["param_groups"][0].update(lr=-1),
    "no lr": lambda s: s["param_groups"][0].pop("lr"),
    "no eps": lambda s: s["param_groups"][0].pop("eps"),
}


@each_backend
@pytest.mark.parametrize("case", UNFIT_STATES)
def test_a_state_that_does_not_fit_is_refused(backend, case):
    (_, source), (_, optimizer) = made(backend=backend), made(backend=backend, seed=7)
    saved = copy.deepcopy(source.state_dict())
    UNFIT_STATES[case](saved)
    refused(lambda: optimizer.load_state_dict(saved), optimizer)


def test_what_belongs_to_no_parameter_is_kept_as_torch_keeps_it():
    """Some code keeps things of its own in an optimizer's state."""
    param, optimizer = made()
    optimizer.state["note"] = {"epoch": 3}
    exported, saved = optimizer.adam_state_dict(), copy.deepcopy(optimizer.state_dict())
    assert set(exported["state"]) >= {0}
    restored = QLocalAdam([param])
    restored.load_state_dict(saved)
    assert restored.state["note"] == {"epoch": 3}


FORMS = {
    "strided": lambda t: torch.stack((t, t), -1)[..., 0],
    "transposed": lambda t: t.transpose(0, -1).contiguous().transpose(0, -1),
    "channels last": lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t,
    "with a gradient": lambda t: t.clone().requires_grad_(t.is_floating_point()),
    "negative": lambda t: lazily_negative(t) if t.is_floating_point() else t,
}


@pairs_of_some(form=FORMS)
def test_a_state_in_another_layout_is_the_same_state(backend, arm, form):
    def setup():
        param = Parameter(drawn(0, 6, 5, 4, 3))
        return param, QLocalAdam([param], backend=backend, **ARMS[arm])

    (param, source), (other, optimizer) = setup(), setup()
    step(source, 1)
    saved = copy.deepcopy(source.state_dict())
    state = saved["state"][0]
    state.update({k: form(v) for k, v in state.items() if isinstance(v, torch.Tensor)})
    optimizer.load_state_dict(saved)
    other.data.copy_(param)
    step(source, 2)
    step(optimizer, 2)
    assert whole(source) == whole(optimizer)


@pairs_of_some(size=[100, 300, 0])
def test_data_of_another_size_is_refused(backend, arm, size):
    """Its state belongs to other values. In the second group: the first does not move either."""
    first, param = Parameter(drawn(0)), Parameter(drawn(1))
    fresh = Parameter(drawn(2))
    optimizer = QLocalAdam([{"params": [first]}, {"params": [fresh, param], "lr": 0.1}], backend=backend, **ARMS[arm])
    first.grad, param.grad = drawn(3), drawn(4)
    optimizer.step()
    param.grad = None
    param.data = torch.zeros(size)
    first.grad, fresh.grad, param.grad = drawn(5), drawn(6), torch.ones(size)
    refused(optimizer.step, optimizer, match="replaced")
    assert not optimizer.state.get(fresh), "not even a state of zeros"


@all_pairs(dtype=[torch.bfloat16, torch.float16, torch.float64])
def test_a_model_that_is_cast_goes_on_or_is_refused(backend, arm, dtype):
    param, optimizer = made(arm, backend, lr=0.1)
    param.grad = None
    param.data = param.data.to(dtype)
    before = param.detach().clone()
    param.grad = torch.ones(SIZE, dtype=dtype)
    try:
        optimizer.step()
    except REFUSALS as error:
        if dtype != torch.float64 or "float64" not in str(error):
            raise
        assert torch.equal(param, before)
        assert optimizer.state[param]["step"] == 2
    else:
        assert not torch.equal(param, before)
        assert optimizer.state[param]["step"] == 3


@each_backend
@pytest.mark.parametrize("arm", ["q-localadam", "naive-int8", "normalised-4bit"])
@pytest.mark.parametrize("change", [{"bits": 8}, {"bits": 4}, {"block_size": 300}, {"momentum": "fp32"}], ids=str)
def test_settings_that_do_not_fit_the_state_are_refused(backend, arm, change):
    _, optimizer = made(arm, backend)
    if change.items() <= optimizer.param_groups[0].items():
        pytest.skip("no change")
    optimizer.param_groups[0].update(change)
    refused(lambda: step(optimizer, 5), optimizer)


DAMAGES = {
    "deleted": lambda state, entry: state.pop(entry),
    "cut": lambda state, entry: state.update({entry: state[entry][:0]}),
    "cast": lambda state, entry: state.update({entry: state[entry].double()}),
}


@pairs_of_some(damage=DAMAGES)
def test_a_state_that_was_tampered_with_is_refused(backend, arm, damage):
    param, optimizer = made(arm, backend)
    entry = next(key for key in reversed(optimizer.state[param]) if key != "step")
    damage(optimizer.state[param], entry)
    before = content([param, optimizer.state[param]])
    with pytest.raises(RuntimeError, match="state"):
        step(optimizer, 5)
    assert content([param, optimizer.state[param]]) == before


@each_backend
def test_a_state_without_its_step_is_refused(backend):
    param, optimizer = made(backend=backend)
    del optimizer.state[param]["step"]
    refused(lambda: step(optimizer, 5), optimizer, match="step|state")


@each_backend
@every_arm
def test_a_cleared_state_starts_anew(backend, arm):
    (param, optimizer), (other, fresh) = made(arm, backend), made(arm, backend, steps=0)
    optimizer.state.clear()
    other.data.copy_(param)
    assert optimizer.memory_report().total == 0
    step(optimizer, 5)
    step(fresh, 5)
    assert whole(optimizer) == whole(fresh)


@each_backend
def test_closures_and_hooks_that_raise_change_nothing(backend):
    def fail(*_):
        raise RuntimeError("on purpose")

    _, optimizer = made(backend=backend)
    refused(lambda: optimizer.step(fail), optimizer, match="on purpose")
    with optimizer.register_step_pre_hook(fail):
        refused(optimizer.step, optimizer, match="on purpose")
    saved = copy.deepcopy(optimizer.state_dict())
    with optimizer.register_load_state_dict_pre_hook(fail):
        refused(lambda: optimizer.load_state_dict(saved), optimizer, match="on purpose")
    assert not optimizer._optimizer_load_state_dict_pre_hooks
    assert not optimizer._optimizer_load_state_dict_post_hooks


@each_backend
def test_a_refused_gradient_in_a_later_group_changes_nothing(backend):
    """Sparse, of another shape, or of a type that the kernel does not take."""
    first, table = Parameter(drawn(0)), Parameter(drawn(1, 20, 10))
    optimizer = QLocalAdam([{"params": [first]}, {"params": [table]}], backend=backend)
    first.grad = drawn(2)
    table.grad = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 10), (20, 10), check_invariants=True)
    refused(optimizer.step, optimizer, match="sparse")
    table.grad = None
    if backend == "fused" and hasattr(table, "grad_dtype"):
        table.grad_dtype = None
        table.grad = torch.ones(20, 10, dtype=torch.float64)
        refused(optimizer.step, optimizer, match="float64")
    assert not any(optimizer.state.values())


def test_complex_gradients_are_refused():
    param, optimizer = made()
    if not hasattr(param, "grad_dtype"):
        pytest.skip("this torch has no gradients of another type")
    param.grad = None
    param.grad_dtype = None
    param.grad = torch.full((SIZE,), 1j)
    refused(optimizer.step, optimizer, match="complex|real")


# --- groups ---


@each_backend
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_states_of_groups_that_differ_go_to_their_parameters(backend, named):
    """Arms, bits and block sizes by group, equal and unequal sizes, an empty group, a group that is added later."""

    def setup():
        sizes = (SIZE, SIZE, 65, SIZE, 31)
        params = [Parameter(drawn(number, size)) for number, size in enumerate(sizes)]
        given = [(f"p{number}", param) if named else param for number, param in enumerate(params)]
        optimizer = QLocalAdam(
            [
                {"params": given[:2], "rounding": "stochastic"},
                *[{"params": []}] * (not named),
                {"params": given[2:3], **ARMS["normalised-4bit"]},
                {"params": given[3:4], "block_size": 32, "lr": 0.1},
            ],
            backend=backend,
        )
        optimizer.add_param_group({"params": given[4:], **ARMS["fp32"]})
        return params, optimizer

    (params, source), (others, optimizer) = setup(), setup()
    for number in range(3):
        step(source, number)
    optimizer.load_state_dict(copy.deepcopy(source.state_dict()))
    for one, other in zip(params, others, strict=True):
        other.data.copy_(one)
    for number in range(3, 6):
        step(source, number)
        step(optimizer, number)
    assert whole(source) == whole(optimizer)
    names = [row.tensor for row in optimizer.memory_report().rows]
    assert len(names) == 2 * len(set(names)) == 10


def test_kernels_agree_over_groups_that_differ():
    if fused.library() is None:
        pytest.skip("not built")
    results = []
    for backend in ("reference", "fused"):
        params = [Parameter(drawn(number, SIZE)) for number in range(len(ARMS))]
        groups = [{"params": [param], **ARMS[arm]} for arm, param in zip(ARMS, params, strict=True)]
        optimizer = QLocalAdam(groups, backend=backend)
        for number in range(2):
            step(optimizer, number)
        results.append(params)
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_a_parameter_that_is_there_twice_is_updated_as_by_adam():
    """torch only warns of it, and makes two updates."""
    params = [Parameter(torch.zeros(5)) for _ in range(2)]
    for kind, param in zip((Adam, QLocalAdam), params, strict=True):
        with pytest.warns(UserWarning, match="duplicate parameters"):
            optimizer = kind([param, param], lr=0.1)
        for _ in range(3):
            param.grad = torch.ones(5)
            optimizer.step()
    torch.testing.assert_close(*params, rtol=1e-3, atol=0)


# --- extreme gradients ---


def assert_kernels_agree(arm, grads, *values, **options):
    """On weights that begin with these values, each with the same gradients."""
    if fused.library() is None:
        pytest.skip("not built")
    courses = []
    for backend in ("reference", "fused"):
        params = [Parameter(start.clone()) for start in values or (drawn(0),)]
        optimizer = QLocalAdam(params, backend=backend, **{**ARMS[arm], **options})
        courses.append([])
        for grad in grads:
            for param in params:
                param.grad = grad.clone().to(param.dtype)
            optimizer.step()
            courses[-1] += [param.detach().clone() for param in params]
    lr = float(options.get("lr", 1e-3))
    for one, other in zip(*courses, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 + 1e-3 * lr, equal_nan=True)


@every_arm
@pytest.mark.parametrize(
    "options",
    [
        {"betas": (0.0, 0.0)},
        {"betas": (0.0, 0.999)},
        {"betas": (0.9, 0.9)},
        {"betas": (0.5, 0.9999999999)},
        {"betas": (1e-300, 0.5)},
        {"eps": 0.0},
        {"eps": 1e-30},
        {"lr": 0.0},
        {"lr": 1e30},
        {"lr": 1e-50},
    ],
    ids=str,
)
def test_kernels_agree_on_extreme_options(arm, options):
    assert_kernels_agree(arm, [drawn(number) for number in range(4)], **options)


@every_arm
@pytest.mark.parametrize("decoupled", [False, True])
def test_kernels_agree_on_extreme_weights(arm, decoupled):
    values = [drawn(9) for _ in range(5)]
    for weight, bad in zip(values, (math.nan, math.inf, -math.inf, 3e38, 1e-40), strict=True):
        weight[70] = bad
    grads = [drawn(number) for number in range(3)]
    assert_kernels_agree(arm, grads, *values, weight_decay=0.1, decoupled_weight_decay=decoupled)


@pytest.mark.parametrize("arm", ["q-localadam", "naive-int8", "normalised"])
@pytest.mark.parametrize("block_size", [2, 66, 2**31, 2**40, 2**63, 2**64])
def test_kernels_agree_on_extreme_block_sizes_or_refuse_them(arm, block_size):
    try:
        assert_kernels_agree(arm, [drawn(number) for number in range(4)], block_size=block_size)
    except ValueError as error:
        if "block_size" not in str(error):
            raise


@every_arm
def test_kernels_agree_where_denormals_are_flushed(arm):
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        for scale in (1.0, 1e-15, 1e-19, 1e-22):
            assert_kernels_agree(arm, [drawn(number) * scale for number in range(4)])
    finally:
        torch.set_flush_denormal(False)


@every_arm
@each_backend
def test_a_gradient_of_1e20_moves_by_one_learning_rate(arm, backend):
    """Its square is infinite in FP32; what Adam keeps of it is not."""
    param, optimizer = made(arm, backend, steps=0)
    before = param.detach().clone()
    param.grad = torch.full((SIZE,), 1e20)
    optimizer.step()
    torch.testing.assert_close(before - param, torch.full((SIZE,), 1e-3), rtol=1e-3, atol=0)


# --- numbers ---


@all_pairs(dtype=[torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_learning_rate_of_0_changes_no_bit(arm, backend, dtype):
    backend = "auto" if dtype == torch.float64 else backend
    values = (drawn(0).double() * (1 + 1e-12)).to(dtype)
    for rounding in ("nearest", "stochastic"):
        param = Parameter(values.clone())
        optimizer = QLocalAdam([param], lr=0.0, backend=backend, **ARMS[arm], weight_rounding=rounding)
        for number in range(2):
            step(optimizer, number)
        assert content(param) == content(values)


@every_arm
def test_float64_weights_are_updated_in_float64(arm):
    """Steps of 1e-12, which float32 does not see in a weight of 1."""
    param = Parameter(torch.ones(SIZE, dtype=torch.float64))
    optimizer = QLocalAdam([param], lr=1e-12, **ARMS[arm])
    for _ in range(5):
        param.grad = torch.ones_like(param)
        optimizer.step()
    torch.testing.assert_close(1 - param, torch.full_like(param, 5e-12), rtol=0.01, atol=0)


@each_backend
@pytest.mark.parametrize("kind", [Adam8bit, Adam4bit])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_16_bit_weights_move_by_steps_too_small_to_see(backend, kind, dtype):
    param = Parameter(torch.ones(8192, dtype=dtype))
    optimizer = kind([param], lr=1e-5, backend=backend)
    for _ in range(40):
        param.grad = torch.ones_like(param)
        optimizer.step()
    assert param.detach().double().mean().item() == pytest.approx(1 - 40e-5, abs=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("value", [1.001, -1.001, 0.3, 1e-7, 3e-8, -3.1e-8, 6.1e-5, 1e-40, 60010.0])
def test_stochastic_rounding_has_no_bias(dtype, value):
    values = torch.full((100_000,), value)
    rounded = stochastically_rounded(values, dtype, noise_bits(12345, 0, len(values))).double()
    exact = values[0].item()
    near = rounded.unique()
    assert len(near) <= 2
    spacing = (near.max() - near.min()).item() or abs(near[0].item() - exact)
    assert (near - exact).abs().max() <= max(spacing, 2.0**-24)
    if dtype == torch.bfloat16 or abs(value) > 1e-10:
        assert abs(rounded.mean().item() - exact) < 5 * 0.5 * spacing / math.sqrt(len(values))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_stochastic_rounding_is_the_same_in_both_kernels(dtype):
    """Bit for bit: zeros, denormals, the largest numbers, what is not finite."""
    if fused.library() is None:
        pytest.skip("not built")
    special = [0.0, -0.0, 1e-40, 6e-8, -6e-8, 6.1e-5, 6.09e-5, 65504.0, -65504.0, math.inf, -math.inf, math.nan]
    largest = torch.finfo(dtype).max
    values = torch.cat((torch.tensor([*special, largest, -largest]), drawn(0, 3000) * 10 ** (drawn(1, 3000) * 2)))
    results = []
    for backend in ("reference", "fused"):
        param = Parameter(values.to(dtype))
        optimizer = QLocalAdam([param], backend=backend, weight_rounding="stochastic", **ARMS["fp32"])
        for number in range(5):
            step(optimizer, number)
        results.append(param.detach().nan_to_num(nan=7.0, posinf=torch.inf, neginf=-torch.inf))
    assert content(results[0]) == content(results[1])


@each_backend
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_stochastic_rounding_makes_nothing_infinite_that_nearest_does_not(backend, dtype):
    """A weight at the largest number that is pushed by less than half of the distance to the next."""
    largest = torch.finfo(dtype).max
    param = Parameter(torch.full((SIZE,), largest, dtype=dtype))
    lr = largest * 1e-4
    optimizer = QLocalAdam([param], lr=lr, backend=backend, weight_rounding="stochastic", maximize=True)
    param.grad = torch.ones_like(param)
    optimizer.step()
    assert param.isfinite().all()


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_weights_of_8_bits_are_refused_or_move(rounding):
    values = torch.ones(4096).to(torch.float8_e4m3fn)
    param = Parameter(values, requires_grad=False)
    try:
        optimizer = QLocalAdam([param], lr=0.01, weight_rounding=rounding)
    except ValueError as error:
        if "float8" not in str(error):
            raise
        return
    for _ in range(20):
        param.grad = torch.ones(4096).to(torch.float8_e4m3fn)
        optimizer.step()
    assert param.float().mean().item() == pytest.approx(0.8, abs=0.05)


@each_backend
def test_betas_without_a_bound_are_refused_however_they_come(backend):
    """From the start, in a group, in a state, and set by a schedule."""
    wrong = (0.95, 0.9)
    _, optimizer = made("normalised", backend)
    with pytest.raises(ValueError, match="beta1"):
        made("normalised", backend, betas=wrong)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["betas"] = wrong
    refused(lambda: optimizer.load_state_dict(saved), optimizer, match="beta1")
    optimizer.param_groups[0]["betas"] = wrong
    refused(lambda: step(optimizer, 5), optimizer, match="beta1")


@some_arms
def test_deterministic_mode_changes_nothing(arm):
    plain, _ = made(arm, "reference")
    torch.use_deterministic_algorithms(True)
    try:
        param, _ = made(arm, "reference")
    finally:
        torch.use_deterministic_algorithms(False)
    assert content(plain) == content(param)


# --- exchange with torch.optim.Adam ---


def adam_run(kind=Adam, dtype=torch.float32, sizes=(5000, 100), steps=3, **options):
    params = [Parameter(drawn(number, size).to(dtype)) for number, size in enumerate(sizes)]
    optimizer = kind(params, **options)
    for number in range(steps):
        step(optimizer, number)
    return params, optimizer


def twins(params):
    return [Parameter(param.detach().clone()) for param in params]


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("flag", ["fused", "foreach"])
def test_how_adam_was_computed_does_not_matter(kind, flag):
    """`fused` and `foreach` change no number: checkpoints of runs that had them load."""
    params, optimizer = adam_run(kind, **{flag: True})
    restored = Adam8bit(twins(params))
    restored.load_state_dict(optimizer.state_dict())
    assert [state["step"] for state in restored.state.values()] == [3, 3]
    step(restored, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [Adam8bit, Adam4bit])
def test_moments_of_adam_in_any_type(kind, dtype):
    """Of one tensor that is quantized and one that is too small to be, to Adam and back."""
    params, optimizer = adam_run(dtype=dtype, eps=1e-3)
    ours = kind(twins(params))
    ours.load_state_dict(optimizer.state_dict())
    assert [set(state) for state in ours.state.values()][1] == {"step", "momentum", "variance"}
    exported = ours.adam_state_dict()
    back = Adam(twins(params))
    back.load_state_dict(exported)
    for one, other, coarse in zip(params, back.param_groups[0]["params"], (True, False), strict=True):
        for moment in ("exp_avg", "exp_avg_sq"):
            before, after = optimizer.state[one][moment].double(), back.state[other][moment].double()
            if coarse:
                assert (before - after).norm() < (0.02 if kind is Adam8bit else 0.3) * before.norm()
            else:
                assert torch.equal(before, after)
        assert int(back.state[other]["step"]) == 3


@pytest.mark.parametrize("entry", ["step", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("change", ["missing", "short", "without data", "whole numbers"])
def test_a_state_of_adam_that_does_not_fit_is_refused_by_name(entry, change):
    _, optimizer = adam_run()
    _, ours = adam_run(Adam8bit, steps=1)
    saved = copy.deepcopy(optimizer.state_dict())
    state = saved["state"][0]
    if change == "missing":
        del state[entry]
    elif change == "short":
        state[entry] = torch.zeros(3)
    elif change == "without data":
        state[entry] = state[entry].to("meta")
    elif entry == "step":
        pytest.skip("a step may be a whole number")
    else:
        state[entry] = state[entry].int()
    refused(
        lambda: ours.load_state_dict(saved), ours, match=f"parameter 0 has .*{'' if change == 'missing' else entry}"
    )


def test_what_adam_keeps_and_we_do_not_is_refused_by_name():
    _, optimizer = adam_run(amsgrad=True)
    _, ours = adam_run(Adam8bit, steps=1)
    refused(lambda: ours.load_state_dict(optimizer.state_dict()), ours, match="amsgrad|max_exp_avg_sq")


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_groups_of_adam_change_sides_and_back(named):
    """Equal sizes, one parameter without a state, learning rates and decays of their own."""

    def given(params):
        pairs = [(f"p{number}", param) if named else param for number, param in enumerate(params)]
        return [{"params": pairs[:1], "lr": 0.1}, {"params": pairs[1:3]}, {"params": pairs[3:], "weight_decay": 0.0}]

    params = [Parameter(drawn(number, 5000)) for number in range(4)]
    first = AdamW(given(params))
    for number, param in enumerate(params):
        param.grad = None if number == 2 else drawn(number + 10, 5000)
    first.step()
    middle_params, last_params = twins(params), twins(params)
    middle = Adam8bit(given(middle_params), decoupled_weight_decay=True)
    middle.load_state_dict(first.state_dict())
    last = AdamW(given(last_params))
    last.load_state_dict(middle.adam_state_dict())
    for optimizer in (first, middle, last):
        step(optimizer, 3)
    assert [g["lr"] for g in last.param_groups] == [g["lr"] for g in first.param_groups] == [0.1, 1e-3, 1e-3]
    assert [int(last.state[p]["step"]) for p in last_params] == [2, 2, 1, 2]
    for one, *others in zip(params, middle_params, last_params, strict=True):
        lr = 0.1 if one is params[0] else 1e-3
        for other in others:
            assert (one - other).abs().mean() < 0.05 * lr


@each_backend
def test_settings_change_in_the_middle_by_way_of_adam(backend):
    """An export of one arm is read by every other."""
    param, source = made("normalised", backend, steps=5)
    saved = source.adam_state_dict()
    for arm in ARMS:
        twin = Parameter(param.detach().clone())
        optimizer = QLocalAdam([twin], backend=backend, **ARMS[arm])
        optimizer.load_state_dict(saved)
        assert optimizer.state[twin]["step"] == 5
        again = optimizer.adam_state_dict()["state"][0]
        for moment in ("exp_avg", "exp_avg_sq"):
            before = saved["state"][0][moment]
            assert (again[moment] - before).abs().max() < (0.2 if "4bit" in arm else 0.05) * before.abs().max()


# --- threads and processes ---


def step_after_fork(threads_in_child):
    """Whether a forked child can make a step after its parent has made one in two threads; -14: it was hanging."""
    torch.set_num_threads(2)
    param = Parameter(torch.zeros(300_000))
    optimizer = QLocalAdam([param], backend="auto")
    param.grad = torch.ones_like(param)
    optimizer.step()
    pid = os.fork()
    if not pid:
        signal.alarm(3)
        if threads_in_child:
            torch.set_num_threads(threads_in_child)
        optimizer.step()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(fused.library() is None, reason="torch's own threads do not survive a fork")
@pytest.mark.parametrize("threads", [None, 1], ids=["as in the parent", "one"])
def test_a_forked_child_makes_steps(threads):
    assert in_children(step_after_fork, (None, 1))[threads,] == 0


def test_nothing_holds_an_optimizer_or_its_states():
    """Without a cycle that only the garbage collector would see: memory is free as soon as it is let go."""
    param, optimizer = made()
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    codes = weakref.ref(optimizer.state[param]["momentum_codes"])
    optimizer.load_state_dict(saved)
    assert codes() is None
