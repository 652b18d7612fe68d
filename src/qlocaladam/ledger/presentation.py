"""What is shown of the ledger: counts, the answer in three lines, disagreements, LaTeX tables and macros."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.files import table_rows
from qlocaladam.ledger.claims import BAD, COLUMNS, DIFFERS, FAILS, OPEN, VERDICTS
from qlocaladam.ledger.form import KINDS
from qlocaladam.results.latex import NONE, Column, Group, Table, bold, escape


def read(path: Path) -> pd.DataFrame:
    """claims.csv, every cell as it was written."""
    claims = pd.read_csv(path, dtype=str, keep_default_na=False)
    missing = [name for name in COLUMNS if name not in claims]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; needed are {', '.join(COLUMNS)}")
    return claims


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """How many entries of each kind have each verdict, with sums."""
    table = pd.crosstab(frame["verdict"], frame["kind"])
    table = table.reindex(index=[v for v in VERDICTS if v in table.index], columns=list(KINDS), fill_value=0)
    table["all"] = table.sum(axis=1)
    table.loc["all"] = table.sum()
    return table


def disagreements(frame: pd.DataFrame) -> pd.DataFrame:
    """What contradicts itself, differs or fails here. The same said in several places is one row."""
    bad = frame[frame["verdict"].isin(BAD)]
    same = bad.groupby(["verdict", "printed", "reason"], sort=False, as_index=False)
    merged = same.agg({"where": _listed, **dict.fromkeys(("rebuilt", "measured_on", "id"), "first")})
    return merged.sort_values("verdict", key=lambda column: column.map(BAD.index), kind="stable")


def _listed(places: pd.Series[str]) -> str:
    return "; ".join(dict.fromkeys(places))


MOST_PLACES = 4
"""Of the paper that an answer names."""


def answer(frame: pd.DataFrame) -> dict[str, str]:
    """What holds of all that the paper prints, what fails and where, and what is open, in a line each."""
    good = [verdict for verdict in VERDICTS if verdict not in (*BAD, *OPEN)]
    lines = {head: _share(frame, verdicts) for head, verdicts in {"Holds": good, "Fails": BAD, "Open": OPEN}.items()}
    places = list(dict.fromkeys(frame["where"][frame["verdict"].isin((DIFFERS, FAILS))]))
    if places:
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        lines["Fails"] += f"; what was rebuilt disagrees with {'; '.join(places[:MOST_PLACES])}{more}"
    return lines


def _share(frame: pd.DataFrame, verdicts: Sequence[str]) -> str:
    by_verdict = frame["verdict"].value_counts()
    parts = [f"{verdict} {by_verdict[verdict]:,}" for verdict in verdicts if verdict in by_verdict]
    count = int(by_verdict.reindex(list(verdicts), fill_value=0).sum())
    return f"{count:,} of {len(frame):,} numbers and claims" + f": {', '.join(parts)}" * bool(parts)


def summary(frame: pd.DataFrame) -> str:
    """Counts by verdict and kind, then a line for each disagreement."""
    lines = [counts(frame).rename_axis(index=None, columns=None).to_string()]
    for verdict, rows in disagreements(frame).groupby("verdict", sort=False):
        lines += ["", f"{verdict}:"]
        lines += [f"  {row['where']}: {_shown(row)}{row['reason']}" for row in table_rows(rows)]
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[str, Any]) -> str:
    return f"{row['printed']}: " if row["printed"] != NONE else ""


WIDTHS = {"where": 110, "printed": 38, "reason": 330}
"""In points, of the columns of the table of disagreements."""


def macros(frame: pd.DataFrame) -> str:
    """\\printed{id} and \\verdict{id} of an entry, \\ledger{verdict} for how many have it; a wrong name stops LaTeX."""
    content = {
        "printed": dict(zip(frame["id"], frame["printed"], strict=True)),
        "verdict": dict(zip(frame["id"], frame["verdict"], strict=True)),
        "ledger": {"all": len(frame), **frame["verdict"].value_counts().reindex(VERDICTS, fill_value=0)},
    }
    lines = []
    for command, values in content.items():
        defined = rf"\csname {command}:#1\endcsname"
        missing = rf"\errmessage{{The ledger has no {command} named #1}}"
        lines += [rf"\providecommand{{\{command}}}[1]{{\ifcsname {command}:#1\endcsname{defined}\else{missing}\fi}}"]
        lines += [rf"\expandafter\def\csname {command}:{k}\endcsname{{{escape(v)}}}" for k, v in values.items()]
    return "\n".join(lines) + "\n"


def counts_latex(frame: pd.DataFrame, scale: str) -> str:
    """A table of how many entries of each kind have each verdict."""
    table = counts(frame)
    rows = [[escape(verdict), *map(str, row)] for verdict, row in zip(table.index, table.to_numpy(), strict=True)]
    caption = f"Verdicts on every number and claim that the paper prints, at the scale {escape(scale)}"
    columns = [Column("Verdict", "l"), *(Column(kind.capitalize()) for kind in table.columns)]
    return Table("claims", caption, columns, [Group(rows[:-1]), Group(rows[-1:])], table).latex()


def disagreements_latex(frame: pd.DataFrame, scale: str) -> str:
    """A table of what does not agree, as long as it takes."""
    rows = table_rows(disagreements(frame))
    columns = [Column(name.capitalize(), rf"p{{{width}pt}}") for name, width in WIDTHS.items()]
    groups = []
    for verdict, members in itertools.groupby(rows, key=lambda row: row["verdict"]):
        cells = [[rf"\rightskip 0pt plus 3em {escape(row[name])}" for name in WIDTHS] for row in members]
        groups.append(Group([[bold(verdict.capitalize()), "", ""], *cells]))
    caption = f"What contradicts itself, differs or fails at the scale {escape(scale)}"
    return Table("disagreements", caption, columns, groups, pd.DataFrame(rows), long=True).latex()
