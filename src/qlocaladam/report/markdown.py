"""Pages in Markdown, for reading without a browser: RESULTS.md of a scale.

Every number on them is read from the files that the workflow made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import pandas as pd

from qlocaladam.files import table_rows
from qlocaladam.ledger import presentation
from qlocaladam.ledger.presentation import answer, counts, disagreements
from qlocaladam.report.page import Row, Spec, is_numeric, measured_on, readable, shortened
from qlocaladam.results import kinds, labels
from qlocaladam.results.kinds import SECTIONS
from qlocaladam.results.latex import NONE
from qlocaladam.results.layout import EXACT


def results_page(
    spec: Spec,
    tables: Mapping[str, Path],
    figures: Mapping[str, Path],
    numbers: Path,
    claims: Path | None,
    folder: Path,
) -> str:
    """RESULTS.md of a scale, to stand in `folder`, from where its links lead to the tables and the figures.

    `spec` has the scale, the labels, and the entries of config.yaml under `tables` and `figures`.
    """
    ledger = None if claims is None else presentation.read(claims)
    parts = [
        f"# Results at scale {spec['scale']}",
        *([] if ledger is None else [_answer(ledger)]),
        *_scale_part(spec, json.loads(numbers.read_text())),
        *_main_part(spec, tables),
        *_claims_part(ledger),
        *_figures_part(spec, figures, folder),
        *_files_part(spec, tables, folder),
    ]
    return "\n\n".join(parts) + "\n"


def _answer(claims: pd.DataFrame) -> str:
    return "\n".join(f"- **{head}**: {plain(said)}." for head, said in answer(claims).items())


def _scale_part(spec: Spec, numbers: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """What was trained and what it stands for."""
    said = {name: number["text"] for name, number in numbers.items()}
    datasets = [name for name in spec["labels"]["dataset"] if f"setting/{name}/rounds" in said]
    yield " ".join(_stands_for(spec, name) for name in datasets)
    yield table(pd.DataFrame([_setting(spec, said, name) for name in datasets]))
    yield (
        f"{said['runs/all']} runs were trained; {said['runs/collapsed']} of them collapsed, which is to end below "
        f"twice the accuracy of guessing, and {said['runs/diverged']} diverged."
    )
    if spec["scale"] != "paper":
        yield (
            "This is smaller than in the paper, so its accuracies are not the paper's; the order of the arms and their "
            "collapses are what can be compared. What needs no training is at the paper's own size."
        )


def _stands_for(spec: Spec, dataset: str) -> str:
    own, original = labels.plain(spec["labels"], "dataset", dataset), spec["stands_for"].get(dataset)
    if original is None:
        return f"{own} is not in the paper."
    return f"{own} is the paper's own data set." if own == original else f"{own} stands in the place of {original}."


def _setting(spec: Spec, said: Mapping[str, str], dataset: str) -> dict[str, str]:
    of = {name.rpartition("/")[2]: text for name, text in said.items() if name.startswith(f"setting/{dataset}/")}
    text = of["image_size"] == NONE
    return {
        "Data set": labels.plain(spec["labels"], "dataset", dataset),
        "Classes": of["classes"],
        "Training samples": of["training_images"],
        "Test samples": of["test_images"],
        "Model": f"{'transformer' if text else 'ResNet-18'}, width {of['width']}, {of['parameters']} parameters",
        "Input": "text" if text else f"{of['image_size']}\N{MULTIPLICATION SIGN}{of['image_size']}",
        "Clients a round": f"{of['clients_per_round']} of {of['clients']}",
        "Rounds": of["rounds"],
        "Local epochs": of["epochs"],
        "Batch": of["batch_size"],
    }


def _main_part(spec: Spec, tables: Mapping[str, Path]) -> Iterator[str]:
    yield "## Main results"
    for name in (name for name in tables if kinds.section(spec["tables"][name]) == "Main results"):
        entry = {**spec, **spec["tables"][name]}
        frame, shared = readable(entry, tables[name])
        yield f"{_caption(spec, name)}. {kinds.said(entry, 'tables')}"
        yield table(frame)
        yield from filter(None, [shared])


def _claims_part(claims: pd.DataFrame | None) -> Iterator[str]:
    """Counts of verdicts, and what contradicts itself, differs or fails here."""
    yield "## Claims"
    if claims is None:
        yield "The ledger has not been made: `snakemake claims` makes it."
        return
    yield table(counts(claims).rename_axis(columns=None).reset_index(names="").astype(str))
    bad = disagreements(claims).replace(NONE, "")
    for verdict, rows in bad.groupby("verdict", sort=False):
        yield f"### {str(verdict).capitalize()}"
        yield "\n".join(map(_claim, table_rows(rows)))
    if bad.empty:
        yield "Nothing contradicts itself, differs or fails here."


def _claim(row: Row) -> str:
    rebuilt = f"rebuilt {shortened(row['rebuilt'])} {measured_on(row)}".rstrip() if row["rebuilt"] else ""
    numbers = ", ".join(filter(None, [row["printed"], rebuilt]))
    return f"- {plain(row['where'])}: {plain('; '.join(filter(None, [numbers, row['reason']])))}"


def _figures_part(spec: Spec, figures: Mapping[str, Path], folder: Path) -> Iterator[str]:
    yield "## Figures"
    for wanted in SECTIONS:
        names = [name for name in figures if kinds.section(spec["figures"][name]) == wanted]
        if names:
            yield f"### {wanted}"
        for name in names:
            title = kinds.figure_title({**spec, **spec["figures"][name]})
            yield f"`{name}`: {plain(title)}."
            yield f"![{name}]({_link(figures[name], folder)})"


def _files_part(spec: Spec, tables: Mapping[str, Path], folder: Path) -> Iterator[str]:
    yield "## Where everything else is"
    results = Path(spec["results"])
    yield "\n".join(
        [
            *(f"- [{path.name}]({_link(path, folder)}): {_caption(spec, name)}" for name, path in tables.items()),
            "- every number with the file it came from: [numbers.json](numbers.json)",
            "- every claim with its verdict: [claims.csv](claims.csv), or in a browser [claims.html](claims.html)",
            f"- each training run with its history, settings and times: [runs]({_link(results / 'runs', folder)})",
            f"- what needs no training: [exact]({_link(Path(EXACT), folder)})",
            "- all of this as one page for a browser: `snakemake --report report.html`",
        ]
    )


def _caption(spec: Spec, table: str) -> str:
    return plain(spec["tables"][table]["caption"].rstrip(". "))


def plain(text: str) -> str:
    """Plain text in Markdown, where < would open a tag and | a column."""
    return escape(text, quote=False).replace("|", "&#124;")


def _link(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder)


def table(frame: pd.DataFrame) -> str:
    rows: list[Sequence[str]] = [list(map(str, frame)), *frame.itertuples(index=False)]
    lines = [f"| {' | '.join(map(plain, row))} |" for row in rows]
    rule = "|".join(" ---: " if numeric else " --- " for numeric in is_numeric(frame))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
