"""Pages for people: the ledger of claims and the tables as HTML that needs no other file, and RESULTS.md.

Every number on them is read from the files that the workflow made.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd

from qlocaladam.experiments.runs import ALL_ROUNDS
from qlocaladam.ledger.claims import BAD, COLUMNS, FAILS, HOLDS, OPEN, answer, counts, disagreements
from qlocaladam.results.latex import NONE, listed
from qlocaladam.results.numbers import p_value

Spec = Mapping[str, Any]
Row = Mapping[str, str]
Columns = Mapping[str, Callable[[Row], str]]

SECTIONS = (
    "Claims",
    "Registered questions",
    "Main results",
    "Heterogeneity",
    "Seeds",
    "Ablations",
    "Optimizer states",
    "Precision and memory",
    "Data",
    "Beyond the paper",
)
"""In the order they are read."""
SECTION_OF_KIND = {
    "heterogeneity": "Heterogeneity",
    "multiseed": "Seeds",
    "contrasts": "Seeds",
    "registered": "Registered questions",
    "distributions": "Optimizer states",
    "variance": "Optimizer states",
    "precision": "Precision and memory",
    "scaling": "Precision and memory",
    "client_memory": "Precision and memory",
    "released": "Claims",
    "model_size": "Optimizer states",
    "microscope": "Optimizer states",
    "data_distribution": "Data",
    "data_distribution_summary": "Data",
    "clients": "Data",
    "heatmap": "Data",
}
AXES = {
    "dataset": "Data set",
    "alpha": "\N{GREEK SMALL LETTER ALPHA}",
    "arm": "Arm",
    "block_size": "Block size",
    "lr": "Learning rate",
    "loss_scale": "Loss scale",
    "clients": "Clients",
    "clients_per_round": "Clients a round",
    "states": "States",
    "seed": "Seed",
}
"""The axes of the grid in words."""


def section(entry: Spec) -> str:
    """Where a table or a figure of config.yaml stands in the report."""
    if entry.get("group") == "beyond":
        return "Beyond the paper"
    if entry["kind"] in SECTION_OF_KIND:
        return SECTION_OF_KIND[entry["kind"]]
    first = entry.get("panels", [entry])[0]
    return "Main results" if "main" in first["experiments"] else "Ablations"


def numbered(name: str) -> str:
    """A section as the report calls it, which sorts them by name."""
    return f"{SECTIONS.index(name) + 1:02d}. {name}"


def figure_title(spec: Spec) -> str:
    """What a figure shows, in one line."""
    dataset, papers = spec.get("where", {}).get("dataset", ""), {"labels": {"dataset": spec["stands_for"]}}
    titles = {
        "contrasts": f"How far each arm is from one of them: table {spec.get('table')}",
        "registered": "Answers to the registered questions",
        "step_layers": "How far the last step of a client is off, by layer and arm",
        "variance": "The variance of Adam on clients by round, and its share below the floor by layer",
        "model_size": "The floor against the size of the model: variances below it, and how far each arm goes",
        "microscope": "Loss and largest error of each step of one client, with each arm",
        "steps": "How far the steps of each arm are off, by the size of the variance",
        "distributions": f"Variance and momentum of FP32 Adam, {_label(spec, 'dataset', dataset)}",
        "precision": "Relative error of each 8-bit code against the size of the value",
        "client_memory": "What a whole client holds while it trains, and how little of it optimizer states are",
        "heatmap": f"Dominant class and samples of each client, {_label(papers, 'dataset', dataset)}",
    }
    if spec["kind"] in titles:
        return titles[spec["kind"]]
    experiments = listed(list(dict.fromkeys(name for panel in spec["panels"] for name in panel["experiments"])))
    panels = "; ".join(_panel(spec, panel) for panel in spec["panels"])
    return f"Test accuracy after each round, {experiments}: {panels}"


def _panel(spec: Spec, panel: Spec) -> str:
    chosen = [_label(spec, name, value) for name, value in panel.get("where", {}).items()]
    hue = AXES[panel["hue"]]
    return f"{', '.join(chosen) or 'all data'} by {hue.lower()}"


def _label(spec: Spec, name: str, value: Any) -> str:
    """A value of the grid in words, or several."""
    if isinstance(value, list):
        return listed([_label(spec, name, one) for one in value])
    if name == "alpha":
        return "IID" if value == "iid" else f"{AXES[name]} = {value}"
    return str(spec["labels"].get(name, {}).get(value, value))


# Tables: what people read of a CSV, rounded. The file itself is one click away.


def _column(name: str, form: str = "", unit: float = 1) -> Callable[[Row], str]:
    """The cells of a column: words as they are, or numbers in this form."""

    def cell(row: Row) -> str:
        value = row.get(name, "")
        return format(float(value) / unit, form) if value and form else value

    return cell


def _accuracy(name: str) -> Callable[[Row], str]:
    """A mean, and over several seeds its deviation."""
    mean, deviation = _column(name, ".2f"), _column(f"{name}_std", ".2f")
    return lambda row: " \N{PLUS-MINUS SIGN} ".join(filter(None, [mean(row), deviation(row)]))


def _p_value(name: str) -> Callable[[Row], str]:
    return lambda row: p_value(float(row[name])) if row.get(name) else ""


def _interval(row: Row, name: str = "ci") -> str:
    ends = [_column(f"{name}_{end}", "+z.2f")(row) for end in ("low", "high")]
    return f"{ends[0]} to {ends[1]}" if all(ends) else ""


def _yes_or_no(name: str) -> Callable[[Row], str]:
    return lambda row: {"True": "yes", "False": "no"}.get(row.get(name, ""), "")


def _all_rounds(row: Row) -> str:
    """Where best accuracies are tested, `mean` is theirs."""
    return _accuracy(ALL_ROUNDS if ALL_ROUNDS in row else "mean")(row)


TRAINED: Columns = {
    "Seeds": _column("seeds"),
    "Accuracy of the last third (%)": _accuracy("last_third"),
    "Best accuracy (%)": _accuracy("best"),
    "Final accuracy (%)": _accuracy("final"),
    "Accuracy of all rounds (%)": _all_rounds,
    "Difference (pp)": _column("difference", "+z.2f"),
    "95 % interval": _interval,
    "p (pooled)": _p_value("p"),
    "p (Welch)": _p_value("welch_p"),
    "Optimizer memory (MB)": _column("memory_bytes", ".2f", 1e6),
    "Collapsed": _yes_or_no("collapsed"),
    "Runs diverged": _column("diverged"),
}
COMPARED: Columns = {
    "Seeds": _column("seeds"),
    "Accuracy": _column("metric"),
    "Mean (%)": _column("mean", ".2f"),
    "Mean of the baseline (%)": _column("baseline_mean", ".2f"),
    "Difference (pp)": _column("difference", "+z.2f"),
    "95 % interval": _interval,
    "Simultaneous interval": partial(_interval, name="simultaneous"),
    "90 % interval": partial(_interval, name="tost_ci"),
    "Variance": _column("variance"),
    "p (difference)": _p_value("p"),
    "p (equivalence)": _p_value("tost_p"),
    "p (equivalence, wider margin)": _p_value("wider_tost_p"),
    "Seeds needed": _column("seeds_needed", ",.0f"),
    "Runs": _column("runs"),
    "Runs collapsed": _column("collapsed"),
    "Seeds left out": _column("left_out"),
    "Why nothing was tested": _column("reason"),
}
ANSWERS: Columns = {
    "Question": _column("asks"),
    "Answer": _column("answer"),
    "Status": _column("status"),
    "Against": _column("baseline"),
    "Difference (pp)": _column("difference", "+z.2f"),
    "90 % interval": partial(_interval, name="tost_ci"),
    "Best (pp)": _column("best_difference", "+z.2f"),
    "Final (pp)": _column("final_difference", "+z.2f"),
    "All rounds (pp)": _column("mean_difference", "+z.2f"),
    "Margin (pp)": _column("margin", ".2f"),
    "p": _p_value("p"),
    "p (wider margin)": _p_value("wider_p"),
    "Seeds": _column("n", ".0f"),
    "Seeds wanted": _column("seeds_wanted"),
    "Why there is no test": _column("reason"),
}
STEPS: Columns = {
    "Local step": _column("step"),
    "Median error (learning rates)": _column("median", ".2g"),
    "99th percentile": _column("p99", ".2g"),
    "Largest error": _column("max", ".2g"),
    "Largest error where v is 0": _column("idle_max", ".2g"),
    "Off by 10 learning rates (%)": _column("over_ten_lr", ".3f", 0.01),
    "10 times too large (%)": _column("over_ten", ".3f", 0.01),
    "10 times too small (%)": _column("under_ten", ".3f", 0.01),
}
VARIANCE: Columns = {
    "Round": _column("round"),
    "Layer": _column("layer"),
    "Weights of all clients": _column("numel", ",.0f"),
    "v is 0 (%)": _column("zero", ".2f", 0.01),
    "v below the floor (%)": _column("below", ".2f", 0.01),
    "10th percentile of v": _column("p10", ".1e"),
    "Median of v": _column("median", ".1e"),
    "90th percentile of v": _column("p90", ".1e"),
}
MODEL_SIZE: Columns = {
    "Width": _column("width"),
    "Parameters": _column("parameters", ",.0f"),
    "Steps": _column("steps"),
    "Way (learning rates)": _column("way", ",.1f"),
    "Way over FP32's": _column("relative_way", ".3f"),
    "Loss of the last batch": _column("loss", ".3f"),
    "v is 0 in FP32 (%)": _column("zero", ".2f", 0.01),
    "v below the floor in FP32 (%)": _column("below", ".2f", 0.01),
}
MICROSCOPE: Columns = {
    "Steps": _column("steps"),
    "Median error (learning rates)": _column("median", ".2g"),
    "99th percentile": _column("p99", ".2g"),
    "Largest error": _column("max", ".2g"),
    "Off by 10 learning rates (%)": _column("far", ".3f", 0.01),
    "Way over that with exact states": _column("relative_way", ".3g"),
    "First loss": _column("first_loss", ".3f"),
    "Last loss": _column("last_loss", ".3f"),
    "v is 0 (%)": _column("zero", ".2f", 0.01),
    "v below the floor (%)": _column("below", ".2f", 0.01),
}
PARTITIONS: Columns = {
    "Clients": _column("clients"),
    "Samples": _column("samples", ",.0f"),
    "Left over": _column("dropped", ",.0f"),
    "Dominant class (%)": _column("dominant_percent", ".2f"),
    "Ratio to uniform": _column("ratio", ".2f"),
    "Standard deviation of samples": _column("sample_std", ",.1f"),
    "Heterogeneity": _column("heterogeneity"),
}
EXACT: Mapping[str, Columns] = {
    "scaling": {
        "Parameters": _column("parameters", ",.0f"),
        "FP32 (MiB)": _column("fp32_mib", ",.2f"),
        "Held (MiB)": _column("held_mib", ",.2f"),
        "Ratio, held": _column("held_ratio", ".2f"),
        "Published (MiB)": _column("published_mib", ",.2f"),
        "Ratio, published": _column("published_ratio", ".2f"),
    },
    "client_memory": {
        "Image size": _column("image_size"),
        "Activations (MB)": _column("activations_bytes", ",.1f", 1e6),
        "Weights (MB)": _column("weights_bytes", ",.1f", 1e6),
        "Gradients (MB)": _column("gradients_bytes", ",.1f", 1e6),
        "States (MB)": _column("states_bytes", ",.1f", 1e6),
        "In all (MB)": _column("total_bytes", ",.1f", 1e6),
        "Less than with FP32 states (%)": _column("saved_percent", ".2f"),
    },
    "released": {
        "What": _column("what"),
        "Printed": _column("printed"),
        "Where": _column("place"),
        "Released": _column("released"),
        "Line": _column("lines"),
        "Here": _column("here"),
        "Arms that differ": _column("arms"),
    },
    "data_distribution": PARTITIONS,
    "data_distribution_summary": PARTITIONS,
    "clients": {
        "Client": _column("client"),
        "Samples": _column("samples", ",.0f"),
        "Dominant class": _column("dominant_name"),
        "Share (%)": _column("dominant_percent", ".2f"),
        "Classes": _column("classes"),
    },
}
"""Kinds of tables that are at the paper's own size at every scale."""
MEASURED: Mapping[str, Columns] = {
    "contrasts": COMPARED,
    "registered": ANSWERS,
    "steps": STEPS,
    "variance": VARIANCE,
    "model_size": MODEL_SIZE,
    "microscope": MICROSCOPE,
}
"""Kinds with columns of their own, of what is trained at a scale."""
CIRCUMSTANCES = (*AXES.values(), "Seeds", "Runs", "Clients", "Collapsed", "Runs diverged")
"""Columns that are no measurements: where all rows have the same, it is said once below the table."""


