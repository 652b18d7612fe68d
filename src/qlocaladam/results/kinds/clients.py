"""Table: what each client of a partition holds, for each alpha."""

from __future__ import annotations

import pandas as pd

from qlocaladam.experiments.consistency import of_the_papers_partitions
from qlocaladam.results.captions import SIZE_OF_THE_PAPER, analysed_caption
from qlocaladam.results.cells import fixed
from qlocaladam.results.columns import column
from qlocaladam.results.kind import AsTable, Files, Kind, Spec, ref
from qlocaladam.results.labels import DATASET, ROWS, dataset_and_alpha, latex
from qlocaladam.results.latex import BREAK, NONE, Column, Group, Table, escape
from qlocaladam.results.rows import Row, analysed, as_number, frame, grouped


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """What each client holds, for each alpha."""
    rows = analysed(spec, files, "clients")
    several = len({row["dataset"] for row in rows}) > 1
    groups = []
    for (dataset, alpha), clients in grouped(rows, "dataset", "alpha"):
        both = dataset_and_alpha(spec, dataset, alpha, "stands_for")
        groups.append(Group([_cells(row) for row in clients], both if several else latex(spec, "alpha", alpha)))
    return Table(
        name=spec["name"],
        caption=analysed_caption(spec, "The dominant class is a client's most frequent one."),
        columns=[
            *(DATASET if several else ROWS["alpha"], Column("Client", "l"), Column("Samples")),
            *(Column(rf"Dominant{BREAK}class", "l"), Column(rf"Share{BREAK}(\%)")),
        ],
        groups=groups,
        data=frame(rows),
    )


def _cells(row: Row) -> list[str]:
    share = fixed(as_number(row["dominant_percent"]), 1)
    return [f"C{row['client']}", f"{int(row['samples']):,}", _dominant(row), share]


def _dominant(row: Row) -> str:
    """The class, and its name where it has one beside its number."""
    number, name = row["dominant"], row["dominant_name"]
    if number == "":
        return NONE
    return f"{number} ({escape(name)})" if name not in ("", number) else str(number)


KIND = Kind(
    section="Data",
    table=AsTable(
        table,
        SIZE_OF_THE_PAPER,
        reads={"clients": "{exact}/clients.csv"},
        optional={"where": ref("where")},
        check=of_the_papers_partitions,
        columns={
            "Client": column("client"),
            "Samples": column("samples", ",.0f"),
            "Dominant class": column("dominant_name"),
            "Share (%)": column("dominant_percent", ".2f"),
            "Classes": column("classes"),
        },
    ),
    exact=True,
)
