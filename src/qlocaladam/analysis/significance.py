"""How far an arm is from the baseline over seeds: two-sample t-tests, intervals and effect sizes of best accuracy."""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd
import scipy  # its parts are loaded when they are used: who only shows results needs none

from qlocaladam.analysis.contrasts import CELL, check_only_seeds_differ

COLUMNS = (
    *CELL,
    *("n", "seeds", "mean", "std", "min", "max", "difference", "relative_percent", "ci_low", "ci_high", "t", "df", "p"),
    *("welch_ci_low", "welch_ci_high", "welch_t", "welch_df", "welch_p", "cohens_d", "reason"),
)


def compare(runs: pd.DataFrame, baseline: str = "fp32") -> pd.DataFrame:
    """One row for each data set, alpha and arm: its best accuracies, and how they differ from the baseline's.

    `runs` is what `qlocaladam.experiments.runs.read_runs` gives, with one block size and one learning rate an arm.
    `difference` is in percentage points, `relative_percent` in percent of the baseline's mean. The tests are pooled,
    as published, and Welch's; intervals are of the difference, 95 %; `cohens_d` is the difference over the pooled
    deviation. A cell that cannot be filled is empty, and `reason` says why nothing was tested.
    """
    check_only_seeds_differ(runs)
    best = {cell: _best_by_seed(held) for cell, held in runs.groupby(CELL, sort=False)}
    rows = []
    for (dataset, alpha, arm), own in best.items():
        row = {"dataset": dataset, "alpha": alpha, "arm": arm, **_described(own)}
        if arm != baseline:
            row |= _against(own, best.get((dataset, alpha, baseline), {}), baseline)
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def from_printed(mean1: float, std1: float, n1: int, mean2: float, std2: float, n2: int) -> dict[str, float]:
    """Two-sided p-values, pooled and Welch's, from printed means, sample deviations and numbers of seeds."""
    for name, value in (("n1", n1), ("n2", n2)):
        if value < 2:
            raise ValueError(f"{name} must be at least 2, got {value!r}")
    if not (std1 >= 0 and std2 >= 0 and std1 + std2 > 0):
        raise ValueError(f"std1 and std2 must be at least 0 and not both 0, got {std1!r} and {std2!r}")
    printed = (mean1, std1, n1, mean2, std2, n2)
    pooled, welch = (scipy.stats.ttest_ind_from_stats(*printed, equal_var=equal) for equal in (True, False))
    return {"p": float(pooled.pvalue), "welch_p": float(welch.pvalue)}


def _best_by_seed(runs: pd.DataFrame) -> dict[int, float]:
    return dict(sorted(zip(runs["seed"].tolist(), runs["best"].tolist(), strict=True)))


def _described(best: dict[int, float]) -> dict[str, Any]:
    """The standard library's statistics are exact: equal accuracies have a deviation of 0, not of a rounding error."""
    values = list(best.values())
    return {
        "n": len(values),
        "seeds": " ".join(map(str, best)),
        "mean": statistics.mean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values),
        "max": max(values),
    }


def _against(own: dict[int, float], base: dict[int, float], baseline: str) -> dict[str, Any]:
    if not base:
        return {"reason": f"no {baseline} runs to compare with"}
    ours, theirs = list(own.values()), list(base.values())
    mean = statistics.mean(theirs)
    difference = statistics.mean(ours) - mean
    row = {"difference": difference, "relative_percent": 100 * difference / mean if mean else None}
    if len(ours) < 2:
        return {**row, "reason": "one seed: nothing to test"}
    if len(theirs) < 2:
        return {**row, "reason": f"one seed of {baseline}: nothing to test against"}
    if len(set(ours)) == len(set(theirs)) == 1:
        return {**row, "reason": "seeds do not differ on either side: nothing to test"}
    tests = _tests(ours, theirs)
    return {**row, **tests, "cohens_d": tests["t"] * math.sqrt(1 / len(ours) + 1 / len(theirs))}


def _tests(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    row: dict[str, float] = {}
    for prefix, equal in (("", True), ("welch_", False)):
        with warnings.catch_warnings():
            # scipy doubts the deviation of a side whose seeds all agree. That deviation is 0, and right.
            warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
            test = scipy.stats.ttest_ind(ours, theirs, equal_var=equal)
            low, high = test.confidence_interval(0.95)
        result = {"ci_low": low, "ci_high": high, "t": test.statistic, "df": test.df, "p": test.pvalue}
        row |= {prefix + name: float(value) for name, value in result.items()}
    return row


def files(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By the name of the file."""
    return {"significance.csv": compare(runs)}
