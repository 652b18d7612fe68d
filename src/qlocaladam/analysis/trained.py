"""The analyses that train a client or a model themselves: the files of each, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from qlocaladam.federated.settings import RunSettings

Files = dict[str, Any]


def analyse(
    analysis: str, options: Mapping[str, Any], data: Any, partition: str | Path | None, arms: Mapping[str, Any]
) -> Files:
    """`options` are settings of a run, and how large or long the analysis is. Some have a partition, some have arms."""
    from qlocaladam.federated.partition import load_partition

    given = {name: value for name, value in options.items() if value is not None}
    settings = RunSettings(**{name: given.pop(name) for name in RunSettings.__dataclass_fields__ if name in given})
    dealt = [load_partition(partition)] if partition else []
    return ANALYSES[analysis](settings, data, *dealt, **({"arms": arms} if arms else {}), **given)


def _distributions(settings: RunSettings, data: Any) -> Files:
    from qlocaladam.analysis import distributions

    return distributions.analyse(settings, data).files()


def _step_errors(settings: RunSettings, data: Any, partition: Any, arms: Mapping[str, Any], after: int = 3) -> Files:
    from qlocaladam.analysis import step_errors

    by_layer, by_decade, summary = step_errors.analyse(settings, data, partition, arms, after)
    return {"step_errors.csv": by_layer, "step_errors_by_decade.csv": by_decade, "summary.json": summary}


def _variance(settings: RunSettings, data: Any, partition: Any) -> Files:
    from qlocaladam.analysis import variance

    table, summary = variance.analyse(settings, data, partition)
    return {"variance.csv": table, "summary.json": summary}


def _model_size(settings: RunSettings, data: Any, arms: Mapping[str, Any], widths: Any, steps: int) -> Files:
    from qlocaladam.analysis import model_size

    table, summary = model_size.analyse(settings, data, arms, tuple(widths), steps)
    return {"model_size.csv": table, "summary.json": summary}


def _microscope(settings: RunSettings, data: Any, arms: Mapping[str, Any], steps: int | None = None) -> Files:
    from qlocaladam.analysis import microscope

    table, by_step, summary = microscope.analyse(settings, data, arms, steps)
    return {"microscope.csv": table, "microscope_by_step.csv": by_step, "summary.json": summary}


ANALYSES: dict[str, Callable[..., Files]] = {
    "distributions": _distributions,
    "step_errors": _step_errors,
    "variance": _variance,
    "model_size": _model_size,
    "microscope": _microscope,
}
