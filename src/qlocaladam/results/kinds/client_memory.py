"""All that a client holds while it trains, and how little of it optimizer states are: table and bars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from qlocaladam.experiments.consistency import of_the_paper
from qlocaladam.experiments.grid import as_list
from qlocaladam.files import table_rows
from qlocaladam.results.captions import SIZE_OF_THE_PAPER, analysed_caption
from qlocaladam.results.cells import fixed
from qlocaladam.results.columns import column
from qlocaladam.results.kind import AsFigure, AsTable, Axes, Config, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, latex
from qlocaladam.results.latex import BREAK, Column, Group, Table, listed
from qlocaladam.results.rows import Row, analysed, as_number, frame, grouped, unique
from qlocaladam.results.style import PAGE, SMALL, label_below, sheet

PARTS = {
    "activations": (rf"Acti-{BREAK}vations", "activations", "#d4d4d4"),
    "weights": ("Weights", "weights", "#0072B2"),
    "gradients": (rf"Gra-{BREAK}dients", "gradients", "#56B4E9"),
    "states": ("States", "optimizer states", "#D55E00"),
}
"""Of what a client holds: the head of the column; in the figure label and colour."""


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """All that a client holds while it trains, at the paper's image size, and what an arm saves of it."""
    rows = analysed(spec, files, "client_memory")
    sizes = unique(row["image_size"] for row in rows)
    saved = {(row["dataset"], row["arm"], row["image_size"]): as_number(row["saved_percent"]) for row in rows}

    def cells(row: Row) -> list[str]:
        megabytes = (f"{as_number(row[f'{part}_bytes']) / 1e6:,.1f}" for part in (*PARTS, "total"))
        shares = (fixed(saved[row["dataset"], row["arm"], size], 1) for size in sizes)
        return [latex(spec, "arm", row["arm"]), *megabytes, *shares]

    groups = [
        Group([cells(row) for row in of_dataset], latex(spec, "stands_for", dataset))
        for dataset, of_dataset in grouped((row for row in rows if row["image_size"] == sizes[0]), "dataset")
    ]
    batch = listed(unique(row["batch_size"] for row in rows))
    return Table(
        name=spec["name"],
        caption=analysed_caption(
            spec,
            rf"MB ($10^6$ bytes) that a client holds in a step with {batch} images of ${sizes[0]}\times{sizes[0]}$, "
            r"and what it holds less than with FP32 states, as a share of all (\%), there and with smaller images.",
        ),
        columns=[
            *(DATASET, ROWS["arm"]),
            *(Column(head, over="Held (MB)") for head in (*(head for head, _, _ in PARTS.values()), "In all")),
            *(Column(rf"${size}^2$", over=r"Less (\%)") for size in sizes),
        ],
        groups=groups,
        data=frame(rows),
        notes=[
            "Activations: all that automatic differentiation keeps for the backward pass, the images among it, each "
            "piece of memory once. Weights with running statistics. States in the paper's layout. The sum of all; "
            "gradients come as activations go, so that the peak of an allocator may be lower."
        ],
    )


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """All that a client holds with each arm, a bar for each, at the largest size of images."""
    datasets, arms = (as_list(spec["where"][name]) for name in ("dataset", "arm"))
    table = pd.read_csv(files["client_memory"])
    table = table[(table["image_size"] == table["image_size"].max()) & table["arm"].isin(arms)]
    drawn = sheet(PAGE, 1.1 + 0.2 * len(arms))
    grid = drawn.subplots(1, len(datasets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, dataset in zip(grid, datasets, strict=True):
        bars = table[table["dataset"] == dataset].set_index("arm").loc[arms]
        _client_bars(axes, bars)
        axes.set(yticks=range(len(arms)), yticklabels=[spec["labels"]["arm"][arm] for arm in arms])
        axes.set_title(spec["stands_for"].get(dataset, dataset))
        axes.set_xlabel(f"Held in a step with {bars['batch_size'].iloc[0]} images (MB)")
    grid[-1].set_xlim(right=1.85 * table["total_bytes"].max() / 1e6)  # room for what stands behind the bars
    label_below(drawn, grid[0], len(PARTS))
    return drawn


def _client_bars(axes: Axes, bars: pd.DataFrame) -> None:
    """One above the other in the order of the table, with the sum and what is saved behind each."""
    places, left = range(len(bars)), np.zeros(len(bars))
    for part, (_, label, colour) in PARTS.items():
        width = bars[f"{part}_bytes"].to_numpy() / 1e6
        axes.barh(places, width, 0.72, left, color=colour, edgecolor="white", linewidth=0.4, label=label)
        left = left + width
    for place, row in zip(places, table_rows(bars), strict=True):
        saved = f", {row['saved_percent']:.1f} % less" if row["saved_percent"] else ""
        words = f" {row['total_bytes'] / 1e6:,.0f}, states {row['states_bytes'] / 1e6:.1f}{saved}"
        axes.text(left[place], place, words, fontsize=SMALL, va="center")
        middle = row["activations_bytes"] / 2e6
        axes.text(middle, place, f"{row['activations_bytes'] / 1e6:,.0f}", fontsize=SMALL, va="center", ha="center")
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.grid(False)


def check(config: Config, key: str, entry: Config) -> None:
    of_the_paper(key, entry["where"], ("dataset", "arm"))


KIND = Kind(
    section="Precision and memory",
    table=AsTable(
        table,
        SIZE_OF_THE_PAPER,
        reads={"client_memory": "{exact}/client_memory.csv"},
        keys={"where": ref("datasets_and_arms")},
        check=check,
        columns={
            "Image size": column("image_size"),
            **{f"{part.capitalize()} (MB)": column(f"{part}_bytes", ",.1f", 1e6) for part in PARTS},
            "In all (MB)": column("total_bytes", ",.1f", 1e6),
            "Less than with FP32 states (%)": column("saved_percent", ".2f"),
        },
    ),
    figure=AsFigure(
        figure,
        "All that a client holds in a training step of the paper's size, with each arm, in MB: what automatic "
        "differentiation keeps for the backward pass, weights, gradients and optimizer states. Behind each bar its "
        "sum, the states, and what is saved against FP32 states. Nothing is trained, so this is the same at every "
        "scale.",
        reads={"client_memory": "{exact}/client_memory.csv"},
        keys={"where": ref("datasets_and_arms")},
        check=check,
        title="What a whole client holds while it trains, and how little of it optimizer states are",
    ),
    exact=True,
)
