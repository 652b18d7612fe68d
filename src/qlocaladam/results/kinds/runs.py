"""Table: one row for each arm, alpha or other value; what runs reached, and what their optimizer held."""

from __future__ import annotations

import pandas as pd

from qlocaladam.experiments.consistency import one_run_but_for_seeds, shown_runs
from qlocaladam.experiments.runs import METRICS
from qlocaladam.results.captions import run_notes, trained_caption
from qlocaladam.results.cells import CELLS, HEADS, flagged
from qlocaladam.results.columns import TRAINED
from qlocaladam.results.kind import AXIS, AsTable, Config, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, latex
from qlocaladam.results.latex import Column, Group, Table
from qlocaladam.results.rows import frame, grouped, known, summarised, trained, unique

SAID = (
    "Trained at scale {scale}. Best is the highest test accuracy of all rounds, final that of the last; a difference "
    "is to the first row of the same data. A run has collapsed if it ends below twice the accuracy of guessing. "
    "Memory is that of the paper's own models where it has one; 1 MB is a million bytes."
)


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """One row for each value of `rows` in each data set. The data have every metric, whatever `columns` shows."""
    runs, by = trained(spec, runs), known(spec, "rows", spec["rows"], ROWS)
    shown = unique(known(spec, "columns", name, HEADS) for name in spec["columns"])
    results = summarised(spec, runs, files, (by,))
    groups = []
    for dataset, rows in grouped(results, "dataset"):
        labels = [latex(spec, by, row[by]) for row in rows]
        cells = {name: CELLS[name](rows) for name in shown}
        for name in [name for name in METRICS if name in shown][:1]:
            cells[name] = flagged(cells[name], rows)
        groups.append(Group(list(zip(labels, *cells.values(), strict=True)), latex(spec, "dataset", dataset)))
    return Table(
        name=spec["name"],
        caption=trained_caption(spec, runs, shown, varied=by),
        columns=[DATASET, ROWS[by], *(Column(HEADS[name]) for name in shown)],
        groups=groups,
        data=frame(results),
        notes=run_notes(spec, results, shown),
    )


def check(config: Config, key: str, entry: Config) -> None:
    one_run_but_for_seeds(f"{key}: a row", shown_runs(config, entry), ("dataset", entry["rows"]), "rows")


COLUMNS = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "description": f"a list of {', '.join(HEADS)}, each once",
    "items": {"enum": list(HEADS)},
}
KIND = Kind(
    section="Ablations",
    table=AsTable(
        table,
        SAID,
        reads={"memory": "{exact}/memory.csv"},
        keys={"experiments": ref("experiments"), "rows": AXIS, "columns": COLUMNS},
        optional={"where": ref("where")},
        check=check,
        columns=TRAINED,
    ),
)
