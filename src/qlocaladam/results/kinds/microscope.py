"""One client of the paper's partition in its first round, step by step with each arm: table and figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.experiments.consistency import arms_of_this_package, of_text
from qlocaladam.experiments.grid import DEFAULTS, as_list
from qlocaladam.files import table_rows
from qlocaladam.results import columns
from qlocaladam.results.analyses import arm_request, arm_settings, own_size
from qlocaladam.results.captions import at_scale
from qlocaladam.results.cells import ERRORS, fixed, two_digits
from qlocaladam.results.columns import column
from qlocaladam.results.kind import Analysis, AsFigure, AsTable, Axes, Config, Figure, Files, Kind, Layout, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, latex
from qlocaladam.results.latex import BREAK, Column, Group, Table
from qlocaladam.results.number import Form, Label, Number, numbers_of
from qlocaladam.results.rows import Row, as_number, client_analysis, frame
from qlocaladam.results.style import GREY, PAGE, Line, chosen_lines, label_below, sheet, whole_numbers

COLUMNS = {
    **ERRORS,
    "far": Column(rf"off by{BREAK}10 rates (\%)"),
    "relative_way": Column(rf"Path,{BREAK}relative"),
    "last_loss": Column(rf"Local{BREAK}loss"),
}


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Errors of all steps of one client, and where its loss ends, with each arm."""
    data, groups, clients = [], [], []
    for dataset, rows, summary in client_analysis(spec, files, "microscope"):
        label = latex(spec, "dataset", dataset)
        groups.append(Group([[latex(spec, "arm", row["arm"]), *_cells(row)] for row in rows], label))
        data += [{"dataset": dataset, **row} for row in rows]
        clients.append(f"{label}: {_client(summary, rows[0])}")
    return Table(
        name=spec["name"],
        caption=f"{at_scale(spec)}, the first round. {'; '.join(clients)}. "
        "Each arm trains by itself; an error is the distance of a weight's step from the one that exact "
        "states, made of the same gradients, would have taken.",
        columns=[DATASET, ROWS["arm"], *COLUMNS.values()],
        groups=groups,
        data=frame(data),
        notes=[
            "Median and percentile: medians over all steps. Largest and off by 10 rates: of the worst step. Path: the "
            "length of all steps relative to that with exact states. Loss: mean of the last quarter of the batches. "
            r"The shares of $v$ are those of the first arm after its last step."
        ],
    )


def _client(summary: Row, first: Row) -> str:
    """What was trained, and the shares of the variance with the first arm."""
    size, width = (summary["settings"][name] for name in ("image_size", "width"))
    zero, below = (rf"{100 * as_number(first[name]):.1f}\,\%" for name in ("zero", "below"))
    return (
        rf"client {summary['client']} with {summary['samples']:,} samples, {summary['steps']} steps, width {width}, "
        rf"${size}\times{size}$, $v=0$ {zero}, below the floor {below}"
    )


def _cells(row: Row) -> list[str]:
    forms = {"far": lambda value: fixed(100 * value), "last_loss": fixed}
    return [forms.get(name, two_digits)(as_number(row[name])) for name in COLUMNS]


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Files) -> Figure:
    """Loss and largest error of each step of a client, a column for each data set and a line for each arm."""
    datasets = as_list(spec["where"]["dataset"])
    drawn = sheet(PAGE, 4)
    grid = drawn.subplots(2, len(datasets), sharex="col", squeeze=False)
    for dataset, panels in zip(datasets, grid.T, strict=True):
        _panels(panels, pd.read_csv(files[f"by_step.{dataset}"]), chosen_lines(spec), spec["labels"]["arm"])
        panels[0].set_title(spec["labels"]["dataset"][dataset])
    grid[0, 0].set_ylabel("Loss of the batch")
    grid[1, 0].set_ylabel("Largest error of a step\n(learning rates)")
    label_below(drawn, grid[0, 0], 4)
    return drawn


