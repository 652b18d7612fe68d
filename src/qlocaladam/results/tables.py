"""Every table of the paper, built from training runs and analyses as an entry of config.yaml says.

A kind of table is one function in `KINDS`. What is bold or marked follows from the numbers, never from an arm's name.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.data.dataset import WINDOW
from qlocaladam.experiments.grid import GRID, as_list, text, typed
from qlocaladam.experiments.runs import ALL_ROUNDS, METRICS, collapsed
from qlocaladam.federated.partition import IID
from qlocaladam.results import registered, released
from qlocaladam.results.latex import (
    BREAK,
    NONE,
    Column,
    Group,
    Table,
    bold,
    escape,
    listed,
    marked,
    power_of_ten,
    signed,
)

Spec = Mapping[str, Any]
Files = Mapping[str, Path]
Row = dict[str, Any]

DATASET = Column("Data set", "l")
ALPHA = Column(r"$\alpha$", "l")
ROWS = {
    "arm": Column("Arm", "l"),
    "block_size": Column(rf"Block{BREAK}size"),
    "lr": Column(rf"Learning{BREAK}rate"),
    "loss_scale": Column(rf"Loss{BREAK}times"),
    "clients": Column("Clients"),
    "clients_per_round": Column(rf"Clients{BREAK}a round"),
    "states": Column("States", "l"),
    "alpha": ALPHA,
    "seed": Column("Seed"),
}
"""What the rows of a table of runs can stand for."""
HEADS = {
    "best": rf"Best acc.{BREAK}(\%)",
    "final": rf"Final acc.{BREAK}(\%)",
    "last_third": rf"Last third{BREAK}(\%)",
    "mean": rf"All rounds{BREAK}(\%)",
    "memory": rf"Opt. mem.{BREAK}(MB)",
    "difference": rf"Difference{BREAK}(pp)",
}
MISSING_NOTE = "$^{m}$~missing: runs that the configuration asks for are not there; a mean is over the others."
STARS = ((0.01, "**"), (0.05, "*"))
SCATTER = 0.05
"""The level of the test whether an arm scatters more than the others."""


def build(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """The table of this entry, from the runs that it selects (None where nothing is trained) and the analyses."""
    kind = _known(spec, "kind", spec["kind"], KINDS)
    return KINDS[kind](spec, runs, files)


def _runs(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """One row for each value of `rows` in each data set. The data have every metric, whatever `columns` shows."""
    runs, by = _trained(spec, runs), _known(spec, "rows", spec["rows"], ROWS)
    shown = _unique(_known(spec, "columns", name, HEADS) for name in spec["columns"])
    results = _results(spec, runs, files, (by,))
    groups = []
    for dataset, rows in _grouped(results, "dataset"):
        labels = [_label(spec, by, row[by]) for row in rows]
        cells = {name: CELLS[name](rows) for name in shown}
        for name in [name for name in METRICS if name in shown][:1]:
            cells[name] = _flagged(cells[name], rows)
        groups.append(Group(list(zip(labels, *cells.values(), strict=True)), _label(spec, "dataset", dataset)))
    return Table(
        name=spec["name"],
        caption=_trained_caption(spec, runs, shown, varied=by),
        columns=[DATASET, ROWS[by], *(Column(HEADS[name]) for name in shown)],
        groups=groups,
        data=_frame(results),
        notes=_notes(spec, results, shown),
    )


def _heterogeneity(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """One row for each alpha, or value of `rows`; accuracies and memory of the arms beside each other."""
    runs, by = _trained(spec, runs), _known(spec, "rows", spec.get("rows", "alpha"), ROWS)
    results = _results(spec, runs, files, (by, "arm"))
    asked = _asked(spec, runs)
    several = asked["dataset"].nunique() > 1
    groups = []
    for dataset, of_dataset in _grouped(results, "dataset"):
        rows = [
            [_label(spec, by, value), *itertools.chain.from_iterable(_metrics(arms)), *_memories(arms)]
            for value, arms in _grouped(of_dataset, by)
        ]
        groups.append(Group(rows, _label(spec, "dataset", dataset).replace(" ", BREAK) if several else None))
    arms = [_label(spec, "arm", arm).replace(" ", BREAK) for arm in asked["arm"].unique()]
    shared = [HEADS[name].replace(BREAK, " ") for name in (*METRICS, "memory")]
    return Table(
        name=spec["name"],
        caption=_trained_caption(spec, runs, (*METRICS, "memory"), varied=by),
        columns=[*[DATASET] * several, ROWS[by], *(Column(arm, "c", over) for over in shared for arm in arms)],
        groups=groups,
        data=_frame(results),
        notes=_notes(spec, results, (*METRICS, "memory")),
    )


def _multiseed(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Means over seeds and tests against the reference arm, for each data set with its alpha."""
    runs = _trained(spec, runs)
    results = {
        _place(row): row for row in _results(spec, runs, files, ("alpha", "arm")) if row["runs"] or row.get("missing")
    }
    tests = {_place(row): row for row in _read(files["multiseed"])}
    untested = dict.fromkeys(next(iter(tests.values()), {}), "")
    rows = [  # `mean` is that of the best accuracies, which are tested; what it is of all rounds has another name here
        {**untested, **row, ALL_ROUNDS: row["mean"], f"{ALL_ROUNDS}_std": row.get("mean_std", math.nan)}
        | {**test, "best": _number(test.get("mean")), "best_std": _number(test.get("std"))}
        for row, test in ((row, tests.get(place, {})) for place, row in results.items())
    ]
    groups = []
    for (dataset, alpha), arms in _grouped(rows, "dataset", "alpha"):
        cells = [
            [_label(spec, "arm", row["arm"]) for row in arms],
            _flagged(_accuracies(arms), arms),
            [_difference_with_interval(row) for row in arms],
            *([_p_value(_number(row[name])) for row in arms] for name in ("p", "welch_p")),
            *(_means(arms, name) for name in ("last_third", "final", ALL_ROUNDS)),
            _memories(arms),
        ]
        label = rf"{_label(spec, 'dataset', dataset)}{BREAK}{_alpha(alpha)}"
        groups.append(Group(list(zip(*cells, strict=True)), label))
    heads = (
        *(HEADS["best"], rf"Difference (pp){BREAK}[95\% interval]", rf"$p${BREAK}(pooled)", rf"$p${BREAK}(Welch)"),
        *(rf"Last{BREAK}third", rf"Final{BREAK}(\%)", rf"All{BREAK}(\%)", HEADS["memory"]),
    )
    return Table(
        name=spec["name"],
        caption=_trained_caption(spec, runs, (*METRICS, "memory"), varied="alpha"),
        columns=[DATASET, ROWS["arm"], *map(Column, heads)],
        groups=groups,
        data=_frame(rows),
        notes=[*_notes(spec, rows, (*METRICS, "memory")), *_test_notes(spec, rows)],
    )


