"""Whether claims about trained runs hold, from all seeds that there are for their settings.

Where runs scatter symmetrically, a verdict errs in at most 5 % of the cases in which there is no difference: each
direction is a test at 2.5 %, shared out among the comparisons where any one of them could decide. A claim that allows
for a margin is denied only by what is beyond it: what is true within its margin is denied in at most 5 % of the cases,
too. One seed decides nothing. Where scatter is skewed and unlike at once, verdicts err more often (docs/statistics.md).

Two tests must agree: the one with the residual variance of all arms that train, and the paired one of the two arms
alone. The first alone errs in 24 % of the cases where an arm scatters three times as much as the nine others, whatever
the number of seeds, and no test of the scatter before it helps with three seeds (10 % for the best that was tried). The
second is exact for normal scatter, whatever the variances of the two are, and keeps company with the first because of
accuracies in coarse steps. The price is power where all arms scatter alike: a difference of four standard errors is
found with 3, 5 and 10 seeds in 56, 83 and 94 % of the cases, and would be by the first alone in 97.
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
    seeds_for_difference,
    seeds_for_equivalence,
)
from qlocaladam.experiments.runs import collapse_bound

LEVEL = 0.025
"""Of each direction."""
FEWEST_LOST = 3
"""Pairs of runs to compare arms by of which some collapsed. A coin that is thrown for each of four runs, to collapse or
not, comes down alike for both arms' two runs and unlike between them in one of eight cases: two pairs are too few.
Runs that say of one arm whether it collapses, too: three of three have it with a confidence of 97.5 % that more than a
quarter of all seeds do the same, two of two have not."""
FEWEST_SPREAD = 5
"""Seeds to compare how far runs scatter by: with three Levene's test never finds anything, with four too much."""
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


class Compared(NamedTuple):
    """Two samples: the test that decides, what margin a claim may allow for, and how far a pair of runs scatters."""

    test: Contrast
    margin: float
    deviation: float

    def seeds_beyond(self, bound: float) -> int | None:
        """How many tell the difference from a bound, on whichever side of it this one is, with a power of 80 %."""
        return seeds_for_difference(self.test.difference - bound, self.deviation, 2 * LEVEL)

    def seeds_within(self, margin: float) -> int | None:
        return seeds_for_equivalence(self.test.difference, self.deviation, margin, LEVEL)


def compare(first: Sample, second: Sample, residuals: Residuals, level: float = LEVEL) -> Compared | str:
    """The mean of the first less that of the second over the seeds of both; or in words why there is none.

    Of the pooled and the paired test it is the one with the wider interval at this level, so that both find what it
    finds at this level. At a less strict one, where the pooled one gains in width, it is at least the paired one's.
    """
    seeds = sorted(first.values.keys() & second.values.keys())
    differences = [first.values[seed] - second.values[seed] for seed in seeds]
    if len(differences) < 2:
        return ONE_SEED
    lost, residual = first.lost or second.lost, residuals.get(first.setting)
    if lost and len(differences) < FEWEST_LOST:
        return f"{len(differences)} seeds of runs of which some collapsed: nothing decides"
    margin, own = MARGIN * abs(statistics.fmean(second.values.values())), paired(differences)
    if residual and first.setting == second.setting and not lost:
        error = math.sqrt(2 * residual.variance / len(differences))
        pooled = Contrast(statistics.fmean(differences), error, residual.freedom, len(differences), POOLED)
        tests = [pooled, own] if isinstance(own, Contrast) else [pooled]
        return Compared(max(tests, key=lambda test: test.interval(2 * level)[1]), margin, pooled.deviation())
    return Compared(own, margin, own.deviation()) if isinstance(own, Contrast) else own


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


def _against(
    pairs: Sequence[tuple[Sample, Sample]], residuals: Residuals, level: float = LEVEL
) -> tuple[list[Compared], Judgement | None]:
    """Each pair compared, at the level of all of them together; or why there is nothing to decide by."""
    tests = []
    for first, second in pairs:
        one = compare(first, second, residuals, level / len(pairs))
        if isinstance(one, str):
            return [], Judgement(None, one)
        tests.append(one)
    return tests, None


