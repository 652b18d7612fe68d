"""The questions of paper/registered.yaml and their answers: asked before the runs that answer them were made.

Nothing but runs with the registered seeds, at the registered scale, answers a question.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.analysis.contrasts import Contrast, check_only_seeds_differ, contrasts, paired
from qlocaladam.experiments.runs import METRICS, collapsed

COLUMNS = (
    *("question", "asks", "expected", "dataset", "alpha", "loss_scale", "arm", "baseline", "metric", "seeds_wanted"),
    *("n", "seeds", "mean", "baseline_mean", "difference", "error", "freedom", "variance", "ci_low", "ci_high"),
    *(
        "tost_ci_low",
        "tost_ci_high",
        "margin",
        "p",
        "succeeds",
        "wider_margin",
        "wider_p",
        "paired_p",
        *(f"{name}_difference" for name in METRICS),
        "answer",
        "status",
        "reason",
    ),
)
YES, NO, OPEN, EXPLORATORY = "yes", "no", "open", "exploratory"
FINAL, PRELIMINARY, MISSING, ELSEWHERE = "final", "preliminary", "runs missing", "another scale"
UNTESTABLE = "nothing to test"

Json = Mapping[str, Any]


def load(path: str | Path) -> dict[str, Any]:
    """The registration; ValueError names what is wrong with it."""
    from qlocaladam.experiments.configuration import registration  # here: a plan reads it, too, and needs no statistics

    return registration(path)


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
    place = {"dataset": dataset, "alpha": str(registration["alpha"]), "loss_scale": question.get("loss_scale", 1.0)}
    arm, baseline, metric = str(question["arm"]), str(question["baseline"]), registration["metric"]
    row = {
        "question": question["name"],
        "asks": question["asks"],
        "expected": question["expected"],
        **place,
        "arm": arm,
        "baseline": baseline,
        "metric": metric,
        "seeds_wanted": len(registration["seeds"]),
    }
    if runs.empty:
        return {**row, "n": 0, "reason": "runs of either arm are missing"}
    wanted = runs["seed"].isin(registration["seeds"])
    for name, value in place.items():
        wanted &= runs[name] == value
    own = runs[wanted]
    check_only_seeds_differ(own)
    own = own.assign(lost=collapsed(own) | own["diverged"])
    if not {arm, baseline} <= set(own["arm"]):
        return {**row, "n": 0, "reason": "runs of either arm are missing"}
    found = contrasts(own, metric, baseline)[arm]
    known = own.dropna(subset=metric).groupby("arm")["seed"].agg(set)
    seeds = sorted(known.get(arm, set()) & known.get(baseline, set()))
    if isinstance(found, str):
        return {**row, "n": len(seeds), "reason": found}
    unknown = sorted(own[own["arm"].isin([arm, baseline]) & own[metric].isna()]["seed"].unique())
    if unknown:
        row["reason"] = f"left out, for want of an accuracy: seed {' '.join(map(str, unknown))}"
    means = own.groupby("arm")[metric].mean()
    margins = {name: registration[name] * means[baseline] for name in ("margin", "wider_margin")}
    p, wider = (_p(found, question["expected"], margin) for margin in margins.values())
    wide = own.pivot(index="seed", columns="arm", values=metric)
    alone = paired((wide[arm] - wide[baseline]).dropna().tolist())
    ends: dict[str, float] = {}
    for name, level in (("ci", registration["level"]), ("tost_ci", 2 * registration["level"])):
        ends |= dict(zip((f"{name}_low", f"{name}_high"), found.interval(level), strict=True))
    return {
        **row,
        "n": found.n,
        "seeds": " ".join(map(str, seeds)),
        "mean": means[arm],
        "baseline_mean": means[baseline],
        "difference": found.difference,
        "error": found.error,
        "freedom": found.freedom,
        "variance": found.variance,
        **ends,
        **margins,
        "p": p,
        "wider_p": wider,
        # Of the two arms alone, however unlike the others they scatter: shown, and decides nothing.
        "paired_p": math.nan if isinstance(alone, str) else _p(alone, question["expected"], margins["margin"]),
        "succeeds": p < registration["level"],
        **{f"{name}_difference": _difference(own, name, arm, baseline) for name in METRICS},
    }


def _difference(runs: pd.DataFrame, metric: str, arm: str, baseline: str) -> float:
    """By another metric than the registered one: shown beside it, and decides nothing."""
    found = contrasts(runs, metric, baseline)[arm]
    return found.difference if isinstance(found, Contrast) else math.nan


def _p(contrast: Contrast, expected: str, margin: float) -> float:
    tests = {
        "worse": lambda: contrast.below(0),
        "better": lambda: contrast.above(0),
        "equivalent": lambda: contrast.equivalence(margin),
        "not_worse": lambda: contrast.above(-margin),
    }
    return tests[expected]()
