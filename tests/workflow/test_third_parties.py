"""The optimizers stand where torch.optim.Adam stood in other people's frameworks, on the CPU and without network.

What runs in several processes does so in children of a fork server, over gloo on the loopback device, and meets in a
file. A child that hangs is killed.
"""

import contextlib
import copy
import io
import os
import re
import runpy
import socket
import subprocess
import sys
import time
import traceback
import weakref
from pathlib import Path

import pytest
import torch
from bits import content
from processes import PROCESSES
from torch import nn

import qlocaladam
from qlocaladam import ARMS, QLocalAdam

os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    DO_NOT_TRACK="1",
    ACCELERATE_USE_CPU="true",
)

pytestmark = [
    # Lightning asks torch's trees in a way that torch has deprecated.
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    # Where SLURM is installed, as for its own tests, Lightning wonders that it is not used.
    pytest.mark.filterwarnings("ignore:The `srun` command is available:UserWarning"),
    # Without a process group, distributed checkpoints are of one process, which is what is wanted.
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized:UserWarning"),
]
needs_processes = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")

CLASSES = ["QLocalAdam", "Adam8bit", "Adam4bit"]
LR = 1e-2


def class_of(name):
    return getattr(qlocaladam, name)


def network(width=64):
    """Both kinds of parameters for `Adam8bit` and `Adam4bit`: a weight that is quantized and some that are not."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def batches(count, size=8, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return [(x, x.sum(1, keepdim=True).sin()) for x in torch.randn(count, size, 8, generator=rng)]


def loss_of(model, batch):
    inputs, targets = batch
    return (model(inputs) - targets).square().mean()


def train(model, optimizer, data):
    for batch in data:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()


def decay_groups(model):
    """Two groups, as frameworks make them, and in an order that is not that of the model."""
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]


def local(value):
    return value.to_local() if hasattr(value, "to_local") else value


def weights(model):
    return [local(p.detach()).clone() for p in model.parameters()]


def states(optimizer):
    """What is kept for every parameter, in this process."""
    return [
        {key: local(value) for key, value in optimizer.state.get(param, {}).items()}
        for group in optimizer.param_groups
        for param in group["params"]
    ]


def assert_same(ours, theirs):
    """Bit for bit, dtypes and keys included."""
    assert content(ours) == content(theirs)


def assert_close(ours, theirs):
    """To the rounding of FP32."""
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def assert_near(ours, theirs):
    """As near as other codes of the same numbers let it be: on average, a small part of one step."""
    distance = torch.cat([(one - other).abs().flatten() for one, other in zip(ours, theirs, strict=True)])
    assert distance.mean() < LR / 3


# Frameworks that train


@pytest.fixture
def torchvision():
    """Transformers and Lightning import it where it is installed; this lets it be imported beside a CPU-only torch."""
    with contextlib.suppress(ImportError):
        import qlocaladam.vision  # noqa: F401


@pytest.fixture
def fresh_accelerate():
    """Accelerate keeps its settings for the whole process."""
    state = pytest.importorskip("accelerate.state")
    state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("name", CLASSES)
def test_hugging_face_trainer_resumes_bit_for_bit(name, tmp_path, torchvision, fresh_accelerate):
    transformers = pytest.importorskip("transformers")
    widths = dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 64)
    config = transformers.LlamaConfig(
        **widths, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16, use_cache=False
    )
    tokens = torch.randint(64, (12, 8), generator=torch.Generator().manual_seed(0))

    def trainer(folder):
        torch.manual_seed(0)
        return transformers.Trainer(
            model=transformers.LlamaForCausalLM(config),
            args=transformers.TrainingArguments(
                output_dir=str(tmp_path / folder),
                max_steps=6,
                save_steps=3,
                per_device_train_batch_size=2,
                weight_decay=0.1,
                max_grad_norm=1.0,
                use_cpu=True,
                dataloader_pin_memory=False,
                report_to=[],
                disable_tqdm=True,
                logging_strategy="no",
            ),
            train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
            optimizer_cls_and_kwargs=(class_of(name), {"lr": LR, "rounding": "stochastic"}),
        )

    straight = trainer("straight")
    before = weights(straight.model)
    straight.train()
    resumed = trainer("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "straight" / "checkpoint-3"))
    optimizer = resumed.optimizer.optimizer
    assert type(optimizer) is class_of(name)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert_same(weights(resumed.model), weights(straight.model))
    assert_same(states(optimizer), states(straight.optimizer.optimizer))
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(resumed.model), strict=True))


@pytest.mark.parametrize("name", CLASSES)
def test_lightning_clips_and_resumes_bit_for_bit(name, tmp_path, torchvision):
    lightning = pytest.importorskip("lightning")
    norms = []

    def measure(optimizer, *_):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network()

        def training_step(self, batch, _):
            return loss_of(self.network, batch)

        def configure_optimizers(self):
            optimizer = class_of(name)(decay_groups(self.network), lr=LR)
            optimizer.register_step_post_hook(measure)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def fit(epochs, checkpoint=None):
        module = Module()
        trainer = lightning.Trainer(
            accelerator="cpu",
            precision="bf16-mixed",
            gradient_clip_val=0.1,
            max_epochs=epochs,
            **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False),
            default_root_dir=tmp_path,
        )
        loader = torch.utils.data.DataLoader(batches(2), batch_size=None)
        trainer.fit(module, loader, ckpt_path=checkpoint)
        return trainer, module

    first, _ = fit(2)
    first.save_checkpoint(tmp_path / "half.ckpt")
    resumed, ours = fit(4, tmp_path / "half.ckpt")
    straight, theirs = fit(4)
    assert resumed.global_step == 8
    assert resumed.optimizers[0].param_groups[0]["lr"] == LR / 16
    assert max(norms) == pytest.approx(0.1, rel=1e-2)
    assert_same(weights(ours), weights(theirs))
    assert_same(states(resumed.optimizers[0]), states(straight.optimizers[0]))


@pytest.mark.parametrize("name", CLASSES)
def test_accelerate_saves_and_loads_bit_for_bit(name, tmp_path, fresh_accelerate):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)

    def prepared():
        model = network()
        optimizer = class_of(name)(decay_groups(model), lr=LR)
        return accelerator.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9))

    def run(model, optimizer, scheduler, data):
        for batch in data:
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, batch))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    straight = prepared()
    run(*straight, batches(6))
    accelerator.save_state(str(tmp_path / "state"))
    run(*straight, batches(6, seed=1))
    accelerator.free_memory()
    resumed = prepared()
    run(*resumed, batches(2, seed=2))
    accelerator.load_state(str(tmp_path / "state"))
    run(*resumed, batches(6, seed=1))
    assert_same(weights(resumed[0]), weights(straight[0]))
    assert_same(states(resumed[1].optimizer), states(straight[1].optimizer))
    assert states(resumed[1].optimizer)[0]["step"] == 6
    accelerator.free_memory()


@pytest.mark.parametrize("name", CLASSES)
def test_a_gradient_scaler_changes_nothing_and_skips_what_overflows(name):
    models = {scaled: network() for scaled in (False, True)}
    optimizers = {scaled: class_of(name)(model.parameters(), lr=LR) for scaled, model in models.items()}
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for batch in batches(4):
        train(models[False], optimizers[False], [batch])
        for overflow in (True, False):
            optimizers[True].zero_grad()
            scaler.scale(loss_of(models[True], batch)).backward()
            if overflow:
                models[True][2].weight.grad[3, 3] = torch.inf
            scaler.unscale_(optimizers[True])
            scaler.step(optimizers[True])
            scaler.update()
    assert scaler.get_scale() == 2.0**6
    assert_same(weights(models[True]), weights(models[False]))
    assert_same(states(optimizers[True]), states(optimizers[False]))


@pytest.mark.parametrize("name", CLASSES)
def test_a_compiled_model_trains_with_the_optimizer_outside(name):
    plain, inner = network(), network()
    compiled = torch.compile(inner, backend="aot_eager")
    ours, theirs = (class_of(name)(model.parameters(), lr=LR) for model in (compiled, plain))
    for batch in batches(4):
        train(compiled, ours, [batch])
        theirs.zero_grad()
        loss_of(plain, batch).backward()
        for one, other in zip(inner.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
            other.grad = one.grad.clone()  # the same gradients from here on: codes do not forgive a last bit
        theirs.step()
    assert_same(weights(inner), weights(plain))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", CLASSES)
def test_gradient_release_trains_the_same_and_keeps_one_gradient(name):
    """The recipe of torch: a step of its own for every parameter, as soon as its gradient is there."""
    plain, released = network(), network()
    options = {"lr": LR, "rounding": "nearest"}  # what is drawn depends on the place in the optimizer
    optimizer = class_of(name)(plain.parameters(), **options)
    own = {param: class_of(name)([param], **options) for param in released.parameters()}
    alive, gone = [], []

    def release(param):
        alive.append(sum(p.grad.nbytes for p in own if p.grad is not None))
        gone.append(weakref.ref(param.grad))
        own[param].step()
        own[param].zero_grad()

    for param in released.parameters():
        param.register_post_accumulate_grad_hook(release)
    for batch in batches(5):
        train(plain, optimizer, [batch])
        loss_of(released, batch).backward()
    assert_same(weights(released), weights(plain))
    assert len(alive) == 5 * len(own)
    assert max(alive) == max(p.nbytes for p in own)
    assert all(p.grad is None for p in own)
    assert all(gradient() is None for gradient in gone), "nothing else holds a gradient"


# Examples

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "digits.py")


@pytest.mark.filterwarnings("default")  # what frameworks tell their users
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_example_trains_as_it_stands(script, tmp_path, monkeypatch, capfd, torchvision, fresh_accelerate):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLES)
    if script == "ddp.py":
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*launcher, str(EXAMPLES / script)], check=True)
    else:
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    said = capfd.readouterr().out
    (accuracy,) = re.findall(r"^accuracy ([\d.]+) %$", said, re.MULTILINE)
    assert float(accuracy) > 80, "chance is 10"
    assert "the same weights: False" not in said
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_every_example_is_listed():
    listed = re.findall(r"^\| `(\w+\.py)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == SCRIPTS


# Distributed checkpoints


def optimizer_checkpoint(model, optimizer, **options):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

    return get_optimizer_state_dict(model, optimizer, options=StateDictOptions(**options))


def set_optimizer(model, optimizer, state, **options):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(**options))


def save_checkpoint(folder, model, optimizer, **options):
    import torch.distributed.checkpoint as dcp

    state = {"model": model.state_dict(), "optimizer": optimizer_checkpoint(model, optimizer, **options)}
    dcp.save(state, checkpoint_id=folder)


def load_checkpoint(folder, model, optimizer, **options):
    import torch.distributed.checkpoint as dcp

    state = {"model": model.state_dict(), "optimizer": optimizer_checkpoint(model, optimizer, **options)}
    dcp.load(state, checkpoint_id=folder)
    model.load_state_dict(state["model"])
    set_optimizer(model, optimizer, state["optimizer"], **options)


@needs_processes
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", CLASSES)
def test_distributed_checkpoints_of_one_process(name, groups, tmp_path):
    def made():
        model = network()
        params = model.parameters() if groups == 1 else decay_groups(model)
        return model, class_of(name)(params, lr=LR, rounding="stochastic")

    for flat in (False, True):
        straight, resumed = made(), made()
        train(*straight, batches(3))
        folder = tmp_path / f"flat-{flat}"
        save_checkpoint(folder, *straight, flatten_optimizer_state_dict=flat)
        with torch.no_grad():
            for param in resumed[0].parameters():
                param.zero_()
        load_checkpoint(folder, *resumed, flatten_optimizer_state_dict=flat)
        assert_same(states(resumed[1]), states(straight[1]))
        for run in (straight, resumed):
            train(*run, batches(3, seed=1))
        assert_same(weights(resumed[0]), weights(straight[0]))
        assert len(resumed[1].param_groups) == groups


# Several processes

PATIENCE = 180  # seconds until processes that do not end are killed


def child(rank, world, task, folder, arguments):
    """One process of a group. What the task returns, or how it failed, goes to a file."""
    torch.set_num_threads(1)
    for name in {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}:
        os.environ["GLOO_SOCKET_IFNAME"] = name
    try:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world
        )
        answer = task(rank, folder, *arguments)
        torch.distributed.barrier()
    except BaseException:
        (folder / f"failed-{rank}").write_text(traceback.format_exc())
        os._exit(1)
    torch.save(answer, folder / f"answer-{rank}")
    torch.distributed.destroy_process_group()


def in_processes(task, folder, *arguments, world=2):
    """What `task(rank, folder, *arguments)` returns in every process. Fails with the traceback of a child."""
    folder.mkdir(parents=True, exist_ok=True)
    given = [(rank, world, task, folder, arguments) for rank in range(world)]
    children = [PROCESSES.Process(target=child, args=args, daemon=True) for args in given]
    for process in children:
        process.start()
    end = time.monotonic() + PATIENCE
    while any(process.is_alive() for process in children) and time.monotonic() < end:
        if any(process.exitcode for process in children):
            end = min(end, time.monotonic() + 2)  # the others wait for one that is dead
        time.sleep(0.02)
    codes = [process.exitcode for process in children]
    for process in children:
        process.kill()
        process.join()
    said = "\n".join(file.read_text() for file in sorted(folder.glob("failed-*")))
    assert codes == [0] * world, f"exit codes {codes} (None: killed)\n{said}"
    return [torch.load(folder / f"answer-{rank}", weights_only=False) for rank in range(world)]


def halves(batch):
    return [tuple(part.chunk(2)[rank] for part in batch) for rank in (0, 1)]


def train_by_halves(model, optimizer, data):
    """In one process, the gradients of two: the mean over the halves of every batch, which is exact to the last bit."""
    for batch in data:
        optimizer.zero_grad()
        for half in halves(batch):
            (loss_of(model, half) / 2).backward()
        optimizer.step()


def ddp_task(rank, folder, names):
    answer = {}
    for name in names:
        model = nn.parallel.DistributedDataParallel(network())
        optimizer = class_of(name)(model.parameters(), lr=LR)
        train(model, optimizer, [halves(batch)[rank] for batch in batches(6)])
        answer[name] = (weights(model), states(optimizer))
    return answer


@needs_processes
def test_ddp_keeps_ranks_equal_to_one_process(tmp_path):
    first, second = in_processes(ddp_task, tmp_path / "ddp", CLASSES)
    for name in CLASSES:
        assert_same(list(first[name]), list(second[name]))
        by_halves, whole = network(), network()
        optimizer = class_of(name)(by_halves.parameters(), lr=LR)
        train_by_halves(by_halves, optimizer, batches(6))
        assert_same(first[name][0], weights(by_halves))
        assert_same(first[name][1], states(optimizer))
        train(whole, class_of(name)(whole.parameters(), lr=LR), batches(6))
        # A gradient that differs in its last bit can take the next code.
        assert_near(first[name][0], weights(whole))


def sharded(model):
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    return fully_shard(model)


def full_weights(model):
    return [param.full_tensor().detach().clone() for param in model.parameters()]


# Layers of 8, 64 and 64 columns and of 64 rows: with blocks of 32, the border between two shards is one between blocks.
ALIGNED = {"block_size": 32, "rounding": "nearest", "lr": LR}
SHARDED_ARMS = ["fp32", "q-localadam", "naive-int8", "dynamic-8bit", "normalised", "normalised-4bit"]


def aligned_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))


def uneven_network():
    """Shards of unequal sizes, borders within blocks, odd shards at 4 bits, and a bias that one process has none of."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 33), nn.Tanh(), nn.Linear(33, 65), nn.Tanh(), nn.Linear(65, 1))