def _contrasts(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """The metrics of each arm, and how far the first of them is from the baseline's. The data have the others', too."""
    runs = _trained(spec, runs)
    rows = _read(files["contrasts"])
    rows += _untested(spec, rows)
    by_metric = {metric: {_place(row): row for row in rows if row["metric"] == metric} for metric in METRICS}
    shown = [row for row in rows if row["metric"] == METRICS[0]]
    _count_missing(spec, shown, ["dataset", "alpha", "arm"])
    groups = []
    for (dataset, alpha), arms in _grouped(shown, "dataset", "alpha"):
        means = {
            metric: [
                {metric: _number(row["mean"]), f"{metric}_std": _number(row["std"] if metric == METRICS[0] else "")}
                for row in (of_metric.get(_place(arm), {"mean": "", "std": ""}) for arm in arms)
            ]
            for metric, of_metric in by_metric.items()
        }
        first, *others = (_accuracies(cells, metric) for metric, cells in means.items())
        cells = [
            [_label(spec, "arm", row["arm"]) for row in arms],
            _flagged(first, [{"missing": row.get("missing")} for row in arms]),
            [_difference_with_interval(row) for row in arms],
            [_interval(row, "simultaneous") for row in arms],
            *others,
            [_seeds_needed(row) for row in arms],
            [f"{row['collapsed'] or 0} of {row['runs'] or 0}" for row in arms],
        ]
        label = rf"{_label(spec, 'dataset', dataset)}{BREAK}{_alpha(alpha)}"
        groups.append(Group(list(zip(*cells, strict=True)), label))
    heads = (
        *(HEADS["last_third"], rf"Difference (pp){BREAK}[95\% interval]", rf"Simultaneous{BREAK}interval"),
        *(rf"{name}{BREAK}(\%)" for name in ("Best", "Final", "All")),
        *(rf"Seeds{BREAK}needed", rf"Col-{BREAK}lapsed"),
    )
    return Table(
        name=spec["name"],
        caption=_trained_caption(spec, runs, METRICS, varied="alpha"),
        columns=[DATASET, ROWS["arm"], *map(Column, heads)],
        groups=groups,
        data=_frame(rows),
        notes=_contrast_notes(spec, rows),
    )


def _untested(spec: Spec, rows: list[Row]) -> list[Row]:
    """Empty rows for arms of which all runs are missing."""
    there = {_place(row) for row in rows}
    places = {_place(place): place for place in spec.get("places", []) if _place(place) not in there}
    blank = {**dict.fromkeys(rows[0], ""), "metric": METRICS[0]}
    return [{**blank, **dict(zip(("dataset", "alpha", "arm"), place, strict=True))} for place in places]


def _released(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """What is printed, what was released and what is rebuilt, line by line, of one part: all would fill two pages."""
    rows = [row for row in released.load(files["released"]) if row["part"] == spec["part"]]
    for row in rows:
        row["arms"] = "; ".join(_label(spec, "arm", arm) for arm in row["arms"])
    cells = [
        [
            escape(row["what"]),
            f"{escape(row['printed'])} ({escape(row['place'])})",
            f"{escape(row['released'])} ({escape(released.place(row))})",
            escape(row["here"]) + (f" ({row['arms']})" if row["arms"] else ""),
        ]
        for row in rows
    ]
    first = rows[0]
    repository, script = (escape(first[name]).replace("/", r"/\allowbreak ") for name in ("repository", "file"))
    return Table(
        name=spec["name"],
        caption=f"{_opening(spec)} Released: {repository}, {script}, commit {first['commit'][:7]}. "
        "In brackets behind what is rebuilt here: arms that do otherwise.",
        columns=[Column(head, rf"p{{{width}\textwidth}}") for head, width in RELEASED_COLUMNS.items()],
        groups=[Group([[rf"{{\raggedright {cell}\par}}" for cell in row] for row in cells])],
        data=_frame(rows),
    )


RELEASED_COLUMNS = {"": 0.11, "Printed": 0.24, "Released": 0.31, "Here": 0.25}
"""Heads, and widths as shares of the page."""

CLIENT_PARTS = {
    "activations": rf"Acti-{BREAK}vations",
    "weights": "Weights",
    "gradients": rf"Gra-{BREAK}dients",
    "states": "States",
}


def _client_memory(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """All that a client holds while it trains, at the paper's image size, and what an arm saves of it."""
    rows = _analysed(spec, files, "client_memory")
    sizes = _unique(row["image_size"] for row in rows)
    saved = {(row["dataset"], row["arm"], row["image_size"]): _number(row["saved_percent"]) for row in rows}
    groups = []
    for dataset, of_dataset in _grouped((row for row in rows if row["image_size"] == sizes[0]), "dataset"):
        cells = [
            [
                _label(spec, "arm", row["arm"]),
                *(f"{_number(row[f'{part}_bytes']) / 1e6:,.1f}" for part in (*CLIENT_PARTS, "total")),
                *(_fixed(saved[dataset, row["arm"], size], 1) for size in sizes),
            ]
            for row in of_dataset
        ]
        groups.append(Group(cells, _label(spec, "stands_for", dataset)))
    batch = listed(_unique(row["batch_size"] for row in rows))
    return Table(
        name=spec["name"],
        caption=_analysed_caption(
            spec,
            rf"MB ($10^6$ bytes) that a client holds in a step with {batch} images of ${sizes[0]}\times{sizes[0]}$, "
            r"and what it holds less than with FP32 states, as a share of all (\%), there and with smaller images.",
        ),
        columns=[
            *(DATASET, ROWS["arm"]),
            *(Column(head, over="Held (MB)") for head in (*CLIENT_PARTS.values(), "In all")),
            *(Column(rf"${size}^2$", over=r"Less (\%)") for size in sizes),
        ],
        groups=groups,
        data=_frame(rows),
        notes=[
            "Activations: all that automatic differentiation keeps for the backward pass, the images among it, each "
            "piece of memory once. Weights with running statistics. States in the paper's layout. The sum of all; "
            "gradients come as activations go, so that the peak of an allocator may be lower."
        ],
    )


def _scaling(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Memory against the number of parameters, in both layouts."""
    rows = _analysed(spec, files, "scaling")
    cells = [
        [
            _parameters(int(row["parameters"])),
            _mebibytes(_number(row["fp32_mib"])),
            *itertools.chain.from_iterable(
                (_mebibytes(_number(row[f"{layout}_mib"])), rf"{_number(row[f'{layout}_ratio']):.2f}$\times$")
                for layout in ("held", "published")
            ),
        ]
        for row in rows
    ]
    over = _label(spec, "arm", "q-localadam")
    return Table(
        name=spec["name"],
        caption=_analysed_caption(spec, r"1~MiB is $2^{20}$ bytes; the ratio is FP32 to the column before."),
        columns=[
            Column("Parameters"),
            Column(rf"{_label(spec, 'arm', 'fp32')}{BREAK}(MiB)"),
            *(
                Column(head, over=over)
                for layout in ("Held", "Published")
                for head in (rf"{layout}{BREAK}(MiB)", "Ratio")
            ),
        ],
        groups=[Group(cells)],
        data=_frame(rows),
        notes=[
            "Held: a minimum and a maximum for each block, which is what this package stores and what the paper's "
            "own table of this kind counts. Published: a third number for each block, which its other tables count."
        ],
    )


def _data_distribution(spec: Spec, runs: pd.DataFrame | None, files: Files, with_ratio: bool = False) -> Table:
    """How unlike each other the clients are, for each data set and alpha."""
    rows = _analysed(spec, files, "heterogeneity")
    groups = []
    for dataset, of_dataset in _grouped(rows, "dataset"):
        cells = [
            [
                _label(spec, "alpha", row["alpha"]),
                _published(row, "percent"),
                *([_published(row, "ratio", r"$\times$")] * with_ratio),
                _truncated(_number(row["sample_std"])),
                escape(row["heterogeneity"]),
            ]
            for row in of_dataset
        ]
        groups.append(Group(cells, _label(spec, "stands_for", dataset)))
    clients = listed(_unique(row["clients"] for row in rows))
    return Table(
        name=spec["name"],
        caption=_analysed_caption(
            spec,
            rf"The dominant class is a client's most frequent one; its share is an average over {clients} clients, "
            "the standard deviation is that of their sample counts, cut to a whole number.",
        ),
        columns=[
            DATASET,
            ALPHA,
            Column(rf"Dominant{BREAK}class (\%)"),
            *[Column("Ratio")] * with_ratio,
            Column(rf"Sample{BREAK}std."),
            Column(rf"Hetero-{BREAK}geneity", "l"),
        ],
        groups=groups,
        data=_frame(rows),
        notes=_rounding_notes(spec, rows),
    )


def _clients(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """What each client holds, for each alpha."""
    rows = _analysed(spec, files, "clients")
    several = len({row["dataset"] for row in rows}) > 1
    groups = []
    for (dataset, alpha), clients in _grouped(rows, "dataset", "alpha"):
        cells = [
            [
                f"C{row['client']}",
                f"{int(row['samples']):,}",
                _dominant(row),
                _fixed(_number(row["dominant_percent"]), 1),
            ]
            for row in clients
        ]
        both = f"{_label(spec, 'stands_for', dataset)}{BREAK}{_alpha(alpha)}"
        groups.append(Group(cells, both if several else _label(spec, "alpha", alpha)))
    return Table(
        name=spec["name"],
        caption=_analysed_caption(spec, "The dominant class is a client's most frequent one."),
        columns=[
            DATASET if several else ALPHA,
            Column("Client", "l"),
            Column("Samples"),
            Column(rf"Dominant{BREAK}class", "l"),
            Column(rf"Share{BREAK}(\%)"),
        ],
        groups=groups,
        data=_frame(rows),
    )


STEP_COLUMNS = {
    "median": Column("Median", over="Error (learning rates)"),
    "p99": Column(rf"99th{BREAK}perc.", over="Error (learning rates)"),
    "max": Column("Largest", over="Error (learning rates)"),
    "idle_max": Column(rf"Largest,{BREAK}$v=0$", over="Error (learning rates)"),
    "over_ten_lr": Column(rf"off by{BREAK}10 rates", over=r"Steps (\%)"),
    "over_ten": Column(rf"10 times{BREAK}too large", over=r"Steps (\%)"),
    "under_ten": Column(rf"10 times{BREAK}too small", over=r"Steps (\%)"),
}


def _steps(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """How far off the last step of a client is with the states that each arm had stored."""
    rows, groups, clients = [], [], []
    chosen = {**spec, "where": {"arm": spec["where"]["arm"], "layer": "all"}}
    for dataset in as_list(spec["where"]["dataset"]):
        of_dataset = _analysed(chosen, files, f"steps.{dataset}")
        rows += [{"dataset": dataset, **row} for row in of_dataset]
        found = json.loads(files[f"summary.{dataset}"].read_text())
        last = [row for row in of_dataset if int(row["step"]) == found["steps"]]
        cells = [[_label(spec, "arm", row["arm"]), *(_step_cell(row, name) for name in STEP_COLUMNS)] for row in last]
        groups.append(Group(cells, _label(spec, "dataset", dataset)))
        clients.append(_client(_label(spec, "dataset", dataset), found))
    return Table(
        name=spec["name"],
        caption=" ".join(
            [
                _opening(spec),
                rf"Scale \emph{{{escape(spec['scale'])}}}: a client's last local step, {listed(clients)}.",
                "The states that it has reached in FP32 are stored by each arm, and the step is taken from what is "
                "read back; its error is the distance from the exact step.",
            ]
        ),
        columns=[DATASET, ROWS["arm"], *STEP_COLUMNS.values()],
        groups=groups,
        data=_frame(rows),
        notes=[
            "Over the weights whose variance is above 0, but for the column of those where it is 0. "
            "Steps of exactly 0 are not compared by their length."
        ],
    )


def _variance(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Shares of the weights whose variance is 0, or below the floor, by part of the model, first and last round."""
    data, groups, trained = [], [], []
    for dataset in as_list(spec["where"]["dataset"]):
        rows, label = pd.read_csv(files[f"variance.{dataset}"]), _label(spec, "dataset", dataset)
        found = json.loads(files[f"summary.{dataset}"].read_text())
        rounds = rows["round"].iloc[[0, -1]]
        parts = rows.groupby(rows["layer"].str.split(".").str[0], sort=False)
        cells = [
            [escape(part), *(cell for number in rounds for cell in _shares(of_part[of_part["round"] == number]))]
            for part, of_part in parts
        ]
        groups.append(Group(cells, label))
        trained.append(f"{rounds.iloc[-1]} rounds at {_alpha(str(found['partition']['alpha']))} ({label})")
        data.append(rows[rows["round"].isin(rounds)].assign(dataset=dataset))
    places = ("First round", "Last round")
    return Table(
        name=spec["name"],
        caption=" ".join(
            [
                _opening(spec),
                rf"Scale \emph{{{escape(spec['scale'])}}}, in FP32: {listed(trained)}. Of the weights of all clients "
                r"of a round, the share (\%) whose variance is exactly 0, and the share above 0 but below the floor of "
                rf"the released code, {power_of_ten(found['floor'])}.",
            ]
        ),
        columns=[
            *(DATASET, Column("Part", "l")),
            *(Column(head, over=place) for place in places for head in ("$v=0$", rf"below{BREAK}floor")),
        ],
        groups=groups,
        data=pd.concat(data),
        notes=["Weights without a gradient in all of a client's steps have a variance of 0."],
    )


def _model_size(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """How long the way of each arm is relative to FP32's, and how many variances are below the floor, by width."""
    dataset = spec["where"]["dataset"]
    rows = pd.read_csv(files[f"model_size.{dataset}"])
    found = json.loads(files[f"summary.{dataset}"].read_text())
    arms = [arm for arm in rows["arm"].unique() if arm in as_list(spec["where"]["arm"])]
    cells = []
    for _, of_width in rows.groupby("width", sort=False):
        first, ways = of_width.iloc[0], of_width.set_index("arm")["relative_way"]
        shares = [_fixed(100 * first[name], 1) for name in ("zero", "below")]
        sizes = [f"{first['width']:.0f}", f"{first['parameters']:,.0f}"]
        cells.append([*sizes, *shares, *(_fixed(ways[arm], 3) for arm in arms)])
    trained = f"{found['steps']} steps of batches of {found['settings']['batch_size']}"
    return Table(
        name=spec["name"],
        caption=" ".join(
            [
                _opening(spec),
                rf"Scale \emph{{{escape(spec['scale'])}}}: {trained} windows of {_label(spec, 'dataset', dataset)}, "
                r"the same weights and batches for each arm. The share (\%) of weights whose variance in FP32 is 0 "
                "after the last step, or above 0 but below the floor of the released code, "
                f"{power_of_ten(found['floor'])}, and the length of all steps over that of FP32's.",
            ]
        ),
        columns=[
            *(Column("Width"), Column("Parameters"), Column("$v=0$"), Column(rf"below{BREAK}floor")),
            *(Column(_label(spec, "arm", arm).replace(" ", BREAK), over="Length of the way") for arm in arms),
        ],
        groups=[Group(cells)],
        data=rows.assign(dataset=dataset),
    )


MICROSCOPE_COLUMNS = {
    "median": Column("Median", over="Error (learning rates)"),
    "p99": Column(rf"99th{BREAK}perc.", over="Error (learning rates)"),
    "max": Column("Largest", over="Error (learning rates)"),
    "far": Column(rf"off by{BREAK}10 rates (\%)"),
    "relative_way": Column(rf"Way over{BREAK}exact"),
    "last_loss": Column(rf"Local{BREAK}loss"),
}


def _microscope(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Errors of all steps of one client, and where its loss ends, with each arm."""
    data, groups, clients = [], [], []
    for dataset in as_list(spec["where"]["dataset"]):
        label = _label(spec, "dataset", dataset)
        rows = _analysed({**spec, "where": {"arm": spec["where"]["arm"]}}, files, f"microscope.{dataset}")
        found = json.loads(files[f"summary.{dataset}"].read_text())
        cells = [[_label(spec, "arm", row["arm"]), *_microscope_cells(row)] for row in rows]
        groups.append(Group(cells, label))
        data += [{"dataset": dataset, **row} for row in rows]
        shares = {name: 100 * _number(rows[0][name]) for name in ("zero", "below")}
        size, width = (found["settings"][name] for name in ("image_size", "width"))
        clients.append(
            rf"{label}: client {found['client']} with {found['samples']:,} samples, {found['steps']} steps, "
            rf"width {width}, ${size}\times{size}$, $v=0$ {shares['zero']:.1f}\,\%, "
            rf"below the floor {shares['below']:.1f}\,\%"
        )
    return Table(
        name=spec["name"],
        caption=" ".join(
            [
                _opening(spec),
                rf"Scale \emph{{{escape(spec['scale'])}}}, the first round. {'; '.join(clients)}.",
                "Each arm trains by itself; an error is the distance of a weight's step from the one that exact "
                "states, made of the same gradients, would have taken.",
            ]
        ),
        columns=[DATASET, ROWS["arm"], *MICROSCOPE_COLUMNS.values()],
        groups=groups,
        data=_frame(data),
        notes=[
            "Median and percentile: medians over all steps. Largest and off by 10 rates: of the worst step. Way: the "
            "length of all steps over that with exact states. Loss: the mean of the last quarter of the batches. The "
            r"shares of $v$ are those of the first arm after its last step."
        ],
    )


def _microscope_cells(row: Row) -> list[str]:
    forms = {"far": lambda value: _fixed(100 * value), "last_loss": _fixed}
    return [forms.get(name, _two_digits)(_number(row[name])) for name in MICROSCOPE_COLUMNS]


def _shares(rows: pd.DataFrame) -> list[str]:
    """Of the layers together, in percent: by how many weights each has."""
    return [_fixed(100 * (rows[name] * rows["numel"]).sum() / rows["numel"].sum(), 1) for name in ("zero", "below")]


def _client(label: str, found: Row) -> str:
    alpha = _alpha(str(found["partition"]["alpha"]))
    return f"step {found['steps']} with {found['samples']:,} samples in round {found['round']} at {alpha} ({label})"


def _step_cell(row: Row, name: str) -> str:
    """An error with two digits, however large; a share in percent."""
    value = _number(row[name])
    if name not in ("over_ten", "under_ten", "over_ten_lr"):
        return NONE if math.isnan(value) else _two_digits(value)
    return "$<$0.01" if 0 < value < 5e-5 else _fixed(100 * value)


def _two_digits(value: float) -> str:
    rounded = float(f"{value:.1e}")
    if rounded == 0:
        return "0"
    if not 1e-3 <= rounded < 1e3:
        return power_of_ten(rounded)
    return f"{rounded:.{max(0, 1 - math.floor(math.log10(rounded)))}f}"


KINDS: dict[str, Callable[[Spec, pd.DataFrame | None, Files], Table]] = {
    "runs": _runs,
    "heterogeneity": _heterogeneity,
    "multiseed": _multiseed,
    "contrasts": _contrasts,
    "registered": registered.table,
    "released": _released,
    "client_memory": _client_memory,
    "scaling": _scaling,
    "data_distribution": _data_distribution,
    "data_distribution_summary": partial(_data_distribution, with_ratio=True),
    "clients": _clients,
    "steps": _steps,
    "variance": _variance,
    "model_size": _model_size,
    "microscope": _microscope,
}


# What goes into a table: runs that differ only in their seed are one result; analyses are rows of text.


def _trained(spec: Spec, runs: pd.DataFrame | None) -> pd.DataFrame:
    if runs is None or runs.empty:
        raise ValueError(f"table {spec['name']}: kind {spec['kind']!r} needs training runs, got none")
    return runs.drop_duplicates(list(GRID))


def _results(spec: Spec, runs: pd.DataFrame, files: Files, keys: Sequence[str]) -> list[Row]:
    """One result for each data set and value of the keys, in the order of the runs, also where there is no run."""
    names, asked = ["dataset", *keys], _asked(spec, runs)
    found = {place: same.to_dict("records") for place, same in runs.groupby(names, sort=False)}
    sizes = {_memory_key(row): row for row in _read(files["memory"])} if "memory" in files else {}
    places = itertools.product(*(asked[name].unique() for name in names))
    results = [_result(spec, dict(zip(names, p, strict=True)), found.get(p, []), sizes) for p in places]
    _count_missing(spec, results, names)
    for _, rows in _grouped(results, *names[:-1]):
        for row in rows:
            row["difference"] = row["best"] - rows[0]["best"]
    return results


def _asked(spec: Spec, runs: pd.DataFrame) -> pd.DataFrame:
    """The places of all runs that the configuration asks for: those of the runs, unless some are missing."""
    if "places" not in spec:
        return runs
    return pd.DataFrame([typed(place) for place in spec["places"]])


def _count_missing(spec: Spec, rows: Iterable[Row], names: list[str]) -> None:
    """Where runs are missing, how many of each row."""
    if "places" in spec:
        wanted = Counter(tuple(str(place[name]) for name in names) for place in spec["places"])
        for row in rows:
            row["missing"] = wanted[tuple(str(row[name]) for name in names)] - int(row["runs"] or 0)


def _result(spec: Spec, place: Row, runs: list[Row], sizes: Mapping[tuple[str, ...], Row]) -> Row:
    if not runs:
        return {**place, "runs": 0, **dict.fromkeys((*METRICS, "memory_bytes"), math.nan)}
    _check_only_seeds_differ(spec, place, runs)
    run, accuracies = runs[0], pd.DataFrame(runs)[list(METRICS)].astype(float)
    mean, deviation = accuracies.mean(skipna=False), accuracies.std(ddof=1, skipna=False)
    paper = sizes.get(_memory_key(run), {})
    return {
        **{name: run[name] for name in GRID if name != "seed"},
        **place,
        "runs": len(runs),
        "seeds": " ".join(str(run["seed"]) for run in runs),
        **{name: mean[name] for name in METRICS},
        **{f"{name}_std": deviation[name] for name in METRICS},
        "best_round": " ".join(str(run["best_round"]) for run in runs),
        "diverged": sum(bool(run["diverged"]) for run in runs),
        "chance": 100 / run["classes"],
        "collapsed": bool(collapsed(pd.DataFrame(runs)).any()),
        **{name: run[name] for name in ("parameters", "held_bytes", "published_bytes")},
        **{f"paper_{name}": paper.get(name) for name in ("parameters", "held_bytes", "published_bytes")},
        "memory_bytes": int((paper or run)["published_bytes"]),
    }


def _check_only_seeds_differ(spec: Spec, place: Row, runs: list[Row]) -> None:
    for name in GRID[:-1]:
        values = _unique(str(run[name]) for run in runs)
        if len(values) > 1:
            where = ", ".join(f"{key}={value}" for key, value in place.items())
            raise ValueError(
                f"table {spec['name']}: {name} is {', '.join(values)} in the one row for {where}; "
                f"runs of a row may differ in their seed only: choose one {name} with `where`, or rows: {name}"
            )


def _memory_key(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["arm"], str(row["block_size"])


def _place(row: Row) -> tuple[str, ...]:
    return row["dataset"], row["alpha"], row["arm"]


def _read(path: Path) -> list[Row]:
    """The rows of an analysis, as text: an alpha may be a word, and numbers stay as they were written."""
    rows: list[Row] = pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
    return rows


def _analysed(spec: Spec, files: Files, name: str) -> list[Row]:
    """The rows of an analysis that `where` selects."""
    rows = _read(files[name])
    columns = list(rows[0]) if rows else []
    for key, wanted in spec.get("where", {}).items():
        _known(spec, "where", key, columns)
        accepted = {word for value in as_list(wanted) for word in (str(value), text(value))}
        rows = [row for row in rows if row[key] in accepted]
    if not rows:
        raise ValueError(f"table {spec['name']}: where {dict(spec.get('where', {}))} selects no row of {files[name]}")
    return rows


def _number(cell: object) -> float:
    return math.nan if cell in ("", None) else float(str(cell))


def _frame(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(rows, dtype=object)  # whole numbers stay whole beside cells that are empty


def _grouped(rows: Iterable[Row], *names: str) -> list[tuple[Any, list[Row]]]:
    """Rows by what these columns hold, in order of appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        groups.setdefault(key, []).append(row)
    return list(groups.items())


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _known(spec: Spec, key: str, value: str, accepted: Collection[str]) -> str:
    if value not in accepted:
        raise ValueError(f"table {spec['name']}: {key} must be one of {', '.join(accepted)}, got {value!r}")
    return value


# Cells: one of each row of a group, because what is bold depends on the others.


def _fixed(value: float, digits: int = 2) -> str:
    return NONE if math.isnan(value) else f"{value:.{digits}f}"


def _extreme(values: Sequence[float], choose: Callable[[Iterable[float]], float]) -> list[int]:
    """Where the highest or lowest stand, as printed; nowhere if all are equal: there is nothing to point out."""
    printed = {i: round(value, 2) for i, value in enumerate(values) if not math.isnan(value)}
    if len(set(printed.values())) < 2:
        return []
    extreme = choose(printed.values())
    return [i for i, value in printed.items() if value == extreme]


def _accuracies(rows: Sequence[Row], name: str = "best") -> list[str]:
    """Mean and, of several runs, deviation; the highest is bold."""
    highest = _extreme([row[name] for row in rows], max)
    deviations = [row.get(f"{name}_std", math.nan) for row in rows]
    spreads = ["" if math.isnan(deviation) else rf"$\pm${deviation:.2f}" for deviation in deviations]
    return [bold(_fixed(row[name]) + spreads[i], i in highest) for i, row in enumerate(rows)]


def _means(rows: Sequence[Row], name: str) -> list[str]:
    """Without deviations, for which there is no room where a metric is not the one that counts."""
    return _accuracies([{name: row[name]} for row in rows], name)


def _metrics(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Every metric of these rows; the first has marks and deviations."""
    yield _flagged(_accuracies(rows, METRICS[0]), rows)
    yield from (_means(rows, name) for name in METRICS[1:])


def _flagged(cells: Iterable[str], rows: Iterable[Row]) -> list[str]:
    """With marks where an arm collapsed or diverged, or where runs are missing."""
    flags = [
        "c" * bool(row.get("collapsed")) + "d" * bool(row.get("diverged")) + "m" * bool(row.get("missing"))
        for row in rows
    ]
    return list(itertools.starmap(marked, zip(cells, flags, strict=True)))


def _memories(rows: Sequence[Row]) -> list[str]:
    """The lowest is bold; of several that share it, the most accurate."""
    megabytes = [row["memory_bytes"] / 1e6 for row in rows]
    # A model that was trained here is not compared with the paper's.
    own = all(map(_measured_here, rows))
    compared = [size if own or not _measured_here(row) else math.nan for size, row in zip(megabytes, rows, strict=True)]
    lowest = _extreme(compared, min)
    most_accurate = max(lowest, key=lambda i: -math.inf if math.isnan(rows[i]["best"]) else rows[i]["best"], default=-1)
    return [
        marked(bold(_fixed(size), i == most_accurate), r"\dagger" if _measured_here(row) else "")
        for i, (size, row) in enumerate(zip(megabytes, rows, strict=True))
    ]


def _measured_here(row: Row) -> bool:
    return row["runs"] > 0 and row["paper_published_bytes"] is None


def _differences(rows: Sequence[Row]) -> list[str]:
    """Against the first row."""
    return [NONE if not i or math.isnan(row["difference"]) else signed(row["difference"]) for i, row in enumerate(rows)]


CELLS: dict[str, Callable[[Sequence[Row]], list[str]]] = {
    "best": _accuracies,
    **{name: partial(_accuracies, name=name) for name in METRICS if name != "best"},
    "memory": _memories,
    "difference": _differences,
}


def _difference_with_interval(row: Row) -> str:
    difference, low, high = (_number(row[name]) for name in ("difference", "ci_low", "ci_high"))
    if math.isnan(difference):
        return NONE
    return signed(difference) + ("" if math.isnan(low) else f" [{signed(low)}, {signed(high)}]")


def _interval(row: Row, name: str) -> str:
    low, high = (_number(row[f"{name}_{end}"]) for end in ("low", "high"))
    return NONE if math.isnan(low) else f"[{signed(low)}, {signed(high)}]"


def _p_value(p: float) -> str:
    """Bold and with stars where it is significant."""
    stars = next((stars for level, stars in STARS if p < level), "")
    return marked(bold(_p_text(p), bool(stars)), stars)


def _p_text(p: float) -> str:
    if math.isnan(p):
        return NONE
    return "$<$0.001" if p < 0.001 else f"{p:.3f}"


def _seeds_needed(row: Row) -> str:
    """A dash where nothing was tested; where no number of seeds would do, infinity."""
    if row["p"] == "":
        return NONE
    return f"{int(row['seeds_needed']):,}" if row["seeds_needed"] else r"$\infty$"


def _published(row: Row, name: str, unit: str = "") -> str:
    """One decimal, as the float is: the paper's 4.5 and 1.4 are the floats 4.55 and 1.35, below and above the half."""
    cell = _fixed(_number(row[f"published_{name}"]), 1)
    return marked(cell if cell == NONE else cell + unit, "r" if _rounds_otherwise(row) else "")


def _rounds_otherwise(row: Row) -> bool:
    return _fixed(_number(row["published_percent"]), 1) != _fixed(_number(row["dominant_percent"]), 1)


def _truncated(value: float) -> str:
    return NONE if math.isnan(value) else f"{int(value):,}"


def _mebibytes(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _parameters(count: int) -> str:
    unit, letter = next(((u, c) for u, c in ((10**9, "B"), (10**6, "M"), (10**3, "K")) if count >= u), (1, ""))
    return f"{count / unit:g}{letter}"


def _dominant(row: Row) -> str:
    """The class, and its name where it has one beside its number."""
    number, name = row["dominant"], row["dominant_name"]
    if number == "":
        return NONE
    return f"{number} ({escape(name)})" if name not in ("", number) else str(number)


def _label(spec: Spec, name: str, value: Any) -> str:
    """A value of the grid in words. `stands_for` is a data set of the paper, whatever stands in its place."""
    if name == "stands_for":
        return escape(spec["stands_for"].get(value, value))
    if name in ("lr", "loss_scale"):
        return power_of_ten(value)
    if name == "alpha":
        return "IID" if value == IID else escape(value)
    return escape(spec["labels"].get(name, {}).get(value, value))


def _alpha(value: str) -> str:
    return "IID" if value == IID else rf"$\alpha={escape(value)}$"


# Captions and notes: what was trained and on what, so that no table can be taken for the paper's own.


def _trained_caption(spec: Spec, runs: pd.DataFrame, shown: Collection[str], varied: str) -> str:
    sentences = [
        _opening(spec),
        rf"Scale \emph{{{escape(spec['scale'])}}}: {listed(_data(spec, runs))}.",
        f"{', '.join(_setup(spec, runs, varied))}.",
        "Accuracy is measured on the test set; best is the highest of all rounds, and so chosen on the test set, too.",
    ]
    if "memory" in shown:
        sentences.append(r"Memory is that of the paper's own models in the paper's layout; 1~MB is $10^6$ bytes.")
    if "difference" in shown:
        sentences.append("Differences of the best accuracy in percentage points, against the first row of a data set.")
    return " ".join(sentences)


def _analysed_caption(spec: Spec, *sentences: str) -> str:
    return " ".join([_opening(spec), "At the paper's own size whatever the scale, for nothing is trained.", *sentences])


def _opening(spec: Spec) -> str:
    return escape(spec["caption"].rstrip(". ")) + "."


def _data(spec: Spec, runs: pd.DataFrame) -> list[str]:
    """The data sets, how large they are, and what they stand in the place of."""
    words = []
    for dataset, own in runs.groupby("dataset", sort=False):
        label, original = _label(spec, "dataset", dataset), spec["stands_for"].get(dataset)
        sizes = _unique(
            f"{run['training_images']:,} training and {run['test_images']:,} test {_samples(run)}"
            for run in own.to_dict("records")
        )
        place = f", in the place of {escape(original)}" if original and escape(original) != label else ""
        words.append(f"{label} ({' or '.join(sizes)}{place})")
    return words


def _setup(spec: Spec, runs: pd.DataFrame, varied: str) -> list[str]:
    """How the models were trained; what differs between data sets is said for each."""

    def said(form: Callable[[Row], str]) -> str:
        each = {
            dataset: " or ".join(_unique(form(run) for run in rows))
            for dataset, rows in _grouped(runs.to_dict("records"), "dataset")
        }
        if len(set(each.values())) == 1:
            return next(iter(each.values()))
        return listed([f"{words} ({_label(spec, 'dataset', dataset)})" for dataset, words in each.items()])

    seeds = _unique(str(seed) for seed in runs["seed"])
    return [
        said(lambda run: "Transformer" if _is_text(run) else "ResNet-18"),
        said(lambda run: f"width {run['width']}"),
        said(
            lambda run: (
                f"{WINDOW} characters" if _is_text(run) else rf"${run['image_size']}\times{run['image_size']}$ inputs"
            )
        ),
        *([said(lambda run: _alpha(run["alpha"]))] if varied != "alpha" else []),
        said(lambda run: _counted(run["rounds"], "round")),
        said(lambda run: f"{run['clients_per_round']} of {_counted(run['clients'], 'client')} a round"),
        said(lambda run: _counted(run["epochs"], "local epoch")),
        f"seed{'s' * (len(seeds) > 1)} {listed(seeds)}",
    ]


def _is_text(run: Row) -> bool:
    return bool(pd.isna(run["image_size"]))


def _samples(run: Row) -> str:
    return "windows" if _is_text(run) else "images"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _notes(spec: Spec, rows: Sequence[Row], shown: Collection[str]) -> list[str]:
    """What the marks mean that stand in a table of runs."""
    accuracy = any(name in shown for name in METRICS)
    chances = {row["dataset"]: row["chance"] for row in rows if row.get("collapsed")}
    levels = listed([rf"{level:g}\,\% ({_label(spec, 'dataset', dataset)})" for dataset, level in chances.items()])
    notes = {
        rf"$^{{c}}$~collapsed: ends below twice the chance level of {levels}.": accuracy and bool(chances),
        "$^{d}$~diverged: in at least one run weights were not finite any more and training ended.": accuracy
        and any(row.get("diverged") for row in rows),
        r"$^{\dagger}$~of the model trained here: the paper has no size for it.": "memory" in shown
        and any(map(_measured_here, rows)),
        MISSING_NOTE: any(row.get("missing") for row in rows),
        r"$\pm$ is the sample standard deviation over seeds.": any(row["runs"] > 1 for row in rows),
        f"{NONE} in a whole row or for an arm: there is no such run.": any(
            row["runs"] == 0 and not row.get("missing") for row in rows
        ),
    }
    return [note for note, needed in notes.items() if needed]


def _test_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """What the tests are, what the stars mean, and why a test is missing."""
    levels = ", ".join(rf"$^{{{stars}}}$~$p<{level}$" for level, stars in STARS)
    return [
        rf"{levels}: two-sample $t$-tests with pooled variances and Welch's, not corrected for their number; "
        "the intervals are pooled.",
        *_reason_notes(spec, rows),
    ]


def _contrast_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """What was compared and how, and that nothing follows from it."""
    shown = [row for row in rows if row["metric"] == METRICS[0]]
    own = [row for row in shown if row["variance"] == "paired"]
    baseline = _label(spec, "arm", spec.get("baseline", "fp32"))
    names = _unique(_label(spec, "arm", row["arm"]) for row in own)
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
        *_reason_notes(spec, shown),
    ]


def _pair_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """Which runs are in no comparison, and which arms scatter more than the intervals say."""
    named = [f"{_arms_by_dataset(spec, [row])[0]}, seed {row['left_out']}" for row in rows if row["left_out"]]
    wide = [row for row in rows if _number(row["scatter_p"]) < SCATTER]
    notes = []
    if named:
        notes.append(f"In no comparison, for want of a run of the baseline or of an accuracy: {'; '.join(named)}.")
    if wide:
        test, arms = rf"$F$-test, $p<{SCATTER}$", "; ".join(_arms_by_dataset(spec, wide))
        notes.append(f"Scatter more than all arms together ({test}), so that intervals may be too narrow: {arms}.")
    return notes


def _reason_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """Why a test is missing, and for which arms."""
    missing = [row for row in rows if math.isnan(_number(row["p"])) and row["reason"]]
    return [
        f"{NONE} {escape(reason.rstrip('. '))} ({'; '.join(_arms_by_dataset(spec, same))})."
        for reason, same in _grouped(missing, "reason")
    ]


def _arms_by_dataset(spec: Spec, rows: Sequence[Row]) -> list[str]:
    return [
        f"{_label(spec, 'dataset', dataset)}: {listed([_label(spec, 'arm', row['arm']) for row in same])}"
        for dataset, same in _grouped(rows, "dataset")
    ]


def _rounding_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    cells = [
        rf"{_label(spec, 'stands_for', row['dataset'])}, {_alpha(row['alpha'])}: "
        rf"{_fixed(_number(row['dominant_percent']), 1)}\,\%"
        for row in rows
        if _rounds_otherwise(row)
    ]
    note = "$^{r}$~the average of the clients' percentages after rounding, as published; exactly it would be"
    return [f"{note} {listed(cells)}."] if cells else []
