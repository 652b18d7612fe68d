"""Whether results are what their configuration makes: every file against what it was made from.

Runs, data and partitions are compared with the configuration and with each other's hashes. What is made of them, every
table cell, number, claim, page and figure, is made again in memory and compared with the file.
"""

from __future__ import annotations

import io
import json
import multiprocessing
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from html import escape
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from qlocaladam.checks import whole_number
from qlocaladam.data.dataset import DataUnavailable, load, subset
from qlocaladam.experiments import grid
from qlocaladam.experiments.runs import read_runs
from qlocaladam.federated import record
from qlocaladam.federated.partition import Partition, load_partition, partition
from qlocaladam.federated.settings import RunSettings
from qlocaladam.files import table_rows, table_text
from qlocaladam.ledger import claims, form, presentation
from qlocaladam.project import project_file
from qlocaladam.report import html, markdown, template
from qlocaladam.results import figures, numbers, tables
from qlocaladam.results.layout import CLIENT_FILES, EXACT, EXACT_FILES, TEST_FILES, Layout

SOUND = "as asked"
WRONG = "wrong"
MISSING = "missing"
UNKNOWN = "not checked"
KINDS = ("data", "partition", "run", "analysis", "exact", "test", "table", "page", "figure", "numbers", "claims")
"""Of files, in the order they are looked at."""
VERDICTS = (SOUND, WRONG, MISSING, UNKNOWN)
FAILED = (WRONG, MISSING)
PUBLISHED = "paper/published.yaml"
NOT_HERE = (UNKNOWN, "not here: runs are compared with the configuration only")
"""Of data and partitions, which need not be copied with the runs that they made."""


class Finding(NamedTuple):
    kind: str
    file: str
    verdict: str
    reason: str = ""


Texts = Mapping[str, str | bytes]
"""What files must hold, by their paths."""


def check(layout: Layout, kinds: Collection[str] = KINDS, processes: int = 1) -> pd.DataFrame:
    """One row a file that the configuration asks for: its kind, the file, the verdict and why. What is made of runs is
    made again in so many processes, because figures take most of the time."""
    whole_number("processes", processes, 1)
    trained = {"data": _data, "partition": _partitions, "run": _runs, "analysis": _client_analyses}
    findings = [finding for kind, look in trained.items() if kind in kinds for finding in look(layout)]
    made = [result for result in _made_of_runs(layout) if result[0] in kinds]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        findings += chain.from_iterable(pool.starmap(_compared, made, chunksize=1))
    return pd.DataFrame(findings, columns=Finding._fields)


def failed(findings: pd.DataFrame) -> pd.DataFrame:
    return findings[findings["verdict"].isin(FAILED)]


# What was trained, and what it was trained on.


def _looked_at(kind: str, file: str, look: Callable[[], tuple[str, str]]) -> Finding:
    """The finding of a look at a file: its verdict and the reason. What cannot be read is missing or wrong."""
    try:
        return Finding(kind, file, *look())
    except FileNotFoundError as error:
        return Finding(kind, file, MISSING, str(error))
    except ValueError as error:
        return Finding(kind, file, WRONG, str(error))


def _wrong_if(reason: str) -> tuple[str, str]:
    return (WRONG if reason else SOUND), reason


def _same(what: str, own: object, expected: object) -> tuple[str, str]:
    return _wrong_if("" if own == expected else f"{what} is {own}, and should be {expected}")


def _data(layout: Layout) -> Iterator[Finding]:
    for file in dict.fromkeys(layout.data_file(dataset) for dataset in layout.runs["dataset"].unique()):
        yield _looked_at("data", file, partial(_data_file, layout, file))


def _data_file(layout: Layout, file: str) -> tuple[str, str]:
    if not Path(file).exists():
        return NOT_HERE
    data = load(file)
    source = layout.config["sources"].get(data.name)
    made_otherwise = f"was not made from {source or 'its own origin'} as that is now"
    return _wrong_if("" if layout.prepared(data.name) else made_otherwise)


def _partitions(layout: Layout) -> Iterator[Finding]:
    for file, place in {layout.partition_file(place): place for place in table_rows(layout.runs)}.items():
        yield _looked_at("partition", file, partial(_partition, layout, place))


