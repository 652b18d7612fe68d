"""Table: optimizer memory against the number of parameters, in both layouts."""

from __future__ import annotations

import itertools

import pandas as pd

from qlocaladam.results.captions import SIZE_OF_THE_PAPER, analysed_caption
from qlocaladam.results.columns import column
from qlocaladam.results.kind import AsTable, Files, Kind, Spec
from qlocaladam.results.labels import latex
from qlocaladam.results.latex import BREAK, Column, Group, Table
from qlocaladam.results.rows import analysed, as_number, frame


def table(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """Memory against the number of parameters, in both layouts."""
    rows = analysed(spec, files, "scaling")
    cells = [
        [
            _parameters(int(row["parameters"])),
            _mebibytes(as_number(row["fp32_mib"])),
            *itertools.chain.from_iterable(
                (_mebibytes(as_number(row[f"{layout}_mib"])), rf"{as_number(row[f'{layout}_ratio']):.2f}$\times$")
                for layout in ("held", "published")
            ),
        ]
        for row in rows
    ]
    over = latex(spec, "arm", "q-localadam")
    return Table(
        name=spec["name"],
        caption=analysed_caption(spec, r"1~MiB is $2^{20}$ bytes; the ratio is FP32 to the column before."),
        columns=[
            Column("Parameters"),
            Column(rf"{latex(spec, 'arm', 'fp32')}{BREAK}(MiB)"),
            *(
                Column(head, over=over)
                for layout in ("Held", "Published")
                for head in (rf"{layout}{BREAK}(MiB)", "Ratio")
            ),
        ],
        groups=[Group(cells)],
        data=frame(rows),
        notes=[
            "Held: a minimum and a maximum for each block, which is what this package stores and what the paper's "
            "own table of this kind counts. Published: a third number for each block, which its other tables count."
        ],
    )


def _mebibytes(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def _parameters(count: int) -> str:
    unit, letter = next(((u, c) for u, c in ((10**9, "B"), (10**6, "M"), (10**3, "K")) if count >= u), (1, ""))
    return f"{count / unit:g}{letter}"


KIND = Kind(
    section="Precision and memory",
    table=AsTable(
        table,
        SIZE_OF_THE_PAPER,
        reads={"scaling": "{exact}/scaling.csv"},
        columns={
            "Parameters": column("parameters", ",.0f"),
            "FP32 (MiB)": column("fp32_mib", ",.2f"),
            "Held (MiB)": column("held_mib", ",.2f"),
            "Ratio, held": column("held_ratio", ".2f"),
            "Published (MiB)": column("published_mib", ",.2f"),
            "Ratio, published": column("published_ratio", ".2f"),
        },
    ),
    exact=True,
)
