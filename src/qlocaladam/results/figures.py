"""Every figure of the paper, from training runs and results of the analyses, at the size it is printed.

A kind of figure is one function and one entry of KINDS.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from qlocaladam import RELEASED_FLOOR
from qlocaladam.experiments.grid import GRID, as_list
from qlocaladam.experiments.runs import METRICS, collapsed, read_histories
from qlocaladam.files import write_whole
from qlocaladam.results import forest
from qlocaladam.results.style import (
    ARM_LINES,
    COLUMN,
    DPI,
    FAR,
    GREY,
    PAGE,
    SMALL,
    Line,
    arm_colours,
    far_off,
    ordered_colours,
    theme,
)

Spec = Mapping[str, Any]
Files = Mapping[str, Path]

HUES = {
    "arm": "{}",
    "alpha": "\N{GREEK SMALL LETTER ALPHA} = {}",
    "block_size": "B = {}",
    "lr": "lr = {}",
    "loss_scale": "loss times {}",
    "clients": "{} clients",
    "clients_per_round": "{} clients a round",
    "states": "states {}",
    "seed": "seed {}",
}
"""What a line can stand for, and how it is called."""
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 3.8}
"""Where a legend stands under a panel: as far down as its ticks and its label reach."""
CROWDED = 8
"""Panels with more lines than this are one above the other, as wide as the page allows."""
INTERVALS = {"simultaneous interval": ("simultaneous", 0.9), "95 % interval": ("ci", 2.4)}
"""Of a contrast, by what they are called: the columns and the width of the line."""
CODE_ARMS = {
    "log, nearest": "q-localadam",
    "log, floor": "rounding-floor",
    "log, stochastic": "rounding-stochastic",
    "dynamic, nearest": "dynamic-8bit",
    "linear, nearest": "naive-int8",
}
"""The arm whose variance has a code: the code is drawn like that arm."""
HEATMAP_COLUMNS = {"class": ("Dominant class (%)", "#D55E00"), "samples": ("Samples / 100", "#56B4E9")}
"""What a column shows, and its darkest colour, on which black figures can still be read."""

CLIENT_COLOURS = {
    "activations": ("activations", "#d4d4d4"),
    "weights": ("weights", "#0072B2"),
    "gradients": ("gradients", "#56B4E9"),
    "states": ("optimizer states", "#D55E00"),
}
"""Of the parts of what a client holds: label and colour."""

STEP_QUANTILES = {"median": "Median error\n(learning rates)", "p99": "99th percentile of error\n(learning rates)"}
ERROR_COLOURS = (1e-3, 1e3)
"""Errors that have a colour of their own; beyond these all have the same."""


def draw(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """The figure that an entry of the config describes.

    `runs` are those of each panel, for kinds that have panels; `files` are results of the analyses by name.
    """
    if spec["kind"] not in KINDS:
        raise ValueError(f"figures.{spec['name']}.kind must be one of {', '.join(KINDS)}, got {spec['kind']!r}")
    with theme():
        figure = KINDS[spec["kind"]](spec, runs, files)
        figure.draw_without_rendering()
    # Each drawing would lay the figure out anew, a little differently: from here on everything stays in its place.
    figure.set_layout_engine("none")
    return figure


def rendered(figure: Figure) -> dict[str, bytes]:
    """As PDF and PNG, without the time they were made at: the same figure is the same bytes."""
    files = {"pdf": io.BytesIO(), "png": io.BytesIO()}
    with theme():
        figure.savefig(files["pdf"], format="pdf", metadata={"CreationDate": None})
        figure.savefig(files["png"], format="png", dpi=DPI)
    return {form: file.getvalue() for form, file in files.items()}


def save(figure: Figure, pdf: Path, png: Path) -> None:
    content = rendered(figure)
    write_whole(pdf, lambda file: file.write(content["pdf"]))
    write_whole(png, lambda file: file.write(content["png"]))


def convergence(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Test accuracy against rounds, a line for each value of the panel's hue."""
    panels = list(zip(spec["panels"], runs, strict=True))
    for panel, of_panel in panels:
        _check_panel(spec["name"], panel["hue"], of_panel)
    crowded = max(of_panel[panel["hue"]].nunique() for panel, of_panel in panels) > CROWDED
    shape = (len(panels), 1) if crowded else (1, len(panels))
    figure = Figure((PAGE if crowded or len(panels) > 1 else COLUMN, 2.2), layout="constrained")
    one_task = len({dataset for of_panel in runs for dataset in of_panel["dataset"]}) == 1
    grid = figure.subplots(*shape, sharex=crowded, sharey=one_task, squeeze=False)
    for axes, (panel, of_panel) in zip(grid.flat, panels, strict=True):
        _convergence_panel(axes, panel["hue"], of_panel, spec["labels"])
    for axes in grid[:, 0]:
        axes.set_ylabel("Test accuracy (%)")
    for axes in grid[-1]:
        axes.set_xlabel("Round")
    for axes in grid.flat:
        axes.set_ylim(bottom=0)
    if crowded:
        _legends_beside(figure)
    else:
        _legends_below(figure)
    return figure


