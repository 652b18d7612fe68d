"""Pages for people: the ledger of claims and the tables as HTML that needs no other file, and RESULTS.md.

Every number on them is read from the files that the workflow made.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from qlocaladam.ledger.claims import BAD, COLUMNS, FAILS, HOLDS, OPEN, answer, counts, disagreements
from qlocaladam.results import kinds
from qlocaladam.results.columns import Columns
from qlocaladam.results.kinds import KINDS, SECTIONS, figure_title, section
from qlocaladam.results.labels import AXES, Names, plain
from qlocaladam.results.latex import NONE

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


def _readable(spec: Spec, path: Path) -> tuple[pd.DataFrame, str]:
    """The table as people read it, and what all its rows share."""
    names = {**spec["labels"], "dataset": spec["stands_for"]} if KINDS[spec["kind"]].exact else spec["labels"]
    grid = {head: partial(_place, names, axis) for axis, head in AXES.items()}
    columns: Columns = {**grid, **kinds.as_table(spec).columns}
    rows = _read(path).to_dict("records")
    table = pd.DataFrame([{head: cell(row) for head, cell in columns.items()} for row in rows], dtype=object)
    table = table.loc[:, table.ne("").any()]
    same = [head for head in CIRCUMSTANCES if head in table and len(table) > 1 and table[head].nunique() == 1]
    shared = "; ".join(f"{head.lower()} {table[head].iloc[0]}" for head in same)
    return table.drop(columns=same), f"In every row: {shared}." if shared else ""


def _place(names: Names, axis: str, row: Row) -> str:
    return plain(names, axis, row.get(axis, ""))


STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1e293b; background: #fff; margin: 1.5rem; }
h1 { font-size: 1.3rem; margin: 0 0 .5rem; }
p { max-width: 60rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid #e2e8f0; }
thead th { border-bottom: 2px solid #64748b; vertical-align: bottom; }
.number { text-align: right; }
.short td { white-space: nowrap; }
"""


def plain_page(title: str, *parts: str, style: str = "") -> str:
    """A page that needs no other file. It has no time on it: the same results are the same bytes."""
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        f'<head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}{style}</style></head>',
        "<body>",
        f"<h1>{escape(title)}</h1>",
        *filter(None, parts),
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


NUMBER = ' class="number"'


def html_table(table: pd.DataFrame, short: bool = True) -> str:
    """A table whose cells are one line each, unless they are not `short`."""
    classes = [NUMBER if numeric else "" for numeric in _numeric(table)]
    rows = [zip(classes, row, strict=True) for row in table.itertuples(index=False)]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(classes, table, strict=True))
    body = ["".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in row) for row in rows]
    lines = [f"<thead><tr>{head}</tr></thead>", "<tbody>", *(f"<tr>{row}</tr>" for row in body), "</tbody>"]
    return "\n".join(['<table class="short">' if short else "<table>", *lines, "</table>"])


def _numeric(table: pd.DataFrame) -> list[bool]:
    """Which columns hold numbers, with their signs and deviations."""
    return [all(cell.lstrip("+-<")[:1].isdigit() for cell in table[head] if cell) for head in table]


def table_html(spec: Spec, path: Path) -> str:
    """A table as a page, with the whole CSV inside for who wants every digit."""
    table, shared = _readable(spec, path)
    content = base64.b64encode(path.read_bytes()).decode()
    return plain_page(
        spec["caption"],
        f"<p>{escape(kinds.said(spec, 'tables'))}</p>",
        html_table(table, short=spec["kind"] != "released"),
        f"<p>{escape(shared)}</p>" if shared else "",
        f'<p><a download="{escape(path.name)}" href="data:text/csv;base64,{content}">{escape(path.name)}</a> '
        "has every column with every digit.</p>",
    )


# The ledger of claims.


def read_claims(path: Path) -> pd.DataFrame:
    """claims.csv, every cell as it was written."""
    claims = _read(path)
    missing = [name for name in COLUMNS if name not in claims]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; needed are {', '.join(COLUMNS)}")
    return claims


