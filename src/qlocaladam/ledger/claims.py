"""The ledger of claims: every number that the paper prints, beside what was computed here, with a verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd
import scipy  # its parts are loaded when they are used: every snakemake reads this file

from qlocaladam.experiments.grid import as_list
from qlocaladam.experiments.runs import METRICS, collapse_bound
from qlocaladam.ledger.form import WAYS
from qlocaladam.ledger.intervals import TESTS, Entry, Interval, bounds, corners, of_entry, plain

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
COLUMNS = (
    *("id", "where", "kind", "unit", "printed", "rebuilt", "difference", "measured_on", "verdict", "reason", "file"),
)
PAPER_SCALE = "paper"
LEDGER_FILE = "paper/published.yaml"

Numbers = Mapping[str, Mapping[str, Any]]


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

    def number_of(self, of: Mapping[str, Any]) -> Any:
        return next(number["value"] for number in self.numbers.values() if number["of"] == of)

    def of_run(self, name: str) -> bool:
        """Whether a number is the accuracy of a run, or its distance from that of another."""
        of = self.numbers[name]["of"] if name in self.numbers else {}
        return "seed" in of and of["quantity"] in METRICS

    @cached_property
    def by_seed(self) -> dict[Run, dict[int, Any]]:
        """What runs that differ in nothing but their seed came to."""
        results: dict[Run, dict[int, Any]] = {}
        for number in self.numbers.values():
            if "seed" in number["of"]:
                results.setdefault(_run(number["of"]), {})[number["of"]["seed"]] = number["value"]
        return results

    def measured_on(self, *names: str) -> str:
        data = (self.numbers.get(name, {}).get("measured_on", "") for name in names)
        return ", ".join(dict.fromkeys(filter(None, data)))

    def named(self, names: Sequence[str], most: int = 5) -> str:
        """What is printed there, with the places; of many only how many."""
        entries = [self.published[name] for name in names]
        if len(entries) > most:
            return f"{len(entries)} numbers ({entries[0]['where']})"
        places = itertools.groupby(entries, key=lambda entry: entry["where"])
        return ", ".join(f"{', '.join(entry['printed'] for entry in group)} ({place})" for place, group in places)

    def sample(self, name: str) -> Sample:
        """All seeds of the run that a number is of."""
        from qlocaladam.ledger.verdicts import Sample

        of = self.numbers[name]["of"]
        results, finals = self.by_seed[_run(of)], self.by_seed.get(_run({**of, "quantity": "final", "over": None}), {})
        bound = collapse_bound(self.value(f"setting/{of['dataset']}/chance"))
        lost = any((final := finals.get(seed)) is None or final < bound for seed in results)
        values = {seed: value for seed, value in results.items() if value is not None}
        return Sample(values, _setting(of), lost, frozenset(results.keys() - values.keys()))

    def residuals(self, metric: str) -> Residuals:
        """How far a metric scatters, by setting."""
        from qlocaladam.ledger.verdicts import Residual

        by_setting: dict[str, dict[str, float]] = {}
        for number in self.numbers.values():
            of = number["of"]
            if of.get("kind") == "residual" and of["metric"] == metric:
                by_setting.setdefault(_setting(of), {})[of["quantity"]] = number["value"]
        return {setting: Residual(**parts) for setting, parts in by_setting.items() if parts["variance"]}


Run = frozenset[tuple[str, Any]]


def _run(of: Mapping[str, Any]) -> Run:
    """What a number is of but for the seed."""
    return frozenset((name, value) for name, value in of.items() if name != "seed" and value is not None)


def _setting(of: Mapping[str, Any]) -> str:
    return f"{of['dataset']}/{of['alpha']}"


def judge(published: Sequence[Entry], numbers: Numbers, scale: str) -> pd.DataFrame:
    """A row for each entry. `numbers` is numbers.json; the difference is what was found here less what is printed."""
    for name, number in numbers.items():
        if "of" not in number:
            raise ValueError(f"numbers.json: {name} lacks 'of', what it is of; `snakemake numbers` makes it again")
    evidence = Evidence({entry["id"]: entry for entry in published}, numbers, scale)
    rows = [{**entry, **vars(_judged(evidence, entry))} for entry in published]
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)  # counts stay whole beside what is not


def _judged(evidence: Evidence, entry: Entry) -> Finding:
    """A contradiction, where one is found; or else what was computed here, where it was."""
    findings = [FIND[way](evidence, entry) for way in WAYS if way in entry]
    return next((finding for finding in findings if finding.verdict == CONTRADICTS), findings[-1])


def _from(evidence: Evidence, entry: Entry) -> Finding:
    """Whether a printed number follows from others, in any of the ways it is said to."""
    of, hows = entry["from"]["of"], as_list(entry["from"]["how"])
    if hows == ["same"]:
        return _repeated(evidence, entry, evidence.published[of[0]])
    intervals = {how: bounds(how, [of_entry(evidence.published[name]) for name in of]) for how in hows}
    printed, value = of_entry(entry), next(iter(intervals.values())).value
    if entry.get("cut"):
        printed = printed.cut()
    words = f"{_spelled(intervals)} of {evidence.named(of)}"
    difference = printed.distance(value)
    if any(printed.overlaps(bounds) for bounds in intervals.values()):
        return Finding(CONSISTENT, words, value, difference)
    return Finding(CONTRADICTS, _said(entry, words), value, difference)


def _repeated(evidence: Evidence, entry: Entry, other: Entry) -> Finding:
    """Whether what is printed in two places is the same, to the digits that both have, or in the same words."""
    named, value, difference = evidence.named([other["id"]]), None, None
    if entry["unit"] == "words":
        equal = entry["printed"].casefold() == other["printed"].casefold()
    else:
        printed, first = of_entry(entry), of_entry(other)
        equal, value, difference = printed.overlaps(first), first.value, printed.distance(first.value)
    if equal:
        return Finding(CONSISTENT, f"as {named}", value, difference)
    return Finding(CONTRADICTS, _said(entry, f"{named}, not {entry['printed']}"), value, difference)


def _spelled(intervals: Mapping[str, Interval]) -> str:
    return ", ".join(f"{how.replace('_', ' ')} {plain(bounds.value)}" for how, bounds in intervals.items())


def _said(entry: Entry, words: str) -> str:
    return f"{entry['says']}: {words}" if "says" in entry else words


def _check(evidence: Evidence, entry: Entry) -> Finding:
    """Whether a claim is true of the printed numbers, wherever in their bounds they lie."""
    how, of, options = _parts(entry["check"])
    within = corners([of_entry(evidence.published[name]) for name in of])
    contradicted = all(TESTS[how](*corner, **options) is False for corner in within)
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
    printed = of_entry(entry)
    verdict, reason = _compared(evidence, entry, printed, float(value))
    if "also" in entry:
        other = evidence.value(entry["also"]["name"])
        reason += f"; {entry['also']['says']}: {plain(other) if other is not None else 'not run'}"
    file, on = evidence.numbers[name]["file"], evidence.measured_on(name)
    return Finding(verdict, reason, value, printed.distance(value), file, on)


def _compared(evidence: Evidence, entry: Entry, printed: Interval, value: float) -> tuple[str, str]:
    equal = printed.overlaps(Interval(value, value, value))
    if entry.get("cut"):
        equal = printed.value <= value < printed.cut().high
    elsewhere = evidence.scale != PAPER_SCALE
    rebuilt = f"{plain(value)} {_here(evidence, entry['rebuilt'])}"
    if entry["kind"] == "trained" and elsewhere:
        return NOT_COMPARABLE, f"needs training at the paper's scale{_behind(evidence, entry)}"
    if equal:
        verdict = PRECISE if entry["kind"] == "trained" else EXACT
        cut = f", cut off: {plain(value)}" if entry.get("cut") and not math.isclose(value, printed.value) else ""
        return verdict, f"equal to the last printed digit{cut}"
    if "recipe" in entry:
        return CONTRADICTS, f"{entry['recipe']}, which gives {plain(value)}, not {entry['printed']}"
    if entry["kind"] == "trained" and _within_seeds(evidence, entry["rebuilt"], printed):
        return SPREAD, rebuilt
    if evidence.numbers[entry["rebuilt"]]["of"].get("kind") == "setting" and elsewhere:
        return NOT_COMPARABLE, f"{rebuilt}: a setting of the scale {evidence.scale}"
    return DIFFERS, _said(entry, rebuilt)


def _within_seeds(evidence: Evidence, name: str, printed: Interval) -> bool:
    """Whether a printed number lies where it would come out with other seeds, with a confidence of 95 %."""
    of, run = evidence.numbers[name]["of"], evidence.of_run(name)
    if not run and (of.get("kind"), of["quantity"]) != ("significance", "mean"):
        return False
    residual = evidence.residuals(of["quantity"] if run else "best").get(_setting(of))
    if residual is None:
        return False
    # Two runs differ by chance; two differences of two runs by twice as much; two means over seeds by less.
    runs = (4 if "over" in of else 2) if run else 2 / evidence.number_of({**of, "quantity": "n"})
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


def _test(evidence: Evidence, entry: Entry) -> Finding:
    """Whether a claim is true of what was computed here: of runs over all of their seeds, of the rest as it is."""
    how, of, options = _parts(entry["test"])
    values = [evidence.value(name) for name in of]
    missing = [name for name, value in zip(of, values, strict=True) if value is None]
    if missing:
        return Finding(NOT_RUN, f"{', '.join(missing[:3])} {'was' if len(missing) == 1 else 'were'} not made")
    if evidence.of_run(of[0]):
        from qlocaladam.ledger import verdicts  # needs scipy.stats, which every snakemake would have to wait for

        runs, first = list(filter(evidence.of_run, of)), evidence.numbers[of[0]]["of"]
        residuals = {} if "over" in first else evidence.residuals(first["quantity"])
        if how in ("collapsed", "not_collapsed"):
            options["chance"] = values[1]
        outcome, words = verdicts.judge(how, list(map(evidence.sample, runs)), residuals, options)
        shown = f"; {words}"
    else:
        outcome, shown = TESTS[how](*values, **options), ""
    verdict = UNDECIDED if outcome is None else HOLDS if outcome else FAILS
    numbers = ", ".join(map(plain, values)) if len(values) <= 10 else f"{len(values)} numbers"
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
