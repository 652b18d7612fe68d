"""The floor against the size of the model, first steps of transformers of several widths: table and figure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qlocaladam.experiments.consistency import arms_of_this_package, of_text
from qlocaladam.experiments.grid import as_list
from qlocaladam.files import table_rows
from qlocaladam.results.analyses import arm_request, arm_settings, own_size
from qlocaladam.results.captions import at_scale
from qlocaladam.results.cells import fixed
from qlocaladam.results.columns import column
from qlocaladam.results.kind import Analysis, AsFigure, AsTable, Config, Figure, Files, Kind, Layout, Spec, ref
from qlocaladam.results.labels import latex
from qlocaladam.results.latex import BREAK, Column, Group, Table, power_of_ten
from qlocaladam.results.number import Label, Number, Row, number, numbers_of
from qlocaladam.results.style import ARM_LINES, GREY, PAGE, TITLE, chosen_lines, label_ends, sheet

USUAL: dict[str, Any] = {"widths": [48, 128, 256, 512], "steps": 20}
"""Where a scale does not say otherwise."""


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """The path length of each arm relative to FP32's, and how many variances are below the floor, by width."""
    dataset = spec["where"]["dataset"]
    rows = pd.read_csv(files[f"model_size.{dataset}"])
    summary = json.loads(files[f"summary.{dataset}"].read_text())
    arms = [arm for arm in rows["arm"].unique() if arm in as_list(spec["where"]["arm"])]
    cells = []
    for _, of_width in rows.groupby("width", sort=False):
        first, ways = of_width.iloc[0], of_width.set_index("arm")["relative_way"]
        shares = [fixed(100 * first[name], 1) for name in ("zero", "below")]
        sizes = [f"{first['width']:.0f}", f"{first['parameters']:,.0f}"]
        cells.append([*sizes, *shares, *(fixed(ways[arm], 3) for arm in arms)])
    trained = f"{summary['steps']} steps of batches of {summary['settings']['batch_size']}"
    return Table(
        name=spec["name"],
        caption=f"{at_scale(spec)}: {trained} windows of {latex(spec, 'dataset', dataset)}, "
        r"the same weights and batches for each arm. The share (\%) of weights whose variance in FP32 is 0 "
        "after the last step, or above 0 but below the floor of the released code, "
        f"{power_of_ten(summary['floor'])}, and the path length, the sum of all steps, relative to FP32's.",
        columns=[
            *(Column("Width"), Column("Parameters"), Column("$v=0$"), Column(rf"below{BREAK}floor")),
            *(Column(latex(spec, "arm", arm).replace(" ", BREAK), over="Path length") for arm in arms),
        ],
        groups=[Group(cells)],
        data=rows.assign(dataset=dataset),
    )


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """The share of variances below the floor, and the path length of each arm, against the number of parameters."""
    from matplotlib.ticker import EngFormatter

    dataset, labels = spec["where"]["dataset"], spec["labels"]["arm"]
    table = pd.read_csv(files[f"model_size.{dataset}"])
    floor = json.loads(files[f"summary.{dataset}"].read_text())["floor"]
    drawn = sheet(PAGE, 2.5)
    share, way = drawn.subplots(1, 2)
    fp32 = table[table["arm"] == "fp32"]
    share.plot(fp32["parameters"], 100 * (fp32["zero"] + fp32["below"]), **ARM_LINES["fp32"]._asdict())
    share.set(ylabel=f"Variances below $10^{{{np.log10(floor):.0f}}}$ (%)", ylim=(0, 100))
    lines = chosen_lines(spec)
    for arm, line in lines.items():
        of_arm = table[table["arm"] == arm]
        way.plot(of_arm["parameters"], of_arm["relative_way"], label=labels[arm], **line._asdict())
    way.axhline(1, color=GREY, linewidth=0.7, zorder=1.5)
    way.set(ylabel="Path length relative to FP32")
    way.set_ylim(0, 1.08 * max(1, way.dataLim.ymax))  # a line at 1 does not lie on the frame
    for axes in (share, way):
        axes.set(xscale="log", xlabel="Parameters")
        axes.xaxis.minorticks_off()
        axes.set_xticks(fp32["parameters"], [EngFormatter(places=1, sep="")(count) for count in fp32["parameters"]])
    share.set_title(f"{spec['labels']['dataset'][dataset]}, after {fp32['steps'].iloc[0]} steps of FP32")
    way.set_title("The same steps with each arm")
    drawn.suptitle(_finding(table, lines, labels))
    label_ends(drawn)
    return drawn


