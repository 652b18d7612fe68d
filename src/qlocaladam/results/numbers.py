"""Numbers that a text quotes: each has a name like a path, a value, the words it is written as, and its file.

In LaTeX `\\result{best/cifar10/0.1/fp32}` gives the number; a name that does not exist stops the compilation.
A run's name leaves out its block size, learning rate and seed where they are the defaults.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.analysis.contrasts import SETTING, residual
from qlocaladam.experiments.grid import AS_IN_THE_PAPER, GRID
from qlocaladam.experiments.runs import METRICS, collapsed, read_histories
from qlocaladam.files import table_rows
from qlocaladam.results.kinds import KINDS
from qlocaladam.results.latex import escape
from qlocaladam.results.number import Form, Label, Number, Row, chosen, number, numbers_by_row, numbers_of

BASELINE = "fp32"
METHOD = "q-localadam"
NUMBER = re.compile(r"(<?)([+-]?)([\d.,]+)(?:e([+-]\d+))?")
Files = Mapping[str, Path]


def whole(value: float) -> str:
    """Rounded as people do: 32.5 is 33."""
    return f"{math.floor(value + 0.5):,d}"


def truncated(value: float) -> str:
    """Cut to a whole number, as the paper and the tables do with deviations of sample counts."""
    return f"{int(value):,d}"


def collect(spec: Mapping[str, Any], runs: pd.DataFrame, files: Files) -> list[Number]:
    """Every number. `spec` has the scale, the grid's defaults and what data sets are called; `files` the analyses:
    those without training, and what kinds of tables and figures quote, as `contrasts.TABLE` or `variance.DATASET`."""
    if runs.empty:
        raise ValueError("runs: numbers need training runs, got none")
    label = partial(_data_label, spec)
    numbers = [
        *_of_runs(spec["defaults"], runs, label),
        *_of_leads(spec["defaults"], runs, label),
        *_of_spreads(spec["defaults"], runs, label),
        *_of_settings(spec, runs, label),
        *_of_residuals(runs, label),
        *_of_memory(files["memory"]),
        *_of_client_memory(files["client_memory"]),
        *_of_scaling(files["scaling"]),
        *_of_partitions(files["data_distribution"], files["clients"]),
        *_of_participation(files["sampling"], files["steps"]),
        *_of_precision(files["precision_summary"], files["precision_by_decade"]),
        *_of_bounds(),
    ]
    for name, path in files.items():
        kind, dot, which = name.partition(".")
        if dot and (quoted := KINDS[kind].numbers):
            numbers += quoted(which, path, label)
    return _once([*numbers, *_of_gains(spec["defaults"], numbers)])


def _data_label(spec: Mapping[str, Any], dataset: str) -> str:
    """What stands at this scale under the name of a data set."""
    own, original = spec["labels"]["dataset"][dataset], spec["stands_for"].get(dataset)
    return str(own) if original in (None, own) else f"{own} in the place of {original}"


def _once(numbers: Iterable[Number]) -> list[Number]:
    """Two tables may test the same seeds; what is there twice must be the same."""
    by_name: dict[str, Number] = {}
    for one in numbers:
        first = by_name.setdefault(one.name, one)
        if first.value != one.value:
            both = " and ".join(f"{n.value} of {n.file}" for n in (first, one))
            raise ValueError(f"two numbers have the name {one.name!r}: {both}")
    return list(by_name.values())


def as_json(numbers: Iterable[Number]) -> str:
    content = {number.name: {k: v for k, v in asdict(number).items() if k != "name"} for number in numbers}
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def as_latex(numbers: Iterable[Number]) -> str:
    lines = [
        "% made by the rule collect_numbers; \\result{name} writes a number, and stops where there is none",
        "\\providecommand{\\result}[1]{\\ifcsname result:#1\\endcsname\\csname result:#1\\endcsname"
        "\\else\\errmessage{There is no number named #1}\\fi}",
    ]
    lines += [f"\\expandafter\\def\\csname result:{n.name}\\endcsname{{{_latex(n.text)}}}" for n in numbers]
    return "\n".join(lines) + "\n"


def _latex(text: str) -> str:
    """Right in a sentence and in a formula: a minus that is one, powers of ten, commas that only group."""
    match = NUMBER.fullmatch(text)
    if not match:
        return escape(text)
    less, sign, digits, exponent = match.groups()
    less, sign = (rf"\ensuremath{{{symbol}}}" if symbol in ("<", "-") else symbol for symbol in (less, sign))
    power = rf"\ensuremath{{{{}}\times 10^{{{int(exponent)}}}}}" if exponent else ""
    return f"{less}{sign}{digits.replace(',', '{,}')}{power}"


def run_number(
    defaults: Row, run: Row, quantity: str, value: Any, form: Form, *files: str, on: str, over: str = ""
) -> Number:
    """A number of a run, or of the difference to another one."""
    of = {"quantity": quantity, **({"over": over} if over else {}), **chosen(run, *GRID)}
    parts = [f"{quantity}_over_{over}" if over else quantity, *(run[name] for name in ("dataset", "alpha", "arm"))]
    parts += [f"{name}={run[name]}" for name in _unusual(defaults, run)]
    return number(of, value, form, *files, on=on, name="/".join(parts))


def _unusual(defaults: Row, run: Row) -> list[str]:
    """The axes on which a run is not at the defaults, or not where the paper is."""
    others = [name for name in ("block_size", "lr", "seed") if run[name] != defaults[name]]
    return others + [name for name, usual in AS_IN_THE_PAPER.items() if str(run[name]) != usual]


def _summary(run: Row) -> str:
    return f"{run['folder']}/summary.json"


def _of_runs(defaults: Row, runs: pd.DataFrame, label: Label) -> Iterator[Number]:
    """What each run reached, what its optimizer held, and how far it is from other arms and from the defaults."""
    rows = table_rows(runs)
    for run in rows:
        make, file = partial(run_number, defaults, run, on=label(run["dataset"])), _summary(run)
        for metric, form in (*((metric, ".2f") for metric in METRICS), ("best_round", "d")):
            yield make(metric, run[metric], form, file)
        yield make("final_over_best", run["final"] - run["best"], "+z.2f", file)
        for layout in ("held", "published"):
            yield make(f"{layout}_mb", run[f"{layout}_bytes"] / 1e6, ".2f", file)
        for kind, other in _compared(defaults, rows, run).items():
            for metric in ("best", "final"):
                yield make(metric, run[metric] - other[metric], "+z.2f", file, _summary(other), over=kind)


def _compared(defaults: Row, rows: list[dict[str, Any]], run: Row) -> dict[str, Row]:
    """What a run is compared with: FP32, Q-LocalAdam where it is neither, its own arm at the defaults."""
    arms = [BASELINE] if run["arm"] in (BASELINE, METHOD) else [BASELINE, METHOD]
    others = {arm: _counterpart(defaults, rows, run, arm) for arm in arms}
    others["default"] = next((r for r in _same(rows, run, run["arm"]) if _is_at(defaults, r)), None)
    return {kind: other for kind, other in others.items() if other is not None and other is not run}


SAME = ("dataset", "alpha", "seed", *AS_IN_THE_PAPER)
"""What runs have in common that are compared."""


def _same(rows: list[dict[str, Any]], run: Row, arm: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["arm"] == arm and all(r[k] == run[k] for k in SAME)]


def _is_at(wanted: Row, run: Row) -> bool:
    return all(run[k] == wanted[k] for k in ("block_size", "lr"))


def _counterpart(defaults: Row, rows: list[dict[str, Any]], run: Row, arm: str) -> Row | None:
    """An arm on the same data with the same seed, at the run's own learning rate if it has that, or at the defaults."""

    def nearness(other: Row) -> tuple[bool, ...]:
        return tuple(other[k] == wanted[k] for wanted in (run, defaults) for k in ("lr", "block_size"))

    return max(_same(rows, run, arm), key=nearness, default=None)


