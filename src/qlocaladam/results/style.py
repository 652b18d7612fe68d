"""One look for every figure: true sizes, fonts that stay readable in print, and how each line is drawn.

Colours are Okabe and Ito's, then Tol's: they differ for colour-blind eyes. Dashes and markers differ in grey, too.
matplotlib is imported where something is drawn: a plan of the workflow reads all kinds of figures, and draws none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from qlocaladam.experiments.grid import as_list
from qlocaladam.federated.partition import IID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.33, 7.0
"""Widths in inches of a figure in one column of the paper, and across both."""
DPI = 200
SMALL = 6.5
"""Points of the smallest text: annotations and legends of many lines."""
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 3.8}
"""Where a legend stands under a panel: as far down as its ticks and its label reach."""
TITLE = 114
"""Characters of a title across both columns."""
GREY = "#6e6e6e"

SETTINGS = {
    # seaborn's whitegrid, which takes a second to import
    **dict.fromkeys(("axes.labelcolor", "text.color", "xtick.color", "ytick.color"), ".15"),
    **dict.fromkeys(("axes.axisbelow", "axes.grid", "patch.force_edgecolor"), True),
    "lines.solid_capstyle": "round",
    "patch.edgecolor": "w",
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so figures are the same everywhere
    "font.size": 7.5,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
    "axes.linewidth": 0.6,
    "axes.edgecolor": GREY,
    "grid.linewidth": 0.4,
    "grid.color": "#e4e4e4",
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "xtick.bottom": True,
    "ytick.left": True,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}


class Line(NamedTuple):
    """How a line is drawn: the keywords of matplotlib's `plot`, by `_asdict()`."""

    color: Any
    linestyle: Any
    marker: str


DASHED, SHORT, DASH_DOT = (0, (5, 1.5)), (0, (2.5, 1)), (0, (5, 1.2, 1, 1.2))
DOTTED, DASH_DOT_DOT, LONG = (0, (1, 1)), (0, (5, 1.2, 1, 1.2, 1, 1.2)), (0, (9, 1.5))

ARM_LINES = {
    "fp32": Line("#0072B2", "-", "o"),
    "q-localadam": Line("#D55E00", "-", "s"),
    "naive-int8": Line("#E69F00", DOTTED, "^"),
    "momentum-only": Line("#009E73", DASHED, "D"),
    "variance-only": Line("#CC79A7", DASH_DOT, "v"),
    "fp32-floor": Line("#56B4E9", DASHED, "o"),
    "no-floor": Line("#8C564B", DOTTED, "X"),
    "dynamic-8bit": Line("#999933", DASH_DOT, "h"),
    "normalised": Line("#000000", "-", "P"),
    "normalised-4bit": Line("#882255", DASHED, "*"),
}
"""The arms of the paper, whose blue, red and dotted orange are its own choice, and those that most figures have."""

# Their lengths have no common divisor: a combination comes again only after all others.
FURTHER_COLOURS = ("#000000", "#56B4E9", "#882255", "#999933", "#332288", "#44AA99", "#8C564B")
FURTHER_DASHES = (SHORT, DASH_DOT_DOT, LONG)
FURTHER_MARKERS = ("P", "<", "*", "p", ">", "h", "d", "H")
ORDERED_DASHES = ("-", DASHED, DASH_DOT, DOTTED, SHORT, DASH_DOT_DOT)
ORDERED_MARKERS = ("o", "s", "^", "D", "v", "P", "<", "*")


@contextmanager
def theme() -> Iterator[None]:
    """The look, for as long as it lasts; whatever the user's own settings are, they come back afterwards.

    Fonts and sizes are looked up while drawing, so drawing, laying out and saving all belong inside.
    """
    from matplotlib import style

    with style.context(["default", SETTINGS]):
        yield


def arm_colours(arms: Iterable[str]) -> dict[str, Line]:
    """The line of each arm. Give all arms of the config in order: then an arm looks the same in every figure."""
    further = map(Line, cycle(FURTHER_COLOURS), cycle(FURTHER_DASHES), cycle(FURTHER_MARKERS))
    return {arm: ARM_LINES[arm] if arm in ARM_LINES else next(further) for arm in arms}


def ordered_colours(values: Sequence[Any]) -> dict[Any, Line]:
    """The lines of values that have an order, dark to bright; the brightest is still dark enough for paper."""
    import matplotlib as mpl

    shades = map(tuple, mpl.colormaps["plasma"](np.linspace(0, 0.7, len(values))))
    return dict(zip(values, map(Line, shades, cycle(ORDERED_DASHES), cycle(ORDERED_MARKERS)), strict=True))


def chosen_lines(spec: Mapping[str, Any]) -> dict[str, Line]:
    """The lines of the arms that `where` names, in the order of config.yaml."""
    lines, chosen = arm_colours(spec["labels"]["arm"]), as_list(spec["where"]["arm"])
    return {arm: line for arm, line in lines.items() if arm in chosen}


def hue_lines(hue: str, runs: pd.DataFrame, arms: Mapping[str, str]) -> dict[Any, Line]:
    """The line of each value that the runs have, in the order of the legend."""
    present = set(runs[hue])
    if hue != "arm":
        return ordered_colours(sorted(present, key=by_size))
    if present - set(arms):
        raise ValueError(f"arm must be one of {', '.join(arms)}, got {', '.join(sorted(present - set(arms)))}")
    return {arm: line for arm, line in arm_colours(arms).items() if arm in present}


def by_size(value: Any) -> float:
    """IID is the limit of ever larger alphas; states that persist come after those that are reset."""
    words = {IID: float("inf"), "reset": 0.0, "persist": 1.0}
    return words[value] if value in words else float(value)


def sheet(width: float, height: float) -> Figure:
    """An empty figure of this size in inches."""
    from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def whole_numbers(axes: Axes, **options: Any) -> None:
    """Ticks of the x axis at whole numbers only."""
    axes.locator_params("x", **{"nbins": "auto", "steps": None, "integer": True, **options})


def label_ends(figure: Figure, heading: str = "") -> None:
    """Name each line of each panel at its right end, in its colour and with its marker; a legend would be far away.

    Ends that lie close together have their names moved apart, as little as that takes.
    """
    from scipy.optimize import isotonic_regression

    figure.draw_without_rendering()
    for axes in figure.axes:
        named = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
        if not named:
            continue
        points = axes.get_window_extent().height * 72 / figure.dpi
        gap = 1.25 * SMALL / points
        ends = [axes.transData.transform((0, float(np.asarray(line.get_ydata())[-1])))[1] for line in named]
        heights = np.array([axes.transAxes.inverted().transform((0, end))[1] for end in ends])
        order = np.argsort(heights, kind="stable")
        steps = gap * np.arange(len(named))
        heights[order] = isotonic_regression(heights[order] - steps).x + steps
        beside: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "va": "center"}
        for line, height in zip(named, heights, strict=True):
            sample: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "label": "_"}
            axes.plot([1.03], [height], color=line.get_color(), marker=line.get_marker(), **sample)
            axes.text(1.06, height, str(line.get_label()), color=line.get_color(), **beside)
        if heading:
            axes.text(1.06, heights.max() + gap, heading, color=GREY, **beside)


def label_below(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend for the whole figure: that of a panel."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
