"""Claims about runs: with no difference at most 5 % are decided wrongly, and real differences are found."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from qlocaladam.paper import claims, verdicts
from qlocaladam.paper.verdicts import Residual, Sample

SIMULATIONS = 1000
ARMS = 6
"""Whose runs say together how far runs scatter."""
MOST = stats.binom.isf(1e-3, SIMULATIONS, 0.05) / SIMULATIONS
"""A judge that errs in 5 % of the cases is above this once in a thousand."""


def simulated(rng: np.random.Generator, seeds: int, shifts: list[float], deviation: float = 1.0):
    """Samples of arms whose true accuracies are 50 and these shifts, and the residual of their setting."""
    blocks = rng.normal(0, 2, seeds)
    noise = rng.normal(0, deviation, (ARMS, seeds))
    values = 50 + blocks + noise + np.array([*shifts, *[0.0] * (ARMS - len(shifts))])[:, None]
    centred = values - values.mean(0) - values.mean(1, keepdims=True) + values.mean()
    freedom = (ARMS - 1) * (seeds - 1)
    residual = Residual(float((centred**2).sum() / freedom), freedom)
    return [Sample(dict(enumerate(row)), "d/0.1", False) for row in values[: len(shifts)]], {"d/0.1": residual}


def decided(
    how: str, seeds: int, shifts: list[float], paired: bool = False, **options: float
) -> dict[bool | None, float]:
    """The share of simulations that come to each verdict."""
    rng = np.random.default_rng([seeds, len(shifts), len(how)])
    counts: dict[bool | None, int] = {True: 0, False: 0, None: 0}
    for _ in range(SIMULATIONS):
        samples, residuals = simulated(rng, seeds, shifts)
        counts[verdicts.judge(how, samples, {} if paired else residuals, options).holds] += 1
    return {verdict: count / SIMULATIONS for verdict, count in counts.items()}


@pytest.fixture(autouse=True)
def without_words(monkeypatch):
    """What a verdict is said with takes most of its time."""
    monkeypatch.setattr(verdicts, "_words", lambda found: "")


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("others", [1, 3])
def test_without_a_difference_at_most_one_in_twenty_is_decided(seeds, paired, others):
    found = decided("greater", seeds, [0.0] * (1 + others), paired)
    assert found[True] + found[False] <= MOST


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("how", ["not_less", "monotone", "equivalent"])
def test_without_a_difference_at_most_one_in_twenty_is_denied(seeds, how):
    assert decided(how, seeds, [0.0, 0.0])[False] <= MOST


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize(("how", "shift"), [("not_less", -2.5), ("equivalent", -2.5), ("equivalent", 2.5)])
def test_on_the_margin_at_most_one_in_twenty_is_within(seeds, how, shift):
    assert decided(how, seeds, [shift, 0.0])[True] <= MOST


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_what_is_as_far_apart_as_the_bound_is_decided_wrongly_in_one_of_twenty(seeds):
    found = decided("close", seeds, [0.8, 0.0], bound=0.8)
    assert found[True] + found[False] <= MOST


@pytest.mark.parametrize(
    ("how", "shifts", "verdict"),
    [
        ("greater", [4.0, 0.0, 0.0], True),
        ("greater", [-4.0, 0.0, 0.0], False),
        ("not_less", [-5.0, 0.0], False),
        ("not_less", [1.0, 0.0], True),
        ("monotone", [0.0, 2.0, 4.0], True),
        ("monotone", [0.0, 2.0, -4.0], False),
        ("equivalent", [4.0, 0.0], False),
    ],
)
def test_real_differences_are_found(how, shifts, verdict):
    assert decided(how, 5, shifts)[verdict] > 0.8
    assert decided(how, 5, shifts)[not verdict] < 0.001


def test_equivalence_is_found_with_ten_seeds():
    assert decided("equivalent", 10, [0.0, 0.0])[True] > 0.8


@pytest.mark.parametrize("how", ["greater", "not_less", "monotone", "equivalent"])
def test_one_seed_decides_nothing(how):
    one = [Sample({42: value}, "d/0.1", False) for value in (10.0, 90.0)]
    assert verdicts.judge(how, one, {"d/0.1": Residual(1.0, 9)}, {}) == (None, "one seed: nothing decides")


@pytest.mark.parametrize(("values", "holds"), [((9.0, 8.0), True), ((9.0, 50.0), None), ((60.0, 50.0), False)])
def test_collapse_is_a_matter_of_all_seeds(values, holds):
    samples = [Sample(dict(enumerate(values)), "d/0.1", True)]
    assert verdicts.judge("collapsed", samples, {}, {"chance": 10.0}).holds is holds
    denied = None if holds is None else not holds
    assert verdicts.judge("not_collapsed", samples, {}, {"chance": 10.0}).holds is denied
    assert verdicts.judge("collapsed", [Sample({1: 9.0}, "d/0.1", True)], {}, {"chance": 10.0}).holds is None


def test_an_arm_that_collapsed_has_a_variance_of_its_own():
    sound, lost = (Sample({1: 50.0, 2: 52.0, 3: 51.0}, "d/0.1", collapsed) for collapsed in (False, True))
    other = Sample({1: 49.0, 2: 50.0, 3: 51.5}, "d/0.1", False)
    residuals = {"d/0.1": Residual(4.0, 20)}
    assert verdicts.contrast(sound, other, residuals).freedom == 20
    paired = verdicts.contrast(lost, other, residuals)
    assert (paired.freedom, paired.p) == (2, pytest.approx(stats.ttest_rel([50, 52, 51], [49, 50, 51.5]).pvalue))


def test_the_ledger_itself_errs_in_at_most_one_of_twenty():
    """Through numbers.json and the judge of the whole ledger, with no difference between any two arms."""
    rng = np.random.default_rng(7)
    entry = {"id": "a", "where": "w", "printed": "--", "unit": "words", "kind": "claim", "says": "above"}
    entry["test"] = {"how": "greater", "of": ["best/d/0.1/q-localadam", "best/d/0.1/fp32"]}
    wrong = 0
    for _ in range(SIMULATIONS):
        samples, residuals = simulated(rng, 3, [0.0, 0.0])
        numbers = {"setting/seed": 0, "setting/d/chance": 10.0}
        for arm, sample in zip(("q-localadam", "fp32"), samples, strict=True):
            for seed, value in sample.values.items():
                name = f"d/0.1/{arm}" + (f"/seed={seed}" if seed else "")
                numbers |= {f"best/{name}": value, f"final/{name}": value}
        numbers |= {f"residual/best/d/0.1/{part}": value for part, value in residuals["d/0.1"]._asdict().items()}
        made = {name: {"value": value, "file": "f", "measured_on": ""} for name, value in numbers.items()}
        (verdict,) = claims.judge([entry], made, "quick")["verdict"]
        wrong += verdict != claims.UNDECIDED
    assert wrong / SIMULATIONS <= MOST
