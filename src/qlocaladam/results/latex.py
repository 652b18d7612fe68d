"""A table as LaTeX and as CSV: booktabs, a multirow for each group, notes below. Needs booktabs, multirow, longtable.

It takes one column of the paper where it fits, both where it does not. A long one breaks over pages, for which LaTeX
wants text in one column, as an appendix has it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from qlocaladam.files import table_text

FIRST_LINE = "% made by the table rule; edit config.yaml, not this file"
NONE = "--"
"""The cell of what is not there or not defined."""
COLUMN_POINTS = 238
"""Width of one column of the paper: 3.3 inches."""
PAGE_POINTS = 504
"""Width of both."""
CHARACTER_POINTS = 4.4
"""Of a character in \\footnotesize. Digits have 4.25, words less; what is bold has more."""
SEPARATION_POINTS = 4
"""On each side of a column."""
LONG = 30
"""Rows from which on a table breaks over pages."""
BREAK = r"\\"
POWER = re.compile(r"(?<=\d)\^(-?\d+)")
SPECIAL: dict[str, str | int | None] = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def escape(text: object) -> str:
    """Plain text as LaTeX that prints it. 10^6 is a power: the sign itself would be set as an accent."""
    words = POWER.split(str(text))
    powers = (rf"\textsuperscript{{{power}}}" for power in words[1::2])
    plain = (part.translate(str.maketrans(SPECIAL)) for part in words[::2])
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(plain, powers, fillvalue="")))


def bold(cell: str, condition: bool = True) -> str:
    return rf"\textbf{{{cell}}}" if condition else cell


def marked(cell: str, marks: str) -> str:
    """The cell with a raised mark that takes no room, so that decimal points stay below each other."""
    return rf"{cell}\rlap{{$^{{{marks}}}$}}" if marks else cell


def signed(value: float) -> str:
    """With its sign, and as mathematics, whose minus is longer than a hyphen."""
    return f"${value:+.2f}$"


def power_of_ten(value: float) -> str:
    """0.0005 as 5 x 10^-4."""
    mantissa, exponent = f"{value:e}".split("e")
    factor = "" if float(mantissa) == 1 else rf"{float(mantissa):g}\times"
    return f"${factor}10^{{{int(exponent)}}}$"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


@dataclass(frozen=True)
class Column:
    """A column's head, which may be broken where it says so; neighbours with the same `over` share a head above."""

    head: str
    align: str = "r"
    over: str = ""


@dataclass(frozen=True)
class Group:
    """Rows that belong together. A label stands before them, in a column of its own."""

    rows: Sequence[Sequence[str]]
    label: str | None = None

    def lines(self, breaking: bool = False) -> list[str]:
        """A label stands in the middle of its rows, or at their top where a page may end between them."""
        if self.label is None:
            return [_line(row) for row in self.rows]
        if breaking and len(self.rows) > 1:
            labels = itertools.chain(self.label.split(BREAK), itertools.repeat(""))
            return [_line([label, *row]) for label, row in zip(labels, self.rows, strict=False)]
        label = _stack(self.label, "l")
        if len(self.rows) > 1:  # in a single row a label of two lines needs its room
            label = rf"\multirow{{{len(self.rows)}}}{{*}}{{{label}}}"
        return [_line(["" if number else label, *row]) for number, row in enumerate(self.rows)]