def _partition(layout: Layout, place: Mapping[str, Any]) -> tuple[str, str]:
    file = layout.partition_file(place)
    if not Path(file).exists():
        return NOT_HERE
    held = load_partition(file)
    asked = layout.run_request(place)["partition"]
    if changed := record.differences({name: getattr(held, name) for name in asked}, asked):
        return WRONG, ", ".join(changed)
    labels = _labels(layout, place["dataset"])
    if labels is None:
        return UNKNOWN, "its data are not here"
    return _same("SHA-256", held.sha256, partition(labels, held.clients, held.alpha, held.seed).sha256)


def _labels(layout: Layout, dataset: str) -> Any:
    """Of the training images that clients share, or None without sound data."""
    try:
        data = load(layout.data_file(dataset))
    except (ValueError, DataUnavailable):
        return None
    return subset(data, layout.size["datasets"][dataset].get("train_images")).y_train


def _runs(layout: Layout) -> Iterator[Finding]:
    files = dict.fromkeys(map(layout.partition_file, table_rows(layout.runs)))
    partitions = {file: _readable_partition(file) for file in files}
    for place in table_rows(layout.runs):
        dealt = partitions[layout.partition_file(place)]
        yield _looked_at("run", layout.run_folder(place), partial(_run, layout, place, dealt))


def _run(layout: Layout, place: Mapping[str, Any], dealt: Partition | None) -> tuple[str, str]:
    if grid.run_name(place) in layout.absent:
        return UNKNOWN, f"{layout.run_lacks(place)}; train is false, so it is left out"
    run, request = record.read(Path(layout.run_folder(place))), layout.run_request(place)
    known = {"optimizer": RunSettings(**request["settings"]).optimizer_options()}
    known |= {"partition": {"sha256": dealt.sha256}} if dealt else {}
    return _wrong_if(", ".join([*record.differences(run.made, request), *record.differences(run.made, known)]))


def _readable_partition(file: str) -> Partition | None:
    try:
        return load_partition(file)
    except (OSError, ValueError):
        return None


def _client_analyses(layout: Layout) -> Iterator[Finding]:
    for analysis in CLIENT_FILES:
        for dataset in layout.shown(analysis):
            yield from _client_analysis(layout, analysis, dataset)


def _client_analysis(layout: Layout, analysis: str, dataset: str) -> Iterator[Finding]:
    *files, last = layout.analysis_files(analysis, dataset)
    try:
        summary = record.read_json(Path(last))
    except FileNotFoundError:
        yield Finding("analysis", last, MISSING, "not there")
        return
    except ValueError as error:
        yield Finding("analysis", last, WRONG, str(error))
        return
    sealed = summary.get(record.SEAL) == record.sealed(summary)[record.SEAL]
    lacks = layout.analysis_lacks(analysis, dataset) if sealed else "it is not as it was written"
    yield Finding("analysis", last, *_wrong_if(lacks))
    for file in files:
        sha256 = summary.get("files", {}).get(Path(file).name)
        yield Finding("analysis", file, *_same("SHA-256", record.file_sha256(Path(file)), sha256))


# What is made of it.


def _made_of_runs(layout: Layout) -> Iterator[tuple[str, list[str], Callable[[], Texts]]]:
    """The kind of each result, its files, and how their texts are made."""
    for analysis, names in EXACT_FILES.items():
        yield "exact", [f"{EXACT}/{name}" for name in names], partial(_exact, layout, analysis)
    for kind in TEST_FILES:
        for name in layout.tested[kind]:
            yield "test", layout.test_files(kind, name), partial(_test, layout, kind, name)
    for name in layout.tables:
        files = [f"{layout.results}/tables/{name}.csv", f"{layout.latex}/tables/{name}.tex"]
        yield "table", files, partial(_table, layout, name)
        yield "page", [f"{layout.results}/tables/{name}.html"], partial(_table_page, layout, name)
    for name in layout.figures:
        files = [f"{layout.figure_folder}/{name}.{form}" for form in ("pdf", "png")]
        yield "figure", files, partial(_figure, layout, name)
    files = [f"{layout.together}/numbers.json", f"{layout.latex_together}/numbers.tex"]
    yield "numbers", files, partial(_numbers, layout)
    tex = [f"{layout.latex_together}/{name}.tex" for name in ("tables/claims", "tables/disagreements", "claims")]
    yield "claims", [f"{layout.together}/claims.csv", *tex], partial(_claims, layout)
    pages = [f"{layout.together}/{name}" for name in ("claims.html", "RESULTS.md", "REPRODUCIBILITY.md")]
    yield "page", pages, partial(_pages, layout)