def fsdp2_numbers_task(rank, folder):
    own = [halves(batch)[rank] for batch in batches(6)]
    answer = {}
    for arm in SHARDED_ARMS:
        model = sharded(aligned_network())
        train(model, QLocalAdam(model.parameters(), **{**ARMS[arm], **ALIGNED}), own)
        answer[arm] = full_weights(model)
    for name in CLASSES:
        model = sharded(uneven_network())
        optimizer = class_of(name)(model.parameters(), lr=LR)
        train(model, optimizer, own)
        answer[name] = full_weights(model)
    return answer


@needs_processes
def test_fsdp2_trains_like_one_process(tmp_path):
    first, second = in_processes(fsdp2_numbers_task, tmp_path / "numbers")
    for arm in SHARDED_ARMS:
        model = aligned_network()
        train_by_halves(model, QLocalAdam(model.parameters(), **{**ARMS[arm], **ALIGNED}), batches(6))
        assert_same(first[arm], second[arm])
        assert_close(first[arm], weights(model))
    for name in CLASSES:
        model = uneven_network()
        train_by_halves(model, class_of(name)(model.parameters(), lr=LR), batches(6))
        assert_same(first[name], second[name])
        assert_near(first[name], weights(model))


STATE_CASES = [
    *((name, {"min_quantized_size": size}) for name in CLASSES for size in (0, 1000)),
    ("QLocalAdam", {"rounding": "stochastic"}),
    ("QLocalAdam", ARMS["fp32"]),
]


