"""The questions of paper/registered.yaml and their answers: asked before the runs that answer them were made.

Nothing but runs with the registered seeds, at the registered scale, answers a question.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.analysis.contrasts import Contrast, check_only_seeds_differ, contrasts, paired
from qlocaladam.experiments import configuration
from qlocaladam.experiments.grid import text
from qlocaladam.experiments.runs import METRICS, collapsed

COLUMNS = (
    *("question", "asks", "expected", "dataset", "alpha", "loss_scale", "arm", "baseline", "metric", "seeds_wanted"),
    *("n", "seeds", "mean", "baseline_mean", "difference", "error", "freedom", "variance", "ci_low", "ci_high"),
    *("tost_ci_low", "tost_ci_high", "margin", "p", "succeeds", "wider_margin", "wider_p", "paired_p"),
    *("paired_succeeds", *(f"{name}_difference" for name in METRICS), "answer", "status", "reason"),
)
YES, NO, OPEN, EXPLORATORY = "yes", "no", "open", "exploratory"
FINAL, PRELIMINARY, MISSING, ELSEWHERE = "final", "preliminary", "runs missing", "another scale"
UNTESTABLE = "nothing to test"

Json = Mapping[str, Any]


def answers(registration: Json, runs: pd.DataFrame, scale: str) -> pd.DataFrame:
    """A row for each question and data set; `answer` is that of the question, the same in all of its rows.

    Questions are tested in their order, each at the full level, as long as those before it were answered as expected.
    After the first that was not, or that cannot be answered yet, the rest is exploratory.
    """
    rows: list[dict[str, Any]] = []
    decided = True
    for question in registration["questions"]:
        own = [_tested(registration, question, dataset, runs) for dataset in registration["datasets"]]
        status = _status(own, scale == registration["scale"])
        if status in (MISSING, UNTESTABLE, ELSEWHERE):
            answer = OPEN
        else:
            answer = (YES if all(row["succeeds"] for row in own) else NO) if decided else EXPLORATORY
        rows += [{**row, "answer": answer, "status": status} for row in own]
        decided = decided and answer == YES
    return pd.DataFrame(rows, columns=COLUMNS)


def _status(rows: list[dict[str, Any]], at_scale: bool) -> str:
    if not at_scale:
        return ELSEWHERE
    untested = [row for row in rows if math.isnan(row.get("p", math.nan))]
    if untested:
        return MISSING if any(row["n"] < 2 for row in untested) else UNTESTABLE
    return FINAL if all(row["n"] == row["seeds_wanted"] for row in rows) else PRELIMINARY


def _tested(registration: Json, question: Json, dataset: str, runs: pd.DataFrame) -> dict[str, Any]:
    """The test of a question on one data set."""
    place = {"dataset": dataset, "alpha": text(registration["alpha"]), "loss_scale": question.get("loss_scale", 1.0)}
    arm, baseline, metric = str(question["arm"]), str(question["baseline"]), registration["metric"]
    row = {
        **{name: question[name] for name in ("asks", "expected", "arm", "baseline")},
        **place,
        "question": question["name"],
        "metric": metric,
        "seeds_wanted": len(registration["seeds"]),
    }
    own = _runs_at(place, registration["seeds"], runs)
    if own.empty or not {arm, baseline} <= set(own["arm"]):
        return {**row, "n": 0, "reason": "runs of either arm are missing"}
    contrast = contrasts(own, metric, baseline)[arm]
    wide = own.pivot(index="seed", columns="arm", values=metric)[[arm, baseline]]
    seeds = wide.dropna().index
    if isinstance(contrast, str):
        return {**row, "n": len(seeds), "reason": contrast}
    unknown = own[own["arm"].isin([arm, baseline]) & own[metric].isna()]["seed"].unique()
    if len(unknown):
        row["reason"] = f"left out, for want of an accuracy: seed {' '.join(map(str, sorted(unknown)))}"
    others = {f"{name}_difference": _difference(own, name, arm, baseline) for name in METRICS}
    return {**row, "seeds": " ".join(map(str, seeds)), **_measured(registration, question, contrast, wide), **others}


def _runs_at(place: Json, seeds: Collection[int], runs: pd.DataFrame) -> pd.DataFrame:
    """Those that may answer, and whether they are lost."""
    if runs.empty:
        return runs
    own = runs[runs["seed"].isin(seeds) & (runs[list(place)] == list(place.values())).all(axis=1)]
    check_only_seeds_differ(own)
    return own.assign(lost=collapsed(own) | own["diverged"])


def _measured(registration: Json, question: Json, contrast: Contrast, wide: pd.DataFrame) -> dict[str, Any]:
    """The difference, and what the tests say of it. `wide`: the arm's and the baseline's accuracies by seed."""
    level, arm, baseline = registration["level"], wide[question["arm"]], wide[question["baseline"]]
    margins = {name: registration[name] * baseline.mean() for name in ("margin", "wider_margin")}
    p, wider = (_p(contrast, question["expected"], margin) for margin in margins.values())
    alone = paired([ours - theirs for ours, theirs in wide.dropna().to_numpy()])
    own = math.nan if isinstance(alone, str) else _p(alone, question["expected"], margins["margin"])
    ends = [f"{name}_{end}" for name in ("ci", "tost_ci") for end in ("low", "high")]
    return {
        **{name: getattr(contrast, name) for name in ("n", "difference", "error", "freedom", "variance")},
        **dict(zip(ends, contrast.interval(level) + contrast.interval(2 * level), strict=True)),
        **margins,
        "mean": arm.mean(),
        "baseline_mean": baseline.mean(),
        "p": p,
        "wider_p": wider,
        "succeeds": p < level,
        # Of the two arms alone, however unlike the others they scatter: shown, and decides nothing.
        "paired_p": own,
        "paired_succeeds": None if math.isnan(own) else own < level,
    }


def _difference(runs: pd.DataFrame, metric: str, arm: str, baseline: str) -> float:
    """By another metric than the registered one: shown beside it, and decides nothing."""
    contrast = contrasts(runs, metric, baseline)[arm]
    return contrast.difference if isinstance(contrast, Contrast) else math.nan


def _p(contrast: Contrast, expected: str, margin: float) -> float:
    tests = {
        "worse": lambda: contrast.below(0),
        "better": lambda: contrast.above(0),
        "equivalent": lambda: contrast.equivalence(margin),
        "not_worse": lambda: contrast.above(-margin),
    }
    return tests[expected]()


def files(runs: pd.DataFrame, questions: Path, scale: str) -> dict[str, pd.DataFrame]:
    """By the name of the file, from the registration."""
    return {"answers.csv": answers(configuration.registration(questions), runs, scale)}
