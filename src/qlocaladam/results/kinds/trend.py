"""Figure: accuracy against one axis of the grid, such as the loss scale; a line for each arm, a dot for each run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

from qlocaladam.experiments.consistency import one_run_but_for_seeds, shown_runs
from qlocaladam.experiments.runs import METRICS
from qlocaladam.results.kind import AsFigure, Config, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import AXES
from qlocaladam.results.latex import listed
from qlocaladam.results.style import COLUMN, PAGE, TITLE, hue_lines, label_ends, sheet

APART = 10
"""Percent of accuracy between two groups of arms from which on they are told apart."""
NUMERIC = ("block_size", "lr", "loss_scale", "clients", "clients_per_round")


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """The metric that arms are judged by against the axis, a panel for each data set."""
    (all_runs,) = runs
    axis, names = str(spec["axis"]), spec["labels"]
    panels = list(all_runs.groupby("dataset", sort=False))
    lines = hue_lines("arm", all_runs, names["arm"])
    drawn = sheet(PAGE if len(panels) > 1 else COLUMN, 2.2)
    grid = drawn.subplots(1, len(panels), squeeze=False)[0]
    for axes, (dataset, of_panel) in zip(grid, panels, strict=True):
        for arm, line in lines.items():
            of_arm = of_panel[of_panel["arm"] == arm]
            means = of_arm.groupby(axis)[METRICS[0]].mean().sort_index(ascending=not spec.get("falling", False))
            axes.plot(of_arm[axis], of_arm[METRICS[0]], ".", color=line.color, markersize=2.5, alpha=0.6, label="_")
            axes.plot(means, label=names["arm"][arm], **line._asdict())
        axes.set_xscale("log")
        axes.set(title=names["dataset"][dataset], xlabel=AXES[axis], ylim=(0, None))
        values = sorted(of_panel[axis].unique())
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        if spec.get("falling", False):
            axes.invert_xaxis()
    grid[0].set_ylabel("Accuracy, last third (%)")
    drawn.suptitle(_finding(spec, all_runs))
    label_ends(drawn)
    return drawn


def _finding(spec: Spec, runs: pd.DataFrame) -> str:
    """What share of its accuracy each arm loses from left to right, in two groups: those farthest apart."""
    means = runs.groupby(["dataset", "arm", spec["axis"]])[METRICS[0]].mean().unstack()
    first, last = (means.columns[-1], means.columns[0]) if spec.get("falling", False) else means.columns[[0, -1]]
    lost = (100 * (1 - means[last] / means[first])).groupby("arm").agg(["min", "max"]).sort_values("min")
    gaps = [lost["min"].iloc[place] - lost["max"].iloc[:place].max() for place in range(1, len(lost))]
    if max(gaps, default=0) < APART:
        return f"No arm loses more than {max(lost['max'].max(), 0):.0f} % of its accuracy"
    most = lost.iloc[gaps.index(max(gaps)) + 1 :]
    named = listed([label for arm, label in spec["labels"]["arm"].items() if arm in most.index])
    others = max(lost["max"].drop(most.index).max(), 0)
    share = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (most["min"].min(), most["max"].max())))
    place = f"{AXES[spec['axis']]} {last:g}"
    percent = "\N{NO-BREAK SPACE}%"
    words = f"{place} costs {named} {share}{percent} of the accuracy, the others at most {others:.0f}{percent}"
    return textwrap.fill(words, TITLE)


def check(config: Config, key: str, entry: Config) -> None:
    one_run_but_for_seeds(f"{key}: a point", shown_runs(config, entry), ("dataset", "arm", entry["axis"]), "where")


KIND = Kind(
    section="Ablations",
    figure=AsFigure(
        figure,
        "Accuracy over the last third of the rounds, trained at scale *{scale}*. A dot is a run, a line joins the "
        "means over seeds. The title says what share of it is lost from left to right.",
        keys={"experiments": ref("experiments"), "axis": {"enum": list(NUMERIC)}},
        optional={
            "where": ref("where"),
            "falling": {"type": "boolean", "description": "true where the largest value is to stand on the left"},
        },
        check=check,
        title=lambda spec: f"Accuracy against the {AXES[spec['axis']].lower()}",
    ),
)