def _compared(kind: str, paths: list[str], make: Callable[[], Texts]) -> list[Finding]:
    there = [path for path in paths if Path(path).exists()]
    findings = [Finding(kind, path, MISSING, "not there") for path in paths if path not in there]
    if not there:
        return findings
    try:
        texts = make()
    except (ValueError, KeyError, OSError) as error:
        return findings + [Finding(kind, path, WRONG, f"cannot be made again: {error}") for path in there]
    for path in there:
        own, made = Path(path).read_bytes(), texts[path]
        expected = made if isinstance(made, bytes) else made.encode()
        findings.append(Finding(kind, path, SOUND if own == expected else WRONG, _difference(path, own, expected)))
    return findings


def _difference(path: str, own: bytes, expected: bytes) -> str:
    """Of a table the first cell that differs, of another text the first line."""
    if own == expected:
        return ""
    try:
        texts = own.decode(), expected.decode()
    except UnicodeDecodeError:
        return "it is not what its inputs make"
    if path.endswith(".csv") and (cell := _different_cell(*texts)):
        return cell
    lines = [text.splitlines() for text in texts]
    for number, (one, other) in enumerate(zip(*lines, strict=False), 1):
        if one != other:
            return f"line {number} is {_cut(one)!r}, and its inputs make it {_cut(other)!r}"
    return f"it has {len(lines[0])} lines, and its inputs make {len(lines[1])}"


def _different_cell(own: str, expected: str) -> str:
    try:
        one, other = (pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False) for text in (own, expected))
    except ValueError:
        return ""
    if list(one) != list(other) or len(one) != len(other):
        return ""
    for row, column in zip(*(one.to_numpy() != other.to_numpy()).nonzero(), strict=True):
        cells = (table.iloc[row, column] for table in (one, other))
        return "row {}, {} is {!r}, and its inputs make it {!r}".format(row + 1, one.columns[column], *cells)
    return ""


def _cut(line: str) -> str:
    return line if len(line) <= 80 else f"{line[:80]}..."


def _files(paths: Mapping[str, str]) -> dict[str, Path]:
    return {name: Path(path) for name, path in paths.items()}


def _exact(layout: Layout, analysis: str) -> Texts:
    given = {**layout.exact_options(analysis), **_files(layout.exact_inputs(analysis))}
    made = import_module(f"qlocaladam.analysis.{analysis}").files(**given)
    return {
        f"{EXACT}/{name}": content if isinstance(content, str) else table_text(content)
        for name, content in made.items()
    }


def _trained(layout: Layout, rows: pd.DataFrame) -> pd.DataFrame:
    return read_runs(layout.folders(layout.available(rows)), layout.asked(rows))


def _test(layout: Layout, kind: str, name: str) -> Texts:
    given = {**layout.test_options(kind, name), **_files(layout.test_inputs(kind))}
    runs = _trained(layout, layout.table_rows(name))
    made = import_module(f"qlocaladam.analysis.{kind}").files(runs, **given)
    return dict(zip(layout.test_files(kind, name), map(table_text, made.values()), strict=True))


def _table(layout: Layout, name: str) -> Texts:
    rows, spec = layout.table_rows(name), layout.table_spec(name)
    runs = _trained(layout, rows) if len(rows) else None
    table = tables.build(spec, runs, _files(layout.table_files(name)))
    return {f"{layout.results}/tables/{name}.csv": table.csv(), f"{layout.latex}/tables/{name}.tex": table.latex()}


def _table_page(layout: Layout, name: str) -> Texts:
    path = f"{layout.results}/tables/{name}"
    return {f"{path}.html": html.table_page(layout.page_spec(name), Path(f"{path}.csv"))}


def _figure(layout: Layout, name: str) -> Texts:
    panels = [_trained(layout, rows) for rows in layout.panel_rows(name)]
    drawn = figures.draw(layout.figure_spec(name), panels, _files(layout.figure_files(name)))
    return {f"{layout.figure_folder}/{name}.{form}": content for form, content in figures.rendered(drawn).items()}