def _greater(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """The first is above all others: every comparison must say so; one that says the contrary is enough to deny it."""
    tests, lacking = _against([(samples[0], other) for other in samples[1:]], residuals)
    if lacking:
        return lacking
    words = _words(tests, _seeds_apart)
    if all(one.test.above(0) < LEVEL for one in tests):
        return Judgement(True, words)
    denied = any(one.test.below(0) < LEVEL / len(tests) for one in tests)
    return Judgement(False if denied else None, words)


def _not_less(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    return _none_below([(samples[0], other) for other in samples[1:]], residuals)


def _monotone(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    return _none_below([(after, before) for before, after in itertools.pairwise(samples)], residuals)


def _none_below(pairs: Sequence[tuple[Sample, Sample]], residuals: Residuals) -> Judgement:
    """No first is below its second by more than the margin."""
    tests, lacking = _against(pairs, residuals)
    if lacking:
        return lacking
    words = _words(tests, _seeds_not_below)
    if all(one.test.above(-one.margin) < LEVEL for one in tests):
        return Judgement(True, words)
    denied = any(one.test.below(-one.margin) < LEVEL / len(tests) for one in tests)
    return Judgement(False if denied else None, words)


def _equivalent(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """The two are no further apart than the margin."""
    tests, lacking = _against([(samples[0], samples[1])], residuals)
    return lacking or _within(tests)


def _close(samples: Sequence[Sample], residuals: Residuals, bound: float) -> Judgement:
    """No two are further apart than the bound."""
    tests, lacking = _against(list(itertools.combinations(samples, 2)), residuals)
    return lacking or _within([one._replace(margin=bound) for one in tests])


def _within(tests: Sequence[Compared]) -> Judgement:
    """Every difference is inside its margin; one that is beyond is enough to deny it."""
    words = _words(tests, _seeds_within)
    if all(one.test.equivalence(one.margin) < LEVEL for one in tests):
        return Judgement(True, words)
    denied = any(min(one.test.above(one.margin), one.test.below(-one.margin)) < LEVEL / len(tests) for one in tests)
    return Judgement(False if denied else None, words)


def _steadier(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """Of the first half no two are as far apart as two of the second half are.

    How far the furthest two of a half are apart lies between two bounds but for half of the level on either side. It is
    at least what the nearer end of any interval says, and at most what the further end of all of them says.
    """
    half, bounds, words = len(samples) // 2, [], []
    for own in (samples[:half], samples[half:]):
        pairs = list(itertools.combinations(own, 2))
        tests, lacking = _against(pairs, residuals, LEVEL / 4)
        if lacking:
            return lacking
        level = LEVEL / 2 / len(pairs)
        nearer = max(max(low, -high, 0.0) for low, high in (one.test.interval(level) for one in tests))
        further = max(max(-low, high) for low, high in (one.test.interval(LEVEL) for one in tests))
        bounds.append((nearer, further))
        words.append(f"{max(abs(one.test.difference) for one in tests):.2f} ({nearer:.2f} to {further:.2f})")
    (nearer, further), (their_nearer, their_further) = bounds
    holds = True if further < their_nearer else False if nearer > their_further else None
    return Judgement(holds, f"furthest apart {' and '.join(words)}")


def _less_spread(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """The first scatters less over seeds than the second, by Levene's test about the medians.

    That test keeps its level only nearly, so it is done at half of it. The F-test of two variances does not at all: it
    errs in 13 % of the cases with heavy tails and ten seeds, and in 23 with skewed scatter.
    """
    seeds = samples[0].values.keys() & samples[1].values.keys()
    first, second = ([sample.values[seed] for seed in sorted(seeds)] for sample in samples)
    if len(seeds) < FEWEST_SPREAD:
        return Judgement(None, f"{len(seeds)} seeds cannot tell how far runs scatter" if len(seeds) > 1 else ONE_SEED)
    ours, theirs = statistics.stdev(first), statistics.stdev(second)
    if not ours + theirs > 0:
        return Judgement(None, "no scatter on either side: nothing to test")
    p = stats.levene(first, second).pvalue
    words = f"deviations {ours:.2f} and {theirs:.2f}, {len(seeds)} seeds, p = {p:.2g}"
    return Judgement(ours < theirs if p < LEVEL else None, words)


def _collapsed(samples: Sequence[Sample], residuals: Residuals, chance: float) -> Judgement:
    """All runs end below twice the accuracy of guessing, and so far that it is no chance; or all so far above.

    An arm may collapse with some seeds only. That it does is true where a quarter of all seeds would, and that it does
    not where a quarter would train: what all of these runs did, more than a quarter of all seeds do.
    """
    values, bound = list(samples[0].values.values()), collapse_bound(chance)
    if len(values) < 2:
        return Judgement(None, ONE_SEED)
    lost = sum(value < bound for value in values)
    words = f"{lost} of {len(values)} runs end below twice the accuracy of guessing"
    if 0 < lost < len(values) or len(values) < FEWEST_LOST:
        return Judgement(None, words)
    if len(set(values)) == 1:  # all guess the same class: no scatter to test by
        return Judgement(lost > 0, words)
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
    "steadier": _steadier,
    "less_spread": _less_spread,
    "collapsed": _collapsed,
    "not_collapsed": _not_collapsed,
}


# How many seeds would decide with a power of 80 %, from the deviation of all arms that train and with the degrees of
# freedom of the paired test, which must agree: None for more than anybody has.


def _seeds_not_below(one: Compared) -> int | None:
    return one.seeds_beyond(-one.margin)


def _seeds_within(one: Compared) -> int | None:
    if abs(one.test.difference) < one.margin:
        return one.seeds_within(one.margin)
    return one.seeds_beyond(math.copysign(one.margin, one.test.difference))


def _seeds_apart(one: Compared) -> int | str | None:
    """Where a difference by luck is next to nothing, thousands of seeds would find it; then, what is found sooner."""
    apart, alike = one.seeds_beyond(0), one.seeds_within(one.margin)
    if alike is None or (apart is not None and apart <= alike):
        return apart
    return f"{alike:,} seeds show equivalence within {100 * MARGIN:g} %"


def _words(tests: Sequence[Compared], needed: Callable[[Compared], int | str | None]) -> str:
    """The differences with their 95 % intervals, and how many seeds would decide the one that is least sure."""

    def one(contrast: Contrast) -> str:
        low, high = contrast.interval(2 * LEVEL)
        return f"{contrast.difference:+.2f} ({low:+.2f} to {high:+.2f}, {contrast.n} seeds)"

    said = "; ".join(one(each.test) for each in tests[:4])
    return f"{said}{'; ...' if len(tests) > 4 else ''}; {_most([needed(each) for each in tests])}"


def _most(needed: Sequence[int | str | None]) -> str:
    """What is not decided by any number of seeds counts before all numbers."""
    for seeds in needed:
        if isinstance(seeds, str):
            return f"{seeds} with a power of 80 %, which decides nothing"
    counts = [seeds for seeds in needed if isinstance(seeds, int)]
    most = f"{max(counts):,}" if len(counts) == len(needed) else "too many"
    return f"{most} seeds decide with a power of 80 %"