def _of_residuals(runs: pd.DataFrame, label: Label) -> Iterator[Number]:
    """How far runs of a setting scatter about their arm and their seed, over all arms that train."""
    usual = runs[(runs[list(AS_IN_THE_PAPER)].astype(str) == pd.Series(AS_IN_THE_PAPER)).all(axis=1)]
    usual = usual.assign(arm=usual[["arm", "block_size", "lr"]].astype(str).agg("/".join, axis=1))
    usual = usual.assign(lost=collapsed(usual) | usual["diverged"])
    for (dataset, alpha), own in usual.groupby(SETTING, sort=False):
        for metric in METRICS:
            variance, freedom = residual(own, metric)
            of = {"kind": "residual", "metric": metric, "dataset": dataset, "alpha": alpha}
            quantities, file = {"variance": variance, "freedom": freedom}, os.path.commonpath(own["folder"].tolist())
            yield from numbers_of(of, quantities, dict.fromkeys(quantities, ".3g"), file, label(str(dataset)))


def _of_leads(defaults: Row, runs: pd.DataFrame, label: Label) -> Iterator[Number]:
    """From which round on a run is above FP32 until the end: none where it is not above at the end."""
    rows = table_rows(runs)
    for run in rows:
        other = _counterpart(defaults, rows, run, BASELINE)
        if other is not None and run["arm"] != BASELINE:
            pair = [read_histories(pd.DataFrame([r])).set_index("round")["accuracy"] for r in (run, other)]
            files = (f"{r['folder']}/history.csv" for r in (run, other))
            lead, on = _lead(*pair), label(run["dataset"])
            yield run_number(defaults, run, "above_fp32_from", lead, "d", *files, on=on)


