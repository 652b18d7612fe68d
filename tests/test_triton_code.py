"""The Triton kernel as it is compiled for GPUs, which needs none: registers, spills, and what it loads and stores."""

import json
import subprocess
import sys

import pytest
import torch
from backends import requires_triton

from benchmarks.code import ARMS, DEVICES, Configuration, bytes_moved, configurations

pytestmark = requires_triton


SAMPLE = [
    *ARMS.values(),
    Configuration("linear", "fp32", dtype=torch.float16),
    Configuration("fp32", "log", 4, 32),
    Configuration("normalised", "log", 8, 128, torch.float16),
    Configuration("linear", "log", 4, 256, torch.bfloat16),
]
"""Every arm and size and type."""


@pytest.mark.parametrize("capability", DEVICES)
def test_the_compiled_kernel_spills_nothing_and_moves_no_byte_too_many(capability):
    """A third of a sample for each GPU; `python -m benchmarks code` compiles everything for each, in an hour."""
    mine = SAMPLE[list(DEVICES).index(capability) :: len(DEVICES)]
    code = f"""
import json, torch
from benchmarks.code import Configuration, checked
print(json.dumps(checked({mine!r}, {capability})))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == []


def test_there_are_as_many_configurations_as_the_documentation_says():
    assert len(list(configurations())) == 3 * (1 + (15 + 8) * 4)


@pytest.mark.parametrize(
    ("arm", "moved"),
    [("fp32", 28), ("q-localadam", 16.5), ("normalised (Adam8bit)", 16.375), ("normalised-4bit (Adam4bit)", 14.375)],
)
def test_bytes_moved(arm, moved):
    assert bytes_moved(ARMS[arm]) == moved
