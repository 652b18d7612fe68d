"""What needs a process of its own: training that is killed, memory at its peak, a kernel for an older processor."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import torch
from backends import requires_fused
from training_runs import results

from qlocaladam.cli import main
from qlocaladam.data.dataset import load, subset
from qlocaladam.federated.partition import partition


def in_new_process(code, *arguments, **environment):
    """What it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command(digits, parts_file, out, rounds):
    return [
        *(sys.executable, "-m", "qlocaladam", "train", "--data", str(digits), "--partition", str(parts_file)),
        *("--train-images", "200", "--test-images", "50", "--rounds", str(rounds), "--width", "4"),
        *("--image-size", "32", "--batch-size", "16", "--no-flip", "--out", str(out)),
    ]


def test_killed_at_random_moments_and_run_beside_others_gives_the_same_bytes(digits, tmp_path):
    """SIGKILL, six times, anywhere from start-up to the last round, with another run going on beside it."""
    parts_file = tmp_path / "parts.npz"
    partition(subset(load(digits), 200, 50).y_train, 10, 0.5, 42).save(parts_file)
    rounds = 12
    start = time.monotonic()
    straight = subprocess.Popen(command(digits, parts_file, tmp_path / "straight", rounds), stderr=subprocess.DEVNULL)
    assert straight.wait() == 0
    whole = time.monotonic() - start
    beside = subprocess.Popen(command(digits, parts_file, tmp_path / "beside", rounds), stderr=subprocess.DEVNULL)
    chance, kills = random.Random(0), 0
    while kills < 6:
        process = subprocess.Popen(command(digits, parts_file, tmp_path / "killed", rounds), stderr=subprocess.DEVNULL)
        try:
            process.wait(chance.uniform(0.3, 1.0) * whole)
            break  # it finished before it was killed
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
    assert kills, "no kill came in time"
    subprocess.run(command(digits, parts_file, tmp_path / "killed", rounds), check=True, stderr=subprocess.DEVNULL)
    assert beside.wait() == 0
    assert results(tmp_path / "straight") == results(tmp_path / "killed") == results(tmp_path / "beside")


def test_memory_does_not_grow_with_clients(digits, tmp_path):
    """Peak memory of a whole process with 5 and with 50 clients a round of the same data."""
    code = """
import resource, sys
from qlocaladam.cli import main
main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    peaks = []
    for clients in (5, 50):
        part = tmp_path / f"{clients}.npz"
        main(["partition", "--data", str(digits), "--clients", str(clients), "--alpha", "iid", "--out", str(part)])
        arguments = ["train", "--data", str(digits), "--partition", str(part), "--out", str(tmp_path / str(clients))]
        arguments += ["--clients-per-round", str(clients), "--rounds", "1", "--epochs", "1", "--width", "16"]
        arguments += ["--image-size", "32", "--batch-size", "28", "--no-flip"]
        peaks.append(int(in_new_process(code, *arguments, OMP_NUM_THREADS="1").splitlines()[-1]))
    assert peaks[1] < 1.1 * peaks[0]


@requires_fused
def test_older_processors_get_the_same_numbers(tmp_path, monkeypatch):
    code = """
import sys, torch
from qlocaladam import QLocalAdam
torch.manual_seed(0)
p = torch.randn(10_000, requires_grad=True)
optimizer = QLocalAdam([p], backend="fused")
for step in range(20):
    p.grad = torch.randn(10_000, generator=torch.Generator().manual_seed(step))
    optimizer.step()