def _numbers(layout: Layout) -> Texts:
    made = numbers.collect(layout.numbers_spec(), _trained(layout, layout.runs), _files(layout.number_files()))
    json_file, tex_file = f"{layout.together}/numbers.json", f"{layout.latex_together}/numbers.tex"
    return {json_file: numbers.as_json(made), tex_file: numbers.as_latex(made)}


def _claims(layout: Layout) -> Texts:
    computed = json.loads(Path(f"{layout.together}/numbers.json").read_text())
    verdicts = claims.judge(form.load(Path(project_file(PUBLISHED))), computed, layout.scale)
    return {
        f"{layout.together}/claims.csv": table_text(verdicts),
        f"{layout.latex_together}/tables/claims.tex": presentation.counts_latex(verdicts, layout.scale),
        f"{layout.latex_together}/tables/disagreements.tex": presentation.disagreements_latex(verdicts, layout.scale),
        f"{layout.latex_together}/claims.tex": presentation.macros(verdicts),
    }


def _pages(layout: Layout) -> Texts:
    ledger = Path(f"{layout.together}/claims.csv")
    shown = (
        {name: Path(f"{layout.results}/tables/{name}.csv") for name in layout.tables},
        {name: Path(f"{layout.figure_folder}/{name}.png") for name in layout.figures},
    )
    numbers_file = Path(f"{layout.together}/numbers.json")
    spec, folder = layout.results_spec(), Path(layout.together)
    return {
        f"{folder}/claims.html": html.ledger_page(presentation.read(ledger), layout.scale, folder),
        f"{folder}/RESULTS.md": markdown.results_page(spec, *shown, numbers_file, ledger, folder),
        f"{folder}/REPRODUCIBILITY.md": template.reproducibility(folder, **layout.reproducibility_spec()),
    }


# What is shown of it.


def summary(findings: pd.DataFrame, layout: Layout) -> str:
    """For the terminal: how many files of each kind have each verdict, and every one that is not as asked."""
    counts = pd.crosstab(findings["kind"], findings["verdict"]).reindex(columns=VERDICTS, fill_value=0)
    counts = counts.reindex(findings["kind"].unique()).rename_axis(index=None, columns=None)
    lines = [counts.to_string(), "", *made_with(layout)]
    for verdict in VERDICTS[1:]:
        rows = findings[findings["verdict"] == verdict]
        lines += [f"{verdict}:"] if len(rows) else []
        lines += [f"  {row.file}: {row.reason}" for row in rows.itertuples()]
    return "\n".join([*lines, outcome(findings)]) + "\n"


def outcome(findings: pd.DataFrame) -> str:
    wrong = failed(findings)
    if wrong.empty:
        return f"check: all of {len(findings)} files are what the configuration makes, as far as they were compared"
    first = wrong.iloc[0]
    return f"check: {len(wrong)} of {len(findings)} files are not, first {first['file']}: {first['reason']}"


def made_with(layout: Layout) -> Iterable[str]:
    """Programs and processors round differently: how many runs were made with what."""
    counts: Counter[str] = Counter()
    for folder in layout.folders(layout.available(layout.runs)):
        try:
            versions = record.read_json(Path(folder, "settings.json"))["versions"]
            counts[", ".join(f"{name} {versions[name]}" for name in ("kernel", "torch", "threads"))] += 1
        except (OSError, ValueError, KeyError, TypeError):
            continue
    yield from (f"{count} runs made with {what}" for what, count in counts.items())


def as_html(findings: pd.DataFrame, layout: Layout) -> str:
    """The same as a page of the report; what is wrong comes first."""
    order = {verdict: place for place, verdict in enumerate((*FAILED, UNKNOWN, SOUND))}
    rows = findings.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    heads = {"kind": "Kind", "file": "File", "verdict": "Verdict", "reason": "Reason"}
    return html.page(
        f"Check of the results, scale {layout.scale}",
        f"<p>{escape(outcome(findings))}.</p>",
        *(f"<p>{escape(line)}.</p>" for line in made_with(layout)),
        html.table(rows.rename(columns=heads), "Files"),
    )
