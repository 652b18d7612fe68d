"""Analyses that need no training: the paper's figures as printed, and what becomes of the cases it does not have."""

import io
import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from qlocaladam.analysis import data_distribution, memory, participation, precision, scaling, significance
from qlocaladam.codecs import LogCodec
from qlocaladam.experiments.grid import AS_IN_THE_PAPER

ARMS = {
    "fp32": {"label": "FP32", "arm": "fp32"},
    "q-localadam": {"label": "Q-LocalAdam", "arm": "q-localadam"},
    "naive-int8": {"label": "Naive INT8", "arm": "naive-int8"},
    "momentum-only": {"label": "Momentum-only", "arm": "momentum-only"},
    "variance-only": {"label": "Variance-only", "arm": "variance-only"},
    "printed-equations": {"arm": "q-localadam", "options": {"rounding": "floor", "variance_floor": 0}},
    "dynamic-8bit": {"arm": "dynamic-8bit", "block_size": 256},
}
TESTED = [
    *("ci_low", "ci_high", "t", "df", "p"),
    *("welch_ci_low", "welch_ci_high", "welch_t", "welch_df", "welch_p", "cohens_d"),
]


def csv(frame):
    return frame.to_csv(index=False)


# Significance


def runs(*rows, **changes):
    """Rows of data set, alpha, arm, seed and best accuracy, as read_runs gives them."""
    frame = pd.DataFrame(rows, columns=["dataset", "alpha", "arm", "seed", "best"])
    return frame.assign(**{"block_size": 64, "lr": 1e-3, "final": 1.0, **AS_IN_THE_PAPER, **changes})


def three_seeds(arm, *best):
    return [("cifar10", "0.5", arm, seed, value) for seed, value in zip((42, 123, 456), best, strict=True)]


def test_a_comparison_worked_by_hand():
    # Means 53 and 60, variances 1 and 4: pooled 2.5, standard error sqrt(5/3), Welch's degrees 50/17.
    frame = runs(*three_seeds("fp32", 52, 53, 54), *three_seeds("q-localadam", 58, 60, 62))
    base, row = significance.compare(frame).to_dict("records")
    assert (base["arm"], base["n"], base["seeds"], base["mean"], base["std"]) == ("fp32", 3, "42 123 456", 53, 1)
    assert all(pd.isna(base[name]) for name in ["difference", "relative_percent", *TESTED, "reason"])
    assert (row["arm"], row["mean"], row["std"], row["min"], row["max"]) == ("q-localadam", 60, 2, 58, 62)
    error = math.sqrt(5 / 3)
    expected = {"difference": 7, "relative_percent": 700 / 53, "t": 7 / error, "df": 4, "cohens_d": 7 / math.sqrt(2.5)}
    expected |= {"ci_low": 7 - 2.7764451 * error, "ci_high": 7 + 2.7764451 * error, "welch_t": 7 / error}  # t table
    bend = 1 + expected["t"] ** 2 / 4  # Student's distribution has a closed form for 4 degrees
    expected["p"] = 1 - 3 / 4 * expected["t"] / math.sqrt(bend) * (1 - expected["t"] ** 2 / bend / 12)
    expected |= {"welch_df": 50 / 17, "welch_p": 2 * stats.t.sf(7 / error, 50 / 17)}
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert row["welch_ci_low"] < row["ci_low"] < 7 < row["ci_high"] < row["welch_ci_high"]
    assert pd.isna(row["reason"])


def test_rows_come_in_order_of_first_appearance_and_seeds_in_their_own():
    mixed = runs(
        ("b", "iid", "q", 456, 4.0),
        ("a", "0.1", "fp32", 42, 1.0),
        ("b", "iid", "fp32", 1, 2.0),
        ("b", "iid", "q", 42, 3.0),
    )
    found = significance.compare(mixed)
    assert list(zip(found["dataset"], found["arm"], strict=True)) == [("b", "q"), ("a", "fp32"), ("b", "fp32")]
    assert found["seeds"].tolist() == ["42 456", "42", "1"]
    assert csv(significance.compare(mixed.iloc[[3, 1, 2, 0]])) == csv(found)


