"""One training run of the paper: rounds of sampled clients, averaged and evaluated, resumable at any moment.

A run leaves `history.csv`, `summary.json`, `settings.json`, `timings.csv` and `run.log` in its folder. The first three
have the same bytes however often and in however many pieces the run was made.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

import qlocaladam
from qlocaladam.datasets import WINDOW, Dataset
from qlocaladam.federated import checkpoint
from qlocaladam.federated.client import ClientResult, is_finite, train_client
from qlocaladam.federated.images import ImageSet, image_sets
from qlocaladam.federated.partition import Partition, whole_number
from qlocaladam.federated.peers import held_bytes
from qlocaladam.federated.progress import NO_KERNEL, Progress, duration
from qlocaladam.federated.record import FILES, differences, read, read_json, write
from qlocaladam.federated.sampling import sample_clients
from qlocaladam.federated.server import State, WeightedAverage, evaluate, load_state
from qlocaladam.federated.settings import OF_IMAGES, PEERS, RunSettings
from qlocaladam.federated.streams import stream
from qlocaladam.federated.text import TextSet, text_sets
from qlocaladam.files import remove_parts
from qlocaladam.kernels import fused
from qlocaladam.memory import LAYOUTS
from qlocaladam.models import ResNet18, Transformer
from qlocaladam.optim import QLocalAdam, takes_blocks

EVALUATION_BATCH = 500


@dataclass
class Record:
    """What a run has done so far. Rows are plain numbers, so that a checkpoint holds nothing that could run."""

    state: State
    rows: list[list[Any]] = field(default_factory=list)
    timings: list[list[float]] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    client_states: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Of the optimizers of clients that have trained, where they are kept from round to round."""
    diverged: list[int] = field(default_factory=list)
    """Round and client of the first weights that were not finite; empty if all were."""

    @property
    def rounds(self) -> int:
        return len(self.rows)


def run(
    settings: RunSettings,
    dataset: Dataset,
    partition: Partition,
    folder: Path,
    checkpoint_every: int = 1,
    overwrite: bool = False,
) -> Mapping[str, Any]:
    """Train, or go on where an earlier try stopped. Returns the summary.

    A finished run in the folder is kept if it is this one; one that was made otherwise goes only with `overwrite`.
    """
    whole_number("checkpoint_every", checkpoint_every, 1)
    if dataset.is_text:
        settings = replace(settings, flip=False)  # drawing flips that nobody uses would still change the batches
    partition.check(dataset.y_train)
    whole_number("clients_per_round", settings.clients_per_round, 1, partition.clients)
    if not partition.sizes.any():
        raise ValueError("the partition has no samples for anybody")
    device = prepare_device(settings.device)
    folder.mkdir(parents=True, exist_ok=True)
    description = describe(settings, dataset, partition)
    identity = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()

    train, test = text_sets(dataset, device) if dataset.is_text else image_sets(dataset, settings.image_size, device)
    model = make_model(settings, dataset.outputs, device, dataset.is_text)
    sampled = sample_clients(settings.seed, settings.rounds, partition.clients, settings.clients_per_round)
    saved = folder / "checkpoint.pt"
    with (folder / "run.log").open("a") as log:
        _wait_for_another(log)
        if (summary := _finished(folder, description, overwrite)) is not None:
            return summary
        remove_parts(folder)
        record, notes = _resume(saved, identity, model)
        progress = Progress(log, settings.rounds, record.rounds)
        for note in [_kernel_note(description["versions"]["kernel"]), *notes]:
            progress.say(note)
        while record.rounds < settings.rounds and not record.diverged:
            _one_round(settings, model, train, test, partition, sampled[record.rounds], record)
            progress.round(record.rounds, record.rows[-1][1], record.rows[-1][3], record.timings[-1][2])
            if record.rounds % checkpoint_every == 0:
                checkpoint.save(saved, {"identity": identity, **vars(record)})
        summary = write(folder, description, record.rows, record.timings, _measured(model, record))
        progress.say(_closing_line(summary, record))
    checkpoint.remove(saved)
    return summary


def prepare_device(name: str) -> torch.device:
    """The device, set up so that results repeat: TF32 for speed, deterministic algorithms wherever torch has them."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device must be one that torch knows, such as cpu or cuda, got {name!r}") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"device {name!r} is not there: torch sees no GPU")
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = False
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS does not repeat itself
        torch.use_deterministic_algorithms(True, warn_only=True)
    return device


def make_model(settings: RunSettings, outputs: int, device: torch.device, text: bool = False) -> nn.Module:
    """The initial model, from its own stream; the caller's generator is left as it was.

    Weights stay in logical order, which is that of the optimizer's blocks: only images are channels last. That is as
    fast as having both so, and spares the optimizer two copies a step.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(settings.seed, "model").initial_seed())
        model: nn.Module
        if text:
            model = Transformer(outputs, WINDOW, settings.width)
        else:
            model = ResNet18(outputs, settings.width, settings.stem)
    return model.to(device)


def describe(settings: RunSettings, dataset: Dataset, partition: Partition) -> dict[str, Any]:
    """The settings, data and versions that make a run what it is.

    The number of threads is one of them: convolutions add up their gradients in another order with another number.
    """
    unused = dict.fromkeys(OF_IMAGES if dataset.is_text else ())
    return {
        "arithmetic": qlocaladam.ARITHMETIC_SINCE,
        "settings": {**asdict(settings), **unused},
        "optimizer": settings.optimizer_options(),
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.sha256,
            "origin": dataset.origin,
            "training_images": len(dataset.y_train),
            "test_images": len(dataset.y_test),
            "classes": dataset.outputs,
        },
        "partition": {
            "alpha": partition.alpha,
            "clients": partition.clients,
            "seed": partition.seed,
            "recipe": partition.recipe,
            "sha256": partition.sha256,
        },
        "versions": {
            "qlocaladam": qlocaladam.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "kernel": kernel_name(settings),
        },
    }


