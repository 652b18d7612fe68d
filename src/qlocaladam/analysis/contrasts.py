"""How far arms are from a baseline: seeds are blocks, and all arms that train say together how far runs scatter.

For each setting and metric `metric ~ arm + seed` is fitted by ordinary least squares, so that one residual variance
with many degrees of freedom stands for all arms that train. An arm with a run that collapsed scatters in its own way:
its runs are compared with the baseline's by a paired t-test. What does not enter a comparison is named: `left_out`.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy  # its parts are loaded when they are used: who only shows results needs none

from qlocaladam.experiments.grid import AS_IN_THE_PAPER
from qlocaladam.experiments.runs import METRICS, collapsed

SETTING = ["dataset", "alpha"]
CELL = [*SETTING, "arm"]
COLUMNS = (
    *(*CELL, "metric", "runs", "collapsed", "n", "seeds", "left_out", "mean", "std", "baseline_mean", "difference"),
    *("error", "freedom", "variance", "scatter_p", "ci_low", "ci_high", "simultaneous_low", "simultaneous_high"),
    *("tost_ci_low", "tost_ci_high", "p", "margin", "tost_p", "wider_margin", "wider_tost_p", "seeds_needed", "reason"),
)
LEVEL = 0.05
POWER = 0.8
MARGIN = 0.05
"""Of equivalence, as a share of the baseline's mean; twice as much is shown beside it."""
MOST_SEEDS = 10**4
"""Beyond which a number of seeds is as good as infinite."""
POOLED, PAIRED = "pooled", "paired"
DIGITS = 9
"""Of a difference. Accuracies are counts over counts: further down, equal differences differ by rounding."""


class Contrast(NamedTuple):
    """The mean of an arm less that of the baseline: an estimate with a t distribution around it."""

    difference: float
    error: float
    """Its standard error."""
    freedom: float
    n: int
    """Seeds that both have."""
    variance: str

    def interval(self, level: float) -> tuple[float, float]:
        """Which holds the true difference but for this share of all cases."""
        half = -float(scipy.special.stdtrit(self.freedom, level / 2)) * self.error
        return self.difference - half, self.difference + half

    def above(self, bound: float) -> float:
        """The p-value of the test whether the true difference is above the bound."""
        return float(scipy.special.stdtr(self.freedom, (bound - self.difference) / self.error))

    def below(self, bound: float) -> float:
        return float(scipy.special.stdtr(self.freedom, (self.difference - bound) / self.error))

    @property
    def p(self) -> float:
        """Of the two-sided test for any difference."""
        return min(1.0, 2 * min(self.above(0), self.below(0)))

    def equivalence(self, margin: float) -> float:
        """The larger p-value of the two one-sided tests for a difference inside the margin."""
        return max(self.above(-margin), self.below(margin))

    def deviation(self) -> float:
        """Of the difference of one pair of runs."""
        return self.error * math.sqrt(self.n)

    def freedom_a_seed(self) -> float:
        """Degrees of freedom that one more seed of all these arms brings."""
        return self.freedom / (self.n - 1)


def contrasts(runs: pd.DataFrame, metric: str, baseline: str) -> dict[str, Contrast | str]:
    """Each arm against the baseline, of runs of one setting; or in words why it cannot be compared.

    `runs` has a row for each arm and seed, and whether it is `lost`: collapsed, or diverged. A run without an accuracy
    counts as lost, too, and is compared with nothing.
    """
    runs = runs.assign(lost=runs["lost"] | runs[metric].isna())
    wide = runs.pivot(index="seed", columns="arm", values=metric)
    if baseline not in wide:
        return dict.fromkeys(wide.columns, f"no {baseline} run to compare with")
    lost = runs.groupby("arm")["lost"].any()
    arms = [arm for arm in runs["arm"].unique() if arm != baseline]
    pairs = {arm: (wide[arm] - wide[baseline]).dropna().round(DIGITS) for arm in arms}
    sound = [] if lost[baseline] else [arm for arm in arms if not lost[arm] and len(pairs[arm]) > 1]
    pooled = _pooled(runs[runs["arm"].isin([*sound, baseline])], metric, baseline) if sound else {}
    by_arm: dict[str, Contrast | str] = {}
    for arm, own in pairs.items():
        if own.empty:
            by_arm[arm] = f"no {baseline} run with one of its seeds to compare with"
        elif len(own) < 2:
            by_arm[arm] = "one seed: nothing to test"
        else:
            by_arm[arm] = pooled.get(arm) or paired(own.tolist())
    return by_arm


def residual(runs: pd.DataFrame, metric: str) -> tuple[float | None, int]:
    """The residual variance of the arms that train and have several seeds, and its degrees of freedom; None where 0."""
    runs = runs.assign(lost=runs["lost"] | runs[metric].isna())
    own = runs.groupby("arm")
    sound = own["lost"].transform("sum").eq(0) & own["seed"].transform("nunique").gt(1)
    arms = runs[sound]
    if arms["arm"].nunique() < 2:
        return None, 0
    fitted = _fitted(arms, metric, arms["arm"].iloc[0])
    return (float(fitted.mse_resid), int(fitted.df_resid)) if _scatters(fitted) else (None, 0)


