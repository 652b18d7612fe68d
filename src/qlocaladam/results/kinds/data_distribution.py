"""Table: how unlike each other the clients of a partition are, for each data set and alpha."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from qlocaladam.experiments.consistency import of_the_papers_partitions
from qlocaladam.results.captions import SIZE_OF_THE_PAPER, analysed_caption
from qlocaladam.results.cells import fixed
from qlocaladam.results.columns import column
from qlocaladam.results.kind import AsTable, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, alpha_latex, latex
from qlocaladam.results.latex import BREAK, NONE, Column, Group, Table, escape, listed, marked
from qlocaladam.results.rows import Row, analysed, as_number, frame, grouped, unique


def table(spec: Spec, runs: pd.DataFrame | None, files: Files, with_ratio: bool = False) -> Table:
    """How unlike each other the clients are, for each data set and alpha."""
    rows = analysed(spec, files, "data_distribution")
    groups = [
        Group([_cells(spec, row, with_ratio) for row in of_dataset], latex(spec, "stands_for", dataset))
        for dataset, of_dataset in grouped(rows, "dataset")
    ]
    clients = listed(unique(row["clients"] for row in rows))
    return Table(
        name=spec["name"],
        caption=analysed_caption(
            spec,
            rf"The dominant class is a client's most frequent one; its share is an average over {clients} clients, "
            "the standard deviation is that of their sample counts, cut to a whole number.",
        ),
        columns=[
            DATASET,
            ROWS["alpha"],
            Column(rf"Dominant{BREAK}class (\%)"),
            *[Column("Ratio")] * with_ratio,
            Column(rf"Sample{BREAK}std."),
            Column(rf"Hetero-{BREAK}geneity", "l"),
        ],
        groups=groups,
        data=frame(rows),
        notes=_rounding_notes(spec, rows),
    )


def _cells(spec: Spec, row: Row, with_ratio: bool) -> list[str]:
    return [
        *(latex(spec, "alpha", row["alpha"]), _published(row, "percent")),
        *([_published(row, "ratio", r"$\times$")] * with_ratio),
        NONE if row["sample_std"] == "" else f"{int(float(row['sample_std'])):,}",
        escape(row["heterogeneity"]),
    ]


def _published(row: Row, name: str, unit: str = "") -> str:
    """One decimal, as the float is: the paper's 4.5 and 1.4 are the floats 4.55 and 1.35, below and above the half."""
    cell = fixed(as_number(row[f"published_{name}"]), 1)
    return marked(cell if cell == NONE else cell + unit, "r" if _rounds_otherwise(row) else "")


def _rounds_otherwise(row: Row) -> bool:
    return fixed(as_number(row["published_percent"]), 1) != fixed(as_number(row["dominant_percent"]), 1)


def _rounding_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    cells = [
        rf"{latex(spec, 'stands_for', row['dataset'])}, {alpha_latex(row['alpha'])}: "
        rf"{fixed(as_number(row['dominant_percent']), 1)}\,\%"
        for row in rows
        if _rounds_otherwise(row)
    ]
    note = "$^{r}$~the average of the clients' percentages after rounding, as published; exactly it would be"
    return [f"{note} {listed(cells)}."] if cells else []


AS_TABLE = AsTable(
    table,
    SIZE_OF_THE_PAPER,
    reads={"data_distribution": "{exact}/data_distribution.csv"},
    optional={"where": ref("where")},
    check=of_the_papers_partitions,
    columns={
        "Clients": column("clients"),
        "Samples": column("samples", ",.0f"),
        "Left over": column("dropped", ",.0f"),
        "Dominant class (%)": column("dominant_percent", ".2f"),
        "Ratio to uniform": column("ratio", ".2f"),
        "Standard deviation of samples": column("sample_std", ",.1f"),
        "Heterogeneity": column("heterogeneity"),
    },
)
KIND = Kind(section="Data", table=AS_TABLE, exact=True)
