"""What the Triton kernel is compiled to, without a GPU: registers, spills, bytes moved, instructions.

And the step times that follow from them. Computed, not measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Progress, Table

PARAMETERS = 11_227_812
"""Of the paper's CIFAR-100 model."""
FP32_BYTES = 28
"""That torch's fused Adam moves a parameter: parameter and both states read and written, the gradient read."""


@dataclass(frozen=True)
class Device:
    """A GPU as its vendor describes it."""

    name: str
    bandwidth: float
    """Bytes a second."""
    processors: int
    clock: float

    @property
    def instructions(self) -> float:
        """That all threads together are issued in a second: four warps of 32 a clock and multiprocessor."""
        return self.processors * 4 * 32 * self.clock


DEVICES = {
    80: Device("A100 40 GB", 1.555e12, 108, 1.41e9),
    90: Device("H100 SXM", 3.35e12, 132, 1.98e9),
    120: Device("RTX 5090", 1.792e12, 170, 2.41e9),
}
"""By compute capability."""


@dataclass(frozen=True)
class Configuration:
    """What the kernel is compiled for; everything else it is told at each launch."""

    momentum: str
    variance: str
    bits: int = 8
    block_size: int = 64
    dtype: torch.dtype = torch.float32
    """Of parameters."""
    aligned: bool = True
    """Whether every tensor begins at a multiple of 16 bytes, as torch allocates them, which a view may not, and
    gradients are of the parameters' type, which only `Tensor.grad_dtype` can change."""

    @property
    def states(self) -> tuple[str, str]:
        return self.momentum, self.variance


MOMENTA, VARIANCES = ("fp32", "linear", "normalised", "dynamic"), ("fp32", "linear", "log", "dynamic")


def configurations() -> Iterator[Configuration]:
    """All that there are. Without codes there are neither bits nor blocks; the dynamic code has 8 bits."""
    sizes, types = (64, 32, 128, 256), (torch.float32, torch.bfloat16, torch.float16)
    for momentum, variance, bits, size, dtype in product(MOMENTA, VARIANCES, (8, 4), sizes, types):
        if momentum == variance == "fp32" and (bits, size) != (8, 64):
            continue
        if bits == 4 and "dynamic" in (momentum, variance):
            continue
        for aligned in (True, False):
            yield Configuration(momentum, variance, bits, size, dtype, aligned)


@dataclass(frozen=True)
class Code:
    """The compiled kernel; accesses and instructions are those of one thread, which has four values, in full rows."""

    registers: int
    spilled: int
    """Bytes of a thread that had no place in registers."""
    loads: Counter[int]
    """Of global memory, by bytes. The 8 bytes of an entry of the table of tensors are not among them."""
    stores: Counter[int]
    cubin: bytes = field(repr=False)

    @cached_property
    def instructions(self) -> int:
        """At most: slow paths and the noise of stochastic rounding, which not every step draws, are counted."""
        import triton

        with _file(self.cubin) as path:
            machine_code = _run(triton.knobs.nvidia.nvdisasm.path, "-c", path)
        return sum(bool(re.match(r"\s+/\*[0-9a-f]{4,}\*/", line)) for line in _full_rows(machine_code))


