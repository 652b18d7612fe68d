"""One look for every figure: true sizes, fonts that stay readable in print, and how each line is drawn.

Colours are Okabe and Ito's, then Tol's: they differ for colour-blind eyes. Dashes and markers differ in grey, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib import style
from matplotlib.axes import Axes

COLUMN, PAGE = 3.33, 7.0
"""Widths in inches of a figure in one column of the paper, and across both."""
DPI = 200
SMALL = 6.5
"""Points of the smallest text: annotations and legends of many lines."""
FAR = 6
"""Margins beyond which an arm is too far off to be drawn on the same axis."""
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
}
"""The arms of the paper: blue, red and dotted orange are its own choice."""

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
    with style.context(["default", SETTINGS]):
        yield


def arm_colours(arms: Iterable[str]) -> dict[str, Line]:
    """The line of each arm. Give all arms of the config in order: then an arm looks the same in every figure."""
    further = map(Line, cycle(FURTHER_COLOURS), cycle(FURTHER_DASHES), cycle(FURTHER_MARKERS))
    return {arm: ARM_LINES[arm] if arm in ARM_LINES else next(further) for arm in arms}


def ordered_colours(values: Sequence[Any]) -> dict[Any, Line]:
    """The lines of values that have an order, dark to bright; the brightest is still dark enough for paper."""
    shades = map(tuple, mpl.colormaps["plasma"](np.linspace(0, 0.7, len(values))))
    return dict(zip(values, map(Line, shades, cycle(ORDERED_DASHES), cycle(ORDERED_MARKERS)), strict=True))


def far_off(axes: Axes, difference: float, place: int, colour: Any) -> None:
    """An arrow to the edge that the arm lies beyond, and how far away it is."""
    tip, tail, text, side = (0.01, 0.1, 0.12, "left") if difference < 0 else (0.99, 0.9, 0.88, "right")
    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    across = axes.get_yaxis_transform()
    axes.annotate("", (tip, place), (tail, place), xycoords=across, arrowprops=arrow)
    number = f"{difference:+.1f}".replace("-", "\N{MINUS SIGN}")
    axes.text(text, place, number, fontsize=SMALL, ha=side, va="center", transform=across)
