"""What a printed number stands for, and what follows from it.

A printed number stands for all that round to it: half a unit of its last digit up and down. What follows from printed
numbers is judged within those bounds, so that the paper's own rounding is never held against it.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from operator import gt
from typing import Any, NamedTuple

from qlocaladam.analysis.significance import from_printed
from qlocaladam.experiments.runs import collapse_bound

WHOLE_UNITS = ("count", "bytes", "line", "equation")
"""Units of what is counted and never rounded: such a number stands for itself alone."""
TINY = 1e-9
"""Two floats closer than this share of their size are the same number."""

Entry = Mapping[str, Any]


class Interval(NamedTuple):
    low: float
    value: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        room = TINY * max(1e-12, *(abs(end) for end in (*self, *other) if math.isfinite(end)))
        return self.low <= other.high + room and other.low <= self.high + room

    def cut(self) -> Interval:
        """What is printed so where digits are cut off."""
        return Interval(self.value, self.value, 2 * self.high - self.value)

    def distance(self, value: float) -> float:
        """Of another value, without the digits that floats add, and with no negative zero."""
        return round(value - self.value, 10) + 0.0


def interval(text: str, unit: str = "") -> Interval:
    """All numbers that are printed so: "3,204", "+0.24", "1e-12", "~12", "<0.5", ">8", or a range as in "7--8"."""
    if "--" in text:
        first, last = (interval(end, unit) for end in text.split("--"))
        return Interval(first.low, (first.value + last.value) / 2, last.high)
    if not re.fullmatch(r"[<>~]?[+-]?[\d,]*\.?\d+(e[+-]?\d+)?", text):
        raise ValueError(
            f"{text!r} is no number; give the one it stands for as value, as in 3,204, 1e-12, <0.5 or 7--8"
        )
    number = Decimal(text.lstrip("<>~").replace(",", ""))
    half = Decimal(0) if unit in WHOLE_UNITS else Decimal((0, (5,), int(number.as_tuple().exponent) - 1))
    low, value, high = (float(end) for end in (number - half, number, number + half))
    return Interval(-math.inf if text[0] == "<" else low, value, math.inf if text[0] == ">" else high)


def of_entry(entry: Entry) -> Interval:
    """Of what an entry of the ledger prints, or of the value that it gives for that."""
    return interval(str(entry.get("value", entry["printed"])), entry["unit"])


def plain(value: Any) -> str:
    """A number with no more digits than are read; words as they are."""
    if not isinstance(value, int | float):
        return str(value)
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 and abs(value - round(value)) < 0.01 else f"{value:.4g}"
    return text.replace("e-0", "e-").replace("e+0", "e")


# Numbers that follow from printed ones.


def _p(equal: str, population: bool) -> Callable[..., float]:
    """Of two means over n seeds each, with sample deviations, or with those of the population, which divide by n."""

    def p(mean1: float, std1: float, mean2: float, std2: float, n: float) -> float:
        factor = math.sqrt(n / (n - 1)) if population else 1
        return from_printed(mean1, std1 * factor, int(n), mean2, std2 * factor, int(n))[equal]

    return p


def _deviation_of_three(low: float, high: float, mean: float) -> float:
    return statistics.stdev([low, high, 3 * mean - low - high])


DERIVED: dict[str, Callable[..., float]] = {
    "same": lambda a: a,
    "difference": lambda a, b: a - b,
    "ratio": lambda a, b: a / b,
    "percent_change": lambda a, b: 100 * (a - b) / b,
    "percent": lambda a: 100 * a,
    "sum": lambda *values: sum(values),
    "product": lambda *values: math.prod(values),
    "rate": lambda a, b, c: a * b / c,
    "mean": lambda *values: statistics.fmean(values),
    "deviation": lambda *values: statistics.stdev(values),
    "deviation_of_three": _deviation_of_three,
    "range": lambda *values: max(values) - min(values),
    "least": min,
    "greatest": max,
    "power_of_two": lambda a: 2**a,
    "orders": lambda a, b: math.log10(b / a),
    "megabytes": lambda count, size: count * size / 1e6,
    "greatest_ratio": lambda full, *parts: full / min(parts),
    # Of a state in FP32, 4 bytes a value, and the same with a code of 1 byte a value and something for each block:
    "block_bytes": lambda block, stored, full: block * (4 * stored / full - 1),
    "percent_of_codes": lambda stored, full: 100 * (4 * stored / full - 1),
    "p_pooled": _p("p", population=False),
    "p_welch": _p("welch_p", population=False),
    "p_pooled_population": _p("p", population=True),
    "p_welch_population": _p("welch_p", population=True),
}
"""How a printed number can follow from others. Each rises or falls with each of its numbers, as `bounds` needs."""


def corners(inputs: Iterable[Interval]) -> Iterable[tuple[float, ...]]:
    return itertools.product(*(sorted({end for end in (i.low, i.high) if math.isfinite(end)}) for i in inputs))


def bounds(how: str, inputs: Sequence[Interval]) -> Interval:
    values = [DERIVED[how](*corner) for corner in corners(inputs)]
    return Interval(min(values), DERIVED[how](*(each.value for each in inputs)), max(values))


# Claims about numbers that do not scatter. Each test says yes, no, or None: undecided.


def _one_of(value: float, mean: float, deviation: float, n: float) -> bool:
    """None of n numbers lies farther from their mean than this, were the others equal; deviations over n, the wider."""
    return abs(value - mean) <= deviation * math.sqrt(n - 1)


TESTS: dict[str, Callable[..., bool | None]] = {
    "greater": lambda first, *others: None if first == max(others) else first > max(others),
    "not_less": lambda first, *others: first >= max(others),
    "not_more": lambda first, *others: first <= min(others),
    "monotone": lambda *values: all(before <= after for before, after in itertools.pairwise(values)),
    "below": lambda *values, bound: max(values) < bound,
    "above": lambda *values, bound: min(values) > bound,
    "small": lambda *values, bound: max(map(abs, values)) < bound,
    "closer": lambda first, *others: abs(first) < min(map(abs, others)),
    "between": lambda value, low, high: low <= value <= high,
    "each_greater": lambda *values: all(map(gt, values[: len(values) // 2], values[len(values) // 2 :])),
    "collapsed": lambda accuracy, chance: accuracy < collapse_bound(chance),
    "not_collapsed": lambda accuracy, chance: accuracy >= collapse_bound(chance),
    "significant": lambda p, difference, bound: difference > 0 if p < bound else None,
    "not_significant": lambda p, bound: p >= bound,
    "one_of": _one_of,
    "several_above": lambda *values, bound: sum(value > bound for value in values) > 1,
    "several_below": lambda *values, bound: sum(value < bound for value in values) > 1,
    "steady": lambda *values, bound: max(values) <= bound * min(values),
    "equal": lambda *values: max(values) - min(values) <= TINY * max(map(abs, values)),
}