LEDGER_STYLE = """
form { position: sticky; top: 0; background: #fff; padding: .5rem 0; display: flex; gap: 1rem; align-items: center; }
form label { display: flex; gap: .4rem; align-items: center; }
select, input { font: inherit; padding: .15rem .3rem; }
#claims thead th { cursor: pointer; white-space: nowrap; }
#claims th[aria-sort=ascending]::after { content: " \\25B2"; }
#claims th[aria-sort=descending]::after { content: " \\25BC"; }
#claims small { display: block; color: #64748b; overflow-wrap: anywhere; }
.verdict { font-weight: 600; }
.good { color: #15803d; } .bad { color: #b91c1c; } .open { color: #64748b; }
"""

LEDGER_SCRIPT = """
const form = document.forms[0], body = document.querySelector("#claims tbody"), rows = [...body.rows];

function show() {
  const wanted = form.search.value.toLowerCase();
  for (const row of rows) {
    row.hidden = ["verdict", "kind"].some(name => form[name].value && form[name].value !== row.dataset[name])
      || !row.textContent.toLowerCase().includes(wanted);
  }
  form.shown.value = `${rows.filter(row => !row.hidden).length} of ${rows.length} shown`;
}

// claims.html#verdict=differs&kind=exact is a link to a selection.
function select() {
  const address = new URLSearchParams(location.hash.slice(1));
  for (const name of ["verdict", "kind", "search"]) form[name].value = address.get(name) || "";
  show();
}

function sort(head) {
  const down = head.ariaSort === "ascending", column = head.cellIndex;
  const value = row => row.cells[column].firstChild?.textContent ?? "";
  const order = (a, b) => a - b || a.localeCompare(b, "en", {numeric: true});
  for (const other of head.parentNode.cells) other.ariaSort = null;
  head.ariaSort = down ? "descending" : "ascending";
  body.append(...rows.sort((a, b) => (down ? -1 : 1) * order(value(a), value(b))));
}

form.addEventListener("input", show);
form.addEventListener("submit", event => event.preventDefault());
addEventListener("hashchange", select);
document.querySelectorAll("#claims th").forEach(head => head.addEventListener("click", () => sort(head)));
// Inside the report the page has no folder, and so no files beside it.
if (location.protocol === "data:") document.querySelectorAll("a.file").forEach(link => link.removeAttribute("href"));
select();
"""


def ledger_html(claims: pd.DataFrame, scale: str) -> str:
    """The ledger as a page: counts by verdict and kind, then every claim, with filters by both and a search."""
    table = counts(claims)
    heads = {"Verdict": "", "Kind": "", "Claim": "", "Printed": NUMBER, "Rebuilt": NUMBER, "Difference": NUMBER}
    return plain_page(
        f"Ledger of claims, scale {scale}",
        "<p>Every number that the paper prints, beside the one rebuilt here. What needs training counts as rebuilt "
        "only at the paper's own scale; at another, the ledger judges the claim behind the number.</p>",
        _html_counts(table),
        "<form>",
        _html_choice("verdict", table.index[:-1]),
        _html_choice("kind", table.columns[:-1]),
        '<label>Search <input name="search" type="search"></label><output name="shown"></output>',
        "</form>",
        '<table id="claims">',
        f"<thead><tr>{''.join(f'<th{kind}>{head}</th>' for head, kind in heads.items())}<th>Reason</th></tr></thead>",
        "<tbody>",
        *(_html_claim(claim) for claim in claims.replace(NONE, "").to_dict("records")),
        "</tbody>",
        "</table>",
        f"<script>{LEDGER_SCRIPT}</script>",
        style=LEDGER_STYLE,
    )


def answer_html(claims: pd.DataFrame) -> str:
    """What the report opens with, without a line break: what holds, what fails, what is open, and what was tested."""
    lines = "".join(f"<li><b>{head}</b>: {escape(said)}.</li>" for head, said in answer(claims).items())
    tested = [(verdict, claims["reason"][claims["verdict"] == verdict]) for verdict in (FAILS, HOLDS)]
    lists = "".join(_html_reasons(verdict, reasons) for verdict, reasons in tested if len(reasons))
    return f"<ul>{lines}</ul>{lists}"


