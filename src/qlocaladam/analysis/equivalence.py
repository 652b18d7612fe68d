"""Whether an arm is as good as the baseline: paired tests over seeds of a difference and of equivalence in a margin."""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from qlocaladam.paper.runs import collapsed

CELL = ["dataset", "alpha", "arm"]
STATISTICS = ("best", "final")
COLUMNS = (
    *(*CELL, "statistic", "n", "seeds", "mean", "std", "baseline_mean", "difference", "difference_std"),
    *("ci_low", "ci_high", "tost_ci_low", "tost_ci_high", "p", "p_holm", "tost_p", "tost_p_holm"),
    *("margin", "comparisons", "verdict", "seeds_needed", "runs", "collapsed", "reason"),
)
LEVEL = 0.05
POWER = 0.8
MOST_SEEDS = 10**6
"""Beyond which a number of seeds is as good as infinite."""
DIGITS = 9
"""Of a difference. Accuracies are counts over counts: further down, equal differences differ by rounding."""


def differences(runs: pd.DataFrame, baseline: str = "fp32") -> pd.DataFrame:
    """A row for each statistic of each run that has a run of the baseline with the same seed: how far it is above."""
    _check_only_seeds_differ(runs)
    accuracies = runs.melt([*CELL, "seed"], STATISTICS, var_name="statistic", value_name="accuracy")
    same = ["dataset", "alpha", "statistic", "seed"]
    theirs = accuracies[accuracies["arm"] == baseline].rename(columns={"accuracy": "baseline_accuracy"})
    pairs = accuracies.merge(theirs.drop(columns="arm"), on=same)
    return pairs.assign(difference=(pairs["accuracy"] - pairs["baseline_accuracy"]).round(DIGITS))


def compare(runs: pd.DataFrame, margin: float, baseline: str = "fp32") -> pd.DataFrame:
    """One row for each data set, alpha, arm and statistic: how far it is from the baseline, and what follows from that.

    `runs` is what `qlocaladam.paper.runs.read_runs` gives, with one block size and one learning rate an arm. Runs are
    paired by seed: `n` pairs, a mean `difference` in percentage points, its 95 % interval, the p-value of a two-sided
    t-test. Equivalence within `margin` is two one-sided tests: `tost_p` is the larger p-value, and the 90 % interval
    inside the margin means the same as a `tost_p` below 5 %. Both are corrected after Holm for the `comparisons` of a
    statistic. `seeds_needed` is how many would decide. A cell that cannot be filled is empty, and `reason` says why.
    """
    if not margin > 0:
        raise ValueError(f"margin must be above 0 percentage points, got {margin!r}")
    ended = runs.assign(collapsed=collapsed(runs)).groupby(CELL)["collapsed"].agg(["size", "sum"])
    pairs = differences(runs, baseline)
    paired = dict(list(pairs.groupby(["statistic", *CELL])))
    rows = []
    for statistic, cell in itertools.product(STATISTICS, runs.groupby(CELL, sort=False).groups):
        count, lost = ended.loc[cell].tolist()
        row = {**dict(zip(CELL, cell, strict=True)), "statistic": statistic, "runs": count, "collapsed": lost}
        own = paired.get((statistic, *cell), pairs[:0])
        row |= _described(own) if cell[-1] == baseline else {**_compared(own, margin, baseline), "margin": margin}
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    judged = [_judged(of_statistic, margin) for _, of_statistic in table.groupby("statistic", sort=False)]
    return pd.concat(judged).astype({"comparisons": "Int64", "seeds_needed": "Int64"})


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number, step by step from the smallest (Holm). Those that are NaN do not count."""
    values = np.asarray(p, float)
    order = [i for i in np.argsort(values, kind="stable") if not math.isnan(values[i])]
    corrected = np.full(len(values), math.nan)
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.maximum.accumulate(factors * values[order]).clip(max=1)
    return corrected.tolist()


def seeds_needed(difference: float, deviation: float, margin: float, level: float = LEVEL) -> int | None:
    """The fewest seeds that decide with a power of 80 %, if differences are as large and as scattered as these.

    A difference inside the margin is to be found equivalent, any other to be found different from 0. None where more
    seeds than anybody has would not do, or where the deviation is not known.
    """
    if not deviation > 0:
        return None
    counts = range(2, MOST_SEEDS + 1)
    place = bisect_left(counts, POWER, key=lambda n: _power(n, difference, deviation, margin, level))
    return counts[place] if place < len(counts) else None


def _power(n: int, difference: float, deviation: float, margin: float, level: float) -> float:
    """Of the two one-sided tests, or outside the margin of the two-sided test; by the noncentral t distribution."""
    error, freedom = deviation / math.sqrt(n), n - 1
    if abs(difference) >= margin:
        return float(stats.nct.sf(stats.t.isf(level / 2, freedom), freedom, abs(difference) / error))
    critical = stats.t.isf(level, freedom)
    below, above = (stats.nct.sf(critical, freedom, (margin + sign * difference) / error) for sign in (-1, 1))
    return max(0.0, float(below + above - 1))


def _check_only_seeds_differ(runs: pd.DataFrame) -> None:
    for cell, own in runs.groupby(CELL, sort=False):
        where = f"of {', '.join(map(str, cell))}"
        for name in ("block_size", "lr"):
            if own[name].nunique() > 1:
                raise ValueError(f"{name} must be the same in all runs {where}, got {sorted(set(own[name].tolist()))}")
        if own["seed"].duplicated().any():
            raise ValueError(f"seed must be different in every run {where}, got {sorted(own['seed'].tolist())}")


def _described(pairs: pd.DataFrame) -> dict[str, Any]:
    """The standard library's statistics are exact: equal accuracies have a deviation of 0, not of a rounding error."""
    values = pairs["accuracy"].tolist()
    return {
        "n": len(values),
        "seeds": " ".join(map(str, pairs["seed"])),
        "mean": statistics.mean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else None,
    }