def _finding(table: pd.DataFrame, arms: Collection[str], labels: Mapping[str, str]) -> str:
    """The smallest and the largest model: how many variances are below the floor, and which of these paths is the
    shortest."""
    sizes = table["parameters"]
    ends = [table[sizes == size].set_index("arm") for size in (sizes.min(), sizes.max())]
    below = [100 * of_size.loc["fp32", ["zero", "below"]].sum() for of_size in ends]
    shortest = ends[-1].loc[list(arms), "relative_way"].idxmin()
    first, last = (of_size.loc[shortest, "relative_way"] for of_size in ends)
    words = f"Larger models: {below[0]:.0f} to {below[1]:.0f} % of variances below the floor, "
    return textwrap.fill(f"{words}path of {labels[shortest]} {first:.2f} to {last:.2f} of FP32's", TITLE)


def numbers(dataset: str, path: Path, label: Label) -> Iterator[Number]:
    """By place, the smallest model first; what widths there are is for the configuration to say."""
    by_width = [of_width for _, of_width in pd.read_csv(path).groupby("width")]
    on = label(dataset)
    for place, of_width in enumerate(by_width, 1):
        of, first = {"kind": "model_size", "dataset": dataset, "size": place}, table_rows(of_width)[0]
        yield from numbers_of(of, first, {"width": "d", "parameters": ",d"}, path, on)
        yield from _of_width(of, of_width, path, on)
    yield from _of_width({"kind": "model_size", "dataset": dataset, "size": "largest"}, by_width[-1], path, on)


def _of_width(of: Row, rows: pd.DataFrame, path: Path, on: str) -> Iterator[Number]:
    below = 100 * rows[["zero", "below"]].iloc[0].sum()
    yield number({**of, "quantity": "below_percent"}, below, ".1f", path, on=on)
    for row in table_rows(rows):
        yield from numbers_of({**of, "arm": row["arm"]}, row, {"relative_way": ".2f"}, path, on)


def options(layout: Layout, dataset: str) -> dict[str, Any]:
    size = own_size(layout, "model_size", **USUAL)
    images = {"train_images": layout.size["datasets"][dataset].get("train_images")}
    return {**arm_settings(layout, dataset), **images, **size}


def request(layout: Layout, dataset: str) -> dict[str, Any]:
    asked = arm_request(layout, "model_size", dataset, "training_images")
    return {**asked, "settings": arm_settings(layout, dataset), **own_size(layout, "model_size", **USUAL)}


def check(config: Config, key: str, entry: Config) -> None:
    of_text(config, key, entry, wanted=True)
    arms_of_this_package(config, key, entry)


WIDTHS = {
    "type": "array",
    "minItems": 1,
    "description": "a list of multiples of 4",
    "items": {"type": "integer", "minimum": 4, "multipleOf": 4, "description": "a multiple of 4"},
}
FOLDER = "{analysis}/model_size/{dataset}"
READS = {"model_size": f"{FOLDER}/model_size.csv", "summary": f"{FOLDER}/summary.json"}
KIND = Kind(
    section="Optimizer states",
    table=AsTable(
        table,
        "First steps of transformers of several widths, at scale {scale}: each arm trains from the same weights on "
        "the same batches. The path length is the sum of all steps; v is the variance after the last one; the floor "
        "is that of the released code.",
        reads=READS,
        keys={"where": ref("dataset_and_arms")},
        check=check,
        columns={
            "Width": column("width"),
            "Parameters": column("parameters", ",.0f"),
            "Steps": column("steps"),
            "Path length (learning rates)": column("way", ",.1f"),
            "Path length relative to FP32": column("relative_way", ".3f"),
            "Loss of the last batch": column("loss", ".3f"),
            "v is 0 in FP32 (%)": column("zero", ".2f", 0.01),
            "v below the floor in FP32 (%)": column("below", ".2f", 0.01),
        },
    ),
    figure=AsFigure(
        figure,
        "First steps of transformers of several widths at scale *{scale}*, against the number of their parameters. On "
        "the left the share of variances in FP32 training that are below the floor of the released code; on the "
        "right the path length of each arm relative to FP32's, from the same weights and on the same batches.",
        reads=READS,
        keys={"where": ref("dataset_and_arms")},
        check=check,
        title="The floor against the size of the model: variances below it, and how far each arm goes",
    ),
    analysis=Analysis(
        "model_size",
        ("model_size.csv", "summary.json"),
        options,
        request,
        size={"widths": WIDTHS, "steps": ref("positive")},
        partition=False,
        mem_mb=1500,
        minutes=60,
    ),
    quotes=READS["model_size"],
    numbers=numbers,
)
