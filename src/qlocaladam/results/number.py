"""A number that a text quotes: its name, which is like a path, its value, the words it is written as, and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from qlocaladam.results.latex import NONE

Row = Mapping[str, Any]
Form = str | Callable[[Any], str]
Label = Callable[[str], str]
"""What was trained on under the name of a data set."""


@dataclass(frozen=True)
class Number:
    """A number, how it is written, and the file it came from, or those, with a comma between them."""

    name: str
    value: float | int | str | None
    text: str
    file: str
    measured_on: str = ""
    """The data that were trained on, which need not be those of the name; nothing where nothing was trained."""


def number(name: str, value: Any, form: Form, *files: object, on: str = "") -> Number:
    """A number in the given form; a dash for what is not defined."""
    value = None if pd.isna(value) else value
    text = NONE if value is None else form(value) if callable(form) else format(value, form)
    return Number(name, value, text, ", ".join(map(str, files)), on)


def numbers_of(prefix: str, row: Row, forms: Mapping[str, Form], file: object, on: str = "") -> Iterator[Number]:
    for column, form in forms.items():
        yield number(f"{prefix}/{column}", row[column], form, file, on=on)
