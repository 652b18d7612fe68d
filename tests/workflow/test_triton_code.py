"""The Triton kernel as it is compiled for GPUs, which needs none: registers, spills, and what it loads and stores."""

import json
import subprocess
import sys
from dataclasses import fields

import pytest
import torch
from backends import requires_triton

from benchmarks.code import ARMS, DEVICES, Configuration, bytes_moved, configurations

pytestmark = requires_triton


SAMPLE = [
    Configuration("linear", "log"),
    Configuration("normalised", "log", 4, 128, torch.float16),
    Configuration("fp32", "linear", 8, 32, torch.bfloat16),  # spilled on sm_120 before the assembler was told a number
    Configuration("dynamic", "dynamic", 8, 256),
    Configuration("linear", "fp32", 4, 64, torch.bfloat16, aligned=False),
    Configuration("normalised", "linear", 4, 128, aligned=False),  # spilled on sm_120 with no more than 128 registers
]
"""Every way that the kernel's code can take: each kind of state, number of bits, size, type and alignment."""


@pytest.mark.parametrize("field", [field.name for field in fields(Configuration)])
def test_the_sample_has_everything_that_code_depends_on(field):
    assert {getattr(one, field) for one in SAMPLE} == {getattr(one, field) for one in configurations()}


def test_the_compiled_kernel_spills_nothing_and_moves_no_byte_too_many():
    """A sample for each GPU; `python -m benchmarks code` compiles everything for each, in 40 minutes."""
    code = f"""
import json, torch
from benchmarks.code import Configuration, checked
print(json.dumps([wrong for capability in {list(DEVICES)} for wrong in checked({SAMPLE!r}, capability)]))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == []


def test_there_are_as_many_configurations_as_the_documentation_says():
    aligned = [one.aligned for one in configurations()]
    assert aligned.count(True) == aligned.count(False) == 3 * (1 + (15 + 8) * 4) == 279


@pytest.mark.parametrize(
    ("arm", "moved"),
    [("fp32", 28), ("q-localadam", 16.5), ("normalised (Adam8bit)", 16.375), ("normalised-4bit (Adam4bit)", 14.375)],
)
def test_bytes_moved(arm, moved):
    assert bytes_moved(ARMS[arm]) == moved
