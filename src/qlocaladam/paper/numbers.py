"""Numbers that a text quotes: each has a name like a path, a value, the words it is written as, and its file.

In LaTeX `\\result{best/cifar10/0.1/fp32}` gives the number; a name that does not exist stops the compilation.
A run's name leaves out its block size, learning rate and seed where they are the defaults.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.paper.runs import collapsed

BASELINE = "fp32"
Row = Mapping[str, Any]
Files = Mapping[str, Path]


@dataclass(frozen=True)
class Number:
    """A number, how it is written, and where it came from."""

    name: str
    value: float | int | str | None
    text: str
    file: str


def plain(value: Any, form: str) -> str:
    """A number in the given form; a dash for what is not defined."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "--" if missing else format(value, form)


def p_value(value: Any) -> str:
    """Two significant digits, as far as four decimals go."""
    if value is None or math.isnan(value):
        return "--"
    return "<0.0001" if value < 0.0001 else f"{value:.2g}"


def collect(spec: Mapping[str, Any], runs: pd.DataFrame, files: Files) -> list[Number]:
    """Every number. `spec` has the scale and the grid's defaults; `files` the analyses by name."""
    numbers = [
        *_of_runs(spec["defaults"], runs),
        *_of_settings(spec["scale"], runs),
        *_of_memory(files["memory"]),
        *_of_scaling(files["scaling"]),
        *_of_partitions(files["heterogeneity"], files["clients"]),
        *_of_participation(files["sampling"], files["steps"]),
        *_of_precision(files["precision_summary"], files["precision_by_decade"]),
    ]
    for name, path in files.items():
        kind, _, which = name.partition(".")
        if kind == "significance":
            numbers += _of_significance(path)
        elif kind == "distributions":
            numbers += _of_distributions(which, path)
    names = [number.name for number in numbers]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ValueError(f"numbers with one name: {', '.join(sorted(repeated))}")
    return numbers


def as_json(numbers: Iterable[Number]) -> str:
    content = {number.name: {k: v for k, v in asdict(number).items() if k != "name"} for number in numbers}
    return json.dumps(content, indent=1) + "\n"


def as_latex(numbers: Iterable[Number]) -> str:
    lines = [
        "% made by the rule collect_numbers; \\result{name} writes a number, and stops where there is none",
        "\\providecommand{\\result}[1]{\\ifcsname result:#1\\endcsname\\csname result:#1\\endcsname"
        "\\else\\errmessage{There is no number named #1}\\fi}",
    ]
    lines += [f"\\expandafter\\def\\csname result:{n.name}\\endcsname{{{_latex(n.text)}}}" for n in numbers]
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """A minus that is one, powers of ten, and nothing that LaTeX reads as a command."""
    if text == "--":
        return text
    text = re.sub(r"^-", "$-$", text.replace("_", r"\_").replace("%", r"\%").replace("<", "$<$"))
    return re.sub(r"e([+-]\d+)$", lambda match: rf"$\times 10^{{{int(match[1])}}}$", text)


def _cells(prefix: str, row: Row, forms: Mapping[str, str | Callable[[Any], str]], file: object) -> Iterator[Number]:
    for column, form in forms.items():
        value = row[column]
        value = None if isinstance(value, float) and math.isnan(value) else value
        text = form(value) if callable(form) else plain(value, form)
        yield Number(f"{prefix}/{column}", value, text, str(file))


def _run_name(defaults: Row, run: Row) -> str:
    parts = [run["dataset"], run["alpha"], run["arm"]]
    parts += [f"{name}={run[name]:g}" for name in ("block_size", "lr", "seed") if run[name] != defaults[name]]
    return "/".join(parts)


