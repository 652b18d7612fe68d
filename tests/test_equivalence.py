"""Equivalence to FP32: tests against their formulas, corrections by hand, verdicts, and what cannot be tested."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_figures import Runs

from qlocaladam.analysis import equivalence
from qlocaladam.analysis.equivalence import compare, differences, holm, seeds_needed
from qlocaladam.cli import main

FP32 = (80.0, 82.0, 81.0, 79.0, 83.0)


def runs_of(**arms: Any) -> pd.DataFrame:
    """Runs of one data set: accuracies by arm, each seed its place; a final accuracy is a point below the best."""
    rows = [
        {"dataset": "digits", "alpha": "0.1", "arm": arm, "block_size": 64, "lr": 0.001, "seed": seed, "best": best}
        for arm, values in arms.items()
        for seed, best in enumerate(values)
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(final=frame["best"] - 1, classes=10)


def above(*shifts: float) -> list[float]:
    """Accuracies this far above those of FP32."""
    return [base + shift for base, shift in zip(FP32, shifts, strict=False)]


def row_of(table: pd.DataFrame, arm: str, statistic: str = "best") -> dict[str, Any]:
    (row,) = table[(table["arm"] == arm) & (table["statistic"] == statistic)].to_dict("records")
    return row


CLOSE = (0.5, -0.5, 0.25, 0.75, 0.0)


def test_a_comparison_is_what_the_formulas_say() -> None:
    row = row_of(compare(runs_of(fp32=FP32, arm=above(*CLOSE)), margin=2), "arm")
    # By hand: mean 0.2, sum of squares of deviations 0.925, so s^2 = 0.23125 and the standard error is sqrt(s^2 / 5).
    error = math.sqrt(0.925 / 4 / 5)
    assert row["difference"] == pytest.approx(0.2)
    assert row["difference_std"] == pytest.approx(math.sqrt(0.23125))
    assert (row["n"], row["seeds"], row["mean"], row["baseline_mean"]) == (5, "0 1 2 3 4", 81.2, 81.0)
    # Quantiles of Student's t with 4 degrees of freedom as tables print them.
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.2 - 2.7764 * error, 0.2 + 2.7764 * error), abs=1e-4)
    assert (row["tost_ci_low"], row["tost_ci_high"]) == pytest.approx(
        (0.2 - 2.1318 * error, 0.2 + 2.1318 * error), abs=1e-4
    )
    assert row["p"] == pytest.approx(2 * stats.t.sf(0.2 / error, 4))
    assert row["tost_p"] == pytest.approx(stats.t.sf((2 - 0.2) / error, 4))  # the nearer end of the margin
    assert (row["margin"], row["comparisons"], row["verdict"]) == (2, 1, "equivalent")
    assert pd.isna(row["reason"])


def test_pairs_are_what_scipy_calls_related_samples() -> None:
    ours = above(-3, -1, -4, -1.5, -9)
    row = row_of(compare(runs_of(fp32=FP32, arm=ours), margin=2), "arm")
    assert row["p"] == pytest.approx(stats.ttest_rel(ours, FP32).pvalue)
    lower = stats.ttest_rel(np.add(ours, 2), FP32, alternative="greater").pvalue
    upper = stats.ttest_rel(np.subtract(ours, 2), FP32, alternative="less").pvalue
    assert row["tost_p"] == pytest.approx(max(lower, upper))
    assert lower > upper, "the arm is below: the lower end decides"


def test_the_order_of_runs_does_not_matter_and_seeds_are_paired() -> None:
    runs = runs_of(fp32=FP32, arm=above(*CLOSE))
    mixed = runs.sample(frac=1, random_state=1)
    wanted, found = (row_of(compare(given, margin=2), "arm") for given in (runs, mixed))
    assert found["tost_p"] == pytest.approx(wanted["tost_p"])
    pairs = differences(mixed).query("arm == 'arm' and statistic == 'best'").sort_values("seed")
    assert pairs["difference"].tolist() == pytest.approx(list(CLOSE))
    assert pairs["baseline_accuracy"].tolist() == list(FP32)


def test_only_seeds_that_both_have_are_compared() -> None:
    runs = runs_of(fp32=FP32[:4], arm=above(*CLOSE))
    row = row_of(compare(runs[runs["seed"] > 0], margin=2), "arm")
    assert (row["n"], row["seeds"], row["runs"]) == (3, "1 2 3", 4)
    assert row["difference"] == pytest.approx((-0.5 + 0.25 + 0.75) / 3)


def test_holm_by_hand() -> None:
    # 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 may not be below the one before.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([0.01, math.nan, 0.02]) == pytest.approx([0.02, math.nan, 0.02], nan_ok=True)
    assert holm([]) == []


def test_every_comparison_of_the_table_counts_and_each_statistic_is_corrected_alone() -> None:
    arms = {f"arm{i}": above(*np.multiply(CLOSE, 1 + i)) for i in range(3)}
    cells = [runs_of(fp32=FP32, **arms).assign(dataset=name) for name in ("digits", "text")]
    table = compare(pd.concat(cells), margin=2)
    for _, same in table[table["arm"] != "fp32"].groupby("statistic"):
        assert same["comparisons"].tolist() == [6] * 6
        assert same["tost_p_holm"].tolist() == pytest.approx(holm(same["tost_p"].tolist()))
        assert same["p_holm"].tolist() == pytest.approx(holm(same["p"].tolist()))
        assert same["tost_p_holm"].min() == pytest.approx(6 * same["tost_p"].min())


@pytest.mark.parametrize(
    ("shifts", "verdict"),
    [
        (CLOSE, "equivalent"),
        ((-1.0, -1.1, -0.9, -1.05, -0.95), "equivalent"),  # though certainly not the same
        ((-70, -72, -68, -71, -69), "worse"),
        ((5, 5.2, 4.8, 5.1, 4.9), "better"),
        ((-1.9, -2.1, -2.0, -1.8, -1.95), "worse"),  # on the margin, so not within it
        ((-6, 5, 3, -4, 1), "undecided"),
    ],
)
def test_verdicts(shifts: tuple[float, ...], verdict: str) -> None:
    assert row_of(compare(runs_of(fp32=FP32, arm=above(*shifts)), margin=2), "arm")["verdict"] == verdict


def test_a_correction_can_take_a_verdict_back() -> None:
    nearly = above(0.9, 2.1, 0.2, -0.6, 0.4)
    assert row_of(compare(runs_of(fp32=FP32, arm=nearly), margin=2), "arm")["verdict"] == "equivalent"
    others = {f"other{i}": above(-6, 5, 3, -4, 1) for i in range(9)}
    row = row_of(compare(runs_of(fp32=FP32, arm=nearly, **others), margin=2), "arm")
    assert row["tost_p"] < 0.05 < row["tost_p_holm"]
    assert row["verdict"] == "undecided"


def test_the_margin_decides() -> None:
    runs = runs_of(fp32=FP32, arm=above(-2.9, -3.1, -3.0, -3.2, -2.8))
    assert [row_of(compare(runs, margin), "arm")["verdict"] for margin in (2, 4)] == ["worse", "equivalent"]
    for nonsense in (0, -1, math.nan):
        with pytest.raises(ValueError, match="margin must be above 0 percentage points, got"):
            compare(runs, nonsense)


def test_the_baseline_is_described_and_not_tested() -> None:
    row = row_of(compare(runs_of(fp32=FP32, arm=above(*CLOSE)), margin=2), "fp32")
    assert (row["n"], row["mean"], row["runs"], row["collapsed"]) == (5, 81.0, 5, 0)
    assert row["std"] == pytest.approx(math.sqrt(2.5))
    for name in ("difference", "p", "tost_p", "verdict", "margin", "comparisons", "seeds_needed", "reason"):
        assert pd.isna(row[name]), name


def test_any_arm_can_be_the_baseline() -> None:
    runs = runs_of(fp32=FP32, arm=above(*CLOSE))
    forth, back = (compare(runs, 2, baseline) for baseline in ("fp32", "arm"))
    assert pd.isna(row_of(back, "arm")["difference"])
    assert row_of(back, "fp32")["difference"] == -row_of(forth, "arm")["difference"]
    assert row_of(back, "fp32")["tost_p"] == pytest.approx(row_of(forth, "arm")["tost_p"])
    assert differences(runs, "arm")["baseline_accuracy"].tolist()[:5] == above(*CLOSE)


@pytest.mark.parametrize(
    ("fp32", "arm", "reason", "difference"),
    [
        (FP32[:1], [81.0], "one seed: nothing to test", 1.0),
        (FP32, above(0.1, 0.1, 0.1), "the difference is the same for every seed: nothing to test", 0.1),
        (FP32, FP32, "the difference is the same for every seed: nothing to test", 0.0),
        (FP32, above(1, math.nan, 2), "a run diverged before it had an accuracy: nothing to test", math.nan),
        ((80.0, math.nan), (80.0, 81.0), "a run diverged before it had an accuracy: nothing to test", math.nan),
        ((), (80.0, 81.0), "no fp32 run with one of its seeds to compare with", math.nan),
    ],
)
def test_what_cannot_be_tested_is_undecided_and_says_why(
    fp32: tuple[float, ...], arm: list[float], reason: str, difference: float
) -> None:
    table = compare(runs_of(fp32=fp32, arm=arm, other=above(*CLOSE)), margin=2)
    row = row_of(table, "arm")
    assert (row["verdict"], row["reason"]) == ("undecided", reason)
    assert row["difference"] == pytest.approx(difference, nan_ok=True)
    for name in ("p", "p_holm", "tost_p", "tost_p_holm", "ci_low", "tost_ci_high", "seeds_needed"):
        assert pd.isna(row[name]), name
    tested = int(table[table["statistic"] == "best"]["p"].notna().sum())
    assert row["comparisons"] == tested, "what was not tested corrects nothing"


def test_collapsed_runs_are_counted_by_their_end() -> None:
    runs = runs_of(fp32=FP32, arm=(80.0, 12.0, 20.9, 21.0, 60.0))  # final ones are a point below
    table = compare(runs, margin=2)
    assert (row_of(table, "arm")["runs"], row_of(table, "arm")["collapsed"]) == (5, 2)
    assert row_of(table, "arm", "final")["collapsed"] == 2


def test_final_accuracies_are_compared_beside_the_best() -> None:
    runs = runs_of(fp32=FP32, arm=above(*CLOSE))
    runs.loc[runs["arm"] == "arm", "final"] = above(-70, -72, -68, -71, -69)
    table = compare(runs, margin=2)
    assert list(table["statistic"]) == ["best", "best", "final", "final"]
    assert [row_of(table, "arm", statistic)["verdict"] for statistic in ("best", "final")] == ["equivalent", "worse"]
    assert row_of(table, "arm", "final")["difference"] == pytest.approx(-69)  # FP32 ends a point below its best


@pytest.mark.parametrize("name", ["block_size", "lr"])
def test_runs_that_differ_in_more_than_the_seed_are_refused(name: str) -> None:
    runs = runs_of(fp32=FP32, arm=above(*CLOSE))
    runs.loc[runs.index[-1], name] = 128
    with pytest.raises(ValueError, match=f"{name} must be the same in all runs of digits, 0.1, arm, got"):
        compare(runs, margin=2)
    with pytest.raises(ValueError, match=r"seed must be different in every run of digits, 0\.1, fp32"):
        compare(pd.concat([runs_of(fp32=FP32)] * 2), margin=2)


# How many seeds it would take.


@pytest.mark.parametrize(("difference", "deviation", "level"), [(0.5, 1.5, 0.05), (-1, 1, 0.0025), (3, 4, 0.05)])
def test_so_many_seeds_decide_four_times_in_five_and_one_fewer_do_not(
    difference: float, deviation: float, level: float
) -> None:
    needed = seeds_needed(difference, deviation, 2, level)
    assert needed is not None
    for count, enough in ((needed, True), (needed - 1, False)):
        draws = np.random.default_rng(7).normal(difference, deviation, (100_000, count))
        error = draws.std(axis=1, ddof=1) / math.sqrt(count)
        if abs(difference) < 2:
            far = np.minimum(draws.mean(axis=1) + 2, 2 - draws.mean(axis=1)) / error
            decided = far > stats.t.isf(level, count - 1)
        else:
            decided = np.abs(draws.mean(axis=1)) / error > stats.t.isf(level / 2, count - 1)
        assert (decided.mean() >= 0.8 - 0.005) == enough


def test_many_seeds_are_as_many_as_the_normal_distribution_says() -> None:
    needed = seeds_needed(1.99, 1, 2)
    quantiles = stats.norm.isf(0.05) + stats.norm.isf(0.2)
    assert needed == pytest.approx((quantiles / 0.01) ** 2, rel=1e-3)


def test_seeds_needed_at_the_ends() -> None:
    assert seeds_needed(0, 1e-6, 2) == 2
    assert seeds_needed(-70, 1e-6, 2) == 2
    assert seeds_needed(1.9999, 5, 2) is None, "hundreds of millions"
    assert seeds_needed(2, 1, 2) == seeds_needed(-2, 1, 2) is not None, "on the margin it is to be told from 0"
    for unknown in (0, math.nan):
        assert seeds_needed(0.1, unknown, 2) is None
    counts = [seeds_needed(0.5, 1, 2, 0.05 / comparisons) for comparisons in (1, 5, 20)]
    assert counts == sorted(set(counts)), "more comparisons need more seeds"


def test_a_table_counts_its_comparisons_in_the_seeds_it_needs() -> None:
    arms = {f"arm{i}": above(-6, 5, 3, -4, 1) for i in range(4)}
    row = row_of(compare(runs_of(fp32=FP32, **arms), margin=2), "arm0")
    wanted = seeds_needed(row["difference"], row["difference_std"], 2, 0.05 / 4)
    assert row["seeds_needed"] == wanted > seeds_needed(row["difference"], row["difference_std"], 2)


# As a command.


def test_the_command_writes_tests_and_pairs_the_same_twice(tmp_path, capsys) -> None:
    runs = Runs(tmp_path / "runs")
    cells = itertools.product(("fp32", "normalised"), enumerate(FP32))
    found = runs(*({"arm": arm, "seed": seed, "accuracy": [base + seed, base]} for arm, (seed, base) in cells))
    found = [*found["folder"]]
    for name in ("one", "two"):
        assert main(["analyse", "equivalence", "--runs", *found, "--out", str(tmp_path / name)]) == 0
    for file in ("equivalence.csv", "differences.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    table = pd.read_csv(tmp_path / "one/equivalence.csv", dtype=str, keep_default_na=False)
    assert tuple(table) == equivalence.COLUMNS
    (row,) = table[(table["arm"] == "normalised") & (table["statistic"] == "final")].to_dict("records")
    assert (row["margin"], row["n"], row["difference"], row["seeds_needed"]) == ("2.0", "5", "0.0", "")
    assert row["reason"] == "the difference is the same for every seed: nothing to test"
    assert len(pd.read_csv(tmp_path / "one/differences.csv")) == 20
    with pytest.raises(SystemExit):
        main(["analyse", "equivalence", "--runs", *found, "--margin", "0", "--out", str(tmp_path / "three")])
    assert "margin must be above 0 percentage points, got 0.0" in capsys.readouterr().err
