"""The analyses that train a client or a model themselves: each is a module of this package with `analyse`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from qlocaladam.federated.settings import RunSettings


def analyse(
    analysis: str, options: Mapping[str, Any], data: Any, partition: str | Path | None, arms: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Its tables and its summary, in the order of its files. `options` are settings of a run, and how large or long the
    analysis is. Some have a partition, some have arms."""
    from qlocaladam.federated.partition import load_partition

    given = {name: value for name, value in options.items() if value is not None}
    settings = RunSettings(**{name: given.pop(name) for name in RunSettings.__dataclass_fields__ if name in given})
    partitions = [load_partition(partition)] if partition else []
    module = import_module(f"qlocaladam.analysis.{analysis}")
    made: tuple[Any, ...] = module.analyse(settings, data, *partitions, **({"arms": arms} if arms else {}), **given)
    return made