def compiled(configuration: Configuration, capability: int) -> Code:
    """Compile ahead of time, with the assembler that Triton brings."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from qlocaladam.kernels import triton as kernel

    constants = kernel.constants(
        *configuration.states,
        configuration.block_size,
        configuration.bits,
        configuration.dtype,
        configuration.aligned,
    )
    pointers = {"table": "*i64", "programs": "*i32", "values_m": "*fp32", "values_v": "*fp32"}
    types = {**pointers, **dict.fromkeys(kernel.INTEGERS, "i32"), **dict.fromkeys(constants, "constexpr")}
    names = kernel.step_kernel.arg_names
    source = ASTSource(
        kernel.step_kernel,
        {name: types.get(name, "fp32") for name in names},
        constexprs=constants,
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in pointers},
    )
    options = {"num_warps": kernel.WARPS, "maxnreg": kernel.REGISTERS[configuration.aligned]}
    made = triton.compile(source, GPUTarget("cuda", capability, 32), options)
    with _file(made.asm["cubin"]) as path:
        usage = _run(triton.knobs.nvidia.cuobjdump.path, "-res-usage", path)
    registers, stack, local = (int(n) for n in re.findall(r"\b(?:REG|STACK|LOCAL):(\d+)", usage)[:3])
    lines = _full_rows(made.asm["ptx"])
    return Code(registers, stack + local, _accesses("ld", lines), _accesses("st", lines), made.asm["cubin"])


@contextmanager
def _file(cubin: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        yield file.name


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _full_rows(code: str) -> list[str]:
    """The lines that run for full rows, of assembly or machine code: of all ways through it the one with the fewest,
    because widest, accesses to global memory; of several the longest."""
    lines = code.splitlines()
    labels = {found[1]: at for at, line in enumerate(lines) if (found := re.match(r"(\$\w+|\.L\w+):", line))}
    # From each line on: accesses, lines that are no branches (negative), and where it goes on.
    ways: list[tuple[float, int, int]] = [(0, 0, 0)] * (len(lines) + 1)
    for at in reversed(range(len(lines))):
        branch = re.search(r"(@!?U?%?[Pp]\w+)?\s+(?:bra|BRA)\b.*?(\$\w+|\.L\w+)\W*;", lines[at])
        ends = [] if re.match(r"\s+(ret;|/\*\w+\*/\s+EXIT)", lines[at]) else [at + 1]
        if branch:
            ends = [labels[branch[2]], *(ends if branch[1] else [])]
        accesses = len(re.findall(r"\b(?:(?:ld|st)\.global|LDG|STG)\b", lines[at]))
        # No way leads back: the code has no loops.
        ways[at] = min(
            ((ways[end][0] + accesses, ways[end][1] - 1, end) for end in ends if end > at), default=(accesses, -1, -1)
        )
    found, at = [], 0
    while 0 <= at < len(lines):
        found.append(lines[at])
        at = ways[at][2]
    return found


def _accesses(kind: str, lines: list[str]) -> Counter[int]:
    pattern = rf"\b{kind}\.global(?:\.[a-z_:0-9]+?)*?(?:\.v(\d))?\.b(\d+)\s"
    found = re.findall(pattern, "\n".join(lines))
    return Counter(int(vector or 1) * int(bits) // 8 for vector, bits in found if bits != "64")


def expected_accesses(configuration: Configuration) -> tuple[Counter[int], Counter[int]]:
    """What a thread has to load and store for four values, and no more."""
    loads: Counter[int] = Counter({4: 1})  # which tensor is the first one
    stores: Counter[int] = Counter()
    weights = 4 * configuration.dtype.itemsize
    loads[weights] += 2  # parameters and gradients
    stores[weights] += 1
    for kind in configuration.states:
        if kind == "fp32":
            loads[16] += 1
            stores[16] += 1
            continue
        loads[configuration.bits // 2] += 1
        stores[configuration.bits // 2] += 1
        one_number = kind in ("normalised", "dynamic")
        loads[4] += 1 if one_number else 2
        stores[4 if one_number else 8] += 4 if one_number else 2  # of which the first thread of a row does one
        if kind == "dynamic":
            loads[4] += 4 * 11  # of the code's 256 values
    return loads, stores


def moves_as_expected(configuration: Configuration, code: Code) -> bool:
    """Whether a thread loads and stores what it has to; what is not aligned, each value by itself."""
    if configuration.aligned:
        return (code.loads, code.stores) == expected_accesses(configuration)
    itemsize = configuration.dtype.itemsize
    return code.loads[itemsize] >= 4 <= code.stores[itemsize] and max(*code.loads, *code.stores) <= 4


def bytes_moved(configuration: Configuration) -> float:
    """Between a GPU and its memory, for each parameter."""
    moved = 3.0 * configuration.dtype.itemsize
    for kind in configuration.states:
        if kind == "fp32":
            moved += 8
        else:
            ranges = 1 if kind in ("normalised", "dynamic") else 2
            moved += 2 * (configuration.bits / 8 + 4 * ranges / configuration.block_size)
    return moved


def step_seconds(configuration: Configuration, code: Code, device: Device) -> tuple[float, float]:
    """For the paper's model, were only memory the limit, and were only instructions."""
    memory = PARAMETERS * bytes_moved(configuration) / device.bandwidth
    return memory, PARAMETERS * code.instructions / 4 / device.instructions


