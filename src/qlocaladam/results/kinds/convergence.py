"""Figure: test accuracy against rounds, a panel for each data set and a line for each arm, alpha or other value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from qlocaladam.experiments.consistency import one_run_but_for_seeds, shown_runs
from qlocaladam.experiments.grid import GRID
from qlocaladam.experiments.runs import collapsed, read_histories
from qlocaladam.files import table_rows
from qlocaladam.results.kind import AXIS, AsFigure, Axes, Config, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import AXES, Names, in_words
from qlocaladam.results.latex import listed
from qlocaladam.results.style import COLUMN, GREY, PAGE, SMALL, Line, hue_lines, label_ends, sheet, whole_numbers

CROWDED = 8
"""Panels with more lines than this are one above the other, as wide as the page allows."""


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Test accuracy against rounds, a line for each value of the panel's hue."""
    panels = list(zip(spec["panels"], runs, strict=True))
    crowded = max(of_panel[panel["hue"]].nunique() for panel, of_panel in panels) > CROWDED
    shape = (len(panels), 1) if crowded else (1, len(panels))
    drawn = sheet(PAGE if crowded or len(panels) > 1 else COLUMN, 2.2)
    one_task = len({dataset for of_panel in runs for dataset in of_panel["dataset"]}) == 1
    grid = drawn.subplots(*shape, sharex=crowded, sharey=one_task, squeeze=False)
    for axes, (panel, of_panel) in zip(grid.flat, panels, strict=True):
        _panel(axes, panel["hue"], of_panel, spec["labels"])
    for axes in grid[:, 0]:
        axes.set_ylabel("Test accuracy (%)")
    for axes in grid[-1]:
        axes.set_xlabel("Round")
    for axes in grid.flat:
        axes.set_ylim(bottom=0)
    if crowded:
        _legends_beside(drawn)
    else:
        label_ends(drawn, "best (%)")
    return drawn


def _panel(axes: Axes, hue: str, runs: pd.DataFrame, names: Names) -> None:
    lines = hue_lines(hue, runs, names["arm"])
    histories = read_histories(runs)
    for position, (value, line) in enumerate(lines.items()):
        chosen = runs[runs[hue] == value]
        label = f"{in_words(names, hue, value)}: {chosen['best'].mean():.1f}"
        _accuracy_line(axes, histories[histories[hue] == value], label, line, position / len(lines))
    chance = 100 / runs["classes"].iloc[0]
    if collapsed(runs).any():
        axes.axhline(chance, color=GREY, linestyle="--", linewidth=0.7, zorder=1.5, label=f"chance: {chance:.1f}")
    _mark_divergence(axes, hue, runs[runs["diverged"]], lines)
    axes.set_title(_panel_title(hue, runs, names))
    whole_numbers(axes, steps=[1, 2, 5, 10], min_n_ticks=1)


def _panel_title(hue: str, runs: pd.DataFrame, names: Names) -> str:
    """The data set, and the arm and alpha if all lines share them."""
    fixed = [name for name in ("arm", "alpha") if name != hue and runs[name].nunique() == 1]
    named = [in_words(names, name, runs[name].iloc[0]) for name in fixed]
    return ", ".join([names["dataset"][runs["dataset"].iloc[0]], *named])


def _accuracy_line(axes: Axes, history: pd.DataFrame, label: str, line: Line, shift: float) -> None:
    """The mean over seeds, and a band from the lowest to the highest. Markers are few, each line's in other rounds."""
    rounds = history.groupby("round")["accuracy"].agg(["mean", "min", "max"])
    every = -(-len(rounds) // 6)
    axes.plot(rounds["mean"], label=label, markevery=(int(shift * every), every), **line._asdict())
    if history["seed"].nunique() > 1:
        axes.fill_between(rounds.index, rounds["min"], rounds["max"], color=line.color, alpha=0.18, linewidth=0)


def _mark_divergence(axes: Axes, hue: str, diverged: pd.DataFrame, lines: Mapping[Any, Line]) -> None:
    """A cross where a run ended because its weights were not finite any more."""
    if diverged.empty:
        return
    cross: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6, "markeredgewidth": 1.6, "label": "_"}
    beside: dict[str, Any] = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right", "fontsize": SMALL}
    for last in table_rows(read_histories(diverged).groupby(list(GRID)).tail(1)):
        end, colour = (last["round"], last["accuracy"]), lines[last[hue]].color
        axes.plot(*end, color=colour, **cross)
        axes.annotate("diverged", end, color=colour, **beside)


def _legends_beside(figure: Figure) -> None:
    """A legend to the right of each panel, which is as high as the longest one."""
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    legends = [axes.legend(title=_legend_title(axes), **place) for axes in figure.axes]
    rows = max(len(legend.get_texts()) for legend in legends)
    figure.set_figheight(0.4 + len(legends) * (0.4 + 0.15 * rows))


def _legend_title(axes: Axes) -> str:
    bands = len(axes.collections) > 0  # nothing else in a panel is a collection
    return "Best accuracy (%)" + (", mean over seeds; band: lowest to highest" if bands else "")


def title(spec: Spec) -> str:
    experiments = listed(list(dict.fromkeys(name for panel in spec["panels"] for name in panel["experiments"])))
    panels = "; ".join(_panel_in_words(spec["labels"], panel) for panel in spec["panels"])
    return f"Test accuracy after each round, {experiments}: {panels}"


def _panel_in_words(names: Names, panel: Spec) -> str:
    chosen = [in_words(names, name, value) for name, value in panel.get("where", {}).items()]
    return f"{', '.join(chosen) or 'all data'} by {AXES[panel['hue']].lower()}"


def check(config: Config, key: str, entry: Config) -> None:
    for number, panel in enumerate(entry["panels"]):
        rows = shown_runs(config, entry, panel)
        one_run_but_for_seeds(f"{key}.panels[{number}]: a line", rows, (panel["hue"],), "hue")


PANELS = {
    "type": "array",
    "minItems": 1,
    "description": "a list of panels, each with experiments and hue",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["experiments", "hue"],
        "properties": {"experiments": ref("experiments"), "where": ref("where"), "hue": AXIS},
    },
}
KIND = Kind(
    section="Ablations",
    figure=AsFigure(
        figure,
        "Accuracy on the test set after each federated round, trained at scale *{scale}*. A line is the mean over "
        "seeds; where there are several, a band reaches from the lowest to the highest. Beside each line is its best "
        "round, which is chosen on the test set. The dashed line, where there is one, is guessing: a run "
        "has collapsed if it ends below twice that. A cross marks a run whose weights were not finite any more.",
        keys={"panels": PANELS},
        check=check,
        title=title,
    ),
)
