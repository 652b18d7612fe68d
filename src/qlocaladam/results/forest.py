"""What forest plots share: an axis on which far arms are arrows, the margin of equivalence, and their legend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from qlocaladam.results.kind import Axes, Figure
from qlocaladam.results.style import GREY, SMALL

FAR = 6
"""Margins beyond which an arm is too far off to be drawn on the same axis."""
BAND = "#dfe8ef"
"""The colour of the margin."""


def axis(axes: Axes, intervals: pd.DataFrame, margin: float) -> None:
    """From 0 to both sides, with the margin as a band. `intervals` has a difference and its two ends a row: all of them
    fit, but for those of arms so far off that they would press the others together."""
    near = intervals[intervals["difference"].abs() <= FAR * margin]
    widest = np.nan_to_num([-near.min().min(), near.max().max()])
    low, high = np.clip(1.1 * widest, 1.5 * margin, FAR * margin)
    axes.axvspan(-margin, margin, color=BAND, linewidth=0, zorder=0)
    axes.set_xlim(-low, high)


def far_off(axes: Axes, difference: float, place: int, colour: Any) -> bool:
    """Whether an arm lies beyond the axis: then an arrow to the edge, and how far away it is."""
    low, high = axes.get_xlim()
    if low <= difference <= high:
        return False
    tip, tail, text, side = (0.01, 0.1, 0.12, "left") if difference < 0 else (0.99, 0.9, 0.88, "right")
    arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    across = axes.get_yaxis_transform()
    axes.annotate("", (tip, place), (tail, place), xycoords=across, arrowprops=arrow)
    number = f"{difference:+.1f}".replace("-", "\N{MINUS SIGN}")
    axes.text(text, place, number, fontsize=SMALL, ha=side, va="center", transform=across)
    return True


def legend(figure: Figure, lines: Mapping[str, Mapping[str, Any]]) -> None:
    """What the parts of a row are: how each is drawn by what it is called."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], label=label, **{"color": GREY, **drawn}) for label, drawn in lines.items()]
    handles.append(Patch(color=BAND, label="margin of equivalence"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