@pytest.mark.parametrize(
    ("fp32", "other", "reason"),
    [
        ([50.0, 51.0], [52.0], "one seed: nothing to test"),
        ([50.0], [52.0], "one seed: nothing to test"),
        ([50.0], [52.0, 52.5], "one seed of fp32: nothing to test against"),
        ([50.0, 50.0, 50.0], [61.47, 61.47, 61.47], "seeds do not differ on either side: nothing to test"),
        ([0.0, 0.0], [0.0, 0.0], "seeds do not differ on either side: nothing to test"),
    ],
)
def test_what_cannot_be_tested_is_empty_and_says_why(fp32, other, reason):
    rows = [
        ("d", "0.1", arm, seed, best) for arm, all_ in (("fp32", fp32), ("q", other)) for seed, best in enumerate(all_)
    ]
    found = significance.compare(runs(*rows))
    row = found.iloc[1]
    assert row["reason"] == reason
    assert row[TESTED].isna().all()
    assert row["difference"] == pytest.approx(sum(other) / len(other) - sum(fp32) / len(fp32))
    assert pd.isna(row["relative_percent"]) == (fp32[0] == 0)
    assert pd.isna(row["std"]) == (len(other) == 1)
    assert (row["std"] == 0) == (reason.startswith("seeds do not differ"))  # not a rounding error
    assert "nan" not in csv(found).lower()
    assert "none" not in csv(found).lower()


def test_without_a_baseline_nothing_is_compared():
    frame = runs(("d", "0.1", "fp32", 1, 1.0), ("d", "iid", "q", 1, 2.0), ("e", "0.1", "q", 1, 2.0))
    found = significance.compare(frame)
    assert found["reason"].tolist()[1:] == ["no fp32 runs to compare with"] * 2
    assert found["difference"].isna().all()
    other = significance.compare(frame, baseline="q")
    assert other["reason"].tolist()[0] == "no q runs to compare with"
    assert other["reason"].isna().tolist() == [False, True, True]


def test_one_side_without_spread_is_tested_without_a_warning():
    frame = runs(*three_seeds("fp32", 10.1, 10.1, 10.1), *three_seeds("q-localadam", 58, 60, 62))
    row = significance.compare(frame).iloc[1]
    assert (row["t"], row["df"], row["welch_df"]) == pytest.approx((49.9 / math.sqrt(4 / 3), 4, 2))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"block_size": [64, 32]}, r"block_size must be the same in all runs of d, 0\.1, q, got \[32, 64\]"),
        ({"lr": [1e-3, 5e-4]}, r"lr must be the same in all runs of d, 0\.1, q, got \[0\.0005, 0\.001\]"),
        ({"seed": [42, 42]}, r"seed must be different in every run of d, 0\.1, q, got \[42, 42\]"),
    ],
)
def test_mixed_runs_are_refused_by_name(changes, fault):
    with pytest.raises(ValueError, match=fault):
        significance.compare(runs(("d", "0.1", "q", 42, 1.0), ("d", "0.1", "q", 123, 2.0), **changes))


def test_published_p_values_recomputed_from_the_printed_figures():
    # Table multiseed, n = 3, FP32 and Q-LocalAdam. The paper says 0.78 and 0.005.
    cifar10 = significance.from_printed(86.93, 0.73, 3, 87.04, 0.24, 3)
    cifar100 = significance.from_printed(54.99, 1.28, 3, 61.40, 0.82, 3)
    assert (f"{cifar10['p']:.2f}", f"{cifar10['welch_p']:.2f}") == ("0.82", "0.82")
    assert (f"{cifar100['p']:.4f}", f"{cifar100['welch_p']:.4f}") == ("0.0019", "0.0034")


def test_printed_figures_and_runs_give_the_same_p_values():
    row = significance.compare(runs(*three_seeds("fp32", 52, 53, 54), *three_seeds("q", 58, 60, 62))).iloc[1]
    printed = significance.from_printed(53, 1, 3, 60, 2, 3)
    assert (printed["p"], printed["welch_p"]) == pytest.approx((row["p"], row["welch_p"]))


@pytest.mark.parametrize(
    ("printed", "fault"),
    [
        ((1, 1, 1, 2, 1, 3), "n1 must be at least 2, got 1"),
        ((1, 1, 3, 2, 1, 0), "n2 must be at least 2, got 0"),
        ((1, 0, 3, 2, 0, 3), "std1 and std2 must be at least 0 and not both 0, got 0 and 0"),
        ((1, -1, 3, 2, 1, 3), "std1 and std2 must be at least 0 and not both 0, got -1 and 1"),
        ((1, math.nan, 3, 2, 1, 3), "std1 and std2 must be at least 0 and not both 0, got nan and 1"),
    ],
)
def test_printed_figures_that_test_nothing_are_refused(printed, fault):
    with pytest.raises(ValueError, match=fault):
        significance.from_printed(*printed)


