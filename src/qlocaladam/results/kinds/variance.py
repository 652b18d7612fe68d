"""The variance of Adam on clients, and its share below the floor of the released code: table and figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from qlocaladam.experiments.grid import as_list
from qlocaladam.files import table_rows
from qlocaladam.results.analyses import run_options, run_request
from qlocaladam.results.captions import at_scale
from qlocaladam.results.cells import fixed
from qlocaladam.results.columns import column
from qlocaladam.results.kind import Analysis, AsFigure, AsTable, Axes, Figure, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, alpha_latex, latex
from qlocaladam.results.latex import BREAK, Column, Group, Table, escape, listed, power_of_ten
from qlocaladam.results.number import Label, Number, numbers_of
from qlocaladam.results.style import ARM_LINES, PAGE, SMALL, sheet, whole_numbers


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Shares of the weights whose variance is 0, or below the floor, by part of the model, first and last round."""
    data, groups, trained = [], [], []
    for dataset in as_list(spec["where"]["dataset"]):
        rows, label = pd.read_csv(files[f"variance.{dataset}"]), latex(spec, "dataset", dataset)
        summary = json.loads(files[f"summary.{dataset}"].read_text())
        rounds = rows["round"].iloc[[0, -1]]
        parts = rows.groupby(rows["layer"].str.split(".").str[0], sort=False)
        cells = [
            [escape(part), *(cell for number in rounds for cell in _shares(of_part[of_part["round"] == number]))]
            for part, of_part in parts
        ]
        groups.append(Group(cells, label))
        trained.append(f"{rounds.iloc[-1]} rounds at {alpha_latex(str(summary['partition']['alpha']))} ({label})")
        data.append(rows[rows["round"].isin(rounds)].assign(dataset=dataset))
    places = ("First round", "Last round")
    return Table(
        name=spec["name"],
        caption=f"{at_scale(spec)}, in FP32: {listed(trained)}. Of the weights of all clients "
        r"of a round, the share (\%) whose variance is exactly 0, and the share above 0 but below the floor of "
        rf"the released code, {power_of_ten(summary['floor'])}.",
        columns=[
            *(DATASET, Column("Part", "l")),
            *(Column(head, over=place) for place in places for head in ("$v=0$", rf"below{BREAK}floor")),
        ],
        groups=groups,
        data=pd.concat(data),
        notes=["Weights without a gradient in all of a client's steps have a variance of 0."],
    )


def _shares(rows: pd.DataFrame) -> list[str]:
    """Of the layers together, in percent: by how many weights each has."""
    return [fixed(100 * (rows[name] * rows["numel"]).sum() / rows["numel"].sum(), 1) for name in ("zero", "below")]


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """How large variances are by round, and in which layers they are below the floor; weights with a gradient only."""
    datasets = as_list(spec["where"]["dataset"])
    tables = {dataset: pd.read_csv(files[f"variance.{dataset}"]) for dataset in datasets}
    shares = {dataset: _below_floor(table) for dataset, table in tables.items()}
    drawn = sheet(PAGE, 5.6)
    grid = drawn.subplots(2, len(datasets), sharey="row", squeeze=False, height_ratios=[2, 3.4])
    for dataset, (spans, layers) in zip(datasets, grid.T, strict=True):
        table = tables[dataset]
        floor = json.loads(files[f"summary.{dataset}"].read_text())["floor"]
        _variance_spans(spans, table[table["layer"] == "all"], floor)
        spans.set_title(spec["labels"]["dataset"][dataset])
        _layer_shares(layers, shares[dataset], most=max(1.0, *(share.max().max() for share in shares.values())))
    grid[0, 0].set_ylabel("Variance $v$ above 0")
    colours = drawn.colorbar(grid[1, 0].collections[0], ax=grid[1].tolist(), location="bottom", aspect=40, pad=0.02)
    colours.set_label("Weights with a gradient whose variance is below the floor (%)")
    drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return drawn


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
    axes.plot(rows["round"], rows["median"], color=colour, label="median")
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
    axes.yaxis.minorticks_off()
    whole_numbers(axes)
    axes.margins(x=0)


def _layer_shares(axes: Axes, shares: pd.DataFrame, most: float) -> None:
    import seaborn as sns

    every = max(1, len(shares.columns) // 8)
    sns.heatmap(shares, ax=axes, cmap="cividis", vmin=0, vmax=most, cbar=False, yticklabels=1, xticklabels=every)
    axes.set(xlabel="Round", ylabel="")
    axes.tick_params(length=0, labelsize=SMALL, labelrotation=0)


def numbers(dataset: str, path: Path, label: Label) -> Iterator[Number]:
    """Of all weights of the clients of the first and the last round, those without a gradient counted as 0."""
    rows = pd.read_csv(path)
    forms = {"zero_percent": ".1f", "below_percent": ".1f", "p10": ".1e", "median": ".1e", "p90": ".1e"}
    for when, row in zip(("first", "last"), table_rows(rows[rows["layer"] == "all"].iloc[[0, -1]]), strict=True):
        row |= {f"{name}_percent": 100 * row[name] for name in ("zero", "below")}
        of = {"kind": "variance", "dataset": dataset, "when": when}
        yield from numbers_of(of, row, forms, path, label(dataset))


FOLDER = "{analysis}/variance/{dataset}"
READS = {"variance": f"{FOLDER}/variance.csv", "summary": f"{FOLDER}/summary.json"}
KIND = Kind(
    section="Optimizer states",
    table=AsTable(
        table,
        "Clients of a run at scale {scale}, in FP32: the variance v of every weight at the end of local training, all "
        "clients of a round together. Percentiles are over the weights whose v is above 0; the floor is that of the "
        "released code.",
        reads=READS,
        keys={"where": ref("datasets")},
        columns={
            "Round": column("round"),
            "Layer": column("layer"),
            "Weights of all clients": column("numel", ",.0f"),
            "v is 0 (%)": column("zero", ".2f", 0.01),
            "v below the floor (%)": column("below", ".2f", 0.01),
            "10th percentile of v": column("p10", ".1e"),
            "Median of v": column("median", ".1e"),
            "90th percentile of v": column("p90", ".1e"),
        },
    ),
    figure=AsFigure(
        figure,
        "Where the variance v of Adam lives on the clients of an FP32 run at scale *{scale}*, at the end of local "
        "training. Above how large it is round by round; below, for each layer that is a matrix, the share of weights "
        "whose variance is below the floor of the released code, which is the dashed line above. Weights without any "
        "gradient are left out.",
        reads=READS,
        keys={"where": ref("datasets")},
        title="The variance of Adam on clients by round, and its share below the floor by layer",
    ),
    analysis=Analysis("variance", ("variance.csv", "summary.json"), run_options, run_request),
    quotes=READS["variance"],
    numbers=numbers,
)
