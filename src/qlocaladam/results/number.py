"""A number that a text quotes: what it is of, its name, its value, the words it is written as, and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from qlocaladam.files import table_rows
from qlocaladam.results.latex import NONE

Row = Mapping[str, Any]
Form = str | Callable[[Any], str]
Label = Callable[[str], str]
"""What was trained on under the name of a data set."""


@dataclass(frozen=True)
class Number:
    """A number, how it is written, the file it came from, or those, with a comma between them, and what it is of."""

    name: str
    value: float | int | str | None
    text: str
    file: str
    measured_on: str = ""
    """The data that were trained on, which need not be those of the name; nothing where nothing was trained."""
    of: Mapping[str, Any] = field(default_factory=dict)
    """What it is a number of: kind, data set, arm and the like, and which quantity of that."""


def number(of: Row, value: Any, form: Form, *files: object, on: str = "", name: str = "") -> Number:
    """A number in the given form; a dash for what is not defined. Its name is like a path of what it is a number of."""
    value = None if pd.isna(value) else value
    text = NONE if value is None else form(value) if callable(form) else format(value, form)
    return Number(name or "/".join(map(str, of.values())), value, text, ", ".join(map(str, files)), on, of)


def numbers_of(of: Row, row: Row, forms: Mapping[str, Form], file: object, on: str = "") -> Iterator[Number]:
    for quantity, form in forms.items():
        yield number({**of, "quantity": quantity}, row[quantity], form, file, on=on)


def numbers_by_row(
    of: Row, table: pd.DataFrame, by: Sequence[str], forms: Mapping[str, Form], file: object, label: Label | None = None
) -> Iterator[Number]:
    """Of every row, which is told from the others by what it has under `by`."""
    for row in table_rows(table):
        on = label(row["dataset"]) if label else ""
        yield from numbers_of({**of, **chosen(row, *by)}, row, forms, file, on)


def chosen(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
