"""Pages for a browser, each of which needs no other file: tables, the ledger of claims, and what the report opens with.

Every number on them is read from the files that the workflow made.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from qlocaladam.experiments.configuration import registration
from qlocaladam.files import table_rows
from qlocaladam.ledger import presentation
from qlocaladam.ledger.claims import BAD, FAILS, HOLDS, OPEN
from qlocaladam.ledger.presentation import answer, counts
from qlocaladam.project import project_file
from qlocaladam.report.page import Row, Spec, is_numeric, measured_on, readable, shortened
from qlocaladam.results import kinds
from qlocaladam.results.latex import NONE
from qlocaladam.results.layout import Layout
from qlocaladam.results.style import DPI, PAGE

OPENING = ("Registered questions", "Main results")
"""Sections whose figures the report opens with."""
NUMBER = ' class="number"'


def page(title: str, *parts: str, assets: Iterable[str] = ()) -> str:
    """A whole page, with the .css and .js files of these names in it. It has no time on it: the same results are the
    same bytes."""
    styles, scripts = ("".join(_asset(f"{name}.{end}") for name in ("page", *assets)) for end in ("css", "js"))
    lines = [
        "<!doctype html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>\n{styles}</style></head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
        *filter(None, parts),
        f"<script>\n{scripts}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(lines) + "\n"


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _file(path: str, folder: Path) -> str:
    """A link from a page in `folder` to a file, which has no place inside a report: there it is a name."""
    return f'<a class="file" href="{escape(os.path.relpath(path, folder))}">{escape(path)}</a>'


def _boxed(table: str, label: str) -> str:
    """A table that scrolls by itself where the window is narrower, by mouse, finger and arrow keys."""
    return f'<div class="box" tabindex="0" role="region" aria-label="{escape(label)}">\n{table}\n</div>'


def table(frame: pd.DataFrame, label: str, short: bool = True) -> str:
    """A table whose cells are one line each, unless they are not `short`."""
    kinds = [NUMBER if numeric else "" for numeric in is_numeric(frame)]
    rows = [zip(kinds, row, strict=True) for row in frame.itertuples(index=False)]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, map(str, frame), strict=True))
    body = ["".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in row) for row in rows]
    lines = [f"<thead><tr>{head}</tr></thead>", "<tbody>", *(f"<tr>{row}</tr>" for row in body), "</tbody>"]
    return _boxed("\n".join(['<table class="short">' if short else "<table>", *lines, "</table>"]), label)


def table_page(spec: Spec, path: Path) -> str:
    """A table as a page, with the whole CSV inside for who wants every digit."""
    frame, shared = readable(spec, path)
    content = base64.b64encode(path.read_bytes()).decode()
    return page(
        spec["caption"],
        f"<p>{escape(kinds.said(spec, 'tables'))}</p>",
        table(frame, spec["caption"], short=spec["kind"] != "released"),
        f"<p>{escape(shared)}</p>" if shared else "",
        f'<p><a download="{escape(path.name)}" href="data:text/csv;base64,{content}">{escape(path.name)}</a> '
        "has every column with every digit.</p>",
        _made(spec["made"], path.parent),
    )


def _made(made: Mapping[str, Any], folder: Path) -> str:
    """The rule, the code and the runs that a result was made by, as links from a page in `folder`."""
    rule, code = (_file(made[name], folder) for name in ("rulefile", "code"))
    listed = "".join(f"<li>{_file(path, folder)}</li>" for path in (*made["runs"], *made["files"]))
    text = f"Made by the rule <b>{escape(made['rule'])}</b>, {rule}, with {code}, from:"
    return f"<p>{text}</p>\n<details><summary>{_counted(made)}</summary><ul>{listed}</ul></details>"


# The ledger of claims.


def ledger_page(claims: pd.DataFrame, scale: str, folder: Path) -> str:
    """The ledger as a page in `folder`: counts by verdict and kind, every claim, filters by both, and a search."""
    counted = counts(claims)
    return page(
        f"Ledger of claims, scale {scale}",
        "<p>Every number that the paper prints, beside the one rebuilt here. What needs training counts as rebuilt "
        "only at the paper's own scale; at another, the ledger judges the claim behind the number.</p>",
        _counts(counted),
        "<form>",
        _choice("verdict", counted.index[:-1]),
        _choice("kind", counted.columns[:-1]),
        '<label>Search <input name="search" type="search"></label><output name="shown"></output>',
        "</form>",
        _boxed("\n".join(['<table id="claims">', *_claims(claims, folder), "</table>"]), "Claims"),
        assets=["ledger"],
    )


def _claims(claims: pd.DataFrame, folder: Path) -> Iterable[str]:
    """A head of buttons that sort, and every claim."""
    kinds = {
        **dict.fromkeys(("Verdict", "Kind", "Claim"), ""),
        **dict.fromkeys(("Printed", "Rebuilt", "Difference"), NUMBER),
    }
    heads = [f'<th{kind}><button type="button">{head}</button></th>' for head, kind in {**kinds, "Reason": ""}.items()]
    yield f"<thead><tr>{''.join(heads)}</tr></thead>"
    yield from ["<tbody>", *(_claim(claim, folder) for claim in table_rows(claims.replace(NONE, ""))), "</tbody>"]


def _tone(verdict: str) -> str:
    return "bad" if verdict in BAD else "open" if verdict in OPEN else "good"


def _choice(name: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f'<label>{name.capitalize()} <select name="{name}"><option value="">all</option>{options}</select></label>'


def _counts(table: pd.DataFrame) -> str:
    """Each count is a link to the claims that it counts; the last row and the last column are sums."""
    heads = "".join(f'<th class="number">{escape(kind)}</th>' for kind in map(str, table))
    lines = [f"<thead><tr><th></th>{heads}</tr></thead>"]
    for verdict, row in zip(map(str, table.index), table_rows(table), strict=True):
        tone = "" if verdict == table.index[-1] else _tone(verdict)
        cells = "".join(_count(verdict, kind, count) for kind, count in row.items())
        lines.append(f'<tr><td class="verdict {tone}">{escape(verdict)}</td>{cells}</tr>')
    return _boxed("\n".join(["<table>", *lines, "</table>"]), "Verdicts by kind")


def _count(verdict: str, kind: str, count: int) -> str:
    chosen = {name: value for name, value in (("verdict", verdict), ("kind", kind)) if value != "all"}
    return f'<td class="number"><a href="#{escape(urlencode(chosen))}">{count}</a></td>' if count else "<td></td>"


def _claim(claim: Row, folder: Path) -> str:
    verdict, kind = claim["verdict"], claim["kind"]
    links = ", ".join(_file(path, folder) for path in filter(None, claim["file"].split(", ")))
    cells = [
        f'<td class="verdict {_tone(verdict)}">{escape(verdict)}</td>',
        f"<td>{escape(kind)}</td>",
        f"<td>{escape(claim['where'])}<small>{escape(claim['id'])}</small></td>",
        f'<td class="number">{escape(claim["printed"])}<small>{escape(claim["unit"])}</small></td>',
        f'<td class="number">{escape(shortened(claim["rebuilt"]))}<small>{escape(measured_on(claim))}</small></td>',
        f'<td class="number">{escape(shortened(claim["difference"]))}</td>',
        f"<td>{escape(claim['reason'])}<small>{links}</small></td>",
    ]
    return f'<tr data-verdict="{escape(verdict)}" data-kind="{escape(kind)}">{"".join(cells)}</tr>'


# What the report of Snakemake opens with, and says of each result. Links call the functions of that page. Lines are
# short, and there are no empty ones: docutils takes none of more than 10,000 characters, and a directive ends at a gap.


def report_texts(layout: Layout) -> dict[str, Any]:
    """The opening, what stands beside each table and figure, and what made it."""
    shown = {"table": layout.tables, "figure": layout.figures}
    made = {part: {name: _made_in_report(layout.made(part, name)) for name in names} for part, names in shown.items()}
    opening = "\n".join([_registered(layout), *_main_figures(layout), _answer(layout)])
    return {"opening": opening, "made": made, "said": layout.said()}


def _in_report(call: str, text: str) -> str:
    return f'<a href="javascript:void({escape(call)})">{text}</a>'


def _made_in_report(made: Mapping[str, Any]) -> str:
    rule = _in_report(f"app.setView({{navbarMode: 'ruleinfo', ruleinfo: '{made['rule']}'}})", escape(made["rule"]))
    listed = "\n".join(f"<li>{escape(path)}</li>" for path in (*made["runs"], *made["files"]))
    sources = f"<details><summary>{_counted(made)}</summary><ul>{listed}</ul></details>"
    return f"<p>Made by the rule {rule} of {escape(made['rulefile'])}, with {escape(made['code'])}, from:</p>{sources}"


def _counted(made: Mapping[str, Any]) -> str:
    return f"{len(made['runs'])} runs" if made["runs"] else f"{len(made['files'])} files"


def _registered(layout: Layout) -> str:
    """The answers to the registered questions, or what is missing."""
    tables = [Path(layout.results, "tables", f"{name}.csv") for name in layout.tested["registered"]]
    answered = [readable(layout.page_spec(path.stem), path)[0] for path in tables if path.exists()]
    head = "<h2>Registered questions</h2>"
    if not answered:
        asked = registration(project_file("paper/registered.yaml"))
        return (
            f"{head}<p>None of the {len(asked['questions'])} questions of paper/registered.yaml is answered "
            "here: the runs with their seeds are not among these. <code>snakemake --config "
            f"scale={escape(asked['scale'])} registered=true</code> makes them.</p>"
        )
    columns = ["Question", "Data set", "Answer", "Status", "Difference (pp)", "90 % interval"]
    short = [frame[[name for name in columns if name in frame]] for frame in answered]
    return "\n".join([head, *(table(frame, "Registered questions", short=False) for frame in short)])


def _main_figures(layout: Layout) -> list[str]:
    """Each opens in its full size, and says where it comes from."""
    names = [name for name, entry in layout.figures.items() if kinds.section(entry) in OPENING]
    paths = {name: Path(layout.figure_folder, f"{name}.png") for name in names}
    return [_figure(layout, name, path) for name, path in paths.items() if path.exists()]


def _figure(layout: Layout, name: str, path: Path) -> str:
    title = escape(kinds.figure_title({**layout.names(), **layout.figures[name]}))
    content = path.read_bytes()
    share = 100 * int.from_bytes(content[16:20]) / (PAGE * DPI)  # as in the document: a PNG begins with its size
    source = f"data:image/png;base64,{base64.encodebytes(content).decode().rstrip()}"
    picture = f'<img alt="{title}" style="width: {share:.0f}%" src="{source}">'
    opened = f"app.setView({{content: 'img', contentPath: results['{path}'].data_uri, resultPath: '{path}'}})"
    made = _in_report(f"app.showResultInfo('{path}')", "The rule, the runs and the code that made it")
    return f"<figure>{_in_report(opened, picture)}<figcaption>{title}. {made}.</figcaption></figure>"


def _answer(layout: Layout) -> str:
    """What holds, what fails, what is open, and what was tested."""
    path = Path(layout.together, "claims.csv")
    if not path.exists():
        return "<h2>The ledger</h2><p>The ledger of claims has not been made.</p>"
    claims = presentation.read(path)
    lines = "".join(f"<li><b>{head}</b>: {escape(said)}.</li>" for head, said in answer(claims).items())
    tested = [(verdict, claims["reason"][claims["verdict"] == verdict]) for verdict in (FAILS, HOLDS)]
    lists = "".join(_reasons(verdict, reasons) for verdict, reasons in tested if len(reasons))
    ledger = path.with_suffix(".html")
    opened = f"app.setView({{content: 'html', contentPath: results['{ledger}'].data_uri, resultPath: '{ledger}'}})"
    link = _in_report(opened, "Every number that the paper prints, with its verdict and the reason")
    return f"<h2>The ledger</h2><ul>{lines}</ul>{lists}<p>{link}.</p>"


def _reasons(verdict: str, reasons: pd.Series) -> str:
    items = "\n".join(f"<li>{escape(reason)}</li>" for reason in reasons)
    return f"<details><summary>{len(reasons)} claims: {escape(verdict)}</summary><ul>{items}</ul></details>"