def _lead(own: pd.Series, other: pd.Series) -> int | None:
    """A run that diverged has no rounds after that: it is not above, and nothing is above it."""
    both = pd.concat([own, other], axis=1, keys=["own", "other"])
    above = both["own"] > both["other"]
    behind = above.index[~above]
    if len(behind) == 0:
        return int(above.index[0])
    return None if behind[-1] == above.index[-1] else int(behind[-1]) + 1


def _of_spreads(defaults: Row, runs: pd.DataFrame, label: Label) -> Iterator[Number]:
    """How far an arm's accuracies lie apart over block sizes and over learning rates, all else at the defaults."""
    for axis, fixed in (("block_size", "lr"), ("lr", "block_size")):
        usual = runs[(runs["seed"] == defaults["seed"]) & (runs[fixed] == defaults[fixed])]
        usual = usual[(usual[list(AS_IN_THE_PAPER)].astype(str) == pd.Series(AS_IN_THE_PAPER)).all(axis=1)]
        for _, line in usual.groupby(["dataset", "alpha", "arm"], sort=False):
            for metric in ("best", "final") if len(line) > 1 else ():
                low, *_, high = table_rows(line.sort_values(metric, kind="stable"))
                spread, files = high[metric] - low[metric], (_summary(low), _summary(high))
                of = {"quantity": f"{metric}_spread", "axis": axis, **chosen(low, "dataset", "alpha", "arm")}
                yield number(of, spread, ".2f", *files, on=label(low["dataset"]))


def _of_gains(defaults: Row, numbers: Iterable[Number]) -> Iterator[Number]:
    """The least and the greatest of an arm's differences from FP32 over alphas, all else at the defaults."""
    gains: dict[tuple[str, str], list[Number]] = {}
    for one in numbers:
        if (one.of["quantity"], one.of.get("over")) == ("best", BASELINE) and not _unusual(defaults, one.of):
            gains.setdefault((one.of["dataset"], one.of["arm"]), []).append(one)
    for (dataset, arm), line in gains.items():
        for which, choose in (("min", min), ("max", max)) if len(line) > 1 else ():
            of = {"quantity": f"best_over_fp32_{which}", "dataset": dataset, "arm": arm}
            yield replace(choose(line, key=attrgetter("value")), name="/".join(of.values()), of=of)


