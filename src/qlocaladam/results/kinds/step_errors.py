"""How far the steps of a client are off with the states that each arm had stored: table, and figure by decade."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qlocaladam import RELEASED_FLOOR
from qlocaladam.experiments.grid import as_list
from qlocaladam.results import columns
from qlocaladam.results.analyses import run_options, run_request
from qlocaladam.results.captions import at_scale
from qlocaladam.results.cells import ERRORS, fixed, two_digits
from qlocaladam.results.columns import column
from qlocaladam.results.kind import Analysis, AsFigure, AsTable, Axes, Figure, Files, Kind, Layout, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, alpha_latex, latex
from qlocaladam.results.latex import BREAK, NONE, Column, Group, Table, listed
from qlocaladam.results.rows import Row, as_number, client_analysis, frame
from qlocaladam.results.style import GREY, PAGE, SMALL, TITLE, Line, chosen_lines, label_below, sheet

COLUMNS = {
    **ERRORS,
    "idle_max": Column(rf"Largest,{BREAK}$v=0$", over=ERRORS["max"].over),
    "over_ten_lr": Column(rf"off by{BREAK}10 rates", over=r"Steps (\%)"),
    "over_ten": Column(rf"10 times{BREAK}too large", over=r"Steps (\%)"),
    "under_ten": Column(rf"10 times{BREAK}too small", over=r"Steps (\%)"),
}
QUANTILES = {"median": "Median error\n(learning rates)", "p99": "99th percentile of error\n(learning rates)"}
ROUNDS_BEFORE = 3
"""After which the steps of a client are looked at: the default of `analyse step-errors`."""


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """How far off the last step of a client is with the states that each arm had stored."""
    data, groups, clients = [], [], []
    for dataset, rows, summary in client_analysis(spec, files, "step_errors", layer="all"):
        label = latex(spec, "dataset", dataset)
        last = [row for row in rows if int(row["step"]) == summary["steps"]]
        cells = [[latex(spec, "arm", row["arm"]), *(_cell(row, name) for name in COLUMNS)] for row in last]
        groups.append(Group(cells, label))
        data += [{"dataset": dataset, **row} for row in rows]
        clients.append(_client(label, summary))
    return Table(
        name=spec["name"],
        caption=f"{at_scale(spec)}: a client's last local step, {listed(clients)}. "
        "The states that it has reached in FP32 are stored by each arm, and the step is taken from what is "
        "read back; its error is the distance from the exact step.",
        columns=[DATASET, ROWS["arm"], *COLUMNS.values()],
        groups=groups,
        data=frame(data),
        notes=[
            "Over the weights whose variance is above 0, but for the column of those where it is 0. "
            "Steps of exactly 0 are not compared by their length."
        ],
    )


def _client(label: str, summary: Row) -> str:
    alpha = alpha_latex(str(summary["partition"]["alpha"]))
    return (
        f"step {summary['steps']} with {summary['samples']:,} samples in round {summary['round']} at {alpha} ({label})"
    )


def _cell(row: Row, name: str) -> str:
    """An error with two digits, however large; a share in percent."""
    value = as_number(row[name])
    if name not in ("over_ten", "under_ten", "over_ten_lr"):
        return NONE if math.isnan(value) else two_digits(value)
    return "$<$0.01" if 0 < value < 5e-5 else fixed(100 * value)


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How far the steps of each arm are off against the size of the variance, and how many weights have such a one."""
    datasets, labels = as_list(spec["where"]["dataset"]), spec["labels"]
    tables = [_last_step(files[f"decades.{dataset}"]) for dataset in datasets]
    decades = pd.concat(tables)["decade"].dropna()
    idle = decades.min() - 2  # a place for variances of 0, apart from the others
    drawn = sheet(PAGE, 5.4)
    grid = drawn.subplots(3, len(tables), sharex=True, sharey="row", squeeze=False, height_ratios=[4, 4, 1.2])
    for dataset, table, panels in zip(datasets, tables, grid.T, strict=True):
        table = table.assign(place=table["decade"].fillna(idle) + 0.5)  # the middle of the decade
        for axes, quantile in zip(panels[:2], QUANTILES, strict=True):
            _step_errors(axes, table, quantile, chosen_lines(spec), labels["arm"])
        _weights(panels[2], table[table["arm"] == table["arm"].iloc[0]])
        panels[0].set_title(f"{labels['dataset'][dataset]}, local step {table['step'].iloc[0]}")
    for axes, label in zip(grid[:, 0], (*QUANTILES.values(), "Weights"), strict=True):
        axes.set_ylabel(label)
    for axes in grid[0]:
        _name_marks(axes)
    for axes in grid[:2, 0]:
        axes.set_ylim(bottom=-4e-5)
    grid[0, 0].set_xticks(*_decade_ticks(decades, idle + 0.5))
    label_below(drawn, grid[0, 0], 3)
    drawn.suptitle(_finding(pd.concat(tables), chosen_lines(spec), labels["arm"]))
    return drawn