ARMS = {
    "fp32": Configuration("fp32", "fp32"),
    "q-localadam": Configuration("linear", "log"),
    "q-localadam, 4 bits": Configuration("linear", "log", 4),
    "naive-int8": Configuration("linear", "linear"),
    "normalised (Adam8bit)": Configuration("normalised", "log"),
    "normalised-4bit (Adam4bit)": Configuration("normalised", "log", 4),
    "normalised, bfloat16": Configuration("normalised", "log", dtype=torch.bfloat16),
    "dynamic-8bit": Configuration("dynamic", "dynamic", 8, 256),
}


def run(quick: bool) -> list[Table]:
    everything = list(ARMS.values()) if quick else list(configurations())
    number = len(everything) * len(DEVICES)
    progress = Progress("compiling", number, 1.5 * number / (os.cpu_count() or 1))
    codes: dict[tuple[Configuration, int], Code] = {}
    with ProcessPoolExecutor(mp_context=get_context("forkserver")) as pool:
        made = pool.map(_compiled, product(everything, DEVICES), chunksize=len(DEVICES))
        for target, code in zip(product(everything, DEVICES), made, strict=True):
            codes[target] = code
            progress.advance(1)
    return [_expected(codes), _summary(codes)]


def _compiled(target: tuple[Configuration, int]) -> Code:
    return compiled(*target)


def _expected(codes: dict[tuple[Configuration, int], Code]) -> Table:
    rows = []
    for (arm, configuration), capability in product(ARMS.items(), DEVICES):
        code, device = codes[configuration, capability], DEVICES[capability]
        memory, issue = step_seconds(configuration, code, device)
        fp32 = PARAMETERS * FP32_BYTES / device.bandwidth
        rows.append(
            {
                "arm": arm,
                "GPU": device.name,
                "registers": code.registers,
                "instructions": code.instructions / 4,
                "bytes": bytes_moved(configuration),
                "memory": memory * 1e6,
                "issue": issue * 1e6,
                "ratio": max(memory, issue) / fp32,
            }
        )
    columns: dict[str, Any] = {
        "arm": str,
        "GPU": str,
        "registers": str,
        "instructions": "{:.0f}".format,
        "bytes": "{:.2f}".format,
        "memory": "{:.0f}".format,
        "issue": "{:.0f}".format,
        "ratio": "{:.2f}".format,
    }
    notes = [
        f"Computed from the compiled code, not measured: one step of {PARAMETERS:,} parameters.",
        "instructions: for each parameter, at most. bytes: for each parameter, between the GPU and its memory.",
        "memory, issue: microseconds, if only the one or only the other took time; ratio: of the longer to fused FP32",
        f"  Adam, which moves {FP32_BYTES} bytes a parameter.",
        *(
            f"{device.name} (sm_{capability}): {device.bandwidth / 1e12:g} TB/s, {device.processors} multiprocessors "
            f"at {device.clock / 1e9:g} GHz, as on its data sheet."
            for capability, device in DEVICES.items()
        ),
    ]
    return Table("The step that the compiled kernel allows", columns, rows, notes)


def _summary(codes: dict[tuple[Configuration, int], Code]) -> Table:
    rows = []
    for capability in DEVICES:
        of_one = {c: code for (c, capable), code in codes.items() if capable == capability}
        rows.append(
            {
                "for": f"sm_{capability}",
                "configurations": len(of_one),
                "registers": max(code.registers for code in of_one.values()),
                "spilled": max(code.spilled for code in of_one.values()),
                "as expected": sum(moves_as_expected(c, code) for c, code in of_one.items()),
            }
        )
    columns = dict.fromkeys(("for", "configurations", "registers", "spilled", "as expected"), str)
    notes = ["registers, spilled: the most of any. as expected: loads and stores are those that have to be, as wide."]
    for (configuration, capability), code in codes.items():
        notes += _wrong(configuration, capability, code)
    return Table("All configurations", columns, rows, notes)


def checked(configurations: Sequence[Configuration], capability: int) -> list[str]:
    """What is wrong with the code of any of these: nothing."""
    return [what for one in configurations for what in _wrong(one, capability, compiled(one, capability))]


def _wrong(configuration: Configuration, capability: int, code: Code) -> Iterator[str]:
    if code.spilled:
        yield f"{configuration} for sm_{capability} spills {code.spilled} bytes"
    if not moves_as_expected(configuration, code):
        yield (
            f"{configuration} for sm_{capability} loads {dict(code.loads)}, stores {dict(code.stores)} a thread, "
            f"expected {tuple(map(dict, expected_accesses(configuration)))}"
        )