def _check_panel(figure: str, hue: str, runs: pd.DataFrame) -> None:
    if hue not in HUES:
        raise ValueError(f"figures.{figure}: hue must be one of {', '.join(HUES)}, got {hue!r}")
    if runs.empty:
        raise ValueError(f"figures.{figure}: a panel has no runs; its experiments and where must select at least one")
    for name in (name for name in GRID if name not in (hue, "seed")):
        mixed = runs.groupby(hue)[name].unique()
        for value, found in mixed[mixed.map(len) > 1].items():
            raise ValueError(
                f"figures.{figure}: the line {hue}={value} mixes {name} {', '.join(map(str, found))}; "
                "where must choose one of them"
            )


def _convergence_panel(axes: Axes, hue: str, runs: pd.DataFrame, labels: Mapping[str, Mapping[str, str]]) -> None:
    lines = _hue_lines(hue, runs, labels["arm"])
    histories = read_histories(runs)
    for position, (value, line) in enumerate(lines.items()):
        chosen = runs[runs[hue] == value]
        label = f"{_hue_label(hue, value, labels['arm'])}: {chosen['best'].mean():.1f}"
        _accuracy_line(axes, histories[histories[hue] == value], label, line, position / len(lines))
    chance = 100 / runs["classes"].iloc[0]
    if collapsed(runs).any():
        axes.axhline(chance, color=GREY, linestyle="--", linewidth=0.7, zorder=1.5, label=f"chance: {chance:.1f}")
    _mark_divergence(axes, hue, runs[runs["diverged"]], lines)
    axes.set_title(_panel_title(hue, runs, labels))
    axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def _hue_lines(hue: str, runs: pd.DataFrame, arms: Mapping[str, str]) -> dict[Any, Line]:
    """The line of each value that the runs have, in the order of the legend."""
    present = set(runs[hue])
    if hue != "arm":
        return ordered_colours(sorted(present, key=_by_size))
    if present - set(arms):
        raise ValueError(f"arm must be one of {', '.join(arms)}, got {', '.join(sorted(present - set(arms)))}")
    return {arm: line for arm, line in arm_colours(arms).items() if arm in present}


def _by_size(value: Any) -> float:
    """IID is the limit of ever larger alphas; states that persist come after those that are reset."""
    words = {"iid": float("inf"), "reset": 0.0, "persist": 1.0}
    return words[value] if value in words else float(value)


def _hue_label(hue: str, value: Any, arms: Mapping[str, str]) -> str:
    return "IID" if value == "iid" else HUES[hue].format(arms[value] if hue == "arm" else value)


def _panel_title(hue: str, runs: pd.DataFrame, labels: Mapping[str, Mapping[str, str]]) -> str:
    """The data set, and the arm and alpha if all lines share them."""
    fixed = [name for name in ("arm", "alpha") if name != hue and runs[name].nunique() == 1]
    named = [_hue_label(name, runs[name].iloc[0], labels["arm"]) for name in fixed]
    return ", ".join([labels["dataset"][runs["dataset"].iloc[0]], *named])


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
    cross: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 6, "markeredgewidth": 1.6}
    for last in read_histories(diverged).groupby(list(GRID)).tail(1).to_dict("records"):
        axes.plot(last["round"], last["accuracy"], color=lines[last[hue]].color, **cross)
    axes.plot([], [], color=GREY, label="diverged", **cross)


