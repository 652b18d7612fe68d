"""The analyses that train a client or a model themselves: each is a module of this package with `analyse`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from qlocaladam.data.dataset import load_subset
from qlocaladam.federated.partition import load_partition
from qlocaladam.federated.settings import RunSettings


def analyse(
    analysis: str, options: Mapping[str, Any], data: str | Path, partition: str | Path | None, arms: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Its tables and its summary, in the order of its files. `options` are settings of a run, how many images of the
    data count, and how large or long the analysis is. Some have a partition, some have arms."""
    given = {name: value for name, value in options.items() if value is not None}
    dataset = load_subset(data, given.pop("train_images", None), given.pop("test_images", None))
    settings = RunSettings(**{name: given.pop(name) for name in RunSettings.__dataclass_fields__ if name in given})
    partitions = [load_partition(partition)] if partition else []
    module = import_module(f"qlocaladam.analysis.{analysis}")
    made: tuple[Any, ...] = module.analyse(settings, dataset, *partitions, **({"arms": arms} if arms else {}), **given)
    return made
