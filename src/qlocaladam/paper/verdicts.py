"""Whether claims about trained runs hold, from all seeds that there are for their settings.

A verdict errs in at most 5 % of the cases in which there is no difference: each direction is a test at 2.5 %, shared
out among the comparisons where any one of them could decide. One seed decides nothing.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from qlocaladam.analysis.contrasts import MARGIN, PAIRED, POOLED, Contrast, seeds_needed

LEVEL = 0.025
"""Of each direction."""


class Sample(NamedTuple):
    """Runs that differ in nothing but their seed."""

    values: Mapping[int, float]
    """By seed."""
    setting: str
    """Data set and alpha: runs of one setting and seed share their partition."""
    lost: bool
    """Whether any of them collapsed."""


class Residual(NamedTuple):
    """How far runs of a setting scatter about their arm and their seed."""

    variance: float
    freedom: float


Residuals = Mapping[str, Residual]


class Judgement(NamedTuple):
    """None: undecided."""

    holds: bool | None
    words: str


def contrast(first: Sample, second: Sample, residuals: Residuals) -> Contrast | None:
    """The mean of the first less that of the second over the seeds of both; None where fewer than two."""
    seeds = sorted(first.values.keys() & second.values.keys())
    found = [first.values[seed] - second.values[seed] for seed in seeds]
    if len(found) < 2:
        return None
    residual = residuals.get(first.setting)
    if residual and first.setting == second.setting and not (first.lost or second.lost):
        error = math.sqrt(2 * residual.variance / len(found))
        return Contrast(statistics.fmean(found), error, residual.freedom, len(found), POOLED)
    # A rounding error of a difference is no scatter.
    error = max(statistics.stdev(found) / math.sqrt(len(found)), 1e-9)
    return Contrast(statistics.fmean(found), error, len(found) - 1, len(found), PAIRED)


def judge(how: str, samples: Sequence[Sample], residuals: Residuals, options: Mapping[str, float]) -> Judgement:
    """Put a claim to the seeds."""
    return WAYS[how](samples, residuals, **options)


def _against(
    pairs: Sequence[tuple[Sample, Sample]], residuals: Residuals
) -> tuple[list[tuple[Contrast, float]], Judgement | None]:
    """Each pair's contrast and margin; or why there is nothing to decide by."""
    found = [contrast(first, second, residuals) for first, second in pairs]
    if any(one is None for one in found):
        return [], Judgement(None, "one seed: nothing decides")
    margins = [MARGIN * abs(statistics.fmean(second.values.values())) for _, second in pairs]
    return [(one, margin) for one, margin in zip(found, margins, strict=True) if one is not None], None


def _greater(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    """The first is above all others: every comparison must say so; one that says the contrary is enough to deny it."""
    found, lacking = _against([(samples[0], other) for other in samples[1:]], residuals)
    if lacking:
        return lacking
    if all(one.above(0) < LEVEL for one, _ in found):
        return Judgement(True, _words(found))
    denied = any(one.below(0) < LEVEL / len(found) for one, _ in found)
    return Judgement(False if denied else None, _words(found))


def _not_less(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    return _none_below([(samples[0], other) for other in samples[1:]], residuals)


def _monotone(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    return _none_below([(after, before) for before, after in itertools.pairwise(samples)], residuals)


def _none_below(pairs: Sequence[tuple[Sample, Sample]], residuals: Residuals) -> Judgement:
    """No first is below its second by more than the margin."""
    found, lacking = _against(pairs, residuals)
    if lacking:
        return lacking
    if all(one.above(-margin) < LEVEL for one, margin in found):
        return Judgement(True, _words(found))
    denied = any(one.below(0) < LEVEL / len(found) for one, _ in found)
    return Judgement(False if denied else None, _words(found))


def _equivalent(samples: Sequence[Sample], residuals: Residuals) -> Judgement:
    found, lacking = _against([(samples[0], samples[1])], residuals)
    if lacking:
        return lacking
    ((one, margin),) = found
    if one.equivalence(margin) < LEVEL:
        return Judgement(True, _words(found))
    return Judgement(False if one.p < 2 * LEVEL else None, _words(found))


def _close(samples: Sequence[Sample], residuals: Residuals, bound: float) -> Judgement:
    """No two are further apart than the bound."""
    found, lacking = _against(list(itertools.combinations(samples, 2)), residuals)
    if lacking:
        return lacking
    found = [(one, bound) for one, _ in found]
    if all(one.equivalence(bound) < LEVEL for one, _ in found):
        return Judgement(True, _words(found))
    level = LEVEL / len(found)
    denied = any(one.above(bound) < level or one.below(-bound) < level for one, _ in found)
    return Judgement(False if denied else None, _words(found))


def _collapsed(samples: Sequence[Sample], residuals: Residuals, chance: float) -> Judgement:
    """All runs end below twice the accuracy of guessing; none of them denies it."""
    values = list(samples[0].values.values())
    if len(values) < 2:
        return Judgement(None, "one seed: nothing decides")
    lost = sum(value < 2 * chance for value in values)
    holds = True if lost == len(values) else False if lost == 0 else None
    return Judgement(holds, f"{lost} of {len(values)} runs end below twice the accuracy of guessing")


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


def _words(found: Sequence[tuple[Contrast, float]]) -> str:
    """The differences with their 95 % intervals, and how many seeds would decide the one that is least sure."""

    def one(contrast: Contrast) -> str:
        low, high = contrast.interval(2 * LEVEL)
        return f"{contrast.difference:+.2f} ({low:+.2f} to {high:+.2f}, {contrast.n} seeds)"

    needed: list[Any] = [seeds_needed(c.difference, c.deviation(), margin, 2 * LEVEL) for c, margin in found]
    most = "too many" if None in needed else f"{max(needed):,}"
    said = "; ".join(one(contrast) for contrast, _ in found[:4])
    return f"{said}{'; ...' if len(found) > 4 else ''}; {most} seeds decide with a power of 80 %"
