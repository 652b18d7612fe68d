"""Captions and notes: what was trained and on what, so that no table can be taken for the paper's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd

from qlocaladam.data.dataset import WINDOW
from qlocaladam.experiments.runs import METRICS
from qlocaladam.files import table_rows
from qlocaladam.results.cells import measured_here
from qlocaladam.results.labels import alpha_latex, latex
from qlocaladam.results.latex import NONE, escape, listed
from qlocaladam.results.rows import Row, Spec, as_number, grouped, unique

SIZE_OF_THE_PAPER = "At the paper's own size whatever the scale, for nothing is trained."
MISSING_NOTE = "$^{m}$~missing: runs that the configuration asks for are not there; a mean is over the others."


def trained_caption(spec: Spec, runs: pd.DataFrame, shown: Collection[str], varied: str) -> str:
    sentences = [
        f"{at_scale(spec)}: {listed(_data(spec, runs))}.",
        f"{', '.join(_setup(spec, runs, varied))}.",
        "Test accuracy; best is over all rounds.",
    ]
    if "memory" in shown:
        sentences.append(r"Memory: the paper's models in the paper's layout; 1~MB is $10^6$ bytes.")
    if "difference" in shown:
        sentences.append("Differences of the best accuracy in percentage points, from the first row of a data set.")
    return " ".join(sentences)


def analysed_caption(spec: Spec, *sentences: str) -> str:
    return " ".join([opening(spec), SIZE_OF_THE_PAPER, *sentences])


def opening(spec: Spec) -> str:
    return escape(spec["caption"].rstrip(". ")) + "."


def at_scale(spec: Spec) -> str:
    """What the caption of something trained begins with."""
    return rf"{opening(spec)} Scale \emph{{{escape(spec['scale'])}}}"


def _data(spec: Spec, runs: pd.DataFrame) -> list[str]:
    """The data sets, how large they are, and what they stand in the place of."""
    words = []
    for dataset, own in runs.groupby("dataset", sort=False):
        label, original = latex(spec, "dataset", dataset), spec["stands_for"].get(dataset)
        sizes = unique(
            f"{run['training_images']:,} training and {run['test_images']:,} test {_samples(run)}"
            for run in table_rows(own)
        )
        place = f", in the place of {escape(original)}" if original and escape(original) != label else ""
        words.append(f"{label} ({' or '.join(sizes)}{place})")
    return words


def _setup(spec: Spec, runs: pd.DataFrame, varied: str) -> list[str]:
    """How the models were trained; what differs between data sets is said for each."""

    def said(form: Callable[[Row], str]) -> str:
        of_datasets = grouped(table_rows(runs), "dataset")
        return _by_dataset(spec, {name: " or ".join(unique(form(run) for run in rows)) for name, rows in of_datasets})

    seeds = {str(dataset): _seeds(own["seed"]) for dataset, own in runs.groupby("dataset", sort=False)}
    return [
        said(lambda run: "Transformer" if _is_text(run) else "ResNet-18"),
        said(lambda run: f"width {run['width']}"),
        said(
            lambda run: (
                f"{WINDOW} characters" if _is_text(run) else rf"${run['image_size']}\times{run['image_size']}$ inputs"
            )
        ),
        *([said(lambda run: alpha_latex(run["alpha"]))] if varied != "alpha" else []),
        said(lambda run: _counted(run["rounds"], "round")),
        said(lambda run: f"{run['clients_per_round']} of {_counted(run['clients'], 'client')} a round"),
        said(lambda run: _counted(run["epochs"], "local epoch")),
        _by_dataset(spec, seeds),
    ]


def _by_dataset(spec: Spec, words: Mapping[str, str]) -> str:
    """Once where it is the same for all data sets."""
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return listed([f"{said} ({latex(spec, 'dataset', dataset)})" for dataset, said in words.items()])


def _seeds(seeds: pd.Series) -> str:
    words = unique(map(str, seeds))
    return f"seed{'s' * (len(words) > 1)} {listed(words)}"


def _is_text(run: Row) -> bool:
    return bool(pd.isna(run["image_size"]))


def _samples(run: Row) -> str:
    return "windows" if _is_text(run) else "images"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def run_notes(spec: Spec, rows: Sequence[Row], shown: Collection[str]) -> list[str]:
    """What the marks mean that stand in a table of runs."""
    accuracy = any(name in shown for name in METRICS)
    chances = {row["dataset"]: row["chance"] for row in rows if row.get("collapsed")}
    levels = listed([rf"{level:g}\,\% ({latex(spec, 'dataset', dataset)})" for dataset, level in chances.items()])
    absent = any(row["runs"] == 0 and not row.get("missing") for row in rows)
    notes = {
        rf"$^{{c}}$~collapsed: ends below twice the chance level of {levels}.": accuracy and bool(chances),
        "$^{d}$~diverged: in at least one run weights were not finite any more and training ended.": accuracy
        and any(row.get("diverged") for row in rows),
        r"$^{\dagger}$~of the model trained here: the paper has no size for it.": "memory" in shown
        and any(map(measured_here, rows)),
        MISSING_NOTE: any(row.get("missing") for row in rows),
        r"$\pm$ is the sample standard deviation over seeds.": any(row["runs"] > 1 for row in rows),
        f"{NONE} in a whole row or for an arm: there is no such run.": absent,
    }
    return [note for note, needed in notes.items() if needed]


def reason_notes(spec: Spec, rows: Sequence[Row]) -> list[str]:
    """Why a test is missing, and for which arms."""
    missing = [row for row in rows if math.isnan(as_number(row["p"])) and row["reason"]]
    return [
        f"{NONE} {escape(reason.rstrip('. '))} ({'; '.join(arms_by_dataset(spec, same))})."
        for reason, same in grouped(missing, "reason")
    ]


def arms_by_dataset(spec: Spec, rows: Sequence[Row]) -> list[str]:
    return [
        f"{latex(spec, 'dataset', dataset)}: {listed([latex(spec, 'arm', row['arm']) for row in same])}"
        for dataset, same in grouped(rows, "dataset")
    ]
