"""Pages that are written from templates: RESULTS.md of the repository, and the reproducibility summary of a scale.

A template has words. Each number in it is a placeholder that names where it comes from, and which of its sentences
stand there follows from the results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, StrictUndefined

from qlocaladam import ARITHMETIC_SINCE
from qlocaladam.experiments.configuration import registration
from qlocaladam.files import table_rows
from qlocaladam.ledger import presentation
from qlocaladam.report.markdown import table as markdown_table
from qlocaladam.report.reference import earlier
from qlocaladam.results.labels import AXES
from qlocaladam.results.latex import listed

Labels = Mapping[str, Mapping[str, str]]
"""Of data sets and arms, by their names."""
PREFERRED = {"statistic": "best", "metric": "last_third", "layer": "all", "step": "last"}
"""Which row is meant where a table has several for an arm on a data set."""


class Results:
    """Results of a scale, one's own or those kept in paper/reference: runs.csv, tables/*.csv, and the ledger, which may
    have a folder of its own."""

    def __init__(self, folder: Path, labels: Labels, ledger: Path | None = None) -> None:
        self.folder, self.scale, self.labels, self.ledger = folder, folder.name, labels, ledger or folder

    def has(self, table: str) -> bool:
        return (self.folder / f"tables/{table}.csv").exists()

    def rows(self, file: str, **where: str) -> pd.DataFrame:
        """The rows of a CSV file at a place of the grid."""
        rows = pd.read_csv(self.folder / file, dtype={name: str for name in (*AXES, "seeds") if name != "clients"})
        for name, value in where.items():
            rows = rows[rows[name] == value]
        return rows

    def cell(self, table: str, form: str, **where: str) -> str:
        """The one row of a table at a place, in this form: "{difference:+.1f}". Nothing where it has no such number."""
        rows = self.rows(f"tables/{table}.csv", **where)
        for name, value in PREFERRED.items():
            if name in rows and name not in where:
                rows = rows[rows[name] == (rows[name].max() if value == "last" else value)]
        if len(rows) > 1:
            raise ValueError(f"{self.folder}/tables/{table}.csv has {len(rows)} rows at {where}; needed is one")
        return "".join(form.format_map(row) for row in table_rows(rows.dropna(subset=_fields(form))))

    def matrix(self, table: str, form: str, *arms: str) -> str:
        """A Markdown table with a row for each arm, all of them or these, and a column for each data set and alpha."""
        rows = self.rows(f"tables/{table}.csv").dropna(subset=_fields(form))
        places = table_rows(rows[[name for name in ("dataset", "alpha") if name in rows]].drop_duplicates())
        cells = [
            {
                "": self.labels["arm"][arm],
                **{self._place(at): self.cell(table, form, arm=arm, **at) for at in places},
            }
            for arm in arms or rows["arm"].unique()
        ]
        return markdown_table(pd.DataFrame(cells))

    def _place(self, place: Mapping[str, str]) -> str:
        label = self.labels["dataset"][place["dataset"]]
        return f"{label}, alpha = {place['alpha']}" if "alpha" in place else label

    def runs(self, column: str, form: str = "{}", **where: str) -> str:
        """What the runs at a place have in a column: a value, or all that there are."""
        values = self.rows("runs.csv", **where)[column].drop_duplicates()
        return listed([form.format(value) for value in values])

    @property
    def earlier(self) -> bool:
        """Whether the arms compute otherwise since any of the runs were made."""
        return any(map(earlier, self.rows("runs.csv")["qlocaladam"]))

    def count(self, *verdicts: str, kind: str = "") -> str:
        """How many entries of the ledger have one of these verdicts, or any."""
        claims = pd.read_csv(self.ledger / "claims.csv", dtype=str, keep_default_na=False)
        chosen = claims["verdict"].isin(verdicts or set(claims["verdict"])) & claims["kind"].str.contains(kind)
        return f"{chosen.sum():,}"

    def questions(self, registered: Mapping[str, Any], table: str) -> dict[str, Question]:
        """The registered questions by name, with their answers where this table has them."""
        rows = self.rows(f"tables/{table}.csv") if self.has(table) else pd.DataFrame(columns=["question"])
        asked = {entry["name"]: entry["asks"] for entry in registered["questions"]}
        return {name: self._question(asks, rows[rows["question"] == name]) for name, asks in asked.items()}

    def _question(self, asks: str, rows: pd.DataFrame) -> Question:
        if rows.empty:
            return Question(asks)
        first, tested = rows.iloc[0], rows.dropna(subset="difference")
        cells = {self._place({"dataset": row["dataset"]}): row for row in table_rows(tested)}
        form = "{difference:+.1f} [{tost_ci_low:+.1f}, {tost_ci_high:+.1f}]"
        differences = {place: form.format_map(row) for place, row in cells.items()}
        return Question(
            asks, first["answer"], first["status"], differences, int(rows["n"].min()), int(first["seeds_wanted"])
        )


def _fields(form: str) -> list[str]:
    return [field for _, field, _, _ in Formatter().parse(form) if field]


class Question(NamedTuple):
    """A registered question and its answer."""

    asks: str
    answer: str = "open"
    status: str = "runs missing"
    differences: Mapping[str, str] = {}
    """By data set, in points, with the 90 % interval."""
    seeds: int = 0
    wanted: int = 0

    @property
    def verdict(self) -> str:
        """The answer in a few words."""
        if self.answer == "open":
            return f"open: {self.status}"
        return self.answer if self.status == "final" else f"{self.answer}, {self.status}"

    @property
    def undecided(self) -> str:
        """Why neither yes nor no is the answer."""
        if self.answer == "open":
            return f"still open ({self.status})"
        return f"not tested, because an earlier question was not answered yes; observed: {self.basis}"

    @property
    def basis(self) -> str:
        """What a sentence adds to an answer: the differences, and that more seeds are to come."""
        differences = "; ".join(f"{place} {difference}" for place, difference in self.differences.items())
        seeds = "" if self.status == "final" else f"; preliminary, {self.seeds} of {self.wanted} seeds"
        return f"{differences}{seeds}"


def render(template: Path, **known: Any) -> str:
    """A template of Markdown with what it knows. A name that it does not know is an error."""
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    return environment.from_string(template.read_text()).render(**known)


def kept_results(template: Path, registered: Path, reference: Path, labels: Mapping[str, Labels]) -> str:
    """RESULTS.md of the repository. A template knows what is kept of each scale by its name."""
    scales = {scale: Results(reference / scale, of) for scale, of in labels.items()}
    kept = {scale: results for scale, results in scales.items() if (results.folder / "runs.csv").exists()}
    asked = registration(registered)
    return render(
        template,
        **kept,
        kept=list(kept.values()),
        registered=asked,
        questions=Results(reference / "registered", labels[asked["scale"]]).questions(asked, "registered"),
        picture=picture,
        arithmetic_since=ARITHMETIC_SINCE,
    )


def picture(path: str, title: str) -> str:
    """A picture of the repository, where it is there."""
    return f"![{title}]({path})\n" if Path(path).exists() else ""


def reproducibility(
    folder: Path, template: str, registered: str, results: str, scale: str, labels: Labels, answers: str
) -> str:
    """The reproducibility summary of a scale, from numbers.json and claims.csv in a folder and the tables in `results`,
    of which `answers` has those to the registered questions."""
    known = Results(Path(results), labels, folder)
    said = {name: number["text"] for name, number in json.loads((folder / "numbers.json").read_text()).items()}
    return render(
        Path(template),
        scale=scale,
        results=known,
        number=said.__getitem__,
        answer=presentation.answer(presentation.read(folder / "claims.csv")),
        questions=known.questions(registration(registered), answers),
        datasets=[name for name in labels["dataset"] if f"setting/{name}/rounds" in said],
    )