def _finding(errors: pd.DataFrame, arms: Collection[str], names: Spec) -> str:
    """The worst and the best arm where the variance is above 0 and below the floor."""
    tiny = errors[(errors["decade"] < np.log10(RELEASED_FLOOR)) & errors["arm"].isin(arms)]
    if tiny.empty:
        return "No variance is below the floor"
    worst = tiny.groupby("arm")["p99"].max()
    said = [f"{two_digits(worst[arm])} with {names[arm]}" for arm in (worst.idxmax(), worst.idxmin())]
    return textwrap.fill(f"Variance below the floor: errors in learning rates up to {said[0]}, {said[1]}", TITLE)


def _decade_ticks(decades: pd.Series, idle: float) -> tuple[list[float], list[str]]:
    """Some of the powers of ten, and the place of 0."""
    every = 2 * np.ceil((decades.max() + 1 - decades.min()) / 12)
    exponents = np.arange(every * np.ceil(decades.min() / every), decades.max() + 2, every)
    return [idle, *exponents], ["0", *(f"$10^{{{exponent:.0f}}}$" for exponent in exponents)]


def _last_step(path: Path) -> pd.DataFrame:
    """By decade, of the last step that was looked at; NaN is the decade of variances of 0."""
    errors = pd.read_csv(path, na_values={"decade": "zero"})
    return errors[errors["step"].eq(errors["step"].max())]


def _step_errors(axes: Axes, errors: pd.DataFrame, quantile: str, lines: Mapping[str, Line], names: Spec) -> None:
    """A line for each arm. Where the variance is 0 its marker stands alone."""
    for arm, line in lines.items():
        of_arm = errors[errors["arm"] == arm]
        live, idle = of_arm[of_arm["decade"].notna()], of_arm[of_arm["decade"].isna()]
        axes.plot(live["place"], live[quantile], label=names[arm], **line._asdict())
        axes.plot(idle["place"], idle[quantile], label="", **line._replace(linestyle="")._asdict())
    axes.set_yscale("symlog", linthresh=1e-4)  # an error of 0 has a place, too
    axes.yaxis.minorticks_off()
    axes.axhline(1, color=GREY, linewidth=0.7, zorder=1.5)
    axes.axvline(np.log10(RELEASED_FLOOR), color=GREY, linestyle="--", linewidth=0.7, zorder=1.5)


def _name_marks(axes: Axes) -> None:
    """What the two grey lines are, in the corner that stays empty: errors are small where variances are large."""
    small: dict[str, Any] = {"fontsize": SMALL, "color": GREY, "textcoords": "offset points"}
    top, right = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    axes.annotate("released floor", (np.log10(RELEASED_FLOOR), 1), (3, -3), xycoords=top, va="top", **small)
    axes.annotate("one learning rate", (1, 1), (-3, 2), xycoords=right, ha="right", **small)


def _weights(axes: Axes, counts: pd.DataFrame) -> None:
    """How many weights there are of each decade."""
    axes.bar(counts["place"], counts["numel"], width=0.86, color="#b8b8b8")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5)
    axes.locator_params("y", numticks=4)
    axes.yaxis.minorticks_off()
    axes.set_xlabel("Variance $v$ before the step")


def options(layout: Layout, dataset: str) -> dict[str, Any]:
    return run_options(layout, dataset, "rounds")


def request(layout: Layout, dataset: str) -> dict[str, Any]:
    return {**run_request(layout, dataset, rounds=ROUNDS_BEFORE + 1), "arms": layout.analysed_arms("step_errors")}


ANALYSIS = Analysis("step_errors", ("step_errors.csv", "step_errors_by_decade.csv", "summary.json"), options, request)
FOLDER = "{analysis}/step_errors/{dataset}"
KIND = Kind(
    section="Optimizer states",
    table=AsTable(
        table,
        "One client's local training at scale {scale}, in FP32. At some steps its states are stored by each arm and "
        "the step is taken from what is read back: the error is the distance from the exact step, in learning rates, "
        "over the weights whose variance v is above 0.",
        reads={"step_errors": f"{FOLDER}/step_errors.csv", "summary": f"{FOLDER}/summary.json"},
        keys={"where": ref("datasets_and_arms")},
        columns={
            "Local step": column("step"),
            **columns.ERRORS,
            "Largest error where v is 0": column("idle_max", ".2g"),
            "Off by 10 learning rates (%)": column("over_ten_lr", ".3f", 0.01),
            "10 times too large (%)": column("over_ten", ".3f", 0.01),
            "10 times too small (%)": column("under_ten", ".3f", 0.01),
        },
    ),
    figure=AsFigure(
        figure,
        "How far off one step of a client would be if each arm had stored the states before it, by the decade of the "
        "variance v: the distance from the step of FP32 in learning rates, at scale *{scale}*. Above the median over "
        "the weights of a decade, below it the 99th percentile, at the bottom how many weights there are. Weights "
        "whose variance is 0 stand alone on the left: they should not move at all. The dashed line is where the "
        "released code's floor on the variance begins.",
        reads={"decades": f"{FOLDER}/step_errors_by_decade.csv"},
        keys={"where": ref("datasets_and_arms")},
        title="How far the steps of each arm are off, by the size of the variance",
    ),
    analysis=ANALYSIS,
)
