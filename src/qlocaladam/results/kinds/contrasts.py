"""How far each arm is from a baseline over several seeds: a table with intervals, and the same as a forest plot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from qlocaladam.experiments.consistency import compared_over_seeds
from qlocaladam.experiments.runs import METRICS
from qlocaladam.files import table_rows
from qlocaladam.results import forest
from qlocaladam.results.captions import MISSING_NOTE, arms_by_dataset, reason_notes, trained_caption
from qlocaladam.results.cells import HEADS, accuracies, difference_with_interval, flagged, interval
from qlocaladam.results.columns import column, p_column, p_value
from qlocaladam.results.columns import interval as interval_column
from qlocaladam.results.kind import AsFigure, AsTable, Axes, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, dataset_and_alpha, in_words, latex
from qlocaladam.results.latex import BREAK, NONE, Column, Group, Table, listed
from qlocaladam.results.number import Form, Label, Number, numbers_by_row
from qlocaladam.results.rows import Row, as_number, count_missing, frame, grouped, place, read, trained, unique
from qlocaladam.results.style import GREY, PAGE, Line, hue_lines, sheet

SCATTER = 0.05
"""The level of the test whether an arm scatters more than the others."""
COLUMN_HEADS = (
    *(HEADS["last_third"], rf"Difference (pp){BREAK}[95\% interval]", rf"Simultaneous{BREAK}interval"),
    *(rf"{name}{BREAK}(\%)" for name in ("Best", "Final", "All")),
    *(rf"Seeds{BREAK}needed", rf"Col-{BREAK}lapsed"),
)
INTERVALS = {"simultaneous interval": ("simultaneous", 0.9), "95 % interval": ("ci", 2.4)}
"""By what they are called: the columns and the width of the line."""


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """The metrics of each arm, and how far the first of them is from the baseline's. The data have the others', too."""
    runs = trained(spec, runs)
    rows = read(files["contrasts"])
    rows += _untested(spec, rows)
    by_metric = {metric: {place(row): row for row in rows if row["metric"] == metric} for metric in METRICS}
    shown = [row for row in rows if row["metric"] == METRICS[0]]
    count_missing(spec, shown, ["dataset", "alpha", "arm"])
    groups = []
    for (dataset, alpha), arms in grouped(shown, "dataset", "alpha"):
        first, *others = _means(arms, by_metric)
        cells = [
            [latex(spec, "arm", row["arm"]) for row in arms],
            flagged(first, [{"missing": row.get("missing")} for row in arms]),
            [difference_with_interval(row) for row in arms],
            [interval(row, "simultaneous") for row in arms],
            *others,
            [_seeds_needed(row) for row in arms],
            [f"{row['collapsed'] or 0} of {row['runs'] or 0}" for row in arms],
        ]
        groups.append(Group(list(zip(*cells, strict=True)), dataset_and_alpha(spec, dataset, alpha)))
    return Table(
        name=spec["name"],
        caption=trained_caption(spec, runs, METRICS, varied="alpha"),
        columns=[DATASET, ROWS["arm"], *map(Column, COLUMN_HEADS)],
        groups=groups,
        data=frame(rows),
        notes=_contrast_notes(spec, rows),
    )


def _untested(spec: Spec, rows: list[Row]) -> list[Row]:
    """Empty rows for arms of which all runs are missing."""
    there = {place(row) for row in rows}
    places = dict.fromkeys(place(asked) for asked in spec.get("places", []) if place(asked) not in there)
    blank = {**dict.fromkeys(rows[0], ""), "metric": METRICS[0]}
    return [{**blank, **dict(zip(("dataset", "alpha", "arm"), missing, strict=True))} for missing in places]


def _means(arms: Sequence[Row], by_metric: Mapping[str, Mapping[tuple[str, ...], Row]]) -> Iterator[list[str]]:
    """The cells of each metric; the first has deviations, too."""
    nothing = {"mean": "", "std": ""}
    for metric, of_metric in by_metric.items():
        rows = [of_metric.get(place(arm), nothing) for arm in arms]
        deviations = [as_number(row["std"] if metric == METRICS[0] else "") for row in rows]
        means = [as_number(row["mean"]) for row in rows]
        yield accuracies([{metric: m, f"{metric}_std": d} for m, d in zip(means, deviations, strict=True)], metric)


def _seeds_needed(row: Row) -> str:
    """A dash where nothing was tested; where no number of seeds would do, infinity."""
    if row["p"] == "":
        return NONE
    return f"{int(row['seeds_needed']):,}" if row["seeds_needed"] else r"$\infty$"


def _contrast_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """What was compared and how, and that nothing follows from it."""
    shown = [row for row in rows if row["metric"] == METRICS[0]]
    own = [row for row in shown if row["variance"] == "paired"]
    baseline = latex(spec, "arm", spec.get("baseline", "fp32"))
    names = unique(latex(spec, "arm", row["arm"]) for row in own)
    return [
        rf"Exploratory: intervals, and no verdicts. Differences to {baseline} over the last third of the rounds, from "
        r"$\mathit{metric}\sim\mathit{arm}+\mathit{seed}$ with one residual variance for all arms that train; the "
        "simultaneous intervals hold for all arms of a data set together (Bonferroni).",
        *([f"Compared by paired $t$-tests, because a run collapsed: {listed(names)}."] if names else []),
        *_pair_notes(spec, shown),
        rf"Seeds needed: to find a difference, or equivalence within {100 * spec['margin']:g}\,\% of the baseline, "
        r"with a power of 80\,\%. Collapsed: runs that end below twice the chance level. $\pm$ is the sample standard "
        "deviation over seeds.",
        *([MISSING_NOTE] if any(row.get("missing") for row in rows) else []),
        *reason_notes(spec, shown),
    ]


def _pair_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """Which runs are in no comparison, and which arms scatter more than the intervals say."""
    named = [f"{arms_by_dataset(spec, [row])[0]}, seed {row['left_out']}" for row in rows if row["left_out"]]
    wide = [row for row in rows if as_number(row["scatter_p"]) < SCATTER]
    notes = []
    if named:
        notes.append(f"In no comparison, for want of a run of the baseline or of an accuracy: {'; '.join(named)}.")
    if wide:
        test, arms = rf"$F$-test, $p<{SCATTER}$", "; ".join(arms_by_dataset(spec, wide))
        notes.append(f"Scatter more than all arms together ({test}), so that intervals may be too narrow: {arms}.")
    return notes


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How far each arm is from a baseline, a panel for each data set and alpha. The margin of equivalence: a band."""
    table, seeds = (pd.read_csv(files[name], dtype={"alpha": str}) for name in ("contrasts", "differences"))
    tests = table[(table["metric"] == METRICS[0]) & table["difference"].notna()]
    if tests.empty:
        return _nothing(table)
    seeds = seeds[seeds["metric"] == METRICS[0]]
    names, lines = spec["labels"], hue_lines("arm", tests, spec["labels"]["arm"])
    panels = list(tests.groupby(["dataset", "alpha"], sort=False))
    columns = len(panels) if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    drawn = sheet(PAGE, 0.75 + rows * (0.5 + 0.21 * len(lines)))
    grid = drawn.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, ((dataset, alpha), of_panel) in zip(grid.flat, panels, strict=False):
        own = seeds[(seeds["dataset"] == dataset) & (seeds["alpha"] == alpha)]
        _panel(axes, of_panel, own, lines)
        axes.set_title(f"{names['dataset'][dataset]}, {in_words(names, 'alpha', alpha)}")
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    labels = [names["arm"][arm] for arm in lines]
    grid[0, 0].set(yticks=range(len(lines)), yticklabels=labels, ylim=(len(lines) - 0.4, -0.6))
    is_baseline = table["margin"].isna() & table["reason"].isna()  # without one, a setting has no margins
    for axes in grid[-1]:
        axes.set_xlabel(f"Last third above {names['arm'][table.loc[is_baseline, 'arm'].iloc[0]]} (pp)")
    parts = {label: {"linewidth": width} for label, (_, width) in INTERVALS.items()}
    forest.legend(drawn, {**parts, "one seed": {"marker": "|", "linestyle": "", "markersize": 3.5}})
    return drawn