def _html_reasons(verdict: str, reasons: pd.Series) -> str:
    items = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return f"<details><summary>{len(reasons)} claims: {escape(verdict)}</summary><ul>{items}</ul></details>"


def _tone(verdict: str) -> str:
    return "bad" if verdict in BAD else "open" if verdict in OPEN else "good"


def _html_choice(name: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f'<label>{name.capitalize()} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _html_counts(table: pd.DataFrame) -> str:
    """Each count is a link to the claims that it counts; the last row and the last column are sums."""
    heads = "".join(f'<th class="number">{escape(kind)}</th>' for kind in table)
    lines = [f"<thead><tr><th></th>{heads}</tr></thead>"]
    for verdict, row in table.iterrows():
        tone = "" if verdict == table.index[-1] else _tone(verdict)
        cells = "".join(_html_count(verdict, kind, count) for kind, count in row.items())
        lines.append(f'<tr><td class="verdict {tone}">{escape(verdict)}</td>{cells}</tr>')
    return "\n".join(["<table>", *lines, "</table>"])


def _html_count(verdict: str, kind: str, count: int) -> str:
    chosen = {name: value for name, value in (("verdict", verdict), ("kind", kind)) if value != "all"}
    return f'<td class="number"><a href="#{escape(urlencode(chosen))}">{count}</a></td>' if count else "<td></td>"


def _html_claim(claim: Row) -> str:
    verdict, kind = claim["verdict"], claim["kind"]
    files = filter(None, claim["file"].split(", "))
    links = ", ".join(f'<a class="file" href="../../{escape(file)}">{escape(file)}</a>' for file in files)
    cells = [
        f'<td class="verdict {_tone(verdict)}">{escape(verdict)}</td>',
        f"<td>{escape(kind)}</td>",
        f"<td>{escape(claim['where'])}<small>{escape(claim['id'])}</small></td>",
        f'<td class="number">{escape(claim["printed"])}<small>{escape(claim["unit"])}</small></td>',
        f'<td class="number">{escape(_short(claim["rebuilt"]))}<small>{escape(_measured_on(claim))}</small></td>',
        f'<td class="number">{escape(_short(claim["difference"]))}</td>',
        f"<td>{escape(claim['reason'])}<small>{links}</small></td>",
    ]
    return f'<tr data-verdict="{escape(verdict)}" data-kind="{escape(kind)}">{"".join(cells)}</tr>'


def _measured_on(claim: Row) -> str:
    """The data that a rebuilt number was measured on, where that is no number of the paper's own size."""
    return f"on {claim['measured_on']}" if claim["measured_on"] and claim["rebuilt"] else ""


def _short(cell: str) -> str:
    """A number with no more digits than can be read; words as they are."""
    try:
        return f"{float(cell):.5g}" if len(cell) > 8 or cell.endswith(".0") else cell
    except ValueError:
        return cell


# RESULTS.md: the same for reading without a browser.


def results_markdown(
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
    ledger = None if claims is None else read_claims(claims)
    parts = [
        f"# Results at scale {spec['scale']}",
        *(
            []
            if ledger is None
            else ["\n".join(f"- **{head}**: {_markdown(said)}." for head, said in answer(ledger).items())]
        ),
        *_scale_part(spec, json.loads(numbers.read_text())),
        *_main_part(spec, tables),
        *_claims_part(ledger),
        *_figures_part(spec, figures, folder),
        *_files_part(spec, tables, folder),
    ]
    return "\n\n".join(parts) + "\n"


def _scale_part(spec: Spec, numbers: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """What was trained and what it stands for."""
    said = {name: number["text"] for name, number in numbers.items()}
    datasets = [name for name in spec["labels"]["dataset"] if f"setting/{name}/rounds" in said]
    yield " ".join(_stands_for(spec, name) for name in datasets)
    yield _markdown_table(pd.DataFrame([_setting(spec, said, name) for name in datasets]))
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
    own, original = plain(spec["labels"], "dataset", dataset), spec["stands_for"].get(dataset)
    if original is None:
        return f"{own} is not in the paper."
    return f"{own} is the paper's own data set." if own == original else f"{own} stands in the place of {original}."


def _setting(spec: Spec, said: Mapping[str, str], dataset: str) -> dict[str, str]:
    of = {name.rpartition("/")[2]: text for name, text in said.items() if name.startswith(f"setting/{dataset}/")}
    text = of["image_size"] == NONE
    return {
        "Data set": plain(spec["labels"], "dataset", dataset),
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
    for name in (name for name in tables if section(spec["tables"][name]) == "Main results"):
        entry = {**spec, **spec["tables"][name]}
        table, shared = _readable(entry, tables[name])
        yield f"{_caption(spec, name)}. {kinds.said(entry, 'tables')}"
        yield _markdown_table(table)
        yield from filter(None, [shared])


def _claims_part(claims: pd.DataFrame | None) -> Iterator[str]:
    """Counts of verdicts, and what contradicts itself, differs or fails here."""
    yield "## Claims"
    if claims is None:
        yield "The ledger has not been made: `snakemake claims` makes it."
        return
    yield _markdown_table(counts(claims).rename_axis(columns=None).reset_index(names="").astype(str))
    bad = disagreements(claims).replace(NONE, "")
    for verdict, rows in bad.groupby("verdict", sort=False):
        yield f"### {verdict.capitalize()}"
        yield "\n".join(map(_markdown_claim, rows.to_dict("records")))
    if bad.empty:
        yield "Nothing contradicts itself, differs or fails here."


def _markdown_claim(row: Row) -> str:
    rebuilt = " ".join(filter(None, [f"rebuilt {_short(row['rebuilt'])}", _measured_on(row)])) if row["rebuilt"] else ""
    told = "; ".join(filter(None, [", ".join(filter(None, [row["printed"], rebuilt])), row["reason"]]))
    return f"- {_markdown(row['where'])}: {_markdown(told)}"


def _figures_part(spec: Spec, figures: Mapping[str, Path], folder: Path) -> Iterator[str]:
    yield "## Figures"
    for wanted in SECTIONS:
        names = [name for name in figures if section(spec["figures"][name]) == wanted]
        if names:
            yield f"### {wanted}"
        for name in names:
            title = figure_title({**spec, **spec["figures"][name]})
            yield f"`{name}`: {_markdown(title)}."
            yield f"![{name}]({_link(figures[name], folder)})"


def _files_part(spec: Spec, tables: Mapping[str, Path], folder: Path) -> Iterator[str]:
    yield "## Where everything else is"
    yield "\n".join(
        [
            *(f"- [{path.name}]({_link(path, folder)}): {_caption(spec, name)}" for name, path in tables.items()),
            "- every number with the file it came from: [numbers.json](numbers.json)",
            "- every claim with its verdict: [claims.csv](claims.csv), or in a browser [claims.html](claims.html)",
            "- each training run with its history, settings and times: [runs](runs)",
            "- what needs no training: [exact](../exact)",
            "- all of this as one page for a browser: `snakemake --report report.html`",
        ]
    )


def _caption(spec: Spec, table: str) -> str:
    return _markdown(spec["tables"][table]["caption"].rstrip(". "))


def _markdown(text: str) -> str:
    """Plain text in Markdown, where < would open a tag and | a column."""
    return escape(text, quote=False).replace("|", "&#124;")


def _link(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder)


def _markdown_table(table: pd.DataFrame) -> str:
    rows: list[Sequence[str]] = [list(table), *table.itertuples(index=False)]
    lines = [f"| {' | '.join(map(_markdown, row))} |" for row in rows]
    rule = "|".join(" ---: " if numeric else " --- " for numeric in _numeric(table))
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])