def _scatters(fitted: Any) -> bool:
    """Whether there is a residual variance, and it is more than rounding errors."""
    return bool(fitted.df_resid > 0 and fitted.mse_resid > 10 ** (-2 * DIGITS))


def _fitted(runs: pd.DataFrame, metric: str, baseline: str) -> Any:
    """Least squares with a coefficient for each arm but the baseline, by its name, and for each seed but the first."""
    from statsmodels.regression.linear_model import OLS  # type: ignore[import-untyped]  # here: it takes a second

    arms, seeds = (sorted(runs[name].unique()) for name in ("arm", "seed"))
    effects = {arm: runs["arm"] == arm for arm in arms if arm != baseline}
    effects |= {f"seed {seed}": runs["seed"] == seed for seed in seeds[1:]}
    return OLS(runs[metric], pd.DataFrame({"all runs": 1.0, **effects}, runs.index).astype(float)).fit()


def _pooled(runs: pd.DataFrame, metric: str, baseline: str) -> dict[str, Contrast | str]:
    """From one linear model of all these arms."""
    fitted = _fitted(runs, metric, baseline)
    if not _scatters(fitted):
        return {}
    seeds = runs.groupby("arm")["seed"].agg(set)
    return {
        arm: Contrast(
            float(fitted.params[arm]),
            float(fitted.bse[arm]),
            float(fitted.df_resid),
            len(seeds[arm] & seeds[baseline]),
            POOLED,
        )
        for arm in runs["arm"].unique()
        if arm != baseline
    }


def paired(differences: Sequence[float]) -> Contrast | str:
    """Of these pairs alone; where they do not scatter, why there is nothing to test by."""
    if len({round(difference, DIGITS) for difference in differences}) == 1:
        return "the difference is the same for every seed: nothing to test"
    count = len(differences)
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    return Contrast(statistics.fmean(differences), error, count - 1, count, PAIRED)


def scatter_p(contrast: Contrast, variance: float) -> float:
    """How likely pairs scatter this much where they scatter as the contrast says: the F-test of one against all."""
    return float(scipy.special.fdtrc(contrast.n - 1, contrast.freedom, variance / contrast.deviation() ** 2))


def differences(runs: pd.DataFrame, baseline: str = "fp32") -> pd.DataFrame:
    """A row for each metric of each run that has a run of the baseline with the same seed: how far it is above."""
    check_only_seeds_differ(runs)
    accuracies = runs.melt([*CELL, "seed"], METRICS, var_name="metric", value_name="accuracy")
    same = [*SETTING, "metric", "seed"]
    theirs = accuracies[accuracies["arm"] == baseline].rename(columns={"accuracy": "baseline_accuracy"})
    pairs = accuracies.merge(theirs.drop(columns="arm"), on=same)
    return pairs.assign(difference=(pairs["accuracy"] - pairs["baseline_accuracy"]).round(DIGITS))


def compare(runs: pd.DataFrame, margin: float = MARGIN, baseline: str = "fp32") -> pd.DataFrame:
    """One row for each data set, alpha, arm and metric: how far it is from the baseline, and how sure that is.

    `runs` is what `qlocaladam.experiments.runs.read_runs` gives, with one block size and one learning rate an arm.
    `left_out` are seeds of an arm that have no run of the baseline beside them, or no accuracy on either side.
    `scatter_p` is small where an arm scatters more than the residual variance says: then its intervals are too narrow.
    `ci` is the interval of 95 %, `simultaneous` holds for all arms of the setting together (Bonferroni), `tost_ci`, of
    90 %, inside the margin means equivalence at 5 %. `seeds_needed` would decide with a power of 80 %. `reason`: why a
    cell is empty.
    """
    if not margin > 0:
        raise ValueError(f"margin must be above 0, as a share of the baseline's accuracy, got {margin!r}")
    check_only_seeds_differ(runs)
    runs = runs.assign(lost=collapsed(runs) | runs["diverged"])
    rows = []
    for metric, (setting, own) in itertools.product(METRICS, runs.groupby(SETTING, sort=False)):
        by_arm = contrasts(own, metric, baseline)
        means = own.groupby("arm")[metric].mean()
        tested = sum(isinstance(contrast, Contrast) for contrast in by_arm.values())
        for arm in own["arm"].unique():
            of_arm = own[own["arm"] == arm]
            row = {**dict(zip(SETTING, setting, strict=True)), "metric": metric, **_described(of_arm, metric)}
            if arm != baseline:
                row |= _compared(by_arm[arm], means.get(baseline, math.nan), margin, tested)
                row |= _pairs(of_arm, own[own["arm"] == baseline], metric, by_arm[arm])
            rows.append({**row, "arm": arm})
    return pd.DataFrame(rows, columns=COLUMNS).astype({"seeds_needed": "Int64"})