def _nothing(table: pd.DataFrame) -> Figure:
    """Why no arm is compared, in the place of a figure for which there are not enough runs."""
    drawn, why = sheet(PAGE, 1), "\n".join(table["reason"].dropna().unique())
    drawn.text(0.5, 0.5, why or "no arm to compare", ha="center", va="center", color=GREY)
    return drawn


def _panel(axes: Axes, tests: pd.DataFrame, seeds: pd.DataFrame, lines: Mapping[str, Line]) -> None:
    """A row for each arm: seeds, both intervals, and the mean."""
    forest.axis(axes, tests[["difference", "simultaneous_low", "simultaneous_high"]], tests["margin"].iloc[0])
    axes.axvline(0, color=GREY, linewidth=0.7, zorder=1)
    axes.grid(False, axis="y")
    for row in table_rows(tests):
        place, colour = list(lines).index(row["arm"]), lines[row["arm"]].color
        own = seeds[seeds["arm"] == row["arm"]]["difference"]
        axes.plot(own, np.full(len(own), place + 0.27), "|", color=colour, markersize=3.5, markeredgewidth=0.6)
        if forest.far_off(axes, row["difference"], place, colour):
            continue
        for name, width in INTERVALS.values():
            ends = [row[f"{name}_low"], row[f"{name}_high"]]
            axes.plot(ends, [place, place], color=colour, linewidth=width, solid_capstyle="butt")
        axes.plot(row["difference"], place, "o", color=colour, markersize=4.2)


