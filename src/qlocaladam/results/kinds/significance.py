"""Table: means over seeds of the best accuracies, and tests against FP32, for each data set with its alpha."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from qlocaladam.experiments.consistency import compared_over_seeds
from qlocaladam.experiments.runs import ALL_ROUNDS, METRICS
from qlocaladam.results.captions import reason_notes, run_notes, trained_caption
from qlocaladam.results.cells import HEADS, accuracies, difference_with_interval, flagged, means, memories, p_text
from qlocaladam.results.columns import TRAINED, p_value
from qlocaladam.results.kind import AsTable, Files, Kind, Spec, ref
from qlocaladam.results.kinds.runs import SAID
from qlocaladam.results.labels import DATASET, ROWS, dataset_and_alpha, latex
from qlocaladam.results.latex import BREAK, Column, Group, Table
from qlocaladam.results.number import Form, Label, Number, numbers_by_row
from qlocaladam.results.rows import Row, as_number, frame, grouped, place, read, summarised, trained

SHOWN = (*METRICS, "memory")
COLUMN_HEADS = (
    *(HEADS["best"], rf"Difference (pp){BREAK}[95\% interval]", rf"$p${BREAK}(pooled)", rf"$p${BREAK}(Welch)"),
    *(rf"Last{BREAK}third", rf"Final{BREAK}(\%)", rf"All{BREAK}(\%)", HEADS["memory"]),
)
TESTED = (
    "Exploratory: intervals, and no verdicts. Two-sample $t$-tests of the best accuracy, as published, with pooled "
    "variances and Welch's, not corrected for their number; the intervals are pooled."
)
COMPARED = ("fp32", "q-localadam")
"""Arms whose deviations others are compared with."""


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Means over seeds and tests against the reference arm, for each data set with its alpha."""
    runs = trained(spec, runs)
    rows = _with_tests(summarised(spec, runs, files, ("alpha", "arm")), read(files["significance"]))
    groups = []
    for (dataset, alpha), arms in grouped(rows, "dataset", "alpha"):
        cells = [
            [latex(spec, "arm", row["arm"]) for row in arms],
            flagged(accuracies(arms), arms),
            [difference_with_interval(row) for row in arms],
            *([p_text(as_number(row[name])) for row in arms] for name in ("p", "welch_p")),
            *(means(arms, name) for name in ("last_third", "final", ALL_ROUNDS)),
            memories(arms),
        ]
        groups.append(Group(list(zip(*cells, strict=True)), dataset_and_alpha(spec, dataset, alpha)))
    return Table(
        name=spec["name"],
        caption=trained_caption(spec, runs, SHOWN, varied="alpha"),
        columns=[DATASET, ROWS["arm"], *map(Column, COLUMN_HEADS)],
        groups=groups,
        data=frame(rows),
        notes=[*run_notes(spec, rows, SHOWN), TESTED, *reason_notes(spec, rows)],
    )


def _with_tests(results: list[Row], tested: list[Row]) -> list[Row]:
    """`mean` is that of the best accuracies, which are tested; what it is of all rounds has another name here."""
    tests = {place(row): row for row in tested}
    untested = dict.fromkeys(next(iter(tests.values()), {}), "")
    pairs = ((row, tests.get(place(row), {})) for row in results if row["runs"] or row.get("missing"))
    return [
        {**untested, **row, ALL_ROUNDS: row["mean"], f"{ALL_ROUNDS}_std": row.get("mean_std", math.nan)}
        | {**test, "best": as_number(test.get("mean")), "best_std": as_number(test.get("std"))}
        for row, test in pairs
    ]


def numbers(table: str, path: Path, label: Label) -> Iterator[Number]:
    """Over seeds: means, tests against FP32, and how many times the deviation of FP32 and of Q-LocalAdam an arm has."""
    forms: dict[str, Form] = {"n": "d", "seeds": lambda seeds: ", ".join(seeds.split())}
    forms |= dict.fromkeys(("mean", "std", "min", "max"), ".2f")
    forms |= {"difference": "+z.2f", "relative_percent": "+z.1f"}
    forms |= {"t": ".2f", "df": ".0f", "welch_t": ".2f", "welch_df": ".1f", "p": p_value, "welch_p": p_value}
    forms |= {f"{test}ci_{end}": "+z.2f" for test in ("", "welch_") for end in ("low", "high")}
    forms |= {"cohens_d": ".2f", **{f"std_over_{arm}": ".1f" for arm in COMPARED}}
    tests = pd.read_csv(path, dtype={"alpha": str, "seeds": str})
    for arm in COMPARED:
        theirs = tests["std"].where(tests["arm"] == arm).groupby([tests["dataset"], tests["alpha"]]).transform("max")
        tests[f"std_over_{arm}"] = tests["std"] / theirs.where(theirs > 0)
    yield from numbers_by_row({"kind": "significance"}, tests, ("dataset", "alpha", "arm"), forms, path, label)


TESTS = "{analysis}/significance/{table}/significance.csv"
KIND = Kind(
    section="Seeds",
    table=AsTable(
        table,
        SAID,
        reads={"memory": "{exact}/memory.csv", "significance": TESTS},
        keys={"experiments": ref("experiments")},
        optional={"where": ref("where")},
        check=compared_over_seeds,
        columns=TRAINED,
    ),
    quotes=TESTS,
    numbers=numbers,
)
