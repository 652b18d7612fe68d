"""What pages share: tables as people read them, and the cells of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.files import table_rows
from qlocaladam.results import kinds
from qlocaladam.results.columns import Columns
from qlocaladam.results.kinds import KINDS, SECTIONS
from qlocaladam.results.labels import AXES, Names, plain

Spec = Mapping[str, Any]
Row = Mapping[str, str]


def numbered(name: str) -> str:
    """A section as the report calls it, which sorts them by name."""
    return f"{SECTIONS.index(name) + 1:02d}. {name}"


CIRCUMSTANCES = (*AXES.values(), "Seeds", "Runs", "Clients", "Collapsed", "Runs diverged")
"""Columns that are no measurements: where all rows have the same, it is said once below the table."""


def _read(path: Path) -> pd.DataFrame:
    """Words as they were written: an alpha may be one, and 1.00 % is printed with two digits."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def readable(spec: Spec, path: Path) -> tuple[pd.DataFrame, str]:
    """The table as people read it, and what all its rows share."""
    names = {**spec["labels"], "dataset": spec["stands_for"]} if KINDS[spec["kind"]].exact else spec["labels"]
    grid = {head: partial(_place, names, axis) for axis, head in AXES.items()}
    columns: Columns = {**grid, **kinds.as_table(spec).columns}
    rows = table_rows(_read(path))
    table = pd.DataFrame([{head: cell(row) for head, cell in columns.items()} for row in rows], dtype=object)
    table = table[[head for head in table if table[head].ne("").any()]]
    same = [head for head in CIRCUMSTANCES if head in table and len(table) > 1 and table[head].nunique() == 1]
    shared = "; ".join(f"{head.lower()} {table[head].iloc[0]}" for head in same)
    return table.drop(columns=same), f"In every row: {shared}." if shared else ""


def _place(names: Names, axis: str, row: Row) -> str:
    return plain(names, axis, row.get(axis, ""))


def is_numeric(table: pd.DataFrame) -> list[bool]:
    """Which columns hold numbers, with their signs and deviations."""
    return [all(cell.lstrip("+-<")[:1].isdigit() for cell in table[head] if cell) for head in table]


def measured_on(claim: Row) -> str:
    """The data that a rebuilt number was measured on, where that is no number of the paper's own size."""
    return f"on {claim['measured_on']}" if claim["measured_on"] and claim["rebuilt"] else ""


def shortened(cell: str) -> str:
    """A number with no more digits than can be read; words as they are."""
    try:
        return f"{float(cell):.5g}" if len(cell) > 8 or cell.endswith(".0") else cell
    except ValueError:
        return cell