def numbers(table: str, path: Path, label: Label) -> Iterator[Number]:
    """Differences to a baseline, by table: the residual variance is that of all arms in it."""
    forms: dict[str, Form] = {"n": ".0f", "mean": ".2f", "std": ".2f", "baseline_mean": ".2f", "difference": "+z.2f"}
    forms |= {"error": ".2f", "freedom": ".0f", "margin": ".2f", "wider_margin": ".2f", "seeds_needed": ",.0f"}
    forms |= {f"{name}_{end}": "+z.2f" for name in ("ci", "simultaneous", "tost_ci") for end in ("low", "high")}
    forms |= dict.fromkeys(("p", "tost_p", "wider_tost_p"), p_value)
    forms |= {"runs": "d", "collapsed": "d"}
    of, rows = {"kind": "contrasts", "table": table}, pd.read_csv(path, dtype={"alpha": str, "seeds": str})
    yield from numbers_by_row(of, rows, ("dataset", "alpha", "arm", "metric"), forms, path, label)


TESTS, DIFFERENCES = (f"{{analysis}}/contrasts/{{table}}/{name}.csv" for name in ("contrasts", "differences"))
KIND = Kind(
    section="Seeds",
    table=AsTable(
        table,
        "Trained at scale {scale}. Exploratory: intervals, and no verdicts. Differences to {baseline} in percentage "
        "points, from metric ~ arm + seed with one residual variance for all arms that train, or from pairs of runs "
        "where an arm collapsed. Simultaneous intervals hold for all arms of a data set together. Equivalence is two "
        "one-sided tests for a margin of {margin} % of the baseline, and of twice that. Seeds needed: for either "
        "verdict, with a power of 80 %.",
        reads={"contrasts": TESTS},
        keys={
            "experiments": ref("experiments"),
            "margin": {
                "type": "number",
                "exclusiveMinimum": 0,
                "exclusiveMaximum": 1,
                "description": "a share of the baseline between 0 and 1",
            },
        },
        optional={"where": ref("where"), "baseline": ref("name")},
        check=compared_over_seeds,
        columns={
            "Seeds": column("seeds"),
            "Accuracy": column("metric"),
            "Mean (%)": column("mean", ".2f"),
            "Mean of the baseline (%)": column("baseline_mean", ".2f"),
            "Difference (pp)": column("difference", "+z.2f"),
            "95 % interval": interval_column,
            "Simultaneous interval": partial(interval_column, name="simultaneous"),
            "90 % interval": partial(interval_column, name="tost_ci"),
            "Variance": column("variance"),
            "p (difference)": p_column("p"),
            "p (equivalence)": p_column("tost_p"),
            "p (equivalence, wider margin)": p_column("wider_tost_p"),
            "Seeds needed": column("seeds_needed", ",.0f"),
            "Runs": column("runs"),
            "Runs collapsed": column("collapsed"),
            "Seeds left out": column("left_out"),
            "Why nothing was tested": column("reason"),
        },
    ),
    figure=AsFigure(
        figure,
        "How far each arm of the table *{table}* is from the baseline over the last third of the rounds, trained at "
        "scale *{scale}*. Ticks are seeds, the marker is the estimate, the thick line its 95 % interval, the thin one "
        "that which holds for all arms of a panel together. The band is the margin of equivalence. What lies far "
        "outside has an arrow and its number. Exploratory: intervals, and no verdicts.",
        reads={"contrasts": TESTS, "differences": DIFFERENCES},
        keys={"table": ref("name")},
        title="How far each arm is from one of them: table {table}",
    ),
    quotes=TESTS,
    numbers=numbers,
)