def _of_settings(spec: Row, runs: pd.DataFrame, label: Label) -> Iterator[Number]:
    yield number({"quantity": "scale"}, spec["scale"], "s", "config.yaml")
    forms: dict[str, Form] = dict.fromkeys(("alpha", "block_size", "lr", "seed"), str)
    yield from numbers_of({"kind": "setting"}, spec["defaults"], forms, "config.yaml")
    yield from numbers_of({"kind": "runs"}, {"all": len(runs)}, {"all": "d"}, "config.yaml")
    counts = {"diverged": int(runs["diverged"].sum()), "collapsed": int(collapsed(runs).sum())}
    folder = os.path.commonpath(runs["folder"].tolist())
    yield from numbers_of({"kind": "runs"}, counts, dict.fromkeys(counts, "d"), folder)
    forms = dict.fromkeys(("rounds", "clients", "clients_per_round", "epochs", "batch_size", "width"), "d")
    forms |= {"image_size": "d", "classes": "d", "training_images": ",d", "test_images": ",d", "chance": ".2f"}
    for dataset, group in runs.groupby("dataset", sort=False):
        run = {**table_rows(group)[0], "chance": 100 / group["classes"].iloc[0]}
        of, on = {"kind": "setting", "dataset": dataset}, label(str(dataset))
        yield from numbers_of(of, run, forms, f"{run['folder']}/settings.json", on)
        yield from numbers_of(of, run, {"parameters": ",d"}, _summary(run), on)


def _of_memory(path: Path) -> Iterator[Number]:
    """At the size of the paper's models. A client holds the model, in FP32, beside the optimizer's states."""
    forms = {"fp32_mb": ".2f", "held_mb": ".2f", "published_mb": ".2f", "model_mb": ".1f", "client_fp32_mb": ".1f"}
    forms |= {"parameters": ",d", "parameters_millions": ".1f", "held_ratio": ".2f", "published_ratio": ".2f"}
    forms |= {f"{layout}_bytes_per_parameter": ".2f" for layout in ("held", "published")}
    forms |= {f"{layout}_over_{METHOD}": ".2f" for layout in ("held", "published")}
    forms |= {"client_fp32_ratio": ".0f", "metadata_percent": ".1f", "metadata_of_codes_percent": ".2f"}
    table = _with_ratios(pd.read_csv(path))
    yield from numbers_by_row({"kind": "memory"}, table, ("dataset", "arm", "block_size"), forms, path)


def _with_ratios(table: pd.DataFrame) -> pd.DataFrame:
    count, method = table["parameters"], table[table["arm"] == METHOD].set_index(["dataset", "block_size"])
    places = pd.MultiIndex.from_frame(table[["dataset", "block_size"]])
    for layout in ("fp32", "held", "published"):
        size = table[f"{layout}_bytes"]
        table[f"{layout}_mb"] = size / 1e6
        table[f"{layout}_bytes_per_parameter"] = size / count
        table[f"{layout}_over_{METHOD}"] = size / method[f"{layout}_bytes"].reindex(places).to_numpy()
    table["parameters_millions"] = count / 1e6
    table["model_mb"] = 4 * count / 1e6
    table["client_fp32_mb"] = table["model_mb"] + table["fp32_mb"]
    table["client_fp32_ratio"] = table["client_fp32_mb"] / table["model_mb"]
    metadata = table["metadata_percent"] * table["held_bytes"] / 100
    codes = table["held_bytes"] - metadata
    # A state in FP32 is no code: only where a value of both states takes a byte or less is the rest all codes.
    table["metadata_of_codes_percent"] = (100 * metadata / codes).where(codes <= 2 * count)
    return table


def _of_client_memory(path: Path) -> Iterator[Number]:
    """Of whole clients, in MB, by the size of their images; what an arm saves is a share of a client in FP32."""
    parts = ("activations", "weights", "gradients", "states", "total", "fp32_total")
    forms = {**dict.fromkeys((f"{part}_mb" for part in parts), ",.1f"), "saved_percent": ".1f"}
    table = pd.read_csv(path)
    for part in parts:
        table[f"{part}_mb"] = table[f"{part}_bytes"] / 1e6
    yield from numbers_by_row({"kind": "client_memory"}, table, ("dataset", "image_size", "arm"), forms, path)


