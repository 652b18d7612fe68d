"""Arms against a baseline: the linear model by hand, intervals and tests on simulated runs, what cannot be tested."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from command_line import refused
from scipy import stats
from simulated_runs import Runs

from qlocaladam.analysis import contrasts as module
from qlocaladam.analysis.contrasts import Contrast, compare, contrasts, differences, seeds_needed
from qlocaladam.cli import main
from qlocaladam.experiments.grid import AS_IN_THE_PAPER
from qlocaladam.experiments.runs import METRICS

FP32 = (80.0, 82.0, 81.0, 79.0, 83.0)
CLOSE = (0.5, -0.5, 0.25, 0.75, 0.0)
FALLS = (-70.0, -72.0, -68.0, -71.0, -69.0)
"""Where the arm ends near 11 %: collapsed, with ten classes."""


def runs_of(**arms):
    """Runs of one data set: accuracies over the last third by arm, each seed its place; other metrics lie around it."""
    rows = [
        {
            "dataset": "digits",
            "alpha": "0.1",
            "arm": arm,
            "block_size": 64,
            "lr": 0.001,
            "seed": seed,
            "last_third": value,
        }
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    frame = pd.DataFrame(rows)
    around = {name: frame["last_third"] + shift for name, shift in (("best", 2), ("final", -1), ("mean", -5))}
    return frame.assign(**around, **AS_IN_THE_PAPER, classes=10, diverged=False)


def above(*shifts):
    """Accuracies this far above those of FP32."""
    return [base + shift for base, shift in zip(FP32, shifts, strict=False)]


def row_of(table, arm, metric="last_third"):
    (row,) = table[(table["arm"] == arm) & (table["metric"] == metric)].to_dict("records")
    return row


def by_hand(values):
    """A balanced layout of arms by seeds, the first the baseline: differences, their standard error, its freedom."""
    arms, seeds = values.shape
    residuals = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    freedom = (arms - 1) * (seeds - 1)
    variance = (residuals**2).sum() / freedom
    return values.mean(axis=1)[1:] - values[0].mean(), math.sqrt(2 * variance / seeds), freedom


def test_a_balanced_layout_is_what_the_formulas_say():
    # Three arms, two seeds: means 81, 83 and 80, seeds 1 below and above; residuals 0, +-1 and +-1, squares sum to 4.
    runs = runs_of(fp32=(80.0, 82.0), one=(83.0, 83.0), two=(78.0, 82.0))
    wide = np.array([[80, 82], [83, 83], [78, 82]])
    found, error, freedom = by_hand(wide)
    assert (found.tolist(), freedom) == ([2, -1], 2)
    assert error == pytest.approx(math.sqrt(2 * (4 / 2) / 2))
    table = compare(runs, margin=0.05)
    row = row_of(table, "one")
    assert (row["difference"], row["error"], row["freedom"]) == pytest.approx((2, math.sqrt(2), 2))
    assert (row["n"], row["seeds"], row["mean"], row["baseline_mean"]) == (2, "0 1", 83.0, 81.0)
    assert (row["variance"], row["runs"], row["collapsed"]) == ("pooled", 2, 0)
    assert (row["margin"], row["wider_margin"]) == pytest.approx((4.05, 8.1)), "of the baseline's mean"
    # Quantiles of Student's t with 2 degrees of freedom as tables print them: 0.975, 0.9875 (two arms), 0.95.
    for name, quantile in (("ci", 4.3027), ("simultaneous", 6.2053), ("tost_ci", 2.9200)):
        ends = (2 - quantile * math.sqrt(2), 2 + quantile * math.sqrt(2))
        assert (row[f"{name}_low"], row[f"{name}_high"]) == pytest.approx(ends, abs=2e-4), name
    assert row["p"] == pytest.approx(2 * stats.t.sf(2 / math.sqrt(2), 2))
    assert row["tost_p"] == pytest.approx(stats.t.sf((4.05 - 2) / math.sqrt(2), 2)), "the nearer end of the margin"
    assert row["wider_tost_p"] == pytest.approx(stats.t.sf((8.1 - 2) / math.sqrt(2), 2))
    assert pd.isna(row["reason"])
    assert row_of(table, "two")["tost_p"] == pytest.approx(stats.t.sf((4.05 - 1) / math.sqrt(2), 2))


def test_one_arm_alone_is_a_paired_test():
    ours = above(-3, -1, -4, -1.5, -9)
    row = row_of(compare(runs_of(fp32=FP32, arm=ours), margin=2 / 81), "arm")
    assert row["variance"] == "pooled"
    assert row["p"] == pytest.approx(stats.ttest_rel(ours, FP32).pvalue)
    lower = stats.ttest_rel(np.add(ours, 2), FP32, alternative="greater").pvalue
    upper = stats.ttest_rel(np.subtract(ours, 2), FP32, alternative="less").pvalue
    assert row["tost_p"] == pytest.approx(max(lower, upper))
    assert lower > upper, "the arm is below: the lower end decides"


@pytest.mark.parametrize("how", ["collapsed", "diverged"])
def test_an_arm_with_a_lost_run_is_compared_by_pairs_and_leaves_the_others_alone(how):
    sound = {"fp32": FP32, "one": above(*CLOSE), "two": above(1, 2, 0, 1, 3)}
    lost = above(*FALLS) if how == "collapsed" else above(-20, -25, -30, -21, -22)
    runs = runs_of(**sound, lost=lost)
    if how == "diverged":
        runs.loc[(runs["arm"] == "lost") & (runs["seed"] == 3), "diverged"] = True
    table, without = compare(runs), compare(runs_of(**sound))
    row = row_of(table, "lost")
    assert (row["variance"], row["freedom"], row["n"]) == ("paired", 4, 5)
    assert row["collapsed"] == (5 if how == "collapsed" else 1)
    test = stats.ttest_rel(lost, FP32)
    assert row["p"] == pytest.approx(test.pvalue)
    interval = test.confidence_interval(0.95)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((interval.low, interval.high))
    for arm in ("one", "two"):
        there, alone = row_of(table, arm), row_of(without, arm)
        for name in ("difference", "error", "freedom", "p", "tost_p", "ci_low", "seeds_needed", "variance"):
            assert there[name] == pytest.approx(alone[name]) if name != "variance" else there[name] == "pooled", name
        assert there["simultaneous_low"] < alone["simultaneous_low"], "three intervals at once, not two"


def test_a_baseline_that_collapsed_leaves_nothing_to_pool():
    table = compare(runs_of(fp32=(80.0, 82.0, 11.0), one=(81.0, 80.0, 79.0), two=(80.0, 81.0, 82.0)))
    assert [row_of(table, arm)["variance"] for arm in ("one", "two")] == ["paired", "paired"]


def test_the_order_of_runs_does_not_matter_and_seeds_are_paired():
    runs = runs_of(fp32=FP32, arm=above(*CLOSE), other=above(3, 1, 2, 2, 4), lost=above(*FALLS))
    mixed = runs.sample(frac=1, random_state=1)
    wanted, found = compare(runs), compare(mixed)
    for arm, metric in itertools.product(("fp32", "arm", "other", "lost"), METRICS):
        one, two = row_of(wanted, arm, metric), row_of(found, arm, metric)
        one["seeds"], two["seeds"] = (" ".join(sorted(row["seeds"].split())) for row in (one, two))
        for name in wanted:
            same = pytest.approx(one[name], nan_ok=True) if isinstance(one[name], float) else one[name]
            assert two[name] == same or (pd.isna(one[name]) and pd.isna(two[name])), (arm, metric, name)
    pairs = differences(mixed).query("arm == 'arm' and metric == 'last_third'").sort_values("seed")
    assert pairs["difference"].tolist() == pytest.approx(list(CLOSE))
    assert pairs["baseline_accuracy"].tolist() == list(FP32)


def test_seeds_that_only_one_of_them_has_do_not_count():
    runs = runs_of(fp32=FP32[:4], arm=above(*CLOSE))
    row = row_of(compare(runs[runs["seed"] > 0]), "arm")
    assert (row["n"], row["runs"]) == (3, 4)
    assert row["difference"] == pytest.approx((-0.5 + 0.25 + 0.75) / 3), "seed 4 tells nothing about the arm"


@pytest.mark.parametrize("arm", ["fp32", "arm"])
def test_a_run_without_an_accuracy_is_named_and_its_arm_is_judged_by_itself(arm):
    runs = runs_of(fp32=FP32, arm=above(*CLOSE), other=above(1, 2, 0, 1, 3))
    runs.loc[(runs["arm"] == arm) & (runs["seed"] == 2), "last_third"] = math.nan
    table = compare(runs)
    row = row_of(table, "arm")
    assert (row["left_out"], row["n"], row["runs"], row["variance"]) == ("2", 4, 5, "paired")
    test = stats.ttest_rel(np.delete(above(*CLOSE), 2), np.delete(FP32, 2))
    assert row["p"] == pytest.approx(test.pvalue)
    other = row_of(table, "other")
    assert (other["left_out"], other["n"]) == (("2", 4) if arm == "fp32" else ("", 5))
    assert row_of(table, "arm", "best")["left_out"] == "", "it has others"


def test_a_seed_that_only_the_arm_has_is_named():
    row = row_of(compare(runs_of(fp32=FP32[:3], arm=above(*CLOSE))), "arm")
    assert (row["left_out"], row["n"], row["runs"]) == ("3 4", 3, 5)


def test_an_arm_that_scatters_more_than_the_others_stands_out():
    shifts = np.random.default_rng(5).normal(0, 0.3, (6, 5))
    arms = {f"arm{i}": above(*row) for i, row in enumerate(shifts)}
    table = compare(runs_of(fp32=FP32, **arms, wild=above(4, -5, 3, -4, 2), lost=above(*FALLS)))
    found = {arm: row_of(table, arm)["scatter_p"] for arm in table["arm"].unique()}
    assert found["wild"] < 0.05 < min(found[arm] for arm in arms)
    assert pd.isna(found["lost"]), "it is judged by itself"


def test_without_scatter_there_is_no_residual_variance():
    runs = runs_of(fp32=FP32, one=above(1, 1, 1, 1, 1), two=above(-2, -2, -2, -2, -2)).assign(lost=False)
    assert module.residual(runs, "last_third") == (None, 0), "a rounding error is none"
    gaps = runs_of(fp32=FP32, one=above(*CLOSE), two=above(3, math.nan, 2, 2, 4)).assign(lost=False)
    both = runs_of(fp32=FP32, one=above(*CLOSE)).assign(lost=False)
    assert module.residual(gaps, "last_third") == module.residual(both, "last_third")


def test_the_baseline_is_described_and_not_tested():
    row = row_of(compare(runs_of(fp32=FP32, arm=above(*CLOSE))), "fp32")
    assert (row["mean"], row["runs"], row["collapsed"], row["seeds"]) == (81.0, 5, 0, "0 1 2 3 4")
    assert row["std"] == pytest.approx(math.sqrt(2.5))
    for name in ("n", "difference", "p", "tost_p", "margin", "ci_low", "variance", "seeds_needed", "reason"):
        assert pd.isna(row[name]), name


def test_any_arm_can_be_the_baseline():
    runs = runs_of(fp32=FP32, arm=above(*CLOSE), other=above(3, 1, 2, 2, 4))
    forth, back = (compare(runs, 0.05, baseline) for baseline in ("fp32", "arm"))
    assert pd.isna(row_of(back, "arm")["difference"])
    assert row_of(back, "fp32")["difference"] == pytest.approx(-row_of(forth, "arm")["difference"])
    for name in ("error", "freedom", "p"):
        assert row_of(back, "fp32")[name] == pytest.approx(row_of(forth, "arm")[name])
    assert row_of(back, "fp32")["margin"] == pytest.approx(0.05 * np.mean(above(*CLOSE)))
    assert differences(runs, "arm")["baseline_accuracy"].tolist()[:5] == above(*CLOSE)


def test_every_metric_is_compared_by_itself():
    runs = runs_of(fp32=FP32, arm=above(*CLOSE))
    runs.loc[runs["arm"] == "arm", "best"] = above(12, 13, 12, 14, 12)
    table = compare(runs)
    assert list(table["metric"]) == [metric for metric in METRICS for _ in range(2)]
    assert [row_of(table, "arm", metric)["difference"] for metric in METRICS] == pytest.approx([0.2, 10.6, 0.2, 0.2])
    assert row_of(table, "fp32", "mean")["mean"] == pytest.approx(76)


def test_settings_are_compared_by_themselves():
    arms = {f"arm{i}": above(*np.multiply(CLOSE, 1 + i)) for i in range(3)}
    one = runs_of(fp32=FP32, **arms)
    other = runs_of(fp32=FP32, arm0=above(5, 1, 4, 2, 3)).assign(dataset="text", alpha="iid")
    both = compare(pd.concat([one, other]))
    for runs, dataset in ((one, "digits"), (other, "text")):
        alone, found = compare(runs), both[both["dataset"] == dataset]
        for arm in alone["arm"].unique():
            for name in ("difference", "error", "simultaneous_low", "simultaneous_high"):
                assert row_of(found, arm)[name] == pytest.approx(row_of(alone, arm)[name], nan_ok=True)


# What cannot be compared.

SAME = "the difference is the same for every seed: nothing to test"


@pytest.mark.parametrize(
    ("fp32", "arm", "reason"),
    [
        (FP32[:1], [81.0], "one seed: nothing to test"),
        (FP32, [81.0], "one seed: nothing to test"),
        (FP32, above(0.1, 0.1, 0.1), SAME),
        (FP32, FP32, SAME),
        ((), (80.0, 81.0), "no fp32 run to compare with"),
    ],
)
def test_what_cannot_be_tested_says_why(fp32, arm, reason):
    row = row_of(compare(runs_of(fp32=fp32, arm=arm)), "arm")
    assert row["reason"] == reason
    empty = ("n", "difference", "error", "p", "tost_p", "ci_low", "simultaneous_high", "tost_ci_high", "seeds_needed")
    for name in empty:
        assert pd.isna(row[name]), name
    assert row["mean"] == pytest.approx(np.mean(arm)), "it is described, though"
    assert (row["runs"], pd.isna(row["margin"])) == (len(arm), not fp32)


def test_other_seeds_than_the_baselines_say_so_and_correct_nothing():
    runs = runs_of(fp32=FP32, arm=above(*CLOSE), strange=FP32)
    runs.loc[runs["arm"] == "strange", "seed"] += 10
    table = compare(runs)
    assert row_of(table, "strange")["reason"] == "no fp32 run with one of its seeds to compare with"
    alone = compare(runs[runs["arm"] != "strange"])
    for name in ("error", "freedom", "simultaneous_low"):
        assert row_of(table, "arm")[name] == row_of(alone, "arm")[name]
    assert row_of(table, "arm")["simultaneous_low"] == row_of(table, "arm")["ci_low"], "one comparison"


def test_equal_differences_beside_others_have_their_variance():
    row = row_of(compare(runs_of(fp32=FP32, arm=above(*[1] * 5), other=above(*CLOSE))), "arm")
    assert (row["variance"], row["difference"], row["freedom"]) == ("pooled", pytest.approx(1), 8)


def test_the_margin_is_above_zero():
    for nonsense in (0, -1, math.nan):
        with pytest.raises(ValueError, match="margin must be above 0, as a share of the baseline's accuracy, got"):
            compare(runs_of(fp32=FP32, arm=above(*CLOSE)), nonsense)


@pytest.mark.parametrize("name", ["block_size", "lr", *AS_IN_THE_PAPER])
def test_runs_that_differ_in_more_than_the_seed_are_refused(name):
    runs = runs_of(fp32=FP32, arm=above(*CLOSE)).astype({name: object})
    runs.loc[runs.index[-1], name] = "128" if name in AS_IN_THE_PAPER else 128
    for function in (compare, differences):
        with pytest.raises(ValueError, match=f"{name} must be the same in all runs of digits, 0.1, arm, got .*128"):
            function(runs)
    with pytest.raises(ValueError, match=r"seed must be different in every run of digits, 0\.1, fp32"):
        compare(pd.concat([runs_of(fp32=FP32)] * 2))


# Simulated runs, of which the truth is known: arms differ by what is given, seeds by 3 points, runs by 1.

ARMS = ("fp32", "a", "b", "c", "d", "e", "f", "g")
MANY, FEW = 2000, 20


def simulated(seeds, shifts, count):
    """Accuracies by repetition, arm and seed."""
    random = np.random.default_rng((seeds, len(shifts), count))
    of_seed = random.normal(0, 3, (count, 1, seeds))
    return 70 + np.array([0, *shifts])[None, :, None] + of_seed + random.normal(0, 1, (count, 1 + len(shifts), seeds))


def fitted(values):
    """By repetition and arm. The first few are those of `contrasts`; the rest by the formulas that these agree with."""
    found = []
    for number, one in enumerate(values):
        difference, error, freedom = by_hand(one)
        of_arm = {
            arm: Contrast(float(mean), error, freedom, values.shape[2], "pooled")
            for arm, mean in zip(ARMS[1:], difference, strict=False)
        }
        if number < FEW:
            runs = runs_of(**dict(zip(ARMS, one, strict=False))).assign(lost=False)
            own = contrasts(runs, "last_third", "fp32")
            for arm, contrast in of_arm.items():
                assert own[arm][:4] == pytest.approx(contrast[:4], rel=1e-6, abs=1e-9)
            of_arm = own
        found.append(of_arm)
    return found


def most_of(share, count):
    """What a share of so many independent cases does not exceed but once in a thousand times."""
    return float(stats.binom.isf(1e-3, count, share)) / count


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_hold_the_truth_as_often_as_they_say(seeds):
    shifts = (0.0, 0.5, -1.0, 2.0, -3.0, 0.0, 4.0)
    missed, missed_at_once = [], []
    for of_arm in fitted(simulated(seeds, shifts, MANY)):
        truth = dict(zip(ARMS[1:], shifts, strict=True))
        outside = {
            level: [not low <= truth[arm] <= high for arm in truth for low, high in [of_arm[arm].interval(level)]]
            for level in (0.05, 0.05 / len(shifts))
        }
        missed.append(outside[0.05][0])
        missed_at_once.append(any(outside[0.05 / len(shifts)]))
    assert 1 - most_of(0.95, MANY) <= np.mean(missed) <= most_of(0.05, MANY)
    # Bonferroni: at most 5 %; the contrasts share a baseline and a variance, so that it is a little less.
    assert 0.02 < np.mean(missed_at_once) <= most_of(0.05, MANY)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_an_arm_on_the_margin_is_rarely_called_equivalent(seeds):
    margin = 3.5
    shifts = (margin, -margin, 0.0, 0.0, 0.0, 0.0, 0.0)
    found = fitted(simulated(seeds, shifts, MANY))
    for arm in ("a", "b"):
        wrong = np.mean([of_arm[arm].equivalence(margin) < 0.05 for of_arm in found])
        assert wrong <= most_of(0.05, MANY)
    # The lower end alone: non-inferiority, of the arm that is exactly so much worse.
    assert np.mean([of_arm["b"].above(-margin) < 0.05 for of_arm in found]) <= most_of(0.05, MANY)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_real_differences_are_found_and_none_are_made_up(seeds):
    shifts = (0.0, -2.0, -4.0, 0.0, 0.0, 0.0, 0.0)
    found = fitted(simulated(seeds, shifts, MANY))
    freedom, error = (len(ARMS) - 1) * (seeds - 1), math.sqrt(2 / seeds)
    critical = stats.t.isf(0.025, freedom)
    for arm, shift in zip("abc", shifts, strict=False):
        share = np.mean([of_arm[arm].p < 0.05 for of_arm in found])
        away = abs(shift) / error
        power = stats.nct.sf(critical, freedom, away) + stats.nct.sf(critical, freedom, -away)
        assert 1 - most_of(1 - power, MANY) <= share <= most_of(power, MANY), arm
    assert np.mean([of_arm["c"].p < 0.05 for of_arm in found]) > 0.95, "four deviations, even with three seeds"
    equal = np.mean([of_arm["d"].equivalence(3.5) < 0.05 for of_arm in found])
    assert equal > {3: 0.9, 5: 0.99, 10: 0.999}[seeds], "no difference is found to be inside 5 % of 70"


def test_a_common_variance_needs_fewer_seeds_than_pairs():
    shifts = (-2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    values = simulated(3, shifts, MANY)
    pooled = np.mean([of_arm["a"].p < 0.05 for of_arm in fitted(values)])
    paired = np.mean(stats.ttest_rel(values[:, 1], values[:, 0], axis=1).pvalue < 0.05)
    assert pooled > paired + 0.2


# How many seeds it would take.


@pytest.mark.parametrize(("difference", "deviation", "level"), [(0.5, 1.5, 0.05), (-1, 1, 0.0025), (3, 4, 0.05)])
def test_so_many_seeds_decide_four_times_in_five_and_one_fewer_do_not(difference, deviation, level):
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


@pytest.mark.parametrize(("shift", "arms"), [(2.0, 5), (0.4, 5), (2.0, 2)])
def test_so_many_seeds_decide_with_a_pooled_variance(shift, arms):
    """And one fewer do not; the deviation of a pair is the root of 2."""
    margin, random = 2.5, np.random.default_rng(9)
    needed = seeds_needed(shift, math.sqrt(2), margin, freedom=arms - 1)
    assert needed is not None
    for count, enough in ((needed, True), (needed - 1, False)):
        freedom = (arms - 1) * (count - 1)
        found = shift + random.normal(0, math.sqrt(2 / count), 100_000)
        error = np.sqrt(random.chisquare(freedom, 100_000) / freedom * 2 / count)
        apart = np.abs(found) / error > stats.t.isf(0.025, freedom)
        alike = (margin - np.abs(found)) / error > stats.t.isf(0.05, freedom)
        assert (max(apart.mean(), alike.mean()) >= 0.8 - 0.005) == enough


def test_a_difference_by_luck_never_needs_thousands_of_seeds():
    """Inside the margin or beyond it: what is between 0 and the margin is nearer to one of the two verdicts."""
    counts = [seeds_needed(difference, 1.5, 1.5) for difference in np.linspace(-3, 3, 121)]
    assert max(count or math.inf for count in counts) < 50


def test_many_seeds_are_as_many_as_the_normal_distribution_says():
    many = seeds_needed(0.05, 1, 0.07)
    quantiles = stats.norm.isf(0.025) + stats.norm.isf(0.2)
    assert many == pytest.approx((quantiles / 0.05) ** 2, rel=1e-3)
    many = seeds_needed(0, 1, 0.05)
    quantiles = stats.norm.isf(0.05) + stats.norm.isf(0.1)
    assert many == pytest.approx((quantiles / 0.05) ** 2, rel=1e-3), "either side misses one time in ten"


def test_seeds_needed_at_the_ends():
    assert seeds_needed(0, 1e-6, 2) == 2
    assert seeds_needed(-70, 1e-6, 2) == 2
    assert seeds_needed(0.001, 1, 0.0011) is None, "millions"
    assert seeds_needed(2, 1, 2) == seeds_needed(-2, 1, 2) is not None, "on the margin it is to be told from 0"
    for unknown in (0, math.nan):
        assert seeds_needed(0.1, unknown, 2) is None
    counts = [seeds_needed(0.5, 1, 2, 0.05 / comparisons) for comparisons in (1, 5, 20)]
    assert counts == sorted(set(counts)), "a stricter level needs more seeds"


def test_a_table_says_how_many_seeds_it_needs():
    row = row_of(compare(runs_of(fp32=FP32, one=above(-6, 5, 3, -4, 1), two=above(*CLOSE)), margin=0.02), "one")
    deviation, margin = row["error"] * math.sqrt(5), 0.02 * 81
    assert row["seeds_needed"] == seeds_needed(row["difference"], deviation, margin, freedom=2) > 5
    assert row["seeds_needed"] <= seeds_needed(row["difference"], deviation, margin), "two arms, twice the freedom"


# As a command.


def test_the_command_writes_contrasts_and_pairs_the_same_twice(tmp_path, capsys):
    runs = Runs(tmp_path / "runs")
    cells = itertools.product(("fp32", "normalised"), enumerate(FP32))
    found = runs(*({"arm": arm, "seed": seed, "accuracy": [base + seed, base]} for arm, (seed, base) in cells))
    found = [*found["folder"]]
    for name in ("one", "two"):
        assert main(["analyse", "contrasts", "--runs", *found, "--out", str(tmp_path / name)]) == 0
    for file in ("contrasts.csv", "differences.csv"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    table = pd.read_csv(tmp_path / "one/contrasts.csv", dtype=str, keep_default_na=False)
    assert tuple(table) == module.COLUMNS
    (row,) = table[(table["arm"] == "normalised") & (table["metric"] == "final")].to_dict("records")
    assert (row["baseline_mean"], row["margin"], row["n"], row["difference"]) == ("81.0", "4.05", "", "")
    assert row["reason"] == SAME
    assert len(pd.read_csv(tmp_path / "one/differences.csv")) == 2 * 5 * len(METRICS)
    command = ["analyse", "contrasts", "--out", str(tmp_path / "three"), "--runs"]
    said = refused(capsys, [*command, *found, "--margin", "0"])
    assert "margin must be above 0, as a share of the baseline's accuracy, got 0.0" in said
    assert "--runs: expected at least one argument" in refused(capsys, command)