def _read(path: Path) -> pd.DataFrame:
    """Words as they were written: an alpha may be one, and 1.00 % is printed with two digits."""
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _readable(spec: Spec, path: Path) -> tuple[pd.DataFrame, str]:
    """The table as people read it, and what all its rows share."""
    exact = spec["kind"] in EXACT
    labels = {**spec["labels"], "dataset": spec["stands_for"]} if exact else spec["labels"]
    grid = {head: partial(_place, labels, name) for name, head in AXES.items()}
    columns: Columns = {**grid, **{**EXACT, **MEASURED}.get(spec["kind"], TRAINED)}
    rows = _read(path).to_dict("records")
    table = pd.DataFrame([{head: cell(row) for head, cell in columns.items()} for row in rows], dtype=object)
    table = table.loc[:, table.ne("").any()]
    same = [head for head in CIRCUMSTANCES if head in table and len(table) > 1 and table[head].nunique() == 1]
    shared = "; ".join(f"{head.lower()} {table[head].iloc[0]}" for head in same)
    return table.drop(columns=same), f"In every row: {shared}." if shared else ""


def _place(labels: Mapping[str, Mapping[str, str]], name: str, row: Row) -> str:
    value = row.get(name, "")
    return "IID" if value == "iid" else labels.get(name, {}).get(value, value)


