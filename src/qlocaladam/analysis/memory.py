"""Optimizer memory of the paper's models for any arm and block size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from qlocaladam.codecs import Codec
from qlocaladam.federated.settings import PEERS
from qlocaladam.memory import optimizer_bytes
from qlocaladam.models import PAPER_MODELS, ResNet18
from qlocaladam.optim import ARMS, state_codecs

COLUMNS = (
    *("dataset", "arm", "block_size", "parameters", "fp32_bytes", "held_bytes", "published_bytes"),
    *("held_ratio", "published_ratio", "metadata_percent"),
)
Codecs = tuple[Codec | None, Codec | None]
Arms = Mapping[str, Mapping[str, Any]]
"""Those of config.yaml: name -> {"arm": one of `qlocaladam.optim.ARMS`, "options": those on top of it}."""


def optimizer_memory(arms: Arms, wanted: Iterable[tuple[str, str, int]]) -> pd.DataFrame:
    """A row for each (data set, arm, block size) that is wanted, at the size of the paper's models.

    Arms of other packages have no row: how they lay out their states is theirs, and a run of theirs measures it.
    `held` is what this package stores and `published` the paper's layout; ratios are FP32 to each of them, and
    `metadata_percent` is the share of block ranges in what is held.
    """
    wanted = [row for row in wanted if arms.get(row[1], {}).get("arm") not in PEERS]
    sizes = {dataset: _tensor_sizes(dataset) for dataset in dict.fromkeys(row[0] for row in wanted)}
    rows = []
    for dataset, arm, block_size in wanted:
        codecs = codecs_of(arms, arm, block_size)
        size = state_bytes(sizes[dataset], codecs)
        metadata = sum(4 * codec.range_size * codec.blocks(n) for n in sizes[dataset] for codec in codecs if codec)
        percent = 100 * metadata / size["held_bytes"]
        rows.append({"dataset": dataset, "arm": arm, "block_size": block_size, **size, "metadata_percent": percent})
    return pd.DataFrame(rows, columns=COLUMNS)


def _tensor_sizes(dataset: str) -> list[int]:
    if dataset not in PAPER_MODELS:
        raise ValueError(f"dataset must be one of {', '.join(PAPER_MODELS)}, got {dataset!r}")
    shape = PAPER_MODELS[dataset]
    model = ResNet18(shape["classes"], shape["width"])  # not on "meta", where its draws import all of torch's compiler
    return [parameter.numel() for parameter in model.parameters()]


def codecs_of(arms: Arms, name: str, block_size: int) -> Codecs:
    if name not in arms:
        raise ValueError(f"arm must be one of {', '.join(arms)}, got {name!r}")
    options = options_of(name, arms[name])
    # How values are rounded and offset takes no bytes.
    return state_codecs(options["momentum"], options["variance"], block_size, "nearest", 1e-8, options.get("bits", 8))


def options_of(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Of QLocalAdam, as an arm of config.yaml has them."""
    if entry["arm"] not in ARMS:
        raise ValueError(f"arm of {name!r} must be one of {', '.join(ARMS)}, got {entry['arm']!r}")
    own_blocks = {"block_size": entry["block_size"]} if "block_size" in entry else {}
    return {**ARMS[entry["arm"]], **own_blocks, **entry.get("options", {})}


def state_bytes(sizes: Sequence[int], codecs: Codecs) -> dict[str, float]:
    fp32 = optimizer_bytes(sizes, None, None)
    held, published = (optimizer_bytes(sizes, *codecs, layout) for layout in ("held", "published"))
    return {
        "parameters": sum(sizes),
        "fp32_bytes": fp32,
        "held_bytes": held,
        "published_bytes": published,
        "held_ratio": fp32 / held,
        "published_ratio": fp32 / published,
    }


def files(arms: Arms, places: Iterable[tuple[str, str, int]]) -> dict[str, pd.DataFrame]:
    """By the names of the files. Data of your own have no model in the paper, and no row."""
    known = [place for place in places if place[0] in PAPER_MODELS]
    return {"memory.csv": optimizer_memory(arms, known)}