def _panels(panels: Sequence[Axes], table: pd.DataFrame, lines: Mapping[str, Line], names: Mapping[str, str]) -> None:
    loss, error = panels
    table = table[table["arm"].isin(lines)]
    for position, (arm, line) in enumerate(lines.items()):
        of_arm = table[table["arm"] == arm]
        every = -(-len(of_arm) // 6)
        marks = (position * every // len(lines), every)
        for axes, name in ((loss, "loss"), (error, "max")):
            axes.plot(of_arm["step"], of_arm[name], label=names[arm], markevery=marks, **line._asdict())
    error.set_xlabel("Local step")
    whole_numbers(error)
    error.axhline(1, color=GREY, linewidth=0.7, zorder=1.5)
    error.set_yscale("log")
    error.yaxis.minorticks_off()
    if table["loss"].max() > 20 * table["loss"].iloc[0]:  # an arm has thrown its weights away
        loss.set_yscale("log")


def numbers(dataset: str, path: Path, label: Label) -> Iterator[Number]:
    forms: dict[str, Form] = {"steps": "d", "median": ".2g", "p99": ".2g", "max": ".2g", "relative_way": ".3g"}
    forms |= {"first_loss": ".2f", "last_loss": ".2f"}
    forms |= {"zero_percent": ".1f", "below_percent": ".1f", "far_percent": ".2f"}
    for row in table_rows(pd.read_csv(path)):
        row |= {f"{name}_percent": 100 * row[name] for name in ("zero", "below", "far")}
        of = {"kind": "microscope", "dataset": dataset, "arm": row["arm"]}
        yield from numbers_of(of, row, forms, path, label(dataset))


def _size(layout: Layout, dataset: str) -> dict[str, Any]:
    """The paper's own models and images, where a scale does not say otherwise."""
    from qlocaladam.models import PAPER_MODELS  # takes seconds to import, which few configurations need

    width = PAPER_MODELS.get(dataset, {}).get("width", DEFAULTS["width"])
    return own_size(layout, "microscope", width=width, image_size=224)


def _settings(layout: Layout, dataset: str) -> dict[str, Any]:
    return arm_settings(layout, dataset, "epochs", "stem", "flip")


def options(layout: Layout, dataset: str) -> dict[str, Any]:
    return {**_settings(layout, dataset), **_size(layout, dataset)}


def request(layout: Layout, dataset: str) -> dict[str, Any]:
    size = _size(layout, dataset)
    settings = {**_settings(layout, dataset), **{name: size[name] for name in ("width", "image_size")}}
    return {**arm_request(layout, "microscope", dataset), "settings": settings, "most_steps": size.get("steps")}


def check(config: Config, key: str, entry: Config) -> None:
    of_text(config, key, entry, wanted=False)
    arms_of_this_package(config, key, entry)


FOLDER = "{analysis}/microscope/{dataset}"
KIND = Kind(
    section="Optimizer states",
    table=AsTable(
        table,
        "The first round of one client of the paper's partition, at scale {scale}: each arm trains by itself. An "
        "error is the distance of a weight's step from the one that exact states, made of the same gradients, would "
        "have taken, in learning rates; the largest and the share are those of the worst step.",
        reads={"microscope": f"{FOLDER}/microscope.csv", "summary": f"{FOLDER}/summary.json"},
        keys={"where": ref("datasets_and_arms")},
        check=check,
        columns={
            "Steps": column("steps"),
            **columns.ERRORS,
            "Off by 10 learning rates (%)": column("far", ".3f", 0.01),
            "Path length relative to exact states": column("relative_way", ".3g"),
            "First loss": column("first_loss", ".3f"),
            "Last loss": column("last_loss", ".3f"),
            "v is 0 (%)": column("zero", ".2f", 0.01),
            "v below the floor (%)": column("below", ".2f", 0.01),
        },
    ),
    figure=AsFigure(
        figure,
        "The first round of one client of the paper's partition at scale *{scale}*, step by step. Above the loss of "
        "each batch, below the largest distance of a weight's step from the one that exact states, made of the same "
        "gradients, would have taken, in learning rates. Each arm trains by itself, from the same weights and on the "
        "same batches.",
        reads={"by_step": f"{FOLDER}/microscope_by_step.csv"},
        keys={"where": ref("datasets_and_arms")},
        check=check,
        title="Loss and largest error of each step of one client, with each arm",
    ),
    analysis=Analysis(
        "microscope",
        ("microscope.csv", "microscope_by_step.csv", "summary.json"),
        options,
        request,
        size={"width": ref("positive"), "image_size": ref("image_size"), "steps": ref("positive")},
        partition=False,
        mem_mb=4000,
        minutes=600,
    ),
    quotes=f"{FOLDER}/microscope.csv",
    numbers=numbers,
)
