"""The ledger of claims: every number that the paper prints, beside what was computed here, with a verdict.

A printed number stands for all that round to it: half a unit of its last digit up and down. What follows from printed
numbers is judged within those bounds, so that the paper's own rounding is never held against it.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import scipy  # its parts are loaded when they are used: every snakemake reads this file

from qlocaladam.analysis.significance import from_printed
from qlocaladam.experiments.runs import collapse_bound
from qlocaladam.files import read_yaml
from qlocaladam.results.latex import CHARACTER_POINTS, NONE, Column, Group, Table, bold, escape

if TYPE_CHECKING:
    from qlocaladam.ledger.verdicts import Residuals, Sample

EXACT = "exact"
PRECISE = "within its printed precision"
SPREAD = "within the seeds' spread"
CONSISTENT = "consistent"
HOLDS = "holds here"
UNDECIDED = "undecided here"
FAILS = "fails here"
DIFFERS = "differs"
CONTRADICTS = "contradicts itself"
NOT_COMPARABLE = "not comparable at this scale"
NOT_RUN = "not run"
VERDICTS = (
    *(EXACT, PRECISE, SPREAD, CONSISTENT, HOLDS),
    *(CONTRADICTS, DIFFERS, FAILS, UNDECIDED, NOT_COMPARABLE, NOT_RUN),
)
"""In the order they are shown."""
BAD = (CONTRADICTS, DIFFERS, FAILS)
OPEN = (UNDECIDED, NOT_COMPARABLE, NOT_RUN)
KINDS = ("exact", "trained", "derived", "claim")
COLUMNS = (
    *("id", "where", "kind", "unit", "printed", "rebuilt", "difference", "measured_on", "verdict", "reason", "file"),
)
PAPER_SCALE = "paper"
LEDGER_FILE = "paper/published.yaml"
WHOLE_UNITS = ("count", "bytes", "line", "equation")
"""Units of what is counted and never rounded: such a number stands for itself alone."""
TINY = 1e-9
"""Two floats closer than this share of their size are the same number."""

Entry = Mapping[str, Any]
Numbers = Mapping[str, Mapping[str, Any]]


# What is printed.


class Interval(NamedTuple):
    low: float
    value: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        room = TINY * max(1e-12, *(abs(end) for end in (*self, *other) if math.isfinite(end)))
        return self.low <= other.high + room and other.low <= self.high + room


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


def _value(entry: Entry) -> str:
    return str(entry.get("value", entry["printed"]))


def _interval(entry: Entry) -> Interval:
    return interval(_value(entry), entry["unit"])


def _plain(value: Any) -> str:
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
"""How a printed number can follow from others. Each rises or falls with each of its numbers, as `_bounds` needs."""


def _corners(inputs: Iterable[Interval]) -> Iterable[tuple[float, ...]]:
    return itertools.product(*(sorted({end for end in (i.low, i.high) if math.isfinite(end)}) for i in inputs))


def _bounds(how: str, inputs: Sequence[Interval]) -> Interval:
    found = [DERIVED[how](*corner) for corner in _corners(inputs)]
    return Interval(min(found), DERIVED[how](*(each.value for each in inputs)), max(found))


# Claims about numbers that do not scatter. Each test says yes, no, or None: undecided.


def _less_spread(first: float, second: float, n: float) -> bool | None:
    """Of two deviations over n seeds, by the F-test; it errs in 5 % of the cases in which they are equal."""
    p = float(scipy.special.fdtr(n - 1, n - 1, (first / second) ** 2))
    return True if p < 0.025 else False if p > 0.975 else None


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
    "less_spread": _less_spread,
    "one_of": _one_of,
    "several_above": lambda *values, bound: sum(value > bound for value in values) > 1,
    "several_below": lambda *values, bound: sum(value < bound for value in values) > 1,
    "steady": lambda *values, bound: max(values) <= bound * min(values),
    "equal": lambda *values: max(values) - min(values) <= TINY * max(map(abs, values)),
}
OF_RUNS = ("greater", "not_less", "monotone", "equivalent", "close", "steadier", "collapsed", "not_collapsed")
"""Ways of `qlocaladam.ledger.verdicts`, by which claims about runs are judged over their seeds."""


# The ledger's form.

WAYS = ("from", "check", "rebuilt", "test", "untested")
"""How an entry is judged: what is printed elsewhere, as a number or as a claim; what was computed here, as either."""
KEYS = {"id", "where", "printed", "unit", "kind", "value", "says", "cut", "also", "recipe", "claim", *WAYS}
NEEDED = ("id", "where", "printed", "unit", "kind")


def load(path: str | Path) -> list[dict[str, Any]]:
    """The published numbers. ValueError names the entry that is wrong, and what is accepted."""
    entries = read_yaml(Path(path).read_text())
    if not isinstance(entries, list):
        raise ValueError(f"{path} must be a list of entries, got {type(entries).__name__}")
    known: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(entries, start=1):
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise ValueError(f"{path}: entry {number} must be a mapping with an id, got {entry!r}")
        if name in known:
            raise ValueError(f"{path}: two entries have the id {name!r}")
        known[name] = entry
    for name, entry in known.items():
        try:
            _check_form(entry, known)
        except ValueError as error:
            raise ValueError(f"{path}: {name}: {error}") from None
    return entries


def _check_form(entry: Entry, known: Mapping[str, Entry]) -> None:
    for key in entry:
        if key not in KEYS:
            raise ValueError(f"unknown key {key!r}; accepted: {', '.join(sorted(KEYS))}")
    for key in NEEDED:
        if not isinstance(entry.get(key), str):
            raise ValueError(f"{key} must be text, got {entry.get(key)!r}")
    if entry["kind"] not in KINDS:
        raise ValueError(f"kind is {entry['kind']!r}; accepted: {', '.join(KINDS)}")
    if not any(way in entry for way in WAYS):
        raise ValueError(f"nothing judges it; give one of {', '.join(WAYS)}")
    if entry["kind"] == "claim":
        if "says" not in entry:
            raise ValueError("a claim needs says, its meaning in words")
    elif "from" in entry or "rebuilt" in entry:
        _interval(entry)
    if entry.get("claim", entry["id"]) not in known:
        raise ValueError(f"claim {entry['claim']!r} is no id")
    for way, hows in (("from", DERIVED), ("check", TESTS), ("test", {*TESTS, *OF_RUNS})):
        if way in entry:
            _check_way(way, entry[way], hows, known)


def _check_way(way: str, content: Any, hows: Collection[str], known: Mapping[str, Entry]) -> None:
    if not isinstance(content, dict) or not content.get("of") or not content.get("how"):
        raise ValueError(f"{way} must have how and of, got {content!r}")
    for how in _listed(content["how"]):
        if how not in hows:
            raise ValueError(f"{way} has how {how!r}; accepted: {', '.join(hows)}")
    for name in content["of"] if way != "test" else ():
        if name not in known:
            raise ValueError(f"{way} names {name!r}, which is no id")
        if content["how"] != "same":
            _interval(known[name])


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Verdicts.


@dataclass(frozen=True)
class Finding:
    verdict: str
    reason: str
    rebuilt: Any = None
    difference: float | None = None
    file: str = LEDGER_FILE
    measured_on: str = ""
    """The data, where any were trained on for it."""


@dataclass(frozen=True)
class Evidence:
    """What is printed, what was computed, and at which scale."""

    published: Mapping[str, Entry]
    numbers: Numbers
    scale: str

    def value(self, name: str) -> Any:
        return self.numbers.get(name, {}).get("value")

    def measured_on(self, *names: str) -> str:
        found = (self.numbers.get(name, {}).get("measured_on", "") for name in names)
        return ", ".join(dict.fromkeys(filter(None, found)))

    def named(self, names: Sequence[str], most: int = 5) -> str:
        """What is printed there, with the places; of many only how many."""
        entries = [self.published[name] for name in names]
        if len(entries) > most:
            return f"{len(entries)} numbers ({entries[0]['where']})"
        places = itertools.groupby(entries, key=lambda entry: entry["where"])
        return ", ".join(f"{', '.join(entry['printed'] for entry in group)} ({place})" for place, group in places)

    def sample(self, name: str) -> Sample:
        """All seeds of a run that is named with the default seed."""
        from qlocaladam.ledger.verdicts import Sample

        match = RUN.fullmatch(name)
        assert match is not None
        dataset, alpha = match[2], match[3]
        chance = self.value(f"setting/{dataset}/chance")
        seeds = {int(self.value("setting/seed")): name}
        seeded = re.compile(rf"{re.escape(name)}/seed=(\d+)")  # to the end: what follows is another setting
        seeds |= {int(found[1]): other for other in self.numbers if (found := seeded.fullmatch(other))}
        finals = [self.value(f"final/{other.partition('/')[2]}") for other in seeds.values()]
        lost = any(final is None or final < 2 * chance for final in finals)
        values = {seed: self.value(other) for seed, other in seeds.items() if self.value(other) is not None}
        return Sample(values, f"{dataset}/{alpha}", lost, frozenset(seeds.keys() - values.keys()))

    def residuals(self, metric: str) -> Residuals:
        """How far a metric scatters, by setting."""
        from qlocaladam.ledger.verdicts import Residual

        found = {}
        for other, number in self.numbers.items():
            match = re.fullmatch(rf"residual/{metric}/([^/]+/[^/]+)/variance", other)
            if match and number["value"]:
                found[match[1]] = Residual(number["value"], self.value(other.replace("/variance", "/freedom")))
        return found


def judge(published: Sequence[Entry], numbers: Numbers, scale: str) -> pd.DataFrame:
    """A row for each entry. `numbers` is numbers.json; the difference is what was found here less what is printed."""
    evidence = Evidence({entry["id"]: entry for entry in published}, numbers, scale)
    rows = [{**entry, **vars(_judged(evidence, entry))} for entry in published]
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)  # counts stay whole beside what is not


def _judged(evidence: Evidence, entry: Entry) -> Finding:
    """A contradiction, where one is found; or else what was computed here, where it was."""
    findings = [FIND[way](evidence, entry) for way in WAYS if way in entry]
    return next((finding for finding in findings if finding.verdict == CONTRADICTS), findings[-1])


def _from(evidence: Evidence, entry: Entry) -> Finding:
    """Whether a printed number follows from others, in any of the ways it is said to."""
    of, hows = entry["from"]["of"], _listed(entry["from"]["how"])
    if hows == ["same"]:
        return _repeated(evidence, entry, evidence.published[of[0]])
    found = {how: _bounds(how, [_interval(evidence.published[name]) for name in of]) for how in hows}
    printed, value = _interval(entry), next(iter(found.values())).value
    if entry.get("cut"):
        printed = _cut(printed)
    words = f"{_spelled(found)} of {evidence.named(of)}"
    difference = _less(value, printed)
    if any(printed.overlaps(bounds) for bounds in found.values()):
        return Finding(CONSISTENT, words, value, difference)
    return Finding(CONTRADICTS, _said(entry, words), value, difference)


def _repeated(evidence: Evidence, entry: Entry, other: Entry) -> Finding:
    """Whether what is printed in two places is the same, to the digits that both have, or in the same words."""
    named, value, difference = evidence.named([other["id"]]), None, None
    if entry["unit"] == "words":
        equal = entry["printed"].casefold() == other["printed"].casefold()
    else:
        printed, first = _interval(entry), _interval(other)
        equal, value, difference = printed.overlaps(first), first.value, _less(first.value, printed)
    if equal:
        return Finding(CONSISTENT, f"as {named}", value, difference)
    return Finding(CONTRADICTS, _said(entry, f"{named}, not {entry['printed']}"), value, difference)


def _less(value: float, printed: Interval) -> float:
    """Without the digits that floats add, and with no negative zero."""
    return round(value - printed.value, 10) + 0.0


def _cut(printed: Interval) -> Interval:
    """What is printed so where digits are cut off."""
    return Interval(printed.value, printed.value, 2 * printed.high - printed.value)


def _spelled(found: Mapping[str, Interval]) -> str:
    return ", ".join(f"{how.replace('_', ' ')} {_plain(bounds.value)}" for how, bounds in found.items())


def _said(entry: Entry, words: str) -> str:
    return f"{entry['says']}: {words}" if "says" in entry else words


def _check(evidence: Evidence, entry: Entry) -> Finding:
    """Whether a claim is true of the printed numbers, wherever in their bounds they lie."""
    how, of, options = _parts(entry["check"])
    corners = _corners([_interval(evidence.published[name]) for name in of])
    contradicted = all(TESTS[how](*corner, **options) is False for corner in corners)
    verdict = CONTRADICTS if contradicted else CONSISTENT
    return Finding(verdict, _said(entry, f"printed are {evidence.named(of, most=10)}"))


def _parts(content: Mapping[str, Any]) -> tuple[str, list[str], dict[str, Any]]:
    return content["how"], content["of"], {k: v for k, v in content.items() if k not in ("how", "of")}


def _rebuilt(evidence: Evidence, entry: Entry) -> Finding:
    name = entry["rebuilt"]
    value = evidence.value(name)
    if value is None:
        known = "is not defined here" if name in evidence.numbers else "was not made"
        return Finding(NOT_RUN, f"{name} {known}")
    printed = _interval(entry)
    verdict, reason = _compared(evidence, entry, printed, float(value))
    if "also" in entry:
        other = evidence.value(entry["also"]["name"])
        reason += f"; {entry['also']['says']}: {_plain(other) if other is not None else 'not run'}"
    file, on = evidence.numbers[name]["file"], evidence.measured_on(name)
    return Finding(verdict, reason, value, _less(value, printed), file, on)


def _compared(evidence: Evidence, entry: Entry, printed: Interval, value: float) -> tuple[str, str]:
    equal = printed.overlaps(Interval(value, value, value))
    if entry.get("cut"):
        equal = printed.value <= value < _cut(printed).high
    elsewhere = evidence.scale != PAPER_SCALE
    found = f"{_plain(value)} {_here(evidence, entry['rebuilt'])}"
    if entry["kind"] == "trained" and elsewhere:
        return NOT_COMPARABLE, f"needs training at the paper's scale{_behind(evidence, entry)}"
    if equal:
        verdict = PRECISE if entry["kind"] == "trained" else EXACT
        cut = f", cut off: {_plain(value)}" if entry.get("cut") and not math.isclose(value, printed.value) else ""
        return verdict, f"equal to the last printed digit{cut}"
    if "recipe" in entry:
        return CONTRADICTS, f"{entry['recipe']}, which gives {_plain(value)}, not {entry['printed']}"
    if entry["kind"] == "trained" and _within_seeds(evidence, entry["rebuilt"], printed):
        return SPREAD, found
    if entry["rebuilt"].startswith("setting/") and elsewhere:
        return NOT_COMPARABLE, f"{found}: a setting of the scale {evidence.scale}"
    return DIFFERS, _said(entry, found)


def _within_seeds(evidence: Evidence, name: str, printed: Interval) -> bool:
    """Whether a printed number lies where it would come out with other seeds, with a confidence of 95 %."""
    run, mean = RUN.fullmatch(name), re.fullmatch(r"seeds/([^/]+/[^/]+)/[^/]+/mean", name)
    if not (run or mean):
        return False
    metric = run[1].partition("_over_")[0] if run else "best"
    residual = evidence.residuals(metric).get(f"{run[2]}/{run[3]}" if run else mean[1] if mean else "")
    if residual is None:
        return False
    # Two runs differ by chance; two differences of two runs by twice as much; two means over seeds by less.
    runs = 4 if run and "_over_" in run[1] else 2 if run else 2 / evidence.value(name.replace("/mean", "/n"))
    half = scipy.special.stdtrit(residual.freedom, 0.975) * math.sqrt(runs * residual.variance)
    value = evidence.value(name)
    return bool(value - half <= printed.high and printed.low <= value + half)


def _here(evidence: Evidence, *names: str) -> str:
    on = evidence.measured_on(*names)
    return f"here, on {on}" if on else "here"


def _behind(evidence: Evidence, entry: Entry) -> str:
    if "claim" not in entry:
        return ""
    finding = _judged(evidence, evidence.published[entry["claim"]])
    return f"; the claim behind it, {entry['claim']}: {finding.verdict}"


RUN = re.compile(
    r"((?:best|final|last_third|mean)(?:_over_[^/]+)?)/([^/]+)/([^/]+)/([^/=]+(?:/(?:block_size|lr)=[^/]+)*)"
)
"""A number of a run with the default seed: metric, data set, alpha, and arm with what is not at the defaults."""


def _test(evidence: Evidence, entry: Entry) -> Finding:
    """Whether a claim is true of what was computed here: of runs over all of their seeds, of the rest as it is."""
    how, of, options = _parts(entry["test"])
    values = [evidence.value(name) for name in of]
    missing = [name for name, value in zip(of, values, strict=True) if value is None]
    if missing:
        return Finding(NOT_RUN, f"{', '.join(missing[:3])} {'was' if len(missing) == 1 else 'were'} not made")
    if RUN.fullmatch(of[0]):
        from qlocaladam.ledger import verdicts  # needs scipy.stats, which every snakemake would have to wait for

        runs = [name for name in of if RUN.fullmatch(name)]
        if how in ("collapsed", "not_collapsed"):
            options["chance"] = values[1]
        outcome, words = verdicts.judge(
            how, list(map(evidence.sample, runs)), evidence.residuals(of[0].partition("/")[0]), options
        )
        shown = f"; {words}"
    else:
        outcome, shown = TESTS[how](*values, **options), ""
    verdict = UNDECIDED if outcome is None else HOLDS if outcome else FAILS
    numbers = ", ".join(map(_plain, values)) if len(values) <= 10 else f"{len(values)} numbers"
    files = dict.fromkeys(file for name in of for file in evidence.numbers[name]["file"].split(", "))
    reason = f"{entry['says']}: {_here(evidence, *of)}: {numbers}{shown}"
    return Finding(verdict, reason, file=", ".join(files), measured_on=evidence.measured_on(*of))


def _untested(evidence: Evidence, entry: Entry) -> Finding:
    return Finding(NOT_RUN, entry["untested"])


FIND: dict[str, Callable[[Evidence, Entry], Finding]] = {
    "from": _from,
    "check": _check,
    "rebuilt": _rebuilt,
    "test": _test,
    "untested": _untested,
}


# What is shown of it.


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """How many entries of each kind have each verdict, with sums."""
    table = pd.crosstab(frame["verdict"], frame["kind"])
    table = table.reindex(index=[v for v in VERDICTS if v in table.index], columns=list(KINDS), fill_value=0)
    table["all"] = table.sum(axis=1)
    table.loc["all"] = table.sum()
    return table


def disagreements(frame: pd.DataFrame) -> pd.DataFrame:
    """What contradicts itself, differs or fails here. The same said in several places is one row."""
    bad = frame[frame["verdict"].isin(BAD)]
    merged = bad.groupby(["verdict", "printed", "reason"], sort=False, as_index=False)
    merged = merged.agg(
        {
            "where": lambda places: "; ".join(dict.fromkeys(places)),
            "rebuilt": "first",
            "measured_on": "first",
            "id": "first",
        }
    )
    return merged.sort_values("verdict", key=lambda column: column.map(BAD.index), kind="stable")


MOST_PLACES = 4
"""Of the paper that an answer names."""


def answer(frame: pd.DataFrame) -> dict[str, str]:
    """What holds of all that the paper prints, what fails and where, and what is open, in a line each."""
    good = [verdict for verdict in VERDICTS if verdict not in (*BAD, *OPEN)]
    lines = {head: _share(frame, verdicts) for head, verdicts in {"Holds": good, "Fails": BAD, "Open": OPEN}.items()}
    places = list(dict.fromkeys(frame["where"][frame["verdict"].isin((DIFFERS, FAILS))]))
    if places:
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        lines["Fails"] += f"; what was rebuilt disagrees with {'; '.join(places[:MOST_PLACES])}{more}"
    return lines


def _share(frame: pd.DataFrame, verdicts: Sequence[str]) -> str:
    found = frame["verdict"].value_counts()
    parts = [f"{verdict} {found[verdict]:,}" for verdict in verdicts if verdict in found]
    count = int(found.reindex(verdicts, fill_value=0).sum())
    return f"{count:,} of {len(frame):,} numbers and claims" + f": {', '.join(parts)}" * bool(parts)


def overview(frame: pd.DataFrame) -> str:
    """Counts by verdict and kind."""
    text: str = counts(frame).rename_axis(index=None, columns=None).to_string()
    return text


def summary(frame: pd.DataFrame) -> str:
    """The same, then a line for each disagreement."""
    lines = [overview(frame)]
    for verdict, rows in disagreements(frame).groupby("verdict", sort=False):
        lines += ["", f"{verdict}:"]
        lines += [f"  {row['where']}: {_shown(row)}{row['reason']}" for row in rows.to_dict("records")]
    return "\n".join(lines) + "\n"


def _shown(row: Mapping[str, Any]) -> str:
    return f"{row['printed']}: " if row["printed"] != NONE else ""


WIDTHS = {"where": 110, "printed": 38, "reason": 330}
"""In points, of the columns of the table of disagreements."""
LINES = 60
"""Of that table that a page takes below a caption."""


def macros(frame: pd.DataFrame) -> str:
    """\\printed{id} and \\verdict{id} of an entry, \\ledger{verdict} for how many have it; a wrong name stops LaTeX."""
    content = {
        "printed": dict(zip(frame["id"], frame["printed"], strict=True)),
        "verdict": dict(zip(frame["id"], frame["verdict"], strict=True)),
        "ledger": {"all": len(frame), **frame["verdict"].value_counts().reindex(VERDICTS, fill_value=0)},
    }
    lines = []
    for command, values in content.items():
        found = rf"\csname {command}:#1\endcsname"
        missing = rf"\errmessage{{The ledger has no {command} named #1}}"
        lines += [rf"\providecommand{{\{command}}}[1]{{\ifcsname {command}:#1\endcsname{found}\else{missing}\fi}}"]
        lines += [rf"\expandafter\def\csname {command}:{k}\endcsname{{{escape(v)}}}" for k, v in values.items()]
    return "\n".join(lines) + "\n"


def counts_latex(frame: pd.DataFrame, scale: str) -> str:
    """A table of how many entries of each kind have each verdict."""
    return _counts_table(frame, scale).latex()


def disagreements_latex(frame: pd.DataFrame, scale: str) -> str:
    """A table of what does not agree, which goes on in further ones where a page does not take it."""
    rows = disagreements(frame).to_dict("records")
    pages: list[list[dict[str, Any]]] = [[]]
    for row in rows:
        if sum(map(_lines, pages[-1])) + _lines(row) > LINES - 2 * len(BAD):  # a line and a rule above each verdict
            pages.append([])
        pages[-1].append(row)
    tables = [_disagreements_table(page, scale, number) for number, page in enumerate(pages, start=1)]
    return "\n".join(table.latex() for table in tables)


def _counts_table(frame: pd.DataFrame, scale: str) -> Table:
    table = counts(frame)
    rows = [[escape(verdict), *map(str, row)] for verdict, row in zip(table.index, table.to_numpy(), strict=True)]
    caption = f"Verdicts on every number and claim that the paper prints, at the scale {escape(scale)}"
    columns = [Column("Verdict", "l"), *(Column(kind.capitalize()) for kind in table.columns)]
    return Table("claims", caption, columns, [Group(rows[:-1]), Group(rows[-1:])], table)


def _lines(row: Mapping[str, Any]) -> int:
    return max(len(textwrap.wrap(row[name], int(width / CHARACTER_POINTS))) for name, width in WIDTHS.items())


def _disagreements_table(rows: Sequence[Mapping[str, Any]], scale: str, number: int) -> Table:
    columns = [Column(name.capitalize(), rf"p{{{width}pt}}") for name, width in WIDTHS.items()]
    groups = []
    for verdict, members in itertools.groupby(rows, key=lambda row: row["verdict"]):
        cells = [[rf"\rightskip 0pt plus 3em {escape(row[name])}" for name in WIDTHS] for row in members]
        groups.append(Group([[bold(verdict.capitalize()), "", ""], *cells]))
    name = "disagreements" if number == 1 else f"disagreements-{number}"
    caption = f"What contradicts itself, differs or fails at the scale {escape(scale)}"
    return Table(name, caption + (", continued" if number > 1 else ""), columns, groups, pd.DataFrame(rows))