def _legends_below(figure: Figure) -> None:
    """A legend under each panel, in as many columns as fit, and the height that the longest one needs."""
    figure.draw_without_rendering()
    rows = 0
    for axes in figure.axes:
        for columns in (4, 3, 2, 1):
            legend = axes.legend(title=_legend_title(axes), ncols=columns, **BELOW)
            if legend.get_window_extent().width <= axes.get_window_extent().width:
                break
        rows = max(rows, -(-len(legend.get_texts()) // columns))
    figure.set_figheight(2.3 + 0.15 * rows)


def _legends_beside(figure: Figure) -> None:
    """A legend to the right of each panel, which is as high as the longest one."""
    place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    legends = [axes.legend(title=_legend_title(axes), **place) for axes in figure.axes]
    rows = max(len(legend.get_texts()) for legend in legends)
    figure.set_figheight(0.4 + len(legends) * (0.4 + 0.15 * rows))


def _legend_title(axes: Axes) -> str:
    bands = len(axes.collections) > 0  # nothing else in a panel is a collection
    return "Best accuracy (%)" + (", mean over seeds; band: lowest to highest" if bands else "")


def contrasts(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How far each arm is from a baseline, a panel for each data set and alpha. The margin of equivalence: a band."""
    table, seeds = (pd.read_csv(files[name], dtype={"alpha": str}) for name in ("contrasts", "differences"))
    tests = table[(table["metric"] == METRICS[0]) & table["difference"].notna()]
    if tests.empty:
        raise ValueError(f"figures.{spec['name']}: {files['contrasts']} compares no arm with another")
    seeds = seeds[seeds["metric"] == METRICS[0]]
    is_baseline = table["margin"].isna() & table["reason"].isna()  # without one, a setting has no margins
    baseline = spec["labels"]["arm"][table.loc[is_baseline, "arm"].iloc[0]]
    lines = _hue_lines("arm", tests, spec["labels"]["arm"])
    panels = list(tests.groupby(["dataset", "alpha"], sort=False))
    columns = len(panels) if len(panels) <= 3 else 2
    rows = -(-len(panels) // columns)
    figure = Figure((PAGE, 0.75 + rows * (0.5 + 0.21 * len(lines))), layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    for axes, ((dataset, alpha), of_panel) in zip(grid.flat, panels, strict=False):
        own = seeds[(seeds["dataset"] == dataset) & (seeds["alpha"] == alpha)]
        _forest(axes, of_panel, own, lines)
        axes.set_title(f"{spec['labels']['dataset'][dataset]}, {_hue_label('alpha', alpha, {})}")
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_axis_off()
    names = [spec["labels"]["arm"][arm] for arm in lines]
    grid[0, 0].set(yticks=range(len(lines)), yticklabels=names, ylim=(len(lines) - 0.4, -0.6))
    for axes in grid[-1]:
        axes.set_xlabel(f"Last third above {baseline} (pp)")
    _forest_legend(figure)
    return figure


def _forest_ends(tests: pd.DataFrame) -> tuple[float, float]:
    """Of the axis: all intervals fit, but for those of arms so far off that they would press the others together."""
    margin = tests["margin"].iloc[0]
    near = tests[tests["difference"].abs() <= FAR * margin][["difference", "simultaneous_low", "simultaneous_high"]]
    widest = np.nan_to_num([-near.min(axis=None), near.max(axis=None)])
    low, high = np.clip(1.1 * widest, 1.5 * margin, FAR * margin)
    return float(-low), float(high)


def _forest(axes: Axes, tests: pd.DataFrame, seeds: pd.DataFrame, lines: Mapping[str, Line]) -> None:
    """A row for each arm: seeds, both intervals, and the mean."""
    margin, ends = tests["margin"].iloc[0], _forest_ends(tests)
    axes.axvspan(-margin, margin, color="#dfe8ef", linewidth=0, zorder=0)
    axes.axvline(0, color=GREY, linewidth=0.7, zorder=1)
    axes.grid(False, axis="y")
    axes.set_xlim(ends)
    for row in tests.to_dict("records"):
        place, colour = list(lines).index(row["arm"]), lines[row["arm"]].color
        own = seeds[seeds["arm"] == row["arm"]]["difference"]
        axes.plot(own, np.full(len(own), place + 0.27), "|", color=colour, markersize=3.5, markeredgewidth=0.6)
        if not ends[0] <= row["difference"] <= ends[1]:
            far_off(axes, row["difference"], place, colour)
            continue
        for name, width in INTERVALS.values():
            ends_of_line = [row[f"{name}_low"], row[f"{name}_high"]]
            axes.plot(ends_of_line, [place, place], color=colour, linewidth=width, solid_capstyle="butt")
        axes.plot(row["difference"], place, "o", color=colour, markersize=4.2)


def _forest_legend(figure: Figure) -> None:
    """What the parts of a row are."""
    handles: list[Any] = [
        Line2D([], [], color=GREY, linewidth=width, label=label) for label, (_, width) in INTERVALS.items()
    ]
    handles += [
        Line2D([], [], color=GREY, marker="|", linestyle="", markersize=3.5, label="one seed"),
        Patch(color="#dfe8ef", label="margin of equivalence"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def distributions(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Histograms of both states over their whole range, and where nearly all values are."""
    bins = pd.read_csv(files["histograms"])
    summary = json.loads(files["summary"].read_text())
    figure = Figure((COLUMN, 3.2), layout="constrained")
    figure.suptitle(spec["labels"]["dataset"][spec["where"]["dataset"]])
    views = [
        ("variance", "linear", "Variance $v$"),
        ("variance", "log10", "log$_{10}$ $v$"),
        ("momentum", "full", "Momentum $m$"),
        ("momentum", "zoomed", "$m$, zoomed in"),
    ]
    for axes, (state, view, label) in zip(figure.subplots(2, 2).flat, views, strict=True):
        shown = bins[(bins["state"] == state) & (bins["view"] == view)]
        if shown.empty:
            raise ValueError(f"{files['histograms']} has no rows with state {state} and view {view}")
        _histogram(axes, shown)
        axes.set_xlabel(label, loc="left")  # the right end is for the power of ten
        if view == "log10":
            _mark_offset(axes, summary["log_offset"], summary["variance"])
    for axes in figure.axes[::2]:
        axes.set_ylabel("Count")
    return figure


def _histogram(axes: Axes, bins: pd.DataFrame) -> None:
    """Bars of counted bins. Where one bar holds much of the state, only logarithmic counts show the others."""
    axes.stairs(bins["count"], [*bins["left"], bins["right"].iloc[-1]], fill=True, color=ARM_LINES["fp32"].color)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3), useMathText=True)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    if bins["count"].max() > bins["count"].sum() / 4:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))