# Precision


@pytest.fixture(scope="module")
def simulated():
    return precision.simulate()


def test_published_precision(simulated):
    found = precision.summarise(simulated).set_index("code")
    mean = found["mean_percent"]
    codes = ["log, nearest", "log, floor", "log, stochastic", "dynamic, nearest", "linear, nearest", "tree, nearest"]
    assert list(mean.index) == codes
    assert f"{mean['log, nearest']:.2f}" == "1.58"  # published
    assert f"{mean['log, floor']:.2f}" == "3.11"  # what the printed equations give
    assert f"{mean['dynamic, nearest']:.1f}" == "11.6"
    assert f"{mean['linear, nearest']:.1f}" == "57.7"
    assert mean["log, nearest"] < mean["log, stochastic"] < mean["log, floor"]
    assert (found.drop(index=precision.TREE).eval("median_percent < max_percent")).all()
    step = 100 * (math.exp(7 * math.log(10) / 255) - 1)
    largest = found["max_percent"] / step  # the offset is a tenth of the least value, and adds so much at most
    assert 0.45 < largest["log, nearest"] < 0.55 < 0.9 < largest["log, floor"] < 1.1


def test_the_published_tree_sets_most_values_to_zero(simulated):
    found = precision.summarise(simulated).set_index("code").loc[precision.TREE]
    assert f"{found['mean_percent']:.2f}" == "78.23"  # published
    assert f"{found['zero_percent']:.1f}" == "78.0"
    assert found["median_percent"] == found["max_percent"] == 100
    tree = simulated[simulated["code"] == precision.TREE]
    assert ((tree["decoded"] == 0) == (tree["value"] < tree["value"].max() / 32)).all()


def test_the_tree_has_a_bit_less_for_each_halving():
    ends = np.array([1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32])
    values = np.unique(np.concatenate([np.linspace(low, high, 10_001) for high, low in itertools.pairwise(ends)]))
    levels = np.unique(precision.simulated_tree(3 * values)) / 3
    inside = [((levels >= low) & (levels < high)).sum() for high, low in itertools.pairwise(ends)]
    assert inside == [2**7, 2**6, 2**5, 2**4, 2**3]
    assert precision.simulated_tree(np.array([1.0, 1 / 32, np.nextafter(1 / 32, 0)])).tolist() == [1, 1 / 32, 0]


def test_the_offset_decides_nothing_about_the_published_figure(simulated):
    values = torch.tensor(simulated["value"][:3000].to_numpy(), dtype=torch.float32)
    codecs = [LogCodec(3000, rounding, offset=1e-16) for rounding in ("nearest", "floor")]
    errors = [((codec.decode(codec.encode(values)) - values).abs() / values).double().mean() for codec in codecs]
    assert [f"{100 * error:.2f}" for error in errors] == ["1.58", "3.12"]


def test_every_code_sees_the_same_sorted_values(simulated):
    assert list(simulated.columns) == ["code", "value", "decoded", "relative_error"]
    values = simulated["value"].to_numpy().reshape(6, 3000)
    assert (values == values[0]).all()
    assert (values[0, 1:] > values[0, :-1]).all()
    assert values[0, [0, -1]].tolist() == pytest.approx([1.000188e-07, 0.99546], rel=1e-4)
    by_hand = (simulated["decoded"] - simulated["value"]).abs() / simulated["value"]
    assert simulated["relative_error"].to_numpy() == pytest.approx(by_hand.to_numpy())
    assert csv(precision.simulate()) == csv(simulated)


def test_decades_show_where_a_code_has_no_bits_left(simulated):
    found = precision.by_decade(simulated)
    assert list(found.columns) == ["decade", "code", "mean_percent"]
    assert found["decade"].tolist() == [decade for decade in precision.DECADES for _ in range(6)]
    assert found["code"].tolist()[:6] == list(simulated["code"].unique())
    table = found.pivot_table(index="decade", columns="code", values="mean_percent")
    assert table["log, nearest"].between(1.4, 1.7).all()
    assert (table["dynamic, nearest"].diff()[1:] < 0).all()  # ever better towards the largest value
    assert table["linear, nearest"][1e-5] > 99
    assert table["linear, nearest"][0.1] < table["log, nearest"][0.1]
    sizes = simulated[simulated["code"] == "log, nearest"]["value"]
    by_hand = simulated[simulated["code"] == "log, floor"]["relative_error"][
        (sizes >= 1e-3).to_numpy() & (sizes < 1e-2).to_numpy()
    ]
    assert table["log, floor"][1e-3] == pytest.approx(100 * by_hand.mean())