@dataclass(frozen=True, eq=False)
class Table:
    """What a table shows, in LaTeX, and the data behind it, which hold more than it shows."""

    name: str
    caption: str
    columns: Sequence[Column]
    groups: Sequence[Group]
    data: pd.DataFrame
    notes: Sequence[str] = ()
    long: bool = False
    """Whether it breaks over pages however few its rows are, because their text is long."""

    def csv(self) -> str:
        """The data in full precision."""
        return table_text(self.data)

    def latex(self) -> str:
        """A whole table environment."""
        return "\n".join([FIRST_LINE, *(self._long() if self.breaks else self._float())]) + "\n"

    @property
    def breaks(self) -> bool:
        """Whether it goes on on the next page."""
        return self.long or sum(len(group.rows) for group in self.groups) >= LONG

    def _float(self) -> list[str]:
        stacked, environment = self._layout()
        return [
            rf"\begin{{{environment}}}",
            r"\centering",
            self._caption(),
            r"\vspace{4pt}",  # a class that expects captions below leaves no room here
            *self._size(stacked),
            rf"\begin{{tabular}}{{{self._columns()}}}",
            r"\toprule",
            *self._head(stacked),
            *itertools.chain.from_iterable([r"\midrule", *group.lines()] for group in self.groups),
            r"\bottomrule",
            r"\end{tabular}",
            *self._notes(),
            rf"\end{{{environment}}}",
        ]

    def _long(self) -> list[str]:
        stacked, _ = self._layout()
        head = [r"\toprule", *self._head(stacked), r"\midrule"]
        continued = rf"\multicolumn{{{len(self.columns)}}}{{l}}{{Table~\ref{{tab:{self.name}}}, continued}} \\"
        ruled = itertools.chain.from_iterable([r"\midrule", *group.lines(breaking=True)] for group in self.groups)
        return [
            r"\begingroup",
            *self._size(stacked),
            rf"\begin{{longtable}}{{{self._columns()}}}",
            rf"{self._caption()} \\",
            *(*head, r"\endfirsthead", continued, *head, r"\endhead", r"\bottomrule", r"\endfoot"),
            *itertools.islice(ruled, 1, None),  # the head has a rule of its own
            r"\end{longtable}",
            *self._notes(),
            r"\par\endgroup",
        ]

    def _caption(self) -> str:
        return rf"\caption{{{self.caption}}}\label{{tab:{self.name}}}"

    def _columns(self) -> str:
        return "".join(column.align for column in self.columns)

    def _size(self, stacked: bool) -> list[str]:
        fits = self.long or self._points(stacked) <= PAGE_POINTS  # long text is set in lines of a column's own width
        size, separation = (r"\footnotesize", SEPARATION_POINTS) if fits else (r"\scriptsize", 2.5)
        return [size, rf"\setlength{{\tabcolsep}}{{{separation}pt}}"]

    def _layout(self) -> tuple[bool, str]:
        """Whether heads are broken, and the environment: the narrowest that the table fits in."""
        for environment, room in (("table", COLUMN_POINTS), ("table*", PAGE_POINTS)):
            for stacked in (False, True):
                if self._points(stacked) <= room:
                    return stacked, environment
        return True, "table*"

    def _points(self, stacked: bool) -> float:
        heads = [column.head if stacked else _unbroken(column.head) for column in self.columns]
        rows = [row if group.label is None else [group.label, *row] for group in self.groups for row in group.rows]
        widths = [max(map(_characters, cells)) for cells in zip(heads, *rows, strict=True)]
        return sum(CHARACTER_POINTS * width + 2 * SEPARATION_POINTS for width in widths)

    def _head(self, stacked: bool) -> list[str]:
        heads = [_head(column, stacked) for column in self.columns]
        return [*_shared_heads(self.columns), _line(heads)]

    def _notes(self) -> list[str]:
        if not self.notes:
            return []
        opening = r"\par\vspace{3pt}\noindent\begin{minipage}{\linewidth}\footnotesize\raggedright"
        return [opening, *self.notes, r"\end{minipage}"]


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _stack(text: str, align: str) -> str:
    """Lines below each other. With struts, or else lines with and without descenders stand at different heights."""
    lines = (r"\strut" + BREAK + "[-3pt]").join(text.split(BREAK))
    return rf"\shortstack[{align}]{{{lines}\strut}}" if BREAK in text else text


def _unbroken(head: str) -> str:
    return head.replace("-" + BREAK, "").replace(BREAK, " ")


def _head(column: Column, stacked: bool) -> str:
    return _stack(column.head, column.align) if stacked else _unbroken(column.head)


def _shared_heads(columns: Sequence[Column]) -> list[str]:
    """The line of heads above others and the rules below them, where there are any."""
    if not any(column.over for column in columns):
        return []
    cells, rules, start = [], [], 1
    for over, members in itertools.groupby(columns, key=lambda column: column.over):
        count = len(list(members))
        cells += [rf"\multicolumn{{{count}}}{{c}}{{{over}}}"] if over else [""] * count
        rules += [rf"\cmidrule(lr){{{start}-{start + count - 1}}}"] if over else []
        start += count
    return [_line(cells), " ".join(rules)]


def _characters(cell: str) -> int:
    """About how many characters a cell prints in its longest line."""
    cell = re.sub(r"\\rlap\{.*\}|\\textbf|[{}$^]", "", cell)
    return max(len(re.sub(r"\\([A-Za-z]+|.)", "x", line)) for line in cell.split(BREAK))
