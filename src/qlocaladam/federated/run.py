"""One training run of the paper: federated rounds, evaluated and put on record, resumable at any moment.

A run leaves `history.csv`, `summary.json`, `settings.json`, `timings.csv` and `run.log` in its folder. The first three
have the same bytes however often and in however many pieces the run was made.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

import qlocaladam
from qlocaladam.checks import whole_number
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated import checkpoint
from qlocaladam.federated.client import is_finite
from qlocaladam.federated.partition import Partition
from qlocaladam.federated.peers import held_bytes
from qlocaladam.federated.progress import NO_KERNEL, Progress, duration
from qlocaladam.federated.record import FILES, differences, read, read_json, write
from qlocaladam.federated.rounds import Federation
from qlocaladam.federated.server import evaluate
from qlocaladam.federated.settings import OF_IMAGES, PEERS, RunSettings
from qlocaladam.files import remove_parts
from qlocaladam.kernels import fused, missing_code
from qlocaladam.memory import LAYOUTS
from qlocaladam.optim import CODEC_OPTIONS, QLocalAdam, state_codecs, takes_blocks

EVALUATION_BATCH = 500


@dataclass
class Record:
    """What a run has done so far. Rows are plain numbers, so that a checkpoint holds nothing that could run."""

    rows: list[list[Any]] = field(default_factory=list)
    timings: list[list[float]] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
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
    federation = Federation(settings, dataset, partition)
    folder.mkdir(parents=True, exist_ok=True)
    description = describe(federation.settings, dataset, partition)
    identity = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
    saved = folder / "checkpoint.pt"
    with (folder / "run.log").open("a") as log:
        _wait_for_another(log)
        if (summary := _finished(folder, description, overwrite)) is not None:
            return summary
        remove_parts(folder)
        record, notes = _resume(saved, identity, federation)
        progress = Progress(log, settings.rounds, record.rounds)
        for note in [_kernel_note(description["versions"]["kernel"]), *notes]:
            progress.say(note)
        while record.rounds < settings.rounds and not record.diverged:
            _one_round(federation, record)
            progress.round(record.rounds, record.rows[-1][1], record.rows[-1][3], record.timings[-1][2])
            if record.rounds % checkpoint_every == 0:
                trained = {"state": federation.state, "client_states": federation.client_states}
                checkpoint.save(saved, {"identity": identity, **trained, **vars(record)})
        summary = write(folder, description, record.rows, record.timings, _measured(federation.model, record))
        progress.say(_closing_line(summary, record))
    checkpoint.remove(saved)
    return summary


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
            **{name: getattr(dataset, name) for name in ("name", "sha256", "origin")},
            "training_images": len(dataset.y_train),
            "test_images": len(dataset.y_test),
            "classes": dataset.outputs,
        },
        "partition": {name: getattr(partition, name) for name in ("alpha", "clients", "seed", "recipe", "sha256")},
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
        package = PEERS[settings.arm][0].partition(".")[0]
        return f"{package} {version(package)}"
    device = torch.device(settings.device).type
    library = fused.library() if device == "cpu" else None
    if settings.optimizer.get("backend") == "reference":
        return "reference"
    options = settings.optimizer_options()
    if missing_code(state_codecs(*(options[name] for name in CODEC_OPTIONS))):
        return "reference"
    if device == "cuda" and takes_blocks(options["block_size"]):
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


def _resume(saved: Path, identity: str, federation: Federation) -> tuple[Record, list[str]]:
    content, notes = checkpoint.load(saved)
    if content is not None and content.pop("identity") != identity:
        notes.append(f"{saved}: made with other settings, data or versions; starting anew")
        content = None
    if content is None:
        return Record(), notes
    federation.state, federation.client_states = content.pop("state"), content.pop("client_states")
    record = Record(**content)
    return record, [*notes, f"going on after round {record.rounds}"]


def _one_round(federation: Federation, record: Record) -> None:
    """A round, evaluated and put on record."""
    start, number = time.monotonic(), record.rounds + 1
    losses, images, finite = [], 0, 0
    for client, result in federation.train_round(number):
        losses.append(result.loss * result.images)
        images, finite = images + result.images, finite + result.finite
        record.memory = record.memory or _memory(result.optimizer)
        if not result.finite and not record.diverged:
            record.diverged = [number, client]
    if not record.diverged and not is_finite(federation.model):
        record.diverged = [number, -1]
    bf16 = federation.settings.precision == "bf16"
    accuracy, test_loss = evaluate(federation.model, federation.test, EVALUATION_BATCH, bf16)
    drawn = " ".join(map(str, federation.sampled[number - 1].tolist()))
    record.rows.append([number, accuracy, test_loss, sum(losses) / images if images else None, images, drawn, finite])
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