def test_precision_of_nothing_is_refused():
    with pytest.raises(ValueError, match="count must be a whole number of at least 2, got 1"):
        precision.simulate(count=1)
    pair = precision.simulate(count=2).set_index("code")["relative_error"]
    assert pair["log, nearest"].tolist() == pair["linear, nearest"].tolist() == [0, 0]  # the ends of a block come back


# Memory and scaling


def test_memory_is_one_table():
    places = [(dataset, arm, 64) for dataset in ("cifar10", "cifar100") for arm in ("fp32", "q-localadam")]
    found = memory.optimizer_memory(ARMS, places).set_index(["dataset", "arm", "block_size"])
    assert found.index.tolist() == places
    assert found["parameters"].unique().tolist() == [6_294_202, 11_227_812]
    assert (found["fp32_bytes"] == 8 * found["parameters"]).all()
    held = found.loc[[("cifar10", "q-localadam", 64), ("cifar100", "q-localadam", 64)]]
    assert [f"{value / 1e6:.2f}" for value in held["held_bytes"]] == ["14.16", "25.26"]
    assert [f"{value:.3f}" for value in held["held_ratio"]] == ["3.556", "3.556"]
    assert [f"{value:.2f}" for value in held["published_ratio"]] == ["3.37", "3.37"]
    assert [f"{value:.1f}" for value in held["metadata_percent"]] == ["11.1", "11.1"]  # as the paper says
    fp32 = found.loc[("cifar10", "fp32", 64)]
    assert (fp32["held_bytes"], fp32["held_ratio"], fp32["metadata_percent"]) == (50_353_616, 1, 0)


def test_options_and_other_codes_count_as_they_are_stored():
    arms = {**ARMS, "half": {"arm": "q-localadam", "options": {"variance": "fp32"}}}
    names = ("printed-equations", "q-localadam", "half", "momentum-only")
    found = memory.optimizer_memory(
        arms, [("cifar10", name, 64) for name in names] + [("cifar10", "dynamic-8bit", 256)]
    )
    held = found["held_bytes"].tolist()
    assert held[0] == held[1]  # rounding takes no bytes
    assert held[2] == held[3] > held[1]
    dynamic = found.iloc[4]
    blocks = round(dynamic["metadata_percent"] / 100 * dynamic["held_bytes"]) / 8  # two states, one number a block each
    assert dynamic["held_bytes"] == 2 * 6_294_202 + 8 * blocks
    assert blocks > 6_294_202 / 256


@pytest.mark.parametrize(
    ("wanted", "fault"),
    [
        (("cifar", "fp32", 64), "dataset must be one of cifar10, cifar100, got 'cifar'"),
        (("cifar10", "fp16", 64), "arm must be one of fp32, odd, got 'fp16'"),
        (("cifar10", "odd", 64), "arm of 'odd' must be one of fp32, q-localadam, .*, got 'adam'"),
        (("cifar10", "fp32", 1), "block_size must be a whole number of at least 2, got 1"),
    ],
)
def test_unknown_memory_is_refused(wanted, fault):
    with pytest.raises(ValueError, match=fault):
        memory.optimizer_memory({"fp32": {"arm": "fp32"}, "odd": {"arm": "adam"}}, [wanted])


def test_scaling():
    found = scaling.scaling()
    assert found["parameters"].tolist() == [10**7, 10**8, 10**9, 10**10]
    assert f"{found['held_mib'][0]:.2f}" == "21.46"
    assert {f"{ratio:.2f}" for ratio in found["published_ratio"]} == {"3.37"}
    assert found["published_bytes"][0] == 23_750_000
    one = scaling.scaling([1], block_size=32).iloc[0]
    assert (one["held_bytes"], one["published_bytes"]) == (18, 88)  # a short block is padded only in the paper's layout
    with pytest.raises(ValueError, match="parameters must be a whole number of at least 1, got 0"):
        scaling.scaling([0])


# Heterogeneity and participation