def _of_runs(defaults: Row, runs: pd.DataFrame) -> Iterator[Number]:
    """Best and final accuracy, and how far both are from FP32 and from the same arm at the defaults."""
    rows = runs.to_dict("records")
    for run in rows:
        name, file = _run_name(defaults, run), f"{run['folder']}/summary.json"
        yield Number(f"best/{name}", run["best"], plain(run["best"], ".2f"), file)
        yield Number(f"final/{name}", run["final"], plain(run["final"], ".2f"), file)
        yield Number(f"best_round/{name}", run["best_round"], str(run["best_round"]), file)
        for kind, other in (
            ("over_fp32", _counterpart(rows, run)),
            ("over_default", _at_defaults(defaults, rows, run)),
        ):
            if other is not None and other is not run:
                for metric in ("best", "final"):
                    gap = run[metric] - other[metric]
                    yield Number(f"{metric}_{kind}/{name}", gap, plain(gap, "+.2f"), file)
    for (dataset, alpha, arm), group in runs[runs["seed"] == defaults["seed"]].groupby(
        ["dataset", "alpha", "arm"], sort=False
    ):
        for axis in ("block_size", "lr"):
            other_axis = "lr" if axis == "block_size" else "block_size"
            line = group[group[other_axis] == defaults[other_axis]]
            if len(line) > 1:
                for metric in ("best", "final"):
                    spread = float(line[metric].max() - line[metric].min())
                    file = str(Path(line["folder"].iloc[0]).parents[2])
                    yield Number(f"{metric}_spread/{axis}/{dataset}/{alpha}/{arm}", spread, f"{spread:.2f}", file)


def _counterpart(rows: list[dict[str, Any]], run: Row) -> Row | None:
    """FP32 on the same data with the same seed, at the defaults if not at the run's own learning rate."""
    same = [r for r in rows if r["arm"] == BASELINE and all(r[k] == run[k] for k in ("dataset", "alpha", "seed"))]
    return next((r for r in same if r["lr"] == run["lr"]), same[0] if same else None)


def _at_defaults(defaults: Row, rows: list[dict[str, Any]], run: Row) -> Row | None:
    same = (r for r in rows if all(r[k] == run[k] for k in ("dataset", "alpha", "arm", "seed")))
    return next((r for r in same if all(r[k] == defaults[k] for k in ("block_size", "lr"))), None)


def _of_settings(scale: str, runs: pd.DataFrame) -> Iterator[Number]:
    yield Number("scale", scale, scale, "config.yaml")
    yield Number("runs/all", len(runs), str(len(runs)), "config.yaml")
    for what, count in (("diverged", int(runs["diverged"].sum())), ("collapsed", int(collapsed(runs).sum()))):
        yield Number(f"runs/{what}", count, str(count), "config.yaml")
    forms = {"rounds": "d", "clients": "d", "clients_per_round": "d", "epochs": "d", "batch_size": "d", "width": "d"}
    forms |= {"image_size": "d", "classes": "d", "parameters": ",d", "training_images": ",d", "test_images": ",d"}
    for dataset, group in runs.groupby("dataset", sort=False):
        run = group.iloc[0].to_dict()
        file = f"{run['folder']}/settings.json"
        yield from _cells(f"setting/{dataset}", {name: int(run[name]) for name in forms}, forms, file)
        yield Number(f"setting/{dataset}/chance", 100 / run["classes"], f"{100 / run['classes']:.2f}", file)


def _of_memory(path: Path) -> Iterator[Number]:
    forms = {"fp32_mb": ".2f", "held_mb": ".2f", "published_mb": ".2f", "model_mb": ".1f", "client_fp32_mb": ".1f"}
    forms |= {"parameters": ",d", "held_ratio": ".2f", "published_ratio": ".2f", "metadata_percent": ".1f"}
    for row in pd.read_csv(path).to_dict("records"):
        row |= {
            name.replace("bytes", "mb"): row[name] / 1e6 for name in ("fp32_bytes", "held_bytes", "published_bytes")
        }
        row["model_mb"] = 4 * row["parameters"] / 1e6
        row["client_fp32_mb"] = 12 * row["parameters"] / 1e6
        yield from _cells(f"memory/{row['dataset']}/{row['arm']}/{row['block_size']}", row, forms, path)


