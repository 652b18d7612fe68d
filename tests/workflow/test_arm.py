"""The kernel of ARM processors: cross-compiled for aarch64, emulated, held to the reference like any other."""

import ast
import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from agreement import check_some_steps, check_step_by_step, check_what_is_not_finite, pair

from qlocaladam import ARMS
from qlocaladam.codecs import ROUNDINGS
from qlocaladam.kernels import CODES, fused

ROOT = Path(__file__).parents[2]
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, (COMPILER, EMULATOR))), reason="apt-get install gcc-aarch64-linux-gnu qemu-user"
)

DYNAMIC_BYTES = fused._dynamic_code(signed=True).nbytes
POINTERS = fused.TENSOR.names[:6]
BYTES_OF_TYPE = {number: dtype.itemsize for dtype, number in fused.TYPES.items()}


class EmulatedKernel:
    """What ctypes.CDLL is for the kernel of this machine. Each call is a process."""

    def __init__(self, program):
        self.program = str(program)
        self.calls = 0

    def qlocaladam_work(self, job):
        job = job._obj
        settings = fused.Settings.from_address(job.settings)
        rows = np.frombuffer(ctypes.string_at(job.tensors, job.count * fused.TENSOR.itemsize), fused.TENSOR)
        arrays = [(int(row[name]), size) for row in rows for name, size in self.sizes(row, settings).items()]
        content = [bytes(job), bytes(settings)]
        content += [ctypes.string_at(code, DYNAMIC_BYTES) for code in (settings.signed_code, settings.unsigned_code)]
        content += [rows.tobytes(), np.array([size for _, size in arrays], np.int64).tobytes()]
        content += [ctypes.string_at(place, size) for place, size in arrays]
        done = subprocess.run([EMULATOR, self.program], input=b"".join(content), capture_output=True, check=True)
        left = memoryview(done.stdout)
        for place, size in arrays:
            if size:
                ctypes.memmove(place, bytes(left[:size]), size)
            left = left[size:]
        assert not left
        self.calls += 1

    @staticmethod
    def sizes(row, settings):
        numel = int(row["numel"])
        blocks = -(-numel // settings.block_size)
        sizes = {"param": BYTES_OF_TYPE[row["param_type"]] * numel, "grad": BYTES_OF_TYPE[row["grad_type"]] * numel}
        for name, kind in (("momentum", settings.momentum_kind), ("variance", settings.variance_kind)):
            codes = numel if settings.bits == 8 else -(-numel // 2)
            ranges = 1 if kind in (CODES["dynamic"], CODES["normalised"]) else 2
            sizes |= {name: codes if kind else 4 * numel, f"{name}_ranges": 4 * ranges * blocks if kind else 0}
        return {name: sizes[name] for name in POINTERS}


def compiled_flags():
    """Those of setup.py, which cannot be imported without building."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "FLAGS":
            return ast.literal_eval(node.value)
    raise AssertionError("setup.py has no FLAGS")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    made = tmp_path_factory.mktemp("aarch64") / "kernel"
    source, include = ROOT / "tests/support/emulated_kernel.c", ROOT / "src/qlocaladam/kernels"
    command = [COMPILER, *compiled_flags(), "-static", f"-I{include}", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


@pytest.fixture(autouse=True)
def kernel(program, monkeypatch):
    """In place of the kernel of this machine."""
    emulated = EmulatedKernel(program)
    monkeypatch.setattr(fused, "library", lambda: emulated)
    yield emulated
    assert emulated.calls, "nothing was emulated"


@pytest.mark.parametrize(
    ("arm", "rounding"),
    [*((arm, "nearest") for arm in ARMS), *(("q-localadam", other) for other in ROUNDINGS if other != "nearest")],
)
def test_arm_agrees_with_the_reference(arm, rounding, resnet_shapes, gradients):
    check_step_by_step("fused", arm, rounding, resnet_shapes, gradients(1), steps=4)


@pytest.mark.parametrize("options", [{"block_size": 37}, {"block_size": 38, "bits": 4}, {"weight_decay": 0.1}], ids=str)
def test_arm_agrees_with_other_blocks_and_options(options):
    check_some_steps("fused", *pair("fused", [(1500,), (5001,), (1023,), (1,)], **options))


@pytest.mark.parametrize("arm", ["q-localadam", "normalised-4bit"])
def test_arm_agrees_on_what_is_not_finite(arm):
    check_what_is_not_finite("fused", arm, float("nan"))
    check_what_is_not_finite("fused", arm, float("inf"))
