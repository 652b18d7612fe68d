"""Table: what is printed, what was released and what is rebuilt, of paper/released.yaml."""

from __future__ import annotations

import pandas as pd

from qlocaladam.results import released
from qlocaladam.results.captions import opening
from qlocaladam.results.columns import column
from qlocaladam.results.kind import AsTable, Files, Kind, Spec
from qlocaladam.results.labels import latex
from qlocaladam.results.latex import Column, Group, Table, escape
from qlocaladam.results.rows import frame

WIDTHS = {"": 0.11, "Printed": 0.24, "Released": 0.31, "Here": 0.25}
"""By head, as shares of the page."""


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """What is printed, what was released and what is rebuilt, line by line, of one part: all would fill two pages."""
    rows = [row for row in released.load(files["released"]) if row["part"] == spec["part"]]
    for row in rows:
        row["arms"] = "; ".join(latex(spec, "arm", arm) for arm in row["arms"])
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
        caption=f"{opening(spec)} Released: {repository}, {script}, commit {first['commit'][:7]}. "
        "In brackets: arms that differ.",
        columns=[Column(head, rf"p{{{width}\textwidth}}") for head, width in WIDTHS.items()],
        groups=[Group([[rf"{{\raggedright {cell}\par}}" for cell in row] for row in cells])],
        data=frame(rows),
        long=True,
    )


KIND = Kind(
    section="Claims",
    table=AsTable(
        table,
        "The paper's equations and text, its released code and this package. Where the first two differ, the package "
        "does what the code does; arms run the other side.",
        reads={"released": released.SOURCE.as_posix()},
        keys={"part": {"enum": list(released.PARTS)}},
        columns={
            "What": column("what"),
            "Printed": column("printed"),
            "Where": column("place"),
            "Released": column("released"),
            "Line": column("lines"),
            "Here": column("here"),
            "Arms that differ": column("arms"),
        },
    ),
    exact=True,
)