torch.save(p.detach(), sys.argv[1])
"""
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    results = {}
    for name in ("own", "default", "avx2"):
        in_new_process(code, tmp_path / name, **({} if name == "own" else {"ATEN_CPU_CAPABILITY": name}))
        results[name] = torch.load(tmp_path / name, weights_only=True)
    own = results.pop("own")
    # Without fused multiply-add a code may differ here and there, which moves a parameter by a fraction of a step.
    for name, other in results.items():
        difference = (other - own).abs()
        assert difference.max() < 1e-3, name
        assert (difference < 1e-6).float().mean() > 0.99, name


@requires_fused
def test_the_kernel_holds_no_fp32_copy_of_a_state():
    """A step of a tensor of 120 MB allocates next to nothing, seen from the process's peak memory."""
    code = """
import resource, torch
from qlocaladam import QLocalAdam
torch.set_num_threads(2)
p = torch.zeros(30_000_000, requires_grad=True); p.grad = torch.ones_like(p)
optimizer = QLocalAdam([p], backend="fused"); optimizer.step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(2): optimizer.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    assert int(in_new_process(code)) < 10_000, "KB; one FP32 state would be 120,000"


def test_an_import_brings_no_more_than_it_needs():
    """One after the other in one process: what each may not have brought."""
    light = {
        "qlocaladam": "matplotlib seaborn torchvision sklearn snakemake pandas scipy torch",
        "qlocaladam.cli qlocaladam.data.sources qlocaladam.federated.partition qlocaladam.experiments.runs": "torch",
        "qlocaladam.analysis.significance qlocaladam.analysis.data_distribution": "torch",
        "qlocaladam.analysis.participation": "torch",
        "qlocaladam.results": "matplotlib seaborn",
    }
    code = """
import importlib, sys
for modules, unwanted in zip(sys.argv[1::2], sys.argv[2::2]):
    for module in modules.split():
        importlib.import_module(module)
    assert not set(unwanted.split()) & set(sys.modules), modules
"""
    in_new_process(code, *(word for pair in light.items() for word in pair))


def test_narrow_models_train_on_processors_without_avx512():
    """There oneDNN corrupts the heap in strided 1x1 convolutions of few channels: torch's own model dies of it."""
    code = """
import torch
from qlocaladam.models import ResNet18, Shortcut
torch.set_num_threads(1)
for channels in range(2, 18):
    shortcut = Shortcut(channels, 2 * channels, 1, 2, bias=False)
    exact = torch.nn.Conv2d(channels, 2 * channels, 1, 2, bias=False).double()
    exact.load_state_dict(shortcut.state_dict())
    for _ in range(10):
        images = torch.randn(32, channels, 9, 10).contiguous(memory_format=torch.channels_last)
        inputs = [images.clone().requires_grad_(), images.double().requires_grad_()]
        for layer, values in zip((shortcut, exact), inputs):
            layer.zero_grad()
            layer(values).square().sum().backward()
        pairs = [(shortcut.weight.grad, exact.weight.grad), (inputs[0].grad, inputs[1].grad)]
        assert all((own - other).norm() <= 1e-5 * other.norm() for own, other in pairs), channels
for width in range(2, 9):
    model = ResNet18(10, width)
    for _ in range(6):
        images = torch.randn(32, 3, 40, 40).contiguous(memory_format=torch.channels_last)
        model(images).square().sum().backward()
"""
    in_new_process(code, ONEDNN_MAX_CPU_ISA="AVX2")


def test_torchvision_imports_through_the_one_door():
    in_new_process("from qlocaladam.vision import torchvision; import torchvision.transforms.v2")


def test_operators_that_exist_are_left_alone():
    """As where torchvision's own library loads: its operators are there, so none is declared."""
    code = """
import torch
own = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    own.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
from qlocaladam import vision
print(vision.declare_missing_operators(), vision._declared)
"""
    assert in_new_process(code) == "[] None\n"


def test_a_missing_torchvision_says_how_to_get_it():
    code = """
import sys
sys.modules["torchvision"] = None
try:
    import qlocaladam.vision
except ImportError as error:
    print(error)
"""
    assert in_new_process(code) == "torchvision is not installed: pip install 'qlocaladam[federated]'\n"


def test_training_does_not_load_the_compiler_and_leaves_it_usable():
    """It takes as long to load as torch itself, in every job of a workflow."""
    code = """
import sys, torch
from qlocaladam.models import ResNet18
from qlocaladam.optim import QLocalAdam
model = ResNet18(10, 4)
optimizer = QLocalAdam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 3, 40, 40)).sum().backward()
    optimizer.step()
assert not [name for name in sys.modules if name.startswith("torch._dynamo")]
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2
import torch._dynamo.utils
assert hasattr(torch._dynamo.utils, "counters")
optimizer.zero_grad()
optimizer.add_param_group({"params": [torch.zeros(3, requires_grad=True)]})
"""
    in_new_process(code)