def _compared(pairs: pd.DataFrame, margin: float, baseline: str) -> dict[str, Any]:
    """What is said of the pairs, without what the other comparisons have to say."""
    row = _described(pairs)
    if pairs.empty:
        return {**row, "reason": f"no {baseline} run with one of its seeds to compare with"}
    found = pairs["difference"].tolist()
    row |= {"baseline_mean": statistics.mean(pairs["baseline_accuracy"]), "difference": statistics.mean(found)}
    if any(map(math.isnan, found)):
        return {**row, "reason": "a run diverged before it had an accuracy: nothing to test"}
    if len(found) < 2:
        return {**row, "reason": "one seed: nothing to test"}
    row["difference_std"] = statistics.stdev(found)
    if row["difference_std"] == 0:
        return {**row, "reason": "the difference is the same for every seed: nothing to test"}
    return {**row, **_tests(found, margin)}


def _tests(found: list[float], margin: float) -> dict[str, float]:
    test = stats.ttest_1samp(found, 0)
    one_sided = (
        stats.ttest_1samp(found, -margin, alternative="greater"),
        stats.ttest_1samp(found, margin, alternative="less"),
    )
    row = {"p": test.pvalue, "tost_p": max(side.pvalue for side in one_sided)}
    for name, confidence in (("ci", 1 - LEVEL), ("tost_ci", 1 - 2 * LEVEL)):
        row |= dict(zip((f"{name}_low", f"{name}_high"), test.confidence_interval(confidence), strict=True))
    return {name: float(value) for name, value in row.items()}


def _judged(table: pd.DataFrame, margin: float) -> pd.DataFrame:
    """With what only all comparisons of a statistic together decide."""
    tested = int(table["p"].notna().sum())
    table = table.assign(p_holm=holm(table["p"]), tost_p_holm=holm(table["tost_p"]))
    table["verdict"] = [_verdict(row) for row in table.to_dict("records")]
    table["comparisons"] = [tested if compared else None for compared in table["margin"].notna()]
    table["seeds_needed"] = [
        seeds_needed(row["difference"], row["difference_std"], margin, LEVEL / max(tested, 1))
        for row in table.to_dict("records")
    ]
    return table


def _verdict(row: dict[str, Any]) -> str | None:
    if math.isnan(row["margin"]):  # the baseline
        return None
    if row["tost_p_holm"] < LEVEL:
        return "equivalent"
    if row["p_holm"] < LEVEL:
        return "worse" if row["difference"] < 0 else "better"
    return "undecided"
