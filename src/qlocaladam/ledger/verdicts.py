"""Whether claims about trained runs hold, from all seeds that there are for their settings.

A verdict errs in at most 5 % of the cases in which there is no difference: each direction is a test at 2.5 %, shared
out among the comparisons where any one of them could decide. A claim that allows for a margin is denied only by what is
beyond it: what is true within its margin is denied in at most 5 % of the cases, too. One seed decides nothing.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scipy import stats

from qlocaladam.analysis.contrasts import (
    MARGIN,
    POOLED,
    Contrast,
    paired,
    scatter_p,
    seeds_for_difference,
    seeds_for_equivalence,
)

LEVEL = 0.025
"""Of each direction."""
OBJECTION = 0.25
"""Where a pair of arms scatters more than all arms together with a p-value below this, its own scatter counts. The
usual level of a test before another (Bancroft 1964): it is to find what would do harm, and proves nothing itself. With
an arm that scatters three times as much as the others, pooling alone errs in 18 to 26 % of the cases without a
difference; with this in 10 % for 3 seeds, 8 % for 5 and 6 % from 8 on."""
FEWEST_LOST = 3
"""Pairs of runs to compare arms by of which some collapsed. A coin that is thrown for each of four runs, to collapse or
not, comes down alike for both arms' two runs and unlike between them in one of eight cases: two pairs are too few."""
ONE_SEED = "one seed: nothing decides"
FEW_LISTED = 3
"""Seeds that are named where they are left out; more are counted."""


class Sample(NamedTuple):
    """Runs that differ in nothing but their seed."""

    values: Mapping[int, float]
    """By seed."""
    setting: str
    """Data set and alpha: runs of one setting and seed share their partition."""
    lost: bool
    """Whether any of them collapsed."""
    unknown: frozenset[int] = frozenset()
    """Seeds of runs that have no such number."""


class Residual(NamedTuple):
    """How far runs of a setting scatter about their arm and their seed."""

    variance: float
    freedom: float


Residuals = Mapping[str, Residual]


class Judgement(NamedTuple):
    """None: undecided."""

    holds: bool | None
    words: str


def contrast(first: Sample, second: Sample, residuals: Residuals) -> Contrast | str:
    """The mean of the first less that of the second over the seeds of both; or in words why there is none."""
    seeds = sorted(first.values.keys() & second.values.keys())
    found = [first.values[seed] - second.values[seed] for seed in seeds]
    if len(found) < 2:
        return ONE_SEED
    lost, residual = first.lost or second.lost, residuals.get(first.setting)
    if lost and len(found) < FEWEST_LOST:
        return f"{len(found)} seeds of runs of which some collapsed: nothing decides"
    if residual and first.setting == second.setting and not lost:
        error = math.sqrt(2 * residual.variance / len(found))
        pooled = Contrast(statistics.fmean(found), error, residual.freedom, len(found), POOLED)
        if not scatter_p(pooled, statistics.variance(found)) < OBJECTION:
            return pooled
    return paired(found)


def judge(how: str, samples: Sequence[Sample], residuals: Residuals, options: Mapping[str, float]) -> Judgement:
    """Put a claim to the seeds; those that do not count are named."""
    holds, words = WAYS[how](samples, residuals, **options)
    return Judgement(holds, words + _left_out(samples))


def _left_out(samples: Sequence[Sample]) -> str:
    unknown = set[int]().union(*(sample.unknown for sample in samples))
    there = [sample.values.keys() | sample.unknown for sample in samples]
    single = set[int]().union(*there) - set[int].intersection(*map(set, there))
    notes = {"that have no such number": unknown, "that not all arms have": single - unknown}
    return "".join(f"; left out: {_seeds(seeds)} {why}" for why, seeds in notes.items() if seeds)


def _seeds(seeds: set[int]) -> str:
    if len(seeds) > FEW_LISTED:
        return f"{len(seeds)} seeds"
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"


Compared = Sequence[tuple[Contrast, float]]
"""Contrasts, each with its margin."""


def _against(pairs: Sequence[tuple[Sample, Sample]], residuals: Residuals) -> tuple[Compared, Judgement | None]:
    """Each pair's contrast and margin; or why there is nothing to decide by."""
    found = []
    for first, second in pairs:
        one = contrast(first, second, residuals)
        if isinstance(one, str):
            return [], Judgement(None, one)
        found.append((one, MARGIN * abs(statistics.fmean(second.values.values()))))
    return found, None