def kernel_name(settings: RunSettings) -> str:
    """What updates the weights: compiled code and for which processors, torch operations, or somebody else's code.

    They round differently, so it is part of what a run is.
    """
    if settings.arm in PEERS:
        package, _ = PEERS[settings.arm]
        return f"{package} {version(package)}"
    device = torch.device(settings.device).type
    library = fused.library() if device == "cpu" else None
    if settings.optimizer.get("backend") == "reference":
        return "reference"
    if device == "cuda" and takes_blocks(settings.optimizer_options()["block_size"]):
        return f"triton {version('triton')}"
    if library is None:
        return "reference"
    return f"fused-{Path(library._name).name.removeprefix('_fused_').partition('.')[0]}"


def _kernel_note(kernel: str) -> str:
    if kernel == "reference" and fused.library() is None:
        return f"kernel: {kernel}. {NO_KERNEL}"
    return f"kernel: {kernel}"


def _wait_for_another(log: TextIO) -> None:
    """Have the folder to oneself until the log is closed. A job may outlive the snakemake that was killed over it; the
    next one must not write into the same files, nor do its work again. The kernel frees the lock of whoever dies."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = f"another process still trains in {Path(log.name).parent}; waiting for it to end"
        for place in (log, sys.stderr):
            print(text, file=place, flush=True)
        fcntl.flock(log, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        return


def _finished(folder: Path, description: dict[str, Any], overwrite: bool) -> Mapping[str, Any] | None:
    """The summary, if a run like this one is finished there."""
    if not all((folder / name).exists() for name in FILES):
        return None
    changed = differences(read_json(folder / "settings.json"), description)
    if changed and not overwrite:
        raise ValueError(
            f"{folder} holds a finished run that was made otherwise: {', '.join(changed)}; "
            "choose another folder, or --overwrite"
        )
    return None if changed else read(folder).summary


def _resume(saved: Path, identity: str, model: nn.Module) -> tuple[Record, list[str]]:
    content, notes = checkpoint.load(saved)
    if content is not None and content.pop("identity") != identity:
        notes.append(f"{saved}: made with other settings, data or versions; starting anew")
        content = None
    if content is None:
        return Record({name: value.detach().clone() for name, value in model.state_dict().items()}), notes
    record = Record(**content)
    return record, [*notes, f"going on after round {record.rounds}"]


def _one_round(
    settings: RunSettings,
    model: nn.Module,
    train: ImageSet | TextSet,
    test: ImageSet | TextSet,
    partition: Partition,
    clients: NDArray[np.int64],
    record: Record,
) -> None:
    """Sampled clients train from the global model one after the other; their average becomes the global model."""
    start = time.monotonic()
    number, how = record.rounds + 1, settings.local_training()
    sizes = partition.sizes
    average = WeightedAverage(int(sizes[clients].sum()))
    results: dict[int, ClientResult] = {}
    for client in clients[sizes[clients] > 0].tolist():
        load_state(model, record.state)
        indices = torch.tensor(partition.indices[client])
        states = record.client_states.get(client)
        result = results[client] = train_client(model, train, indices, how, number, client, states)
        if how.persist:
            record.client_states[client] = result.optimizer.state_dict()
        average.add(model.state_dict(), len(indices))
        if not record.memory:
            record.memory = _memory(result.optimizer)
        if not result.finite and not record.diverged:
            record.diverged = [number, client]
    if results:
        record.state = average.result(record.state)
    load_state(model, record.state)
    if not record.diverged and not is_finite(model):
        record.diverged = [number, -1]
    accuracy, test_loss = evaluate(model, test, EVALUATION_BATCH, settings.precision == "bf16")
    images = sum(result.images for result in results.values())
    loss = sum(result.loss * result.images for result in results.values()) / images if images else None
    finite = sum(result.finite for result in results.values())
    held = " ".join(map(str, clients.tolist()))
    record.rows.append([number, accuracy, test_loss, loss, images, held, finite])
    seconds = time.monotonic() - start
    record.timings.append([number, seconds, images / seconds])


def _memory(optimizer: Optimizer) -> dict[str, int]:
    """Bytes of its states, in either layout; a peer has only its own."""
    if isinstance(optimizer, QLocalAdam):
        return {layout: optimizer.memory_report(layout).total for layout in LAYOUTS}
    return dict.fromkeys(LAYOUTS, held_bytes(optimizer))


def _measured(model: nn.Module, record: Record) -> dict[str, Any]:
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "diverged": {"round": record.diverged[0], "client": record.diverged[1]} if record.diverged else None,
        "optimizer_bytes": record.memory,
    }


def _closing_line(summary: Mapping[str, Any], record: Record) -> str:
    seconds = duration(sum(row[1] for row in record.timings))
    text = f"best {summary['best_accuracy']:.2f} % in round {summary['best_round']}, "
    text += f"final {summary['final_accuracy']:.2f} %, {seconds}"
    if summary["diverged"]:
        text += f"; diverged in round {summary['diverged']['round']}: weights are not finite any more"
    return text