def files(runs: pd.DataFrame, margin: float, baseline: str) -> dict[str, pd.DataFrame]:
    """Both, by the names of their files."""
    return {"contrasts.csv": compare(runs, margin, baseline), "differences.csv": differences(runs, baseline)}


def _described(runs: pd.DataFrame, metric: str) -> dict[str, Any]:
    values = runs[metric]
    return {
        "runs": len(runs),
        "collapsed": int(runs["lost"].sum()),
        "seeds": " ".join(map(str, runs["seed"])),
        "mean": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else None,
    }


def _pairs(runs: pd.DataFrame, baseline: pd.DataFrame, metric: str, contrast: Contrast | str) -> dict[str, Any]:
    """Which runs are no pair with one of the baseline, and whether those that are scatter as the contrast says."""
    ours, theirs = (side.set_index("seed")[metric] for side in (runs, baseline))
    gaps = (ours - theirs).reindex(ours.index)
    row: dict[str, Any] = {"left_out": " ".join(str(seed) for seed in gaps.index[gaps.isna()])}
    if isinstance(contrast, Contrast) and contrast.variance == POOLED:
        row["scatter_p"] = scatter_p(contrast, float(gaps.var()))
    return row


def _compared(contrast: Contrast | str, baseline: float, margin: float, tested: int) -> dict[str, Any]:
    margin *= baseline
    row: dict[str, Any] = {"baseline_mean": baseline, "margin": margin, "wider_margin": 2 * margin}
    if isinstance(contrast, str):
        return {**row, "reason": contrast}
    row |= {"difference": contrast.difference, "error": contrast.error, "freedom": contrast.freedom}
    levels = {"ci": LEVEL, "simultaneous": LEVEL / tested, "tost_ci": 2 * LEVEL}
    for name, level in levels.items():
        row |= dict(zip((f"{name}_low", f"{name}_high"), contrast.interval(level), strict=True))
    return row | {
        "n": contrast.n,
        "variance": contrast.variance,
        "p": contrast.p,
        "tost_p": contrast.equivalence(row["margin"]),
        "wider_tost_p": contrast.equivalence(row["wider_margin"]),
        "seeds_needed": seeds_needed(
            contrast.difference, contrast.deviation(), row["margin"], freedom=contrast.freedom_a_seed()
        ),
    }


def seeds_needed(
    difference: float, deviation: float, margin: float, level: float = LEVEL, freedom: float = 1
) -> int | None:
    """The fewest seeds that decide with a power of 80 %, if differences are as large and as scattered as these.

    Either verdict counts, whichever comes first: that there is a difference, or that it is inside the margin. None
    where more seeds than anybody has would not do, or where the deviation is not known. `freedom`: the degrees of
    freedom that each seed brings, more than one where other arms say how far runs scatter, too.
    """
    counts = (
        seeds_for_difference(difference, deviation, level, freedom),
        seeds_for_equivalence(difference, deviation, margin, level, freedom),
    )
    return min((seeds for seeds in counts if seeds is not None), default=None)


def seeds_for_difference(difference: float, deviation: float, level: float = LEVEL, freedom: float = 1) -> int | None:
    """The fewest with which the two-sided test finds it."""
    from statsmodels.stats.power import ttest_power  # type: ignore[import-untyped]  # here, because it takes a second

    effect = abs(difference) / deviation if deviation > 0 else 0

    def power(n: int) -> float:
        return float(ttest_power(effect, n, level / 2, freedom * (n - 1), "larger"))

    return _fewest(power) if effect else None


def seeds_for_equivalence(
    difference: float, deviation: float, margin: float, level: float = LEVEL, freedom: float = 1
) -> int | None:
    """The fewest with which both one-sided tests find it inside the margin; what either may miss is added up."""
    from statsmodels.stats.power import ttest_power

    if not deviation > 0 or not abs(difference) < margin:
        return None
    rooms = [(margin + sign * difference) / deviation for sign in (-1, 1)]

    def power(n: int) -> float:
        return float(sum(ttest_power(room, n, level, freedom * (n - 1), "larger") for room in rooms) - 1)

    return _fewest(power)


def _fewest(power: Callable[[int], float]) -> int | None:
    counts = range(2, MOST_SEEDS + 1)
    place = bisect_left(counts, POWER, key=power)
    return counts[place] if place < len(counts) else None


def check_only_seeds_differ(runs: pd.DataFrame) -> None:
    """Raise ValueError where runs of an arm could not be told apart by their seeds."""
    for cell, own in runs.groupby(CELL, sort=False):
        where = f"of {', '.join(map(str, cell))}"
        for name in ("block_size", "lr", *AS_IN_THE_PAPER):
            if own[name].nunique() > 1:
                raise ValueError(f"{name} must be the same in all runs {where}, got {sorted(set(own[name].tolist()))}")
        if own["seed"].duplicated().any():
            raise ValueError(f"seed must be different in every run {where}, got {sorted(own['seed'].tolist())}")