def _of_scaling(path: Path) -> Iterator[Number]:
    forms = {f"{name}_mib": ",.1f" for name in ("fp32", "held", "published")}
    forms |= {"held_ratio": ".2f", "published_ratio": ".2f"}
    for row in pd.read_csv(path).to_dict("records"):
        yield from _cells(f"scaling/{row['parameters']}", row, forms, path)


def _of_partitions(overview: Path, clients: Path) -> Iterator[Number]:
    forms = {"dominant_percent": ".1f", "published_percent": ".1f", "ratio": ".1f", "sample_std": ",.0f"}
    forms |= {"samples": ",d", "dropped": ",d", "min_samples": ",d", "max_samples": ",d"}
    for row in pd.read_csv(overview, dtype={"alpha": str}).to_dict("records"):
        yield from _cells(f"partition/{row['dataset']}/{row['alpha']}", row, forms, overview)
    forms = {"samples": ",d", "dominant": "d", "dominant_name": "s", "dominant_percent": ".1f"}
    for row in pd.read_csv(clients, dtype={"alpha": str, "dominant_name": str}).to_dict("records"):
        yield from _cells(f"client/{row['dataset']}/{row['alpha']}/{row['client']}", row, forms, clients)


def _of_participation(sampling: Path, steps: Path) -> Iterator[Number]:
    forms = {"mean": ".1f", "std": ".1f", "min": "d", "max": "d"}
    yield from _cells("sampling", json.loads(sampling.read_text()), forms, sampling)
    forms = {"client": "d", "samples": ",d", "steps": "d", "approximate": ".0f", "ratio": ".1f"}
    for row in pd.read_csv(steps, dtype={"alpha": str}).to_dict("records"):
        yield from _cells(f"steps/{row['dataset']}/{row['alpha']}/{row['which']}", row, forms, steps)


def _of_precision(summary: Path, by_decade: Path) -> Iterator[Number]:
    forms = {"mean_percent": ".2f", "median_percent": ".2f", "max_percent": ".2f"}
    for row in pd.read_csv(summary).to_dict("records"):
        yield from _cells(f"precision/{row['code'].replace(', ', '/')}", row, forms, summary)
    for row in pd.read_csv(by_decade, dtype={"decade": str}).to_dict("records"):
        name = f"precision/{row['code'].replace(', ', '/')}/{row['decade']}"
        yield from _cells(name, row, {"mean_percent": ".2f"}, by_decade)


def _of_significance(path: Path) -> Iterator[Number]:
    forms: dict[str, str | Callable[[Any], str]] = {"n": "d", "mean": ".2f", "std": ".2f", "min": ".2f", "max": ".2f"}
    forms |= {"difference": "+.2f", "relative_percent": "+.1f", "ci_low": "+.2f", "ci_high": "+.2f", "t": ".2f"}
    forms |= {"p": p_value, "welch_p": p_value, "cohens_d": ".2f"}
    for row in pd.read_csv(path, dtype={"alpha": str}).to_dict("records"):
        yield from _cells(f"seeds/{row['dataset']}/{row['alpha']}/{row['arm']}", row, forms, path)


def _of_distributions(dataset: str, path: Path) -> Iterator[Number]:
    """Every number of the summary, by its own name: states/cifar10/variance/orders_of_magnitude."""
    summary = json.loads(path.read_text())
    for part in ("variance", "momentum"):
        for name, value in summary[part].items():
            yield Number(f"states/{dataset}/{part}/{name}", value, plain(value, ".3g"), str(path))
    for name in ("steps", "batch_size", "parameters"):
        yield Number(f"states/{dataset}/{name}", summary[name], f"{summary[name]:,d}", str(path))