def _greater(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """The first is above all others: every comparison must say so; one that says the contrary is enough to deny it."""
    found, lacking = _against([(samples[0], other) for other in samples[1:]], residuals)
    if lacking:
        return lacking
    words = _words(found, _seeds_apart)
    if all(one.above(0) < LEVEL for one, _ in found):
        return Judgement(True, words)
    denied = any(one.below(0) < LEVEL / len(found) for one, _ in found)
    return Judgement(False if denied else None, words)


def _not_less(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    return _none_below([(samples[0], other) for other in samples[1:]], residuals)


def _monotone(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    return _none_below([(after, before) for before, after in itertools.pairwise(samples)], residuals)


def _none_below(pairs: Sequence[tuple[Sample, Sample]], residuals: Residuals) -> Judgement:
    """No first is below its second by more than the margin."""
    found, lacking = _against(pairs, residuals)
    if lacking:
        return lacking
    words = _words(found, _seeds_not_below)
    if all(one.above(-margin) < LEVEL for one, margin in found):
        return Judgement(True, words)
    denied = any(one.below(-margin) < LEVEL / len(found) for one, margin in found)
    return Judgement(False if denied else None, words)


def _equivalent(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """The two are no further apart than the margin."""
    found, lacking = _against([(samples[0], samples[1])], residuals)
    return lacking or _within(found)


def _close(samples: Sequence[Sample], residuals: Residuals, bound: float) -> Judgement:
    """No two are further apart than the bound."""
    found, lacking = _against(list(itertools.combinations(samples, 2)), residuals)
    return lacking or _within([(one, bound) for one, _ in found])


def _within(found: Compared) -> Judgement:
    """Every difference is inside its margin; one that is beyond is enough to deny it."""
    words = _words(found, _seeds_within)
    if all(one.equivalence(margin) < LEVEL for one, margin in found):
        return Judgement(True, words)
    level = LEVEL / len(found)
    denied = any(one.above(margin) < level or one.below(-margin) < level for one, margin in found)
    return Judgement(False if denied else None, words)


def _collapsed(samples: Sequence[Sample], residuals: Residuals, chance: float) -> Judgement:
    """All runs end below twice the accuracy of guessing, and so far that it is no chance; or all so far above."""
    values, bound = list(samples[0].values.values()), 2 * chance
    if len(values) < 2:
        return Judgement(None, ONE_SEED)
    lost = sum(value < bound for value in values)
    words = f"{lost} of {len(values)} runs end below twice the accuracy of guessing"
    if 0 < lost < len(values):
        return Judgement(None, words)
    if len(set(values)) == 1:  # all guess the same class: no scatter to test by
        return Judgement(lost > 0 if len(values) >= FEWEST_LOST else None, words)
    p = stats.ttest_1samp(values, bound, alternative="less" if lost else "greater").pvalue
    return Judgement(lost > 0 if p < LEVEL else None, words)


def _not_collapsed(samples: Sequence[Sample], residuals: Residuals, chance: float) -> Judgement:
    holds, words = _collapsed(samples, residuals, chance)
    return Judgement(None if holds is None else not holds, words)


WAYS: dict[str, Callable[..., Judgement]] = {
    "greater": _greater,
    "not_less": _not_less,
    "monotone": _monotone,
    "equivalent": _equivalent,
    "close": _close,
    "collapsed": _collapsed,
    "not_collapsed": _not_collapsed,
}


# How many seeds would decide, with a power of 80 %: None for more than anybody has.


def _seeds_beyond(one: Contrast, bound: float) -> int | None:
    """To tell the difference from a bound, on whichever side of it this one is."""
    return seeds_for_difference(one.difference - bound, one.deviation(), 2 * LEVEL, one.freedom_a_seed())


def _seeds_not_below(one: Contrast, margin: float) -> int | None:
    return _seeds_beyond(one, -margin)


def _seeds_alike(one: Contrast, margin: float) -> int | None:
    return seeds_for_equivalence(one.difference, one.deviation(), margin, LEVEL, one.freedom_a_seed())


def _seeds_within(one: Contrast, margin: float) -> int | None:
    if abs(one.difference) < margin:
        return _seeds_alike(one, margin)
    return _seeds_beyond(one, math.copysign(margin, one.difference))


def _seeds_apart(one: Contrast, margin: float) -> int | str | None:
    """Where a difference by luck is next to nothing, thousands of seeds would find it; then, what is found sooner."""
    apart, alike = _seeds_beyond(one, 0), _seeds_alike(one, margin)
    if alike is None or (apart is not None and apart <= alike):
        return apart
    return f"{alike:,} seeds show equivalence within {100 * MARGIN:g} %"


def _words(found: Compared, needed: Callable[[Contrast, float], int | str | None]) -> str:
    """The differences with their 95 % intervals, and how many seeds would decide the one that is least sure."""

    def one(contrast: Contrast) -> str:
        low, high = contrast.interval(2 * LEVEL)
        return f"{contrast.difference:+.2f} ({low:+.2f} to {high:+.2f}, {contrast.n} seeds)"

    said = "; ".join(one(contrast) for contrast, _ in found[:4])
    return f"{said}{'; ...' if len(found) > 4 else ''}; {_most([needed(*each) for each in found])}"


def _most(needed: Sequence[int | str | None]) -> str:
    """What is not decided by any number of seeds counts before all numbers."""
    for seeds in needed:
        if isinstance(seeds, str):
            return f"{seeds} with a power of 80 %, which decides nothing"
    counts = [seeds for seeds in needed if isinstance(seeds, int)]
    most = f"{max(counts):,}" if len(counts) == len(needed) else "too many"
    return f"{most} seeds decide with a power of 80 %"
