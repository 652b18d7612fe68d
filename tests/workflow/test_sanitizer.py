"""What compiled code does past an end nobody else sees: AddressSanitizer and UBSan over every kind of step."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from covering import pairwise

from qlocaladam import ARMS
from qlocaladam.codecs import ROUNDINGS

KERNELS = Path(__file__).parents[2] / "src/qlocaladam/kernels"
# The two forms of the fast path: plain C, and for AVX-512 where the processor has it.
LEVELS = {"plain": [], "avx512": ["-march=x86-64-v4"]}
HERE = ["plain", *(["avx512"] if torch.backends.cpu.get_cpu_capability() == "AVX512" else [])]

STATES = [(arm, bits) for arm in ARMS for bits in (8, 4) if bits == 8 or "dynamic" not in arm]
TYPES = [("float32", 64, 0.0), ("bfloat16", 64, 0.1), ("float16", 38, 0.0)]
CASES = [
    (*STATES[state], ROUNDINGS[rounding], *TYPES[kind])
    for state, rounding, kind in pairwise(len(STATES), len(ROUNDINGS), len(TYPES))
]
"""Every way of storing states with every rounding, and with every type, size of blocks and decay; no end of memory
depends on more of these at once."""
STEPS = """
import ctypes, json, sys, torch
from qlocaladam import ARMS, QLocalAdam
from qlocaladam.kernels import fused

built = ctypes.CDLL(sys.argv[1])
fused.library = lambda: built
torch.set_num_threads(1)
# Whole rows, whole blocks, tails of every kind, odd numbers of 4-bit codes, next to nothing and nothing at all.
sizes = [0, 1, 2, 63, 64, 65, 127, 128, 1023, 1024, 1025, 2048 + 64 + 7, 3000]
for arm, bits, rounding, dtype, block_size, decay in json.loads(sys.argv[2]):
    params = [torch.randn(n).to(getattr(torch, dtype)).requires_grad_() for n in sizes]
    options = {**ARMS[arm], "bits": bits, "rounding": rounding, "block_size": block_size, "weight_decay": decay}
    optimizer = QLocalAdam(params, backend="fused", weight_rounding="stochastic", **options)
    for step in range(3):
        for param in params:
            param.grad = torch.randn_like(param) * 10.0 ** (-4 * step)
            if step == 1 and param.numel() > 100:
                param.grad[70] = float("inf")
        optimizer.step()
print("clean")
"""


@pytest.mark.skipif(platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64")
@pytest.mark.parametrize("level", HERE)
def test_no_step_leaves_its_memory(level, tmp_path):
    library = tmp_path / "fused.so"
    flags = ["-O1", "-g", "-std=c11", "-fPIC", "-shared", "-fopenmp-simd", "-fno-wrapv", "-fsanitize=address,undefined"]
    subprocess.run(["gcc", *flags, *LEVELS[level], str(KERNELS / "fused.c"), "-o", str(library)], check=True)
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    settings = {
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "OMP_NUM_THREADS": "1",
    }
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    command = [sys.executable, str(script), str(library), json.dumps(CASES)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    assert result.stdout == "clean\n", result.stderr[-4000:]