def fsdp2_states_task(rank, folder):
    from torch.distributed.tensor import DTensor, Shard

    own, more = ([halves(batch)[rank] for batch in batches(3, seed=seed)] for seed in (0, 1))
    for index, (name, options) in enumerate(STATE_CASES):

        def made(name=name, options=options):
            model = sharded(uneven_network())
            return model, class_of(name)(decay_groups(model), lr=LR, **options)

        model, optimizer = made()
        train(model, optimizer, own)
        kept = [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
        assert all(isinstance(value, DTensor) and value.placements == (Shard(0),) for value in kept)
        codes = [value for value in kept if value.dtype == torch.uint8]
        assert all(value.shape == (2 * value.to_local().numel(),) for value in codes)
        assert bool(codes) is (options != ARMS["fp32"])

        before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(states(optimizer))
        save_checkpoint(folder / f"checkpoint-{index}", model, optimizer)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        own_part = torch.load(file, weights_only=True)
        gathered = optimizer_checkpoint(model, optimizer, full_state_dict=True)
        train(model, optimizer, more)

        restored = [made() for _ in range(3)]
        for other, _ in restored[:2]:
            other.load_state_dict(before)
        restored[0][1].load_state_dict(own_part)
        set_optimizer(*restored[1], gathered, full_state_dict=True)
        load_checkpoint(folder / f"checkpoint-{index}", *restored[2])
        for pair in restored:
            assert_same(states(pair[1]), state)
            train(*pair, more)
            assert_same(weights(pair[0]), weights(model))
            assert_same(states(pair[1]), states(optimizer))


@needs_processes
def test_fsdp2_states_round_trip_bit_for_bit(tmp_path):
    """A process's own state dict, a gathered one, and a distributed checkpoint; uneven shards and two groups."""
    in_processes(fsdp2_states_task, tmp_path / "states")


def fsdp2_flat_task(rank, folder):
    own = [halves(batch)[rank] for batch in batches(3)]
    for name in CLASSES:
        pairs = []
        for _ in range(2):
            model = sharded(uneven_network())
            pairs.append((model, class_of(name)(decay_groups(model), lr=LR, min_quantized_size=0)))
        train(*pairs[0], own)
        save_checkpoint(folder / name, *pairs[0], flatten_optimizer_state_dict=True)
        load_checkpoint(folder / name, *pairs[1], flatten_optimizer_state_dict=True)
        assert_same(states(pairs[1][1]), states(pairs[0][1]))


@needs_processes
def test_fsdp2_states_round_trip_in_flat_checkpoints(tmp_path):
    """As torchtitan makes them: torch takes tensors, numbers and dictionaries in a state, and nothing else."""
    in_processes(fsdp2_flat_task, tmp_path / "flat")


def square(width):
    """One weight. Of width 64 its states have the same sizes and blocks however many processes share it; of width 10,
    the same sizes but other blocks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, width, bias=False))


def refusal_pair(width, cut=True):
    model = sharded(square(width)) if cut else square(width)
    return model, QLocalAdam(model.parameters(), lr=LR)


def fsdp2_save_task(rank, folder):
    data = [halves(batch)[rank] for batch in batches(3)]
    exported = {}
    for width in (10, 64, 65):
        model, optimizer = refusal_pair(width)
        train(model, optimizer, data)
        save_checkpoint(folder / f"width-{width}", model, optimizer)
        adam = optimizer.adam_state_dict()
        for state in adam["state"].values():
            for key in ("exp_avg", "exp_avg_sq"):
                assert state[key].shape == (width, 8)
                state[key] = state[key].full_tensor()
        exported[width] = adam
    return exported


def fsdp2_other_world_task(rank, folder, saved):
    from torch.distributed.checkpoint.api import CheckpointException

    for width in (10, 64, 65):
        model, optimizer = refusal_pair(width)
        with pytest.raises(CheckpointException, match=r"Missing key .*_codes_cut_in_1_at_dim_0"):
            load_checkpoint(saved / f"width-{width}", model, optimizer)
        train(model, optimizer, batches(1))  # a refused state leaves an optimizer that works


@needs_processes
def test_fsdp2_refuses_checkpoints_of_another_number_of_processes(tmp_path):
    from torch.distributed.checkpoint.api import CheckpointException

    exported, _ = in_processes(fsdp2_save_task, tmp_path / "two")
    in_processes(fsdp2_other_world_task, tmp_path / "one", tmp_path / "two", world=1)
    for width in (10, 65):  # and without FSDP, where nothing asks the checkpoint how it was cut
        with pytest.raises(CheckpointException, match=r"Missing key .*momentum_codes"):
            load_checkpoint(tmp_path / "two" / f"width-{width}", *refusal_pair(width, cut=False))
    for width, adam in exported.items():  # what can be done instead
        model, optimizer = refusal_pair(width, cut=False)
        optimizer.load_state_dict(adam)
        assert states(optimizer)[0]["step"] == 3
        train(model, optimizer, batches(1))


FSDP1_ARMS = {"fp32": ("QLocalAdam", ARMS["fp32"]), **{name: (name, {"min_quantized_size": 0}) for name in CLASSES}}


def fsdp1_task(rank, folder, original):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    own, more = ([halves(batch)[rank] for batch in batches(6, seed=seed)] for seed in (0, 1))
    trained, refused = {}, {}

    def made(name, options):
        model = FSDP(aligned_network(), use_orig_params=original, device_id=torch.device("cpu"))
        return model, class_of(name)(model.parameters(), lr=LR, **options)

    def own_dict(model, optimizer, twin, other):
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    def gathered(model, optimizer, twin, other):
        other.load_state_dict(FSDP.optim_state_dict_to_load(twin, other, FSDP.optim_state_dict(model, optimizer)))

    def gathered_adam(model, optimizer, twin, other):
        adam = FSDP.optim_state_dict(model, optimizer, optim_state_dict=optimizer.adam_state_dict())
        other.load_state_dict(FSDP.optim_state_dict_to_load(twin, other, adam))

    for arm, (name, options) in FSDP1_ARMS.items():
        model, optimizer = made(name, options)
        train(model, optimizer, own)
        with FSDP.summon_full_params(model):
            trained[arm] = weights(model)
        ways = [own_dict, gathered, gathered_adam]
        if original:  # what torch.optim.Adam gets back is wrong here too (torch 2.13, CPU): FSDP mixes up the moments
            ways = [own_dict] if arm == "fp32" else [own_dict, gathered]
        restored = []
        for way in ways:
            twin, other = made(name, options)
            twin.load_state_dict(model.state_dict())
            try:
                way(model, optimizer, twin, other)
            except Exception as error:
                refused[arm, way.__name__] = f"{type(error).__name__}: {error}"
                continue
            if way is not gathered_adam:
                assert_same(states(other), states(optimizer))
            restored.append((twin, other))
        train(model, optimizer, more)
        for twin, other in restored:
            train(twin, other, more)
            (assert_close if arm == "fp32" else assert_near)(weights(twin), weights(model))
            assert [state.get("step") for state in states(other)] == [state.get("step") for state in states(optimizer)]
    return trained, refused


@needs_processes
@pytest.mark.parametrize("original", [False, True])
def test_fsdp1_trains_and_its_state_dicts_work_or_are_refused(original, tmp_path):
    answers = in_processes(fsdp1_task, tmp_path / "fsdp1", original)
    assert_same(answers[0][0], answers[1][0])
    for arm, (name, options) in FSDP1_ARMS.items():
        model = aligned_network()
        train_by_halves(model, class_of(name)(model.parameters(), lr=LR, **options), batches(6))
        (assert_close if arm == "fp32" else assert_near)(answers[0][0][arm], weights(model))
    for _, refused in answers:
        assert not any(arm == "fp32" or way == "gathered_adam" for arm, way in refused), refused
        for said in refused.values():
            assert said.startswith(("ValueError", "RuntimeError", "NotImplementedError"))
            assert "FSDP" in said or "FullyShardedDataParallel" in said
