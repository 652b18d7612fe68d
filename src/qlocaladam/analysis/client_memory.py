"""What a whole client holds while it trains one of the paper's models: optimizer states beside everything else.

Weights, gradients and what autograd keeps for the backward pass are counted on tensors without data, so that the
paper's batch of 64 images of 224 by 224 takes no memory here. The activations are those of FP32 training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from qlocaladam.analysis.memory import Arms, optimizer_memory
from qlocaladam.checks import whole_number
from qlocaladam.files import table_rows
from qlocaladam.models import PAPER_MODELS, ResNet18

BATCH_SIZE = 64
IMAGE_SIZES = (224, 32)
"""What the paper trains on, and the images as they come."""
PARTS = ("activations", "weights", "gradients", "states")
COLUMNS = (
    *("dataset", "arm", "block_size", "batch_size", "image_size"),
    *(f"{part}_bytes" for part in PARTS),
    *("total_bytes", "fp32_total_bytes", "saved_percent", "held_states_bytes", "held_saved_percent"),
)


def client_memory(arms: Arms, block_size: int = 64, image_sizes: Sequence[int] = IMAGE_SIZES) -> pd.DataFrame:
    """A row for each of the paper's models, each size of its images and each arm, but for arms of other packages.

    `arms` are those of config.yaml; one without a block size of its own has `block_size`. States are in the paper's
    layout, or as they are held where the column says so. `saved_percent` is what a client needs less than with FP32
    states, as a share of all that it holds with those.
    """
    wanted = [(dataset, arm, arms[arm].get("block_size", block_size)) for dataset in PAPER_MODELS for arm in arms]
    states = optimizer_memory(arms, wanted)
    rows = []
    for dataset, of_dataset in states.groupby("dataset", sort=False):
        for image_size in image_sizes:
            shape = PAPER_MODELS[str(dataset)]
            rest = training_bytes(shape["classes"], shape["width"], BATCH_SIZE, image_size)
            rows += [_row(row, rest, image_size) for row in table_rows(of_dataset)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _row(row: Mapping[str, Any], rest: Mapping[str, int], image_size: int) -> dict[str, Any]:
    others = sum(rest.values())
    with_fp32 = others + row["fp32_bytes"]
    saved = {name: 100 * (row["fp32_bytes"] - row[f"{name}_bytes"]) / with_fp32 for name in ("published", "held")}
    return {
        **{name: row[name] for name in ("dataset", "arm", "block_size")},
        "batch_size": BATCH_SIZE,
        "image_size": image_size,
        **{f"{part}_bytes": size for part, size in rest.items()},
        "states_bytes": row["published_bytes"],
        "total_bytes": others + row["published_bytes"],
        "fp32_total_bytes": with_fp32,
        "saved_percent": saved["published"],
        "held_states_bytes": row["held_bytes"],
        "held_saved_percent": saved["held"],
    }


def training_bytes(classes: int, width: int, batch_size: int, image_size: int) -> dict[str, int]:
    """What is held besides optimizer states: activations, the images among them, weights with buffers, gradients."""
    whole_number("batch_size", batch_size, 1)
    whole_number("image_size", image_size, 1)
    with torch.device("meta"):
        model = ResNet18(classes, width)
        images = torch.empty(batch_size, 3, image_size, image_size)
        labels = torch.empty(batch_size, dtype=torch.long)
    gradients = sum(param.nbytes for param in model.parameters())
    return {
        "activations": saved_bytes(model, images, labels),
        "weights": gradients + sum(buffer.nbytes for buffer in model.buffers()),
        "gradients": gradients,
    }


def saved_bytes(model: nn.Module, images: Tensor, labels: Tensor) -> int:
    """What autograd keeps between the forward and the backward pass, and the model does not hold anyway.

    Tensors that share memory are counted once, as the whole memory that they keep alive.
    """
    kept: dict[int, Tensor] = {}  # the tensors too: as long as they are there, no other can have their memory

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = F.cross_entropy(model(images), labels)  # noqa: F841  its graph holds what is kept
    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in own)


def files(arms: Arms, block_size: int) -> dict[str, pd.DataFrame]:
    """By the name of the file."""
    return {"client_memory.csv": client_memory(arms, block_size)}