ALPHAS = ("iid", 1, 0.1)  # 1 stands for 1.0


@pytest.fixture(scope="module")
def held():
    return data_distribution.clients(["cifar10", "cifar100"], ALPHAS)


def test_clients_of_every_partition_in_order(held):
    assert ",".join(held) == "dataset,alpha,client,samples,dominant,dominant_name,dominant_percent,classes"
    assert held["client"].tolist() == list(range(10)) * 6
    assert held["dataset"].tolist() == ["cifar10"] * 30 + ["cifar100"] * 30
    assert (
        held["alpha"].map(str).tolist()
        == ["iid"] * 10 + ["1.0"] * 10 + ["0.1"] * 10 + held["alpha"].map(str).tolist()[:30]
    )
    table = held.assign(alpha=held["alpha"].map(str)).set_index(["dataset", "alpha", "client"])
    assert table.loc[("cifar10", "0.1", 5)].tolist()[:3] == [4481, 8, "Ship"]
    assert table.loc[("cifar100", "iid", 3)].tolist()[:3] == [5000, 10, "10"]
    assert table.loc[("cifar10", "1.0", 2), "samples"] == 6755
    assert f"{table.loc[('cifar10', '0.1', 5), 'dominant_percent']:.1f}" == "96.7"


def test_clients_without_samples_have_empty_cells():
    found = data_distribution.clients(["cifar10"], [0.01], clients=40)
    empty = found[found["samples"] == 0]
    assert 0 < len(empty) < 40
    assert empty[["dominant", "dominant_name", "dominant_percent"]].isna().all(axis=None)
    read = pd.read_csv(io.StringIO(csv(found)), dtype=str, keep_default_na=False)
    assert read["dominant"].map(lambda cell: cell == "" or cell.isdigit()).all()  # 3, never 3.0 or NaN
    steps = participation.steps(found)
    assert (steps["samples"][0], steps["steps"][0], steps["approximate"][0]) == (0, 0, 0)
    assert steps["ratio"].isna().all()


def test_overview_agrees_with_the_clients(held):
    found = data_distribution.overview(["cifar10", "cifar100"], ALPHAS)
    groups = held.groupby(["dataset", "alpha"], sort=False)
    assert list(zip(found["dataset"], found["alpha"], strict=True)) == list(groups.groups)
    assert found["samples"].tolist() == groups["samples"].sum().tolist()
    assert found["sample_std"].tolist() == pytest.approx(groups["samples"].std().tolist())
    assert found["dominant_percent"].tolist() == pytest.approx(groups["dominant_percent"].mean().tolist())
    assert found["dropped"].tolist()[:3] == [0, 50_000 - found["samples"][1], 31]
    assert found["heterogeneity"].tolist() == ["Balanced", "Moderate", "Extreme"] * 2
    other = data_distribution.overview(["cifar10"], [0.1], clients=5, seed=1).iloc[0]
    assert other["clients"] == 5
    assert other["samples"] != 49_969


def test_unknown_labels_are_refused():
    with pytest.raises(ValueError, match="training labels ship for cifar10 and cifar100, got 'digits'"):
        data_distribution.clients(["digits"], [0.1])


def test_published_sampling():
    found = participation.sampling()
    assert found["counts"] == [50, 74, 55, 58, 60, 57, 61, 64, 65, 56]
    assert (f"{found['mean']:.1f}", f"{found['std']:.1f}", found["min"], found["max"]) == ("60.0", "6.3", 50, 74)
    assert sum(participation.sampling(seed=1, rounds=7, clients=4, per_round=3)["counts"]) == 21


def test_published_steps(held):
    # Appendix: about 33 and 307 steps, nearly 9.5 times as many.
    found = participation.steps(held)
    assert len(found) == 12
    rows = found[(found["dataset"] == "cifar10") & (found["alpha"] == 0.1)].to_dict("records")
    assert [tuple(row.values())[2:7] for row in rows] == [
        ("smallest", 9, 1040, 34, 32.5),
        ("largest", 8, 9826, 308, 307.0625),
    ]
    assert [row["ratio"] for row in rows] == pytest.approx([1, 9826 / 1040])
    equal = found[found["alpha"] == "iid"]
    assert equal["client"].tolist() == [0] * 4
    assert equal["steps"].tolist() == [158] * 4
    other = participation.steps(held, epochs=1, batch=100)
    assert (other["steps"][5], other["approximate"][5]) == (99, 98.26)