def _of_scaling(path: Path) -> Iterator[Number]:
    forms = {f"{name}_mib": ",.1f" for name in ("fp32", "held", "published")}
    forms |= {"held_ratio": ".2f", "published_ratio": ".2f"}
    yield from numbers_by_row({"kind": "scaling"}, pd.read_csv(path), ("parameters",), forms, path)


def _of_partitions(overview: Path, clients: Path) -> Iterator[Number]:
    """Of each partition and of each of its clients; `ratio` is to a uniform distribution over the classes."""
    forms: dict[str, Form] = {f"{name}_percent": ".1f" for name in ("dominant", "published")}
    forms |= {"ratio": ".1f", "published_ratio": ".1f", "sample_std": truncated, "clients": "d"}
    forms |= {"samples": ",d", "dropped": ",d", "min_samples": ",d", "max_samples": ",d"}
    partitions = pd.read_csv(overview, dtype={"alpha": str})
    yield from numbers_by_row({"kind": "partition"}, partitions, SETTING, forms, overview)
    held = pd.read_csv(clients, dtype={"alpha": "str", "dominant": "Int64", "dominant_name": "str"})
    held = held.merge(partitions, on=["dataset", "alpha"], suffixes=("", "_mean"))
    held["ratio"] *= held["dominant_percent"] / held["dominant_percent_mean"]
    forms = {"samples": ",d", "classes": "d", "dominant": "d", "dominant_name": "s", "dominant_percent": ".1f"}
    yield from numbers_by_row({"kind": "client"}, held, (*SETTING, "client"), {**forms, "ratio": ".1f"}, clients)
    highest = held.rename(columns={"dominant_percent": "highest_dominant_percent"})
    highest = highest.groupby(SETTING, sort=False, as_index=False)[["highest_dominant_percent"]].max()
    yield from numbers_by_row({"kind": "partition"}, highest, SETTING, {"highest_dominant_percent": ".1f"}, clients)


def _of_participation(sampling: Path, steps: Path) -> Iterator[Number]:
    forms: dict[str, Form] = {"mean": ".1f", "std": ".1f", "min": "d", "max": "d"}
    yield from numbers_of({"kind": "sampling"}, json.loads(sampling.read_text()), forms, sampling)
    forms = {"client": "d", "samples": ",d", "steps": "d", "approximate": whole, "ratio": ".1f"}
    yield from numbers_by_row(
        {"kind": "steps"}, pd.read_csv(steps, dtype={"alpha": str}), (*SETTING, "which"), forms, steps
    )


def _of_precision(summary: Path, by_decade: Path) -> Iterator[Number]:
    forms = {"mean_percent": ".2f", "median_percent": ".2f", "max_percent": ".2f", "zero_percent": ".1f"}
    codes, decades = (pd.read_csv(path, dtype={"decade": str}) for path in (summary, by_decade))
    for table in (codes, decades):
        table["code"] = table["code"].str.replace(", ", "/")
    yield from numbers_by_row({"kind": "precision"}, codes, ("code",), forms, summary)
    yield from numbers_by_row({"kind": "precision"}, decades, ("code", "decade"), {"mean_percent": ".2f"}, by_decade)


def _of_bounds() -> Iterator[Number]:
    """What docs/method.md proves of the normalised momentum, in learning rates: the longest step, and the most that
    rounding to nearest puts into one, from one storing and from all so far."""
    from qlocaladam.codecs import NormalisedCodec  # torch, which nothing else here needs

    betas = (0.9, 0.999)
    longest = math.sqrt((1 - betas[0]) ** 2 / ((1 - betas[1]) * (1 - betas[0] ** 2 / betas[1])))
    fades, file = betas[0] / math.sqrt(betas[1]), "src/qlocaladam/codecs.py"
    yield number({"kind": "bound", "quantity": "longest_step"}, longest, ".2f", file)
    for bits in (8, 4):
        half_a_level = longest / NormalisedCodec(bits=bits).top
        quantities = {"one": fades * half_a_level, "accumulated": fades / (1 - fades) * half_a_level}
        yield from numbers_of({"kind": "bound", "bits": bits}, quantities, dict.fromkeys(quantities, ".2g"), file)
