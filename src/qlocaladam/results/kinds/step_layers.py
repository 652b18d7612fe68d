"""Figure: how far the last step of a client is off, by layer and arm, from the same analysis as `steps`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from qlocaladam.experiments.grid import as_list
from qlocaladam.results.kind import AsFigure, Figure, Files, Kind, Spec, ref
from qlocaladam.results.kinds import step_errors
from qlocaladam.results.style import PAGE, SMALL, chosen_lines, sheet

ERROR_COLOURS = (1e-3, 1e3)
"""Errors that have a colour of their own; beyond these all have the same."""


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How far off the last step of a client is by layer and arm: the largest error of a matrix."""
    import seaborn as sns
    from matplotlib.colors import LogNorm

    datasets, labels = as_list(spec["where"]["dataset"]), spec["labels"]
    arms = list(chosen_lines(spec))
    tables = [_layer_errors(files[f"step_errors.{dataset}"], arms) for dataset in datasets]
    drawn = sheet(PAGE, 1.6 + 0.145 * max(map(len, tables)))
    grid = drawn.subplots(1, len(tables), squeeze=False)[0]
    for dataset, table, axes in zip(datasets, tables, grid, strict=True):
        sns.heatmap(
            table.clip(*ERROR_COLOURS),
            ax=axes,
            norm=LogNorm(*ERROR_COLOURS),
            cmap="cividis",
            annot=table.map("{:.1g}".format).to_numpy(),
            fmt="",
            annot_kws={"size": SMALL - 1},
            cbar=False,
            yticklabels=1,
        )
        axes.set(title=labels["dataset"][dataset], xlabel="", ylabel="")
        axes.set_xticklabels([labels["arm"][arm] for arm in arms], rotation=90)
        axes.tick_params(length=0, labelsize=SMALL)
    for axes in grid[1:]:
        axes.set_yticklabels([])
    colours = drawn.colorbar(grid[0].collections[0], ax=grid.tolist(), location="bottom", aspect=50, extend="both")
    colours.set_label("Largest error of a step (learning rates)")
    return drawn


def _layer_errors(path: Path, arms: Sequence[str]) -> pd.DataFrame:
    rows = pd.read_csv(path)
    rows = rows[rows["step"].eq(rows["step"].max()) & (rows["dimensions"] > 1)]
    return rows.pivot_table(index="layer", columns="arm", values="max", sort=False)[list(arms)]


KIND = Kind(
    section="Optimizer states",
    figure=AsFigure(
        figure,
        "How far off the last step of a client would be if each arm had stored the states before it, for each layer "
        "that is a matrix: the largest distance of a weight that had a gradient from the step of FP32, in learning "
        "rates, at scale *{scale}*.",
        reads={"step_errors": f"{step_errors.FOLDER}/step_errors.csv"},
        keys={"where": ref("datasets_and_arms")},
        title="How far the last step of a client is off, by layer and arm",
    ),
    analysis=step_errors.ANALYSIS,
)
