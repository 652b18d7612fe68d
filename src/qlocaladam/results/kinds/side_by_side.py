"""Table: arms beside each other, one row for each alpha, or for each value of another axis."""

from __future__ import annotations

import itertools

import pandas as pd

from qlocaladam.experiments.consistency import one_run_but_for_seeds, shown_runs
from qlocaladam.experiments.runs import METRICS
from qlocaladam.results.captions import run_notes, trained_caption
from qlocaladam.results.cells import HEADS, memories, metrics
from qlocaladam.results.columns import TRAINED
from qlocaladam.results.kind import AXIS, AsTable, Config, Files, Kind, Spec, ref
from qlocaladam.results.kinds.runs import SAID
from qlocaladam.results.labels import DATASET, ROWS, latex
from qlocaladam.results.latex import BREAK, Column, Group, Table
from qlocaladam.results.rows import frame, grouped, known, places_asked, summarised, trained

SHOWN = (*METRICS, "memory")


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """One row for each alpha, or value of `rows`; accuracies and memory of the arms beside each other."""
    runs, by = trained(spec, runs), known(spec, "rows", spec.get("rows", "alpha"), ROWS)
    results, asked = summarised(spec, runs, files, (by, "arm")), places_asked(spec, runs)
    several = asked["dataset"].nunique() > 1
    groups = []
    for dataset, of_dataset in grouped(results, "dataset"):
        rows = [
            [latex(spec, by, value), *itertools.chain.from_iterable(metrics(arms)), *memories(arms)]
            for value, arms in grouped(of_dataset, by)
        ]
        groups.append(Group(rows, latex(spec, "dataset", dataset).replace(" ", BREAK) if several else None))
    arms = [latex(spec, "arm", arm).replace(" ", BREAK) for arm in asked["arm"].unique()]
    shared = [HEADS[name].replace(BREAK, " ") for name in SHOWN]
    return Table(
        name=spec["name"],
        caption=trained_caption(spec, runs, SHOWN, varied=by),
        columns=[*[DATASET] * several, ROWS[by], *(Column(arm, "c", over) for over in shared for arm in arms)],
        groups=groups,
        data=frame(results),
        notes=run_notes(spec, results, SHOWN),
    )


def check(config: Config, key: str, entry: Config) -> None:
    axes = ("dataset", entry.get("rows", "alpha"), "arm")
    one_run_but_for_seeds(f"{key}: a row", shown_runs(config, entry), axes, "rows")


KIND = Kind(
    section="Heterogeneity",
    table=AsTable(
        table,
        SAID,
        reads={"memory": "{exact}/memory.csv"},
        keys={"experiments": ref("experiments")},
        optional={"where": ref("where"), "rows": AXIS},
        check=check,
        columns=TRAINED,
    ),
)