def _mark_offset(axes: Axes, offset: float, variance: Mapping[str, float]) -> None:
    """The offset of the log code, the share of the variance that is lost in it, and how much of that is just 0."""
    exponent, colour = np.log10(offset), ARM_LINES["q-localadam"].color
    axes.axvline(exponent, color=colour, linestyle="--", linewidth=0.9)
    below, zero = 100 * variance["below_offset"], 100 * variance["zero_fraction"]
    text = f"{below:.1f} % below offset $10^{{{exponent:.3g}}}$;\n{zero:.1f} % are 0 and not shown"
    axes.set_title(text, color=colour, fontsize=SMALL)


def precision(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Relative error of each code against the size of the value, by quarters of a decade."""
    errors = pd.read_csv(files["precision"])
    arms = {code: CODE_ARMS.get(code, code) for code in errors["code"].unique()}
    lines = arm_colours(dict.fromkeys([*spec["labels"]["arm"], *arms.values()]))
    figure = Figure((COLUMN, 3.2), layout="constrained")
    axes = figure.subplots()
    for number, (code, of_code) in enumerate(errors.groupby("code", sort=False)):
        line, percent = lines[arms[code]], 100 * of_code["relative_error"]
        quarters = percent.groupby(np.floor(4 * np.log10(of_code["value"])))
        middles = 10 ** ((quarters.mean().index + 0.5) / 4)
        marks = (number % 2, 2)  # two lines at 100 % can be told apart
        axes.plot(middles, quarters.mean(), label=f"{code}: {percent.mean():.2f}", markevery=marks, **line._asdict())
        axes.fill_between(
            middles, quarters.quantile(0.1), quarters.quantile(0.9), color=line.color, alpha=0.15, linewidth=0
        )
    axes.set(xscale="log", yscale="log", xlabel="Value", ylabel="Relative error (%)")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.legend(title="Mean error (%); band: 10th to 90th percentile", ncols=2, **BELOW)
    return figure


def client_memory(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """All that a client holds with each arm, a bar for each, at the largest size of images."""
    datasets, arms = (as_list(spec["where"][name]) for name in ("dataset", "arm"))
    table = pd.read_csv(files["client_memory"])
    table = table[(table["image_size"] == table["image_size"].max()) & table["arm"].isin(arms)]
    figure = Figure((PAGE, 0.8 + len(datasets) * (0.4 + 0.2 * len(arms))), layout="constrained")
    grid = figure.subplots(len(datasets), 1, sharex=True, squeeze=False)[:, 0]
    for axes, dataset in zip(grid, datasets, strict=True):
        bars = table[table["dataset"] == dataset].set_index("arm").loc[arms]
        _client_bars(axes, bars)
        axes.set(yticks=range(len(arms)), yticklabels=[spec["labels"]["arm"][arm] for arm in arms])
        axes.set_title(spec["stands_for"].get(dataset, dataset))
    grid[-1].set_xlabel(f"Held in a step with {bars['batch_size'].iloc[0]} images (MB)")
    grid[-1].set_xlim(right=1.34 * table["total_bytes"].max() / 1e6)  # room for what stands behind the bars
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(CLIENT_COLOURS))
    return figure


def _client_bars(axes: Axes, bars: pd.DataFrame) -> None:
    """One above the other in the order of the table, with the sum and what is saved behind each."""
    places, left = range(len(bars)), np.zeros(len(bars))
    for part, (label, colour) in CLIENT_COLOURS.items():
        width = bars[f"{part}_bytes"].to_numpy() / 1e6
        axes.barh(places, width, 0.72, left, color=colour, edgecolor="white", linewidth=0.4, label=label)
        left = left + width
    for place, row in zip(places, bars.to_dict("records"), strict=True):
        saved = f", {row['saved_percent']:.1f} % less" if row["saved_percent"] else ""
        words = f" {row['total_bytes'] / 1e6:,.0f}, states {row['states_bytes'] / 1e6:.1f}{saved}"
        axes.text(left[place], place, words, fontsize=SMALL, va="center")
        middle = row["activations_bytes"] / 2e6
        axes.text(middle, place, f"{row['activations_bytes'] / 1e6:,.0f}", fontsize=SMALL, va="center", ha="center")
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.grid(False)


def heatmap(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Dominant class and samples of each client, a panel for each alpha; a colour means the same in all of them."""
    dataset = spec["where"]["dataset"]
    clients = pd.read_csv(files["clients"], dtype={"alpha": str})
    clients = clients[clients["dataset"] == dataset]
    if clients.empty:
        raise ValueError(f"figures.{spec['name']}: {files['clients']} has no data set {dataset!r}")
    clients = clients.assign(**{"class": clients["dominant_percent"], "samples": clients["samples"] / 100})
    alphas = sorted(clients["alpha"].unique(), key=_by_size)
    figure = Figure((COLUMN, 3.6), layout="constrained")
    figure.suptitle(spec.get("stands_for", {}).get(dataset, dataset))  # partitions are the paper's own at every scale
    panels = figure.subplots(1, len(alphas), sharey=True, squeeze=False)[0]
    for axes, alpha in zip(panels, alphas, strict=True):
        cells = clients[clients["alpha"] == alpha].set_index("client")[["class", "samples"]]
        for column, (_, darkest) in HEATMAP_COLUMNS.items():
            _heatmap_column(axes, cells, column, clients[column].max(), darkest)
        axes.set(title=_hue_label("alpha", alpha, {}), xlabel="", ylabel="")
    panels[0].set_ylabel("Client")
    for mesh, (label, _) in reversed(list(zip(panels[0].collections, HEATMAP_COLUMNS.values(), strict=True))):
        figure.colorbar(mesh, ax=panels, location="bottom", aspect=40, pad=0.02, label=label)
    return figure


def _heatmap_column(axes: Axes, cells: pd.DataFrame, column: str, most: float, darkest: str) -> None:
    """One of the columns; the other is left empty, because it has a scale of its own."""
    sns.heatmap(
        cells[[column]].reindex(columns=cells.columns),
        ax=axes,
        cmap=sns.light_palette(darkest, as_cmap=True),
        vmin=0,
        vmax=most,
        annot=True,
        fmt=".1f",
        annot_kws={"size": SMALL, "color": "black"},
        cbar=False,
        linewidths=0.4,
    )
    axes.tick_params(length=0, labelrotation=0)
    axes.tick_params(axis="x", labelsize=SMALL)


def steps(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How far the steps of each arm are off against the size of the variance, and how many weights have such a one."""
    datasets, labels = as_list(spec["where"]["dataset"]), spec["labels"]
    tables = [_last_step(files[f"decades.{dataset}"]) for dataset in datasets]
    decades = pd.concat(tables)["decade"].dropna()
    idle = decades.min() - 2  # a place for variances of 0, apart from the others
    lines = {arm: line for arm, line in arm_colours(labels["arm"]).items() if arm in as_list(spec["where"]["arm"])}
    figure = Figure((PAGE, 5), layout="constrained")
    grid = figure.subplots(3, len(tables), sharex=True, sharey="row", squeeze=False, height_ratios=[4, 4, 1.2])
    for dataset, table, column in zip(datasets, tables, grid.T, strict=True):
        table = table.assign(place=table["decade"].fillna(idle) + 0.5)  # the middle of the decade
        for axes, quantile in zip(column[:2], STEP_QUANTILES, strict=True):
            _step_errors(axes, table, quantile, lines, labels["arm"])
        _weights(column[2], table[table["arm"] == table["arm"].iloc[0]])
        column[0].set_title(f"{labels['dataset'][dataset]}, local step {table['step'].iloc[0]}")
    for axes, label in zip(grid[:, 0], (*STEP_QUANTILES.values(), "Weights"), strict=True):
        axes.set_ylabel(label)
    for axes in grid[0]:
        _name_marks(axes)
    for axes in grid[:2, 0]:
        axes.set_ylim(bottom=-4e-5)
    every = 2 * np.ceil((decades.max() + 1 - decades.min()) / 12)
    exponents = np.arange(every * np.ceil(decades.min() / every), decades.max() + 2, every)
    grid[0, 0].set_xticks([idle + 0.5, *exponents], ["0", *(f"$10^{{{exponent:.0f}}}$" for exponent in exponents)])
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _last_step(path: Path) -> pd.DataFrame:
    """By decade, of the last step that was looked at; NaN is the decade of variances of 0."""
    errors = pd.read_csv(path, na_values={"decade": "zero"})
    return errors[errors["step"] == errors["step"].max()]


def _step_errors(axes: Axes, errors: pd.DataFrame, quantile: str, lines: Mapping[str, Line], names: Spec) -> None:
    """A line for each arm. Where the variance is 0 its marker stands alone."""
    for arm, line in lines.items():
        of_arm = errors[errors["arm"] == arm]
        live = of_arm["decade"].notna()
        axes.plot("place", quantile, data=of_arm[live], label=names[arm], **line._asdict())
        axes.plot("place", quantile, data=of_arm[~live], label="", **line._replace(linestyle="")._asdict())
    axes.set_yscale("symlog", linthresh=1e-4)  # an error of 0 has a place, too
    axes.yaxis.set_minor_locator(NullLocator())
    axes.axhline(1, color=GREY, linewidth=0.7, zorder=1.5)
    axes.axvline(np.log10(RELEASED_FLOOR), color=GREY, linestyle="--", linewidth=0.7, zorder=1.5)


def _name_marks(axes: Axes) -> None:
    """What the two grey lines are, in the corner that stays empty: errors are small where variances are large."""
    small: dict[str, Any] = {"fontsize": SMALL, "color": GREY, "textcoords": "offset points"}
    top, right = axes.get_xaxis_transform(), axes.get_yaxis_transform()
    axes.annotate("floor of the released code", (np.log10(RELEASED_FLOOR), 1), (3, -3), xycoords=top, va="top", **small)
    axes.annotate("one learning rate", (1, 1), (-3, 2), xycoords=right, ha="right", **small)


def _weights(axes: Axes, counts: pd.DataFrame) -> None:
    """How many weights there are of each decade."""
    axes.bar(counts["place"], counts["numel"], width=0.86, color="#b8b8b8")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5)
    axes.yaxis.set_major_locator(LogLocator(numticks=4))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("Variance $v$ before the step")


def step_layers(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How far off the last step of a client is by layer and arm: the largest error of a matrix."""
    datasets, labels = as_list(spec["where"]["dataset"]), spec["labels"]
    arms = [arm for arm in labels["arm"] if arm in as_list(spec["where"]["arm"])]
    tables = [_layer_errors(files[f"steps.{dataset}"], arms) for dataset in datasets]
    figure = Figure((PAGE, 1.6 + 0.145 * max(map(len, tables))), layout="constrained")
    grid = figure.subplots(1, len(tables), squeeze=False)[0]
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
    colours = figure.colorbar(grid[0].collections[0], ax=grid.tolist(), location="bottom", aspect=50, extend="both")
    colours.set_label("Largest error of a step (learning rates)")
    return figure


def _layer_errors(path: Path, arms: Sequence[str]) -> pd.DataFrame:
    rows = pd.read_csv(path)
    rows = rows[(rows["step"] == rows["step"].max()) & (rows["dimensions"] > 1)]
    return rows.pivot_table(index="layer", columns="arm", values="max", sort=False)[list(arms)]


def variance(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How large variances are by round, and in which layers they are below the floor; weights with a gradient only."""
    datasets = as_list(spec["where"]["dataset"])
    tables = {dataset: pd.read_csv(files[f"variance.{dataset}"]) for dataset in datasets}
    shares = {dataset: _below_floor(table) for dataset, table in tables.items()}
    figure = Figure((PAGE, 5.6), layout="constrained")
    grid = figure.subplots(2, len(datasets), sharey="row", squeeze=False, height_ratios=[2, 3.4])
    for dataset, (spans, layers) in zip(datasets, grid.T, strict=True):
        table = tables[dataset]
        floor = json.loads(files[f"summary.{dataset}"].read_text())["floor"]
        _variance_spans(spans, table[table["layer"] == "all"], floor)
        spans.set_title(spec["labels"]["dataset"][dataset])
        _layer_shares(layers, shares[dataset], most=max(1.0, *(share.max(axis=None) for share in shares.values())))
    grid[0, 0].set_ylabel("Variance $v$ above 0")
    colours = figure.colorbar(grid[1, 0].collections[0], ax=grid[1].tolist(), location="bottom", aspect=40, pad=0.02)
    colours.set_label("Weights with a gradient whose variance is below the floor (%)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def _below_floor(table: pd.DataFrame) -> pd.DataFrame:
    """By layer and round, in percent; of matrices, whose weights without a gradient do not count."""
    table = table[table["dimensions"] > 1]
    live = (1 - table["zero"]).where(table["zero"] < 1)
    shares = table.assign(share=100 * table["below"] / live)
    return shares.pivot_table(index="layer", columns="round", values="share", sort=False, dropna=False)


def _variance_spans(axes: Axes, rows: pd.DataFrame, floor: float) -> None:
    """Of all weights whose variance is above 0."""
    colour = ARM_LINES["fp32"].color
    for low, high, alpha, label in (("p1", "p99", 0.15, "98 % of weights"), ("p10", "p90", 0.3, "80 %")):
        axes.fill_between(rows["round"], rows[low], rows[high], color=colour, alpha=alpha, linewidth=0, label=label)
    axes.plot("round", "median", data=rows, color=colour, label="median")
    axes.axhline(floor, color=ARM_LINES["q-localadam"].color, linestyle="--", linewidth=0.9)
    axes.annotate(
        "floor of the released code",
        (1, floor),
        (-3, 2),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        fontsize=SMALL,
        color=ARM_LINES["q-localadam"].color,
    )
    axes.set(yscale="log", xlabel="Round")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.margins(x=0)


def _layer_shares(axes: Axes, shares: pd.DataFrame, most: float) -> None:
    every = max(1, len(shares.columns) // 8)
    sns.heatmap(shares, ax=axes, cmap="cividis", vmin=0, vmax=most, cbar=False, yticklabels=1, xticklabels=every)
    axes.set(xlabel="Round", ylabel="")
    axes.tick_params(length=0, labelsize=SMALL, labelrotation=0)


def model_size(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """The share of variances below the floor, and the length of each arm's way, against the number of parameters."""
    dataset, labels = spec["where"]["dataset"], spec["labels"]["arm"]
    table = pd.read_csv(files[f"model_size.{dataset}"])
    floor = json.loads(files[f"summary.{dataset}"].read_text())["floor"]
    figure = Figure((PAGE, 2.5), layout="constrained")
    share, way = figure.subplots(1, 2)
    fp32 = table[table["arm"] == "fp32"]
    share.plot(fp32["parameters"], 100 * (fp32["zero"] + fp32["below"]), **ARM_LINES["fp32"]._asdict())
    share.set(ylabel=f"Variances below $10^{{{np.log10(floor):.0f}}}$ (%)", ylim=(0, 100))
    lines = {arm: line for arm, line in arm_colours(labels).items() if arm in as_list(spec["where"]["arm"])}
    for arm, line in lines.items():
        of_arm = table[table["arm"] == arm]
        way.plot(of_arm["parameters"], of_arm["relative_way"], label=labels[arm], **line._asdict())
    way.axhline(1, color=GREY, linewidth=0.7, zorder=1.5)
    way.set(ylabel="Length of the way\nover FP32's")
    way.set_ylim(0, 1.08 * max(1, way.dataLim.ymax))  # a line at 1 does not lie on the frame
    for axes in (share, way):
        axes.set(xscale="log", xlabel="Parameters")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(fp32["parameters"], [EngFormatter(places=1, sep="")(count) for count in fp32["parameters"]])
    figure.suptitle(f"{spec['labels']['dataset'][dataset]}, first {fp32['steps'].iloc[0]} steps")
    figure.legend(*way.get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    return figure


def microscope(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Loss and largest error of each step of a client, a column for each data set and a line for each arm."""
    datasets, labels = as_list(spec["where"]["dataset"]), spec["labels"]
    lines = {arm: line for arm, line in arm_colours(labels["arm"]).items() if arm in as_list(spec["where"]["arm"])}
    figure = Figure((PAGE, 4), layout="constrained")
    grid = figure.subplots(2, len(datasets), sharex="col", squeeze=False)
    for dataset, column in zip(datasets, grid.T, strict=True):
        table = pd.read_csv(files[f"by_step.{dataset}"])
        table = table[table["arm"].isin(lines)]
        for position, (arm, line) in enumerate(lines.items()):
            of_arm = table[table["arm"] == arm]
            every = -(-len(of_arm) // 6)
            marks = (position * every // len(lines), every)
            for axes, name in zip(column, ("loss", "max"), strict=True):
                axes.plot("step", name, data=of_arm, label=labels["arm"][arm], markevery=marks, **line._asdict())
        column[0].set_title(labels["dataset"][dataset])
        column[1].set_xlabel("Local step")
        column[1].xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        column[1].axhline(1, color=GREY, linewidth=0.7, zorder=1.5)
        column[1].set_yscale("log")
        column[1].yaxis.set_minor_locator(NullLocator())
        if table["loss"].max() > 20 * table["loss"].iloc[0]:  # an arm has thrown its weights away
            column[0].set_yscale("log")
    grid[0, 0].set_ylabel("Loss of the batch")
    grid[1, 0].set_ylabel("Largest error of a step\n(learning rates)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


KINDS: dict[str, Callable[[Spec, Sequence[pd.DataFrame], Files], Figure]] = {
    "convergence": convergence,
    "contrasts": contrasts,
    "registered": forest.figure,
    "distributions": distributions,
    "precision": precision,
    "client_memory": client_memory,
    "heatmap": heatmap,
    "steps": steps,
    "step_layers": step_layers,
    "variance": variance,
    "model_size": model_size,
    "microscope": microscope,
}
