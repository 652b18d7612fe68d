"""The answers to the registered questions as a forest plot: each at a glance."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from qlocaladam.analysis.registered import EXPLORATORY, NO, OPEN, PRELIMINARY, YES
from qlocaladam.results.registered import Spec, read
from qlocaladam.results.style import FAR, GREY, PAGE, SMALL, far_off

COLOURS = {YES: "#0072b2", NO: "#d55e00", EXPLORATORY: GREY, OPEN: GREY}
"""Of answers; those that are no answers yet have hollow markers, too."""
MARKERS = {YES: "o", NO: "X", EXPLORATORY: "D", OPEN: "s"}
INTERVAL = ("tost_ci_low", "difference", "tost_ci_high")


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Mapping[str, Path]) -> Figure:
    """Each question a row, each data set a panel: the difference in percent of the baseline, and the answer."""
    rows = read(files["answers"])
    questions = list(rows["question"].unique())
    datasets = list(rows["dataset"].unique())
    drawn = Figure((PAGE, 0.9 + 0.42 * len(questions)), layout="constrained")
    panels = drawn.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        _panel(axes, rows[rows["dataset"] == dataset], questions)
        axes.set(title=spec["labels"]["dataset"][dataset], xlabel="Difference (% of the baseline)")
    asked = rows.drop_duplicates("question")
    status = asked["status"].map({PRELIMINARY: f" ({PRELIMINARY})"}).fillna("")
    names = [textwrap.fill(asks, 38) for asks in asked["asks"] + status]
    panels[0].set(yticks=range(len(questions)), ylim=(len(questions) - 0.5, -0.5))
    panels[0].set_yticklabels(names, fontsize=SMALL)
    answers = rows["answer"].unique()
    handles: list[Any] = [
        Line2D([], [], linestyle="", label=answer, **_marker(answer)) for answer in MARKERS if answer in answers
    ]
    handles += [
        Line2D([], [], color=GREY, linewidth=2, label="90 % interval"),
        Patch(color="#dfe8ef", label="margin of equivalence"),
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _panel(axes: Any, rows: pd.DataFrame, questions: list[str]) -> None:
    axes.axvline(0, color=GREY, linewidth=0.7)
    axes.grid(False, axis="y")
    tested = rows.dropna(subset="difference")
    if tested.empty:
        axes.set(xlim=(-1, 1), xticks=[])
    else:
        margin = 100 * (tested["margin"] / tested["baseline_mean"]).max()
        axes.axvspan(-margin, margin, color="#dfe8ef", linewidth=0, zorder=0)
        axes.set_xlim(_ends_of_axis(tested, margin))
    for row in rows.to_dict("records"):
        place = questions.index(row["question"])
        if pd.isna(row["difference"]):
            across = axes.get_yaxis_transform()
            said = {"ha": "center", "va": "center", "fontsize": SMALL, "color": GREY}
            axes.text(0.5, place, row["status"], transform=across, **said)
            continue
        ends = [100 * row[name] / row["baseline_mean"] for name in INTERVAL]
        if not axes.get_xlim()[0] <= ends[1] <= axes.get_xlim()[1]:
            far_off(axes, ends[1], place, COLOURS[row["answer"]])
            continue
        axes.plot(ends[::2], [place, place], color=COLOURS[row["answer"]], linewidth=2, solid_capstyle="butt")
        for end, limit, points in zip(ends[::2], axes.get_xlim(), "<>", strict=True):
            if abs(end) > abs(limit):  # it goes on beyond the frame
                axes.plot(limit, place, points, color=COLOURS[row["answer"]], markersize=4.2, clip_on=False)
        axes.plot(ends[1], place, **_marker(row["answer"]))


def _ends_of_axis(rows: pd.DataFrame, margin: float) -> tuple[float, float]:
    """All intervals fit, but for those of arms so far off that they would press the others together."""
    percent = rows[list(INTERVAL)].mul(100 / rows["baseline_mean"], axis=0)
    near = percent[percent["difference"].abs() <= FAR * margin]
    low, high = (1.1 * max(0.0, -near.min(axis=None)), 1.1 * max(0.0, near.max(axis=None))) if len(near) else (0.0, 0.0)
    return -min(max(low, 1.5 * margin), FAR * margin), min(max(high, 1.5 * margin), FAR * margin)


def _marker(answer: str) -> dict[str, Any]:
    colour = COLOURS[answer]
    face = colour if answer in (YES, NO) else "white"
    return {"marker": MARKERS[answer], "color": colour, "markerfacecolor": face, "markersize": 4.2}
