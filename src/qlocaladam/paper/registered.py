"""The answers to the registered questions as a table and as a forest plot."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from qlocaladam.analysis.registered import EXPLORATORY, MISSING, NO, OPEN, YES
from qlocaladam.paper.latex import BREAK, NONE, Column, Group, Table, bold, escape, signed
from qlocaladam.paper.runs import METRICS
from qlocaladam.paper.style import FAR, GREY, PAGE, SMALL, far_off

EXPECTED = {
    "worse": "below",
    "better": "above",
    "equivalent": "equivalent to",
    "not_worse": "not below",
}
COLOURS = {YES: "#0072b2", NO: "#d55e00", EXPLORATORY: GREY, OPEN: GREY}
"""Of answers; those that are no answers yet have hollow markers, too."""
MARKERS = {YES: "o", NO: "X", EXPLORATORY: "D", OPEN: "s"}
HEADS = {"last_third": rf"Last{BREAK}third", "best": "Best", "final": "Final", "mean": "All"}
INTERVAL = ("tost_ci_low", "difference", "tost_ci_high")

Spec = Mapping[str, Any]


def table(spec: Spec, runs: pd.DataFrame | None, files: Mapping[str, Path]) -> Table:
    """A row for each question and data set, and the answer of the question."""
    rows = _read(files["answers"])
    groups = []
    for _, own in rows.groupby("question", sort=False):
        first = own.iloc[0]
        answer = bold(first["answer"], first["answer"] in (YES, NO))
        status = "" if first["status"] == "final" else rf" ({escape(first['status'])})"
        cells = [
            [
                _claim(spec, row) if place == 0 else "",
                escape(spec["labels"]["dataset"][row["dataset"]]),
                _number(row["difference"], signed) + _ends(row),
                *(_number(row[f"{name}_difference"], signed) for name in METRICS if name != row["metric"]),
                _number(row["margin"], "{:.2f}".format) if row["expected"] in ("equivalent", "not_worse") else NONE,
                _p(row["p"]),
                f"{row['n']:.0f} of {row['seeds_wanted']}",
                answer + status if place == 0 else "",
            ]
            for place, row in enumerate(own.to_dict("records"))
        ]
        groups.append(Group(cells))
    heads = (
        *("Question", "Data set", rf"Difference (pp){BREAK}[90\% interval]"),
        *(HEADS[name] for name in METRICS if name != rows["metric"].iloc[0]),
        *(rf"Margin{BREAK}(pp)", "$p$", "Seeds"),
    )
    columns = [*(Column(head, "l" if place < 2 else "r") for place, head in enumerate(heads)), Column("Answer", "l")]
    return Table(spec["name"], _caption(spec, rows), columns, groups, rows, notes=[*NOTES, *_reason_notes(spec, rows)])


NOTES = [
    r"Registered in \texttt{paper/registered.yaml} before any run with these seeds existed. Differences are of the "
    r"mean test accuracy over the last third of the rounds, from $\mathit{metric}\sim\mathit{arm}+\mathit{seed}$, or "
    r"from paired runs where an arm collapsed. Yes: the test succeeds at 5\,\% on both data sets. Questions are tested "
    "in this order, each as long as those before it were answered yes; the rest is exploratory. Best, final and all: "
    "differences of the best round, of the last and of the mean of all rounds, which decide nothing.",
]


def _reason_notes(spec: Spec, rows: pd.DataFrame) -> list[str]:
    """What tests leave out, and why there is none though there are runs; what is missing stands in the table."""
    told = rows[rows["reason"].notna() & (rows["status"] != MISSING)]
    return [
        f"{escape(row['question'])}, {escape(spec['labels']['dataset'][row['dataset']])}: {escape(row['reason'])}."
        for row in told.to_dict("records")
    ]


def _caption(spec: Spec, rows: pd.DataFrame) -> str:
    counts = rows.drop_duplicates("question")["answer"].value_counts()
    said = ", ".join(f"{counts[answer]} {answer}" for answer in (YES, NO, EXPLORATORY, OPEN) if answer in counts)
    return rf"{escape(spec['caption'].rstrip('. '))}. Scale \emph{{{escape(spec['scale'])}}}: {said}."


def _read(path: Path) -> pd.DataFrame:
    rows: pd.DataFrame = pd.read_csv(path, dtype={"alpha": str, "seeds": str})
    return rows


def _claim(spec: Spec, row: Mapping[str, Any]) -> str:
    arms = spec["labels"]["arm"]
    scaled = "" if row["loss_scale"] == 1 else rf", losses $\times${row['loss_scale']:g}"
    return rf"{escape(arms[row['arm']])} {EXPECTED[row['expected']]} {escape(arms[row['baseline']])}{scaled}"


def _number(value: float, form: Any) -> str:
    return NONE if pd.isna(value) else str(form(value))


def _ends(row: Mapping[str, Any]) -> str:
    if pd.isna(row["tost_ci_low"]):
        return ""
    return f" [{signed(row['tost_ci_low'])}, {signed(row['tost_ci_high'])}]"


def _p(value: float) -> str:
    return NONE if pd.isna(value) else "$<$0.001" if value < 0.001 else f"{value:.3f}"


def figure(spec: Spec, runs: Sequence[pd.DataFrame], files: Mapping[str, Path]) -> Figure:
    """Each question a row, each data set a panel: the difference in percent of the baseline, and the answer."""
    rows = _read(files["answers"])
    questions = list(rows["question"].unique())
    datasets = list(rows["dataset"].unique())
    drawn = Figure((PAGE, 0.9 + 0.42 * len(questions)), layout="constrained")
    panels = drawn.subplots(1, len(datasets), sharey=True, squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        _panel(axes, rows[rows["dataset"] == dataset], questions)
        axes.set(title=spec["labels"]["dataset"][dataset], xlabel="Difference (% of the baseline)")
    names = [textwrap.fill(asks, 38) for asks in rows.drop_duplicates("question")["asks"]]
    panels[0].set(yticks=range(len(questions)), ylim=(len(questions) - 0.5, -0.5))
    panels[0].set_yticklabels(names, fontsize=SMALL)
    answers = rows["answer"].unique()
    handles: list[Any] = [
        Line2D([], [], linestyle="", label=answer, **_marker(answer)) for answer in MARKERS if answer in answers
    ]
    handles += [
        Line2D([], [], color=GREY, linewidth=2, label="90 % interval"),
        Patch(color="#dfe8ef", label="margin of equivalence"),
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _panel(axes: Any, rows: pd.DataFrame, questions: list[str]) -> None:
    axes.axvline(0, color=GREY, linewidth=0.7)
    axes.grid(False, axis="y")
    tested = rows.dropna(subset="difference")
    if tested.empty:
        axes.set(xlim=(-1, 1), xticks=[])
    else:
        margin = 100 * (tested["margin"] / tested["baseline_mean"]).max()
        axes.axvspan(-margin, margin, color="#dfe8ef", linewidth=0, zorder=0)
        axes.set_xlim(_ends_of_axis(tested, margin))
    for row in rows.to_dict("records"):
        place = questions.index(row["question"])
        if pd.isna(row["difference"]):
            across = axes.get_yaxis_transform()
            said = {"ha": "center", "va": "center", "fontsize": SMALL, "color": GREY}
            axes.text(0.5, place, row["status"], transform=across, **said)
            continue
        ends = [100 * row[name] / row["baseline_mean"] for name in INTERVAL]
        if not axes.get_xlim()[0] <= ends[1] <= axes.get_xlim()[1]:
            far_off(axes, ends[1], place, COLOURS[row["answer"]])
            continue
        axes.plot(ends[::2], [place, place], color=COLOURS[row["answer"]], linewidth=2, solid_capstyle="butt")
        axes.plot(ends[1], place, **_marker(row["answer"]))


def _ends_of_axis(rows: pd.DataFrame, margin: float) -> tuple[float, float]:
    """All intervals fit, but for those of arms so far off that they would press the others together."""
    percent = rows[list(INTERVAL)].mul(100 / rows["baseline_mean"], axis=0)
    near = percent[percent["difference"].abs() <= FAR * margin]
    low, high = (1.1 * max(0.0, -near.min(axis=None)), 1.1 * max(0.0, near.max(axis=None))) if len(near) else (0.0, 0.0)
    return -min(max(low, 1.5 * margin), FAR * margin), min(max(high, 1.5 * margin), FAR * margin)


def _marker(answer: str) -> dict[str, Any]:
    colour = COLOURS[answer]
    face = colour if answer in (YES, NO) else "white"
    return {"marker": MARKERS[answer], "color": colour, "markerfacecolor": face, "markersize": 4.2}
