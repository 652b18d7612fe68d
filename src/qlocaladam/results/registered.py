"""The answers to the registered questions as a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.analysis.registered import EXPLORATORY, MISSING, NO, OPEN, YES
from qlocaladam.experiments.runs import METRICS
from qlocaladam.results.latex import BREAK, NONE, Column, Group, Table, bold, escape, signed

EXPECTED = {
    "worse": "below",
    "better": "above",
    "equivalent": "equivalent to",
    "not_worse": "not below",
}
HEADS = {"last_third": rf"Last{BREAK}third", "best": "Best", "final": "Final", "mean": "All"}

Spec = Mapping[str, Any]


def table(spec: Spec, runs: pd.DataFrame | None, files: Mapping[str, Path]) -> Table:
    """A row for each question and data set, and the answer of the question."""
    rows = read(files["answers"])
    groups = []
    for _, own in rows.groupby("question", sort=False):
        first = own.iloc[0]
        answer = bold(first["answer"], first["answer"] in (YES, NO))
        status = "" if first["status"] == "final" else f"({escape(first['status'])})"
        claims, answered = (_spread(words, len(own)) for words in (_claim(spec, first), [answer, status]))
        cells = [
            [
                claims[place],
                escape(spec["labels"]["dataset"][row["dataset"]]),
                _number(row["difference"], signed) + _ends(row),
                *(_number(row[f"{name}_difference"], signed) for name in METRICS if name != row["metric"]),
                _number(row["margin"], "{:.2f}".format) if row["expected"] in ("equivalent", "not_worse") else NONE,
                _p(row["p"]),
                f"{row['n']:.0f} of {row['seeds_wanted']}",
                answered[place],
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


def read(path: Path) -> pd.DataFrame:
    rows: pd.DataFrame = pd.read_csv(path, dtype={"alpha": str, "seeds": str})
    return rows


def _claim(spec: Spec, row: Mapping[str, Any]) -> list[str]:
    arms = spec["labels"]["arm"]
    scaled = "" if row["loss_scale"] == 1 else rf", losses $\times${row['loss_scale']:g}"
    return [escape(arms[row["arm"]]), f"{EXPECTED[row['expected']]} {escape(arms[row['baseline']])}{scaled}"]


def _spread(words: list[str], rows: int) -> list[str]:
    """Over the first two of a question's rows, which a page is wide enough for, or in its only one."""
    return [*words, *[""] * (rows - 2)] if rows > 1 else [" ".join(words).strip()]


def _number(value: float, form: Any) -> str:
    return NONE if pd.isna(value) else str(form(value))


def _ends(row: Mapping[str, Any]) -> str:
    if pd.isna(row["tost_ci_low"]):
        return ""
    return f" [{signed(row['tost_ci_low'])}, {signed(row['tost_ci_high'])}]"


def _p(value: float) -> str:
    return NONE if pd.isna(value) else "$<$0.001" if value < 0.001 else f"{value:.3f}"
