"""The first ten minutes on a GPU: whether the kernel does there what the reference does, what a step costs, and how
many images a second are trained on. Where there is no GPU the CPU is measured, so that this can be tried anywhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.optimizers import CIFAR100, NARROW, PARTS, shapes_of
from benchmarks.report import Table
from benchmarks.timing import FULL, QUICK, take_turns
from qlocaladam import ARMS, QLocalAdam
from qlocaladam.federated.batches import ImageSet, Normalisation
from qlocaladam.federated.client import train_client
from qlocaladam.federated.rounds import make_model, prepare_device
from qlocaladam.federated.run import kernel_name
from qlocaladam.federated.settings import RunSettings

PARITY_STEPS = 20
TRAINED_ARMS = ("fp32", "q-localadam", "normalised", "normalised-4bit")


def run(quick: bool) -> list[Table]:
    device = prepare_device("cuda" if torch.cuda.is_available() else "cpu")
    name = "gpu-quick" if quick else "gpu"
    send = f"Send back: benchmarks/results/{name}.json and {name}.md, and what was printed if anything failed."
    if device.type == "cpu":
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        send = f"No GPU was found (torch {torch.__version__}, {built}): the CPU was measured. Nothing to send back."
        print(send, file=sys.stderr, flush=True)
    shapes = shapes_of(**PARTS[NARROW if quick else CIFAR100])
    tables = [_parity(device), _steps(device, shapes, quick), _images(device, quick)]
    facts = [f"{what}: {fact}" for what, fact in _facts(device).items()]
    last = tables[-1]
    return [*tables[:-1], Table(last.title, last.columns, last.rows, [*last.notes, *facts, send])]


def _facts(device: torch.device) -> dict[str, Any]:
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "absent: pip install 'qlocaladam[triton]'"
    facts: dict[str, Any] = {"kernel": kernel_name(RunSettings(device=device.type)), "triton": triton}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "GPU": f"{properties.name}, sm_{properties.major}{properties.minor}, {properties.total_memory >> 20} MiB",
            "CUDA": torch.version.cuda,
        }
    return facts


def _parity(device: torch.device) -> Table:
    """Steps from the same states by the kernel that `auto` chooses and by the reference."""
    rows = []
    for arm, options in ARMS.items():
        rng = torch.Generator().manual_seed(0)
        values = [torch.randn(size, generator=rng) for size in (100_000, 1_000, 63)]
        sides = [
            QLocalAdam([v.to(device).requires_grad_() for v in values], backend=backend, **options)
            for backend in ("reference", "auto")
        ]
        params = [side.param_groups[0]["params"] for side in sides]
        apart, furthest, codes = 0, 0.0, 0
        for _ in range(PARITY_STEPS):
            for one, other in zip(*params, strict=True):
                grad = torch.randn(one.shape, generator=rng) * 10 ** (torch.rand(one.shape, generator=rng) * 6 - 6)
                one.grad, other.grad = grad.to(device), grad.to(device)
            for side in sides:
                side.step()
            for one, other in zip(*params, strict=True):
                furthest = max(furthest, float((one - other).detach().abs().max()))
                for name, kept in sides[0].state[one].items():
                    found = sides[1].state[other].get(name)
                    if isinstance(kept, Tensor):
                        if name.endswith("_codes"):
                            apart += int((kept != found).sum())
                            codes += kept.numel()
                        found.copy_(kept)
                other.data.copy_(one)
        rows.append({"arm": arm, "furthest": furthest, "codes apart": apart / codes if codes else None})
    columns: dict[str, Callable[[Any], str]] = {"arm": str, "furthest": "{:.1e}".format, "codes apart": "{:.1e}".format}
    notes = [
        f"furthest: the largest difference of a parameter in {PARITY_STEPS} steps with a learning rate of 1e-3, each",
        "  from the same states; expected: below 1e-4. codes apart: share of bytes of codes; expected: below 1e-3.",
    ]
    return Table(f"The kernel against the reference, on {device.type}", columns, rows, notes)


def _steps(device: torch.device, shapes: list[list[int]], quick: bool) -> Table:
    def parameters() -> list[Tensor]:
        rng = torch.Generator().manual_seed(0)
        params = [torch.randn(shape, generator=rng).to(device).requires_grad_() for shape in shapes]
        for param in params:
            param.grad = torch.full_like(param, 1e-3)
        return params

    def timed(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
        def step() -> None:
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        return step

    fp32 = "torch Adam, fused"
    steps = {fp32: timed(torch.optim.Adam(parameters(), fused=True))}
    steps |= {arm: timed(QLocalAdam(parameters(), **options)) for arm, options in ARMS.items()}
    steps["q-localadam, reference"] = timed(QLocalAdam(parameters(), backend="reference"))
    times = take_turns("steps", steps, QUICK if quick else FULL)
    rows = [
        {"optimizer": name, "ms per step": times.milliseconds(name)[0], "ratio": times.ratio(name, fp32)}
        for name in steps
    ]
    numel = sum(int(np.prod(shape)) for shape in shapes)
    columns: dict[str, Callable[[Any], str]] = {
        "optimizer": str,
        "ms per step": "{:.3f}".format,
        "ratio": "{:.2f}".format,
    }
    return Table(f"One optimizer step, {numel:,} parameters in {len(shapes)} tensors", columns, rows)


def _images(device: torch.device, quick: bool) -> Table:
    """One client's training at the paper's size, on synthetic images."""
    size, width, count, batch = (32, 8, 64, 16) if quick else (224, 64, 2048, 64)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 100, count)
    train = ImageSet(pixels, labels, Normalisation.of(pixels), size, device)
    rows = []
    for arm in TRAINED_ARMS:
        settings = RunSettings(arm=arm, width=width, image_size=size, batch_size=batch, epochs=1, device=device.type)
        model = make_model(settings, 100, device)
        rates = []
        for round_ in range(1, 3 if quick else 5):  # the first warms up
            begin = time.perf_counter()
            result = train_client(model, train, torch.arange(count), settings.local_training(), round_, 0)
            rates.append(result.images / (time.perf_counter() - begin))
        peak = torch.cuda.max_memory_allocated(device) >> 20 if device.type == "cuda" else None
        rows.append({"arm": arm, "images per second": float(np.median(rates[1:])), "peak MiB": peak})
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
    columns: dict[str, Callable[[Any], str]] = {"arm": str, "images per second": "{:.0f}".format, "peak MiB": str}
    return Table(f"Training of one client, ResNet-18 of width {width} at {size}x{size}", columns, rows)
