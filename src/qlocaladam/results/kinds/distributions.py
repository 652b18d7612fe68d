"""Figure: variance and momentum of FP32 Adam, after a few dozen steps of central training."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qlocaladam.experiments import grid
from qlocaladam.experiments.consistency import of_text
from qlocaladam.experiments.grid import DEFAULTS
from qlocaladam.results.kind import Analysis, AsFigure, Axes, Config, Figure, Files, Kind, Layout, Spec, ref
from qlocaladam.results.number import Label, Number, number, numbers_of
from qlocaladam.results.style import ARM_LINES, COLUMN, SMALL, sheet

VIEWS = (
    ("variance", "linear", "Variance $v$"),
    ("variance", "log10", "log$_{10}$ $v$"),
    ("momentum", "full", "Momentum $m$"),
    ("momentum", "zoomed", "$m$, zoomed in"),
)
"""State, view and label of each panel."""
SETTINGS = ("width", "stem", "image_size", "flip", "precision", "device")
"""Of a run, that the training of one model for its optimizer states has, too."""


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Histograms of both states over their whole range, and where nearly all values are."""
    dataset = spec["where"]["dataset"]
    path, summary = files[f"histograms.{dataset}"], json.loads(files[f"summary.{dataset}"].read_text())
    bins = pd.read_csv(path)
    drawn = sheet(COLUMN, 3.2)
    drawn.suptitle(spec["labels"]["dataset"][dataset])
    for axes, (state, view, label) in zip(drawn.subplots(2, 2).flat, VIEWS, strict=True):
        shown = bins[(bins["state"] == state) & (bins["view"] == view)]
        if shown.empty:
            raise ValueError(f"{path} has no rows with state {state} and view {view}")
        _histogram(axes, shown)
        axes.set_xlabel(label, loc="left")  # the right end is for the power of ten
        if view == "log10":
            _mark_offset(axes, summary["log_offset"], summary["variance"])
    for axes in drawn.axes[::2]:
        axes.set_ylabel("Count")
    return drawn


def _histogram(axes: Axes, bins: pd.DataFrame) -> None:
    """Bars of counted bins. Where one bar holds much of the state, only logarithmic counts show the others."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.stairs(bins["count"], [*bins["left"], bins["right"].iloc[-1]], fill=True, color=ARM_LINES["fp32"].color)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3), useMathText=True)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if bins["count"].max() > bins["count"].sum() / 4:
        axes.set_yscale("log")
        axes.locator_params("y", numticks=5)
        axes.yaxis.minorticks_off()
    else:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _mark_offset(axes: Axes, offset: float, variance: Mapping[str, float]) -> None:
    """The offset of the log code, the share of the variance that is lost in it, and how much of that is just 0."""
    exponent, colour = np.log10(offset), ARM_LINES["q-localadam"].color
    axes.axvline(exponent, color=colour, linestyle="--", linewidth=0.9)
    below, zero = 100 * variance["below_offset"], 100 * variance["zero_fraction"]
    text = f"{below:.1f} % below offset $10^{{{exponent:.3g}}}$;\n{zero:.1f} % are 0 and not shown"
    axes.set_title(text, color=colour, fontsize=SMALL)


def numbers(dataset: str, path: Path, label: Label) -> Iterator[Number]:
    """Every number of the summary, by its own name: states/cifar10/variance/orders_of_magnitude."""
    own, summary, on = {"kind": "states", "dataset": dataset}, json.loads(path.read_text()), label(dataset)
    for part in ("variance", "momentum"):
        of, values = {**own, "part": part}, summary[part]
        yield from numbers_of(of, values, dict.fromkeys(values, ".3g"), path, on)
        for share in (share for share in values if share.startswith(("zero_", "below_", "within_"))):
            percent = None if values[share] is None else 100 * values[share]
            yield number({**of, "quantity": f"{share}_percent"}, percent, ".2f", path, on=on)
    least, greatest = (summary["variance"][name] for name in ("min_positive", "max"))
    span = greatest / least if least else None
    yield number({**own, "part": "variance", "quantity": "max_over_min"}, span, ".3g", path, on=on)
    forms = {"steps": ",d", "batch_size": ",d", "parameters": ",d", "log_offset": ".3g"}
    yield from numbers_of(own, summary, forms, path, on)


def options(layout: Layout, dataset: str) -> dict[str, Any]:
    images = {"train_images": layout.size["datasets"][dataset].get("train_images")}
    chosen = grid.training(layout.config, dataset)
    return {**images, **{name: chosen[name] for name in SETTINGS if name in chosen}}


def request(layout: Layout, dataset: str) -> dict[str, Any]:
    settings = {**DEFAULTS, **options(layout, dataset)}
    facts = layout.data_facts(dataset)
    known = {f"dataset_{name}": facts[name] for name in ("sha256", "training_images") if name in facts}
    return {"settings": {name: settings[name] for name in SETTINGS}, "dataset": layout.data_of(dataset), **known}


def check(config: Config, key: str, entry: Config) -> None:
    of_text(config, key, entry, wanted=False)


FOLDER = "{analysis}/distributions/{dataset}"
KIND = Kind(
    section="Optimizer states",
    figure=AsFigure(
        figure,
        "What FP32 Adam holds for every parameter after a few dozen steps of central training on {data_and_origin}. "
        "Above the variance, linear and in powers of ten, with the offset of the log-space code and the share of "
        "values that it swallows; below the momentum, all of it and close to zero.",
        reads={"histograms": f"{FOLDER}/histograms.csv", "summary": f"{FOLDER}/summary.json"},
        keys={"where": ref("dataset")},
        check=check,
        title="Variance and momentum of FP32 Adam, {data}",
    ),
    analysis=Analysis(
        "distributions",
        ("histograms.csv", "quantiles.csv", "shape.csv", "errors.csv", "summary.json"),
        options,
        request,
        partition=False,
    ),
    quotes=f"{FOLDER}/summary.json",
    numbers=numbers,
)