def _explained(spec: Spec) -> str:
    """What a table is about, and how far it can be trusted to be the paper's."""
    if spec["kind"] == "released":
        return (
            "The paper's equations and text, its released code and this package. Where the first two differ, the "
            "package does what the code does; arms run the other side."
        )
    if spec["kind"] in EXACT:
        return "At the paper's own size whatever the scale, for nothing is trained."
    if spec["kind"] == "steps":
        return (
            f"One client's local training at scale {spec['scale']}, in FP32. At some steps its states are stored by "
            "each arm and the step is taken from what is read back: the error is the distance from the exact step, in "
            "learning rates, over the weights whose variance v is above 0."
        )
    if spec["kind"] == "variance":
        return (
            f"Clients of a run at scale {spec['scale']}, in FP32: the variance v of every weight at the end of local "
            "training, all clients of a round together. Percentiles are over the weights whose v is above 0; the floor "
            "is that of the released code."
        )
    if spec["kind"] == "model_size":
        return (
            f"First steps of transformers of several widths, at scale {spec['scale']}: each arm trains from the same "
            "weights on the same batches. The way is the length of all steps; v is the variance after the last of "
            "them; the floor is that of the released code."
        )
    if spec["kind"] == "microscope":
        return (
            f"The first round of one client of the paper's partition, at scale {spec['scale']}: each arm trains by "
            "itself. An error is the distance of a weight's step from the one that exact states, made of the same "
            "gradients, would have taken, in learning rates; the largest and the share are those of the worst step."
        )
    if spec["kind"] == "contrasts":
        baseline = _label(spec, "arm", spec.get("baseline", "fp32"))
        return (
            f"Trained at scale {spec['scale']}. Exploratory: intervals, and no verdicts. Differences to {baseline} in "
            "percentage points, from metric ~ arm + seed with one residual variance for all arms that train, or from "
            "pairs of runs where an arm collapsed. Simultaneous intervals hold for all arms of a data set together. "
            f"Equivalence is two one-sided tests for a margin of {100 * spec['margin']:g} % of the baseline, and of "
            "twice that. Seeds needed: for either verdict, with a power of 80 %."
        )
    if spec["kind"] == "registered":
        return (
            f"Trained at scale {spec['scale']}. The questions stand in paper/registered.yaml, which was committed "
            "before any run with its seeds existed. Yes: the test succeeds at 5 % on both data sets. Questions are "
            "tested in this order, each as long as those before it were answered yes; the rest is exploratory."
        )
    return (
        f"Trained at scale {spec['scale']}. Best is the highest test accuracy of all rounds, final that of the last; "
        "a difference is to the first row of the same data. A run has collapsed if it ends below twice the accuracy "
        "of guessing. Memory is that of the paper's own models where it has one; 1 MB is a million bytes."
    )


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
    kinds = [NUMBER if numeric else "" for numeric in _numeric(table)]
    rows = [zip(kinds, row, strict=True) for row in table.itertuples(index=False)]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table, strict=True))
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
        f"<p>{escape(_explained(spec))}</p>",
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
    own, original = _label(spec, "dataset", dataset), spec["stands_for"].get(dataset)
    if original is None:
        return f"{own} is not in the paper."
    return f"{own} is the paper's own data set." if own == original else f"{own} stands in the place of {original}."


def _setting(spec: Spec, said: Mapping[str, str], dataset: str) -> dict[str, str]:
    of = {name.rpartition("/")[2]: text for name, text in said.items() if name.startswith(f"setting/{dataset}/")}
    text = of["image_size"] == NONE
    return {
        "Data set": _label(spec, "dataset", dataset),
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
        yield f"{_caption(spec, name)}. {_explained(entry)}"
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
