"""The ledger: no number of the paper is missing, what needs no training is exact, every disagreement is computed."""

import itertools
import json
import math
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml
from analysis_files import write_exact
from ledger_numbers import FILE, as_read, chance_of, of_run, residual_of
from simulated_runs import Runs

from qlocaladam.ledger import claims, intervals, presentation
from qlocaladam.ledger.claims import judge
from qlocaladam.ledger.form import OF_RUNS, load
from qlocaladam.ledger.intervals import interval
from qlocaladam.results.layout import EXACT_FILES
from qlocaladam.results.number import number, numbers_of
from qlocaladam.results.numbers import as_json, collect

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "paper" / "published.yaml"
ARMS = {name: {"arm": name} for name in ("fp32", "q-localadam", "naive-int8", "momentum-only", "variance-only")}
DATASETS = ("cifar10", "cifar100")

# Counted by hand in the paper: the numbers in the cells of each table, row and column heads left out.
CELLS = {
    "main": 2 * 3 * 2,
    "c10-het": 4 * 4,
    "c100-het": 4 * 4,
    "multiseed": 6 * 2 + 2 + 6,  # means with deviations, p-values, sizes
    "scaling": 4 * 4,
    "data_distribution": 8 * 2,
    "data_distribution_summary": 8 * 3,
    "cifar10_detailed": 40 * 3,
    "cifar100_detailed": 40 * 3,
    "component_ablation": 8 * 2,
    "blocksize_ablation": 6 * 3,
    "lr_sensitivity": 4 + 2,
}


@pytest.fixture(scope="module")
def published():
    return load(PUBLISHED)


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """numbers.json of a single run: all that needs no training is in it."""
    folder = tmp_path_factory.mktemp("exact")
    places = [(dataset, arm, 64) for dataset in DATASETS for arm in ARMS]
    places += [(dataset, "q-localadam", size) for dataset in DATASETS for size in (32, 128)]
    for name in EXACT_FILES:
        write_exact(name, folder, ARMS, places)
    names = {"labels": {"dataset": {"cifar10": "Digits", "cifar100": "Digit pairs"}}, "stands_for": {}}
    spec = {"scale": "quick", "defaults": {"alpha": 0.1, "block_size": 64, "lr": 0.001, "seed": 42}, **names}
    runs = Runs(tmp_path_factory.mktemp("runs"))({"accuracy": [50.0]})
    return json.loads(as_json(collect(spec, runs, {path.stem: path for path in folder.iterdir()})))


@pytest.fixture(scope="module")
def ledger(published, exact):
    return judge(published, exact, "quick").set_index("id")


def plain(name, value):
    """A number that is of no run."""
    return number({"quantity": name}, value, str, FILE)


def entry(name="a", printed="1.50", kind="exact", unit="percent", **more):
    return {"id": name, "where": "Table x", "printed": printed, "unit": unit, "kind": kind, **more}


def verdict(one, numbers=(), scale="paper", others=()):
    """With numbers, or with values by name."""
    made = [plain(*item) for item in numbers.items()] if isinstance(numbers, dict) else numbers
    return judge([one, *others], as_read(*made), scale).loc[0, "verdict"]


# The file.


def test_no_cell_of_a_table_is_missing(published):
    ids = Counter(e["id"].split("/")[0] for e in published if e["where"] == f"Table {e['id'].split('/')[0]}")
    assert ids["scaling"] == CELLS["scaling"] + 1  # what the MB of its first cell are
    assert ids["data_distribution"] == CELLS["data_distribution"] + 2  # words for two alphas
    assert ids - Counter(scaling=1, data_distribution=2) == Counter(CELLS)


def test_every_part_of_the_text_has_entries(published):
    places = Counter(e["where"].split(",")[0] for e in published)
    for place in (
        "Abstract",
        "Introduction",
        "Contributions",
        "Related work",
        "Method",
        "Algorithm",
        "Setup",
        "Results",
    ):
        assert places[place] >= 3, place
    for place in ("Scalability", "Conclusion", "Appendix", "Component ablation", "Multi-seed", "Memory reduction"):
        assert places[place] >= 7, place


def test_every_way_to_judge_is_used(published):
    used = {way: set() for way in ("from", "check", "test")}
    for way in used:
        for e in published:
            how = e.get(way, {}).get("how", [])
            used[way] |= set(how if isinstance(how, list) else [how])
    assert used["from"] == set(intervals.DERIVED)
    assert used["check"] | used["test"] == {*intervals.TESTS, *OF_RUNS}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"a": 1}, "is {'a': 1}; accepted: a list of entries"),
        ([{"where": "x"}], "[0] lacks the key 'id'"),
        ([entry(rebuilt="n"), entry(rebuilt="n")], "two entries have the id 'a'"),
        ([entry(rebuilt="n", colour="red")], "a has an unknown key 'colour'; accepted: id, where, "),
        ([entry(rebuilt="n", printed=1.5)], "a.printed is 1.5; accepted: text"),
        ([entry(rebuilt="n", kind="guess")], "a.kind is 'guess'; accepted: exact, trained, derived, claim"),
        ([entry()], "accepted: an entry with one of from, check, rebuilt, test, untested"),
        ([entry(kind="claim", untested="x")], "a lacks the key 'says'"),
        ([entry(rebuilt="n", printed="eight")], "a: 'eight' is no number; give the one it stands for as value"),
        ([entry(rebuilt="n", claim="b")], "a: claim 'b' is no id"),
        ([entry(**{"from": {"how": "same", "of": ["b"]}})], "a: from names 'b', which is no id"),
        ([entry(**{"from": {"how": "guess", "of": ["a"]}})], "a: from has how 'guess'; accepted: same, difference"),
        ([entry(**{"from": {"how": "same"}})], "a.from lacks the key 'of'"),
        ([entry(check={"how": "same", "of": ["a"]})], "a: check has how 'same'; accepted: greater, "),
    ],
)
def test_a_mistake_is_named(entries, said, tmp_path):
    path = tmp_path / "published.yaml"
    path.write_text(yaml.safe_dump(entries))
    with pytest.raises(ValueError, match=r"published\.yaml") as error:
        load(path)
    assert said in str(error.value)


# What is printed.


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("65.7", "percent", (65.65, 65.7, 65.75)),
        ("3,204", "samples", (3203.5, 3204, 3204.5)),
        ("3,204", "count", (3204, 3204, 3204)),
        ("-0.31", "pp", (-0.315, -0.31, -0.305)),
        ("1e-12", "variance", (0.5e-12, 1e-12, 1.5e-12)),
        ("0.005", "p", (0.0045, 0.005, 0.0055)),
        ("~12", "percent", (11.5, 12, 12.5)),
        ("<0.5", "percent", (-math.inf, 0.5, 0.55)),
        (">8", "orders", (7.5, 8, math.inf)),
        ("7--8", "orders", (6.5, 7.5, 8.5)),
    ],
)
def test_a_printed_number_stands_for_all_that_round_to_it(text, unit, expected):
    assert interval(text, unit) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["eight", "", "1.5x", "--", "1,0.2.3"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ValueError, match="is no number"):
        interval(text)


# Verdicts.


@pytest.mark.parametrize(
    ("value", "expected"), [(1.5, "exact"), (1.495, "exact"), (1.505, "exact"), (1.506, "differs"), (1.494, "differs")]
)
def test_exact_is_equal_to_the_last_printed_digit(value, expected):
    assert verdict(entry(rebuilt="n"), {"n": value}, "quick") == expected


def test_digits_may_be_cut_off():
    cut = entry(printed="2,101", unit="samples", cut=True, rebuilt="n")
    assert [verdict(cut, {"n": value}) for value in (2100.99, 2101.0, 2101.94, 2102.0)] == [
        *("differs", "exact"),
        *("exact", "differs"),
    ]


RESIDUAL = residual_of("best", 0.25**2, 1000)
"""Two runs differ by at most 1.96 * 0.25 * sqrt(2) = 0.69 in 95 % of all cases."""


def test_what_needs_training_is_judged_at_the_papers_scale_only():
    trained = entry(printed="50.00", kind="trained", rebuilt="best/cifar10/0.1/fp32")
    reached = [[of_run("best", "fp32", value), *RESIDUAL] for value in (50.0, 50.69, 50.71)]
    assert [verdict(trained, numbers, "small") for numbers in reached] == ["not comparable at this scale"] * 3
    assert [verdict(trained, numbers) for numbers in reached] == [
        "within its printed precision",
        "within the seeds' spread",
        "differs",
    ]
    assert verdict(trained, [of_run("best", "fp32", 50.4)]) == "differs", "nothing says how far seeds spread"


def test_the_spread_of_a_difference_is_that_of_four_runs():
    gap = entry(printed="+5.00", kind="trained", rebuilt="best_over_fp32/cifar10/0.1/q-localadam")
    for value, expected in ((5.97, "within the seeds' spread"), (6.0, "differs")):
        assert verdict(gap, [of_run("best", "q-localadam", value, over="fp32"), *RESIDUAL]) == expected


def test_the_spread_of_a_mean_is_less():
    mean = entry(printed="50.00", kind="trained", rebuilt="significance/cifar10/0.1/fp32/mean")
    of = {"kind": "significance", "dataset": "cifar10", "alpha": "0.1", "arm": "fp32"}
    for value, expected in ((50.34, "within the seeds' spread"), (50.36, "differs")):
        own = numbers_of(of, {"mean": value, "n": 4}, {"mean": ".2f", "n": "d"}, FILE)
        assert verdict(mean, [*own, *RESIDUAL]) == expected


def test_what_was_not_made_was_not_run():
    assert verdict(entry(rebuilt="n")) == "not run"
    assert verdict(entry(rebuilt="n"), {"n": None}) == "not run"
    assert verdict(entry(kind="claim", says="so", test={"how": "above", "of": ["n"], "bound": 1})) == "not run"
    assert verdict(entry(untested="a choice")) == "not run"


def test_a_setting_of_another_scale_is_not_comparable():
    rounds = entry(printed="120", unit="count", rebuilt="setting/cifar10/rounds")
    of = {"kind": "setting", "dataset": "cifar10", "quantity": "rounds"}
    for value, scale, expected in (
        (15, "quick", "not comparable at this scale"),
        (15, "paper", "differs"),
        (120, "quick", "exact"),
    ):
        assert verdict(rounds, [number(of, value, "d", FILE)], scale) == expected


def test_a_recipe_that_gives_another_number_contradicts_it():
    printed = entry(printed="1.58", rebuilt="floor", recipe="the equations round down")
    frame = judge([printed], as_read(plain("floor", 3.11)), "quick")
    assert frame.loc[0, "verdict"] == "contradicts itself"
    assert frame.loc[0, "reason"] == "the equations round down, which gives 3.11, not 1.58"
    assert frame.loc[0, "difference"] == pytest.approx(1.53)


@pytest.mark.parametrize(
    ("how", "printed", "unit", "of", "expected"),
    [
        ("difference", "0.24", "pp", [("81.91", "percent"), ("81.67", "percent")], "consistent"),
        ("difference", "0.26", "pp", [("81.91", "percent"), ("81.67", "percent")], "contradicts itself"),
        ("ratio", "9.5", "ratio", [("9,826", "count"), ("1,040", "count")], "contradicts itself"),
        ("ratio", "9.4", "ratio", [("9,826", "count"), ("1,040", "count")], "consistent"),
        ("ratio", "9.5", "ratio", [("307", "steps"), ("33", "steps")], "consistent"),
        ("orders", "9", "orders", [("1e-12", "x"), ("1e-3", "x")], "consistent"),
        ("orders", "8", "orders", [("1e-12", "x"), ("1e-3", "x")], "contradicts itself"),
        ("percent_change", "-76.8", "percent", [("12.74", "percent"), ("54.99", "percent")], "consistent"),
        ("same", "11.5", "percent", [("11.50", "percent")], "consistent"),
        ("same", "11.6", "percent", [("11.50", "percent")], "contradicts itself"),
        ("mean", "4.5", "percent", [("4.4", "percent"), ("4.6", "percent")], "consistent"),
        ("deviation_of_three", "4.75", "percent", [("10.0", "x"), ("18.23", "x"), ("12.74", "x")], "consistent"),
        ("block_bytes", "8", "bytes", [("64", "count"), ("26.67", "MB"), ("89.82", "MB")], "contradicts itself"),
        ("block_bytes", "12", "bytes", [("64", "count"), ("26.67", "MB"), ("89.82", "MB")], "consistent"),
    ],
)
def test_a_number_follows_from_others_within_their_rounding(how, printed, unit, of, expected):
    others = [entry(f"of{i}", text, unit=of_unit, untested="x") for i, (text, of_unit) in enumerate(of)]
    derived = entry(
        printed=printed, unit=unit, kind="derived", **{"from": {"how": how, "of": [o["id"] for o in others]}}
    )
    assert verdict(derived, others=others) == expected


def test_words_must_be_the_same():
    other = entry("b", "High", "claim", "words", says="x", untested="x")
    for word, expected in (("high", "consistent"), ("moderate", "contradicts itself")):
        same = entry("a", word, "claim", "words", says="x", **{"from": {"how": "same", "of": ["b"]}})
        assert verdict(same, others=[other]) == expected


@pytest.mark.parametrize(
    ("how", "values", "more", "expected"),
    [
        ("greater", [4.1, 4.0], {}, "holds here"),
        ("greater", [4.0, 4.0], {}, "undecided here"),
        ("greater", [4.0, 4.1], {}, "fails here"),
        ("not_less", [4.0, 4.0], {}, "holds here"),
        ("not_less", [4.0, 4.1], {}, "fails here"),
        ("monotone", [1.0, 2.0, 2.0], {}, "holds here"),
        ("monotone", [1.0, 2.0, 1.5], {}, "fails here"),
        ("below", [0.7], {"bound": 0.8}, "holds here"),
        ("below", [0.9], {"bound": 0.8}, "fails here"),
        ("each_greater", [2.0, 3.0, 1.0, 2.0], {}, "holds here"),
        ("each_greater", [2.0, 3.0, 1.0, 4.0], {}, "fails here"),
        ("equal", [-1.0, -1.0], {}, "holds here"),
        ("equal", [-1.0, -1.1], {}, "fails here"),
        ("significant", [0.009, 2.0], {"bound": 0.01}, "holds here"),
        ("significant", [0.009, -2.0], {"bound": 0.01}, "fails here"),
        ("significant", [0.01, 2.0], {"bound": 0.01}, "undecided here"),
        ("not_significant", [0.05], {"bound": 0.05}, "holds here"),
        ("steady", [1.0, 1.25], {"bound": 1.25}, "holds here"),
        ("steady", [1.0, 1.26], {"bound": 1.25}, "fails here"),
        ("small", [-0.6], {"bound": 0.5}, "fails here"),
    ],
)
def test_a_claim_is_put_to_what_was_computed(how, values, more, expected):
    """Of what does not scatter, as it is."""
    names = [f"precision/{i}" for i in range(len(values))]
    claim = entry(printed="--", kind="claim", unit="words", says="so", test={"how": how, "of": names, **more})
    assert verdict(claim, dict(zip(names, values, strict=True)), "quick") == expected


@pytest.mark.parametrize(
    ("own", "base", "how", "expected"),
    [
        ([52.0, 54.0, 51.5], [50.0, 52.0, 49.0], "greater", "holds here"),
        ([50.0, 52.0, 49.0], [52.0, 54.0, 51.5], "greater", "fails here"),
        ([50.1, 52.1, 48.9], [50.0, 52.0, 49.0], "greater", "undecided here"),
        ([50.1, 52.1, 48.9], [50.0, 52.0, 49.0], "equivalent", "holds here"),
        ([52.0], [50.0], "greater", "undecided here"),
        ([12.0, 13.0, 11.0], [50.0, 52.0, 49.0], "greater", "fails here"),
    ],
)
def test_a_claim_about_runs_is_judged_over_all_of_their_seeds(own, base, how, expected):
    numbers = [chance_of(), *RESIDUAL]
    for arm, values in (("q-localadam", own), ("fp32", base)):
        for seed, value in zip((42, 1, 2), values, strict=False):
            numbers += [of_run(metric, arm, value, seed=seed) for metric in ("best", "final")]
    of = ["best/cifar10/0.1/q-localadam", "best/cifar10/0.1/fp32"]
    claim = entry(printed="--", kind="claim", unit="words", says="so", test={"how": how, "of": of})
    assert verdict(claim, numbers, "quick") == expected


def test_runs_of_another_setting_are_no_seeds_of_a_claim():
    """The scale of the loss, the clients, states that persist, blocks of another size."""
    numbers = [chance_of(), of_run("best", "fp32", None, seed=456)]
    others = {"loss_scale": 0.0001}, {"clients": 5, "clients_per_round": 5}, {"states": "persist"}, {"block_size": 32}
    for metric, seed in itertools.product(("best", "final"), (42, 123)):
        numbers += [of_run(metric, "fp32", 80.0 + seed / 1000, seed=seed)]
        numbers += [of_run(metric, "fp32", 1.0, seed=seed, **other) for other in others]
    sample = claims.Evidence({}, as_read(*numbers), "quick").sample("best/cifar10/0.1/fp32")
    assert (sample.values, sample.unknown, sample.lost) == ({42: 80.042, 123: 80.123}, {456}, True)


def test_numbers_that_do_not_say_what_they_are_of_are_refused():
    with pytest.raises(ValueError, match="a lacks 'of', what it is of; `snakemake numbers`"):
        judge([], {"a": {"value": 1.0}}, "quick")


def test_a_claim_that_printed_numbers_deny_is_a_contradiction_even_where_it_holds_here():
    low, high = entry("low", "1.0", untested="x"), entry("high", "2.0", untested="x")
    claim = entry(kind="claim", says="so", check={"how": "greater", "of": ["low", "high"]})
    claim["test"] = {"how": "above", "of": ["n"], "bound": 0}
    assert verdict(claim, {"n": 1.0}, others=[low, high]) == "contradicts itself"
    close = entry("high", "1.1", untested="x")
    assert verdict(claim, {"n": 1.0}, others=[low, close]) == "holds here"  # both may be 1.05, so not denied for sure


# The paper.


def test_what_needs_no_training_is_exact_but_for_two_numbers(ledger):
    rebuilt = ledger[(ledger["kind"] == "exact") & ledger["rebuilt"].notna() & (ledger["verdict"] != "consistent")]
    rebuilt = rebuilt[rebuilt["verdict"] != "not comparable at this scale"]
    assert rebuilt["verdict"].isin(["exact", "differs", "contradicts itself"]).all()
    assert set(rebuilt.index[rebuilt["verdict"] == "differs"]) == {
        "data_distribution/cifar100/1.0/dominant",
        "data_distribution_summary/cifar100/1.0/ratio",
    }
    assert set(rebuilt.index[rebuilt["verdict"] == "contradicts itself"]) == {
        "method/reduction",
        "scaling/footnote/reduction",
        "precision/log/equations",
    }
    tables = ledger[ledger["where"].isin([f"Table {d}_detailed" for d in DATASETS])]
    assert tables["verdict"].tolist() == ["exact"] * 240


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # those known before, in their order; the second, the floor on v, is a claim about training
        ("precision/log/equations", "round down, which gives 3.115, not 1.58"),
        ("setup/full-participation", "10 (Setup, datasets), not 5"),
        ("conclusion/clients", "10 (Setup, datasets), not 5"),
        ("claims/naive-in-range", "1.00 (Table main), 10.0, 18.23 (Multi-seed"),
        ("multiseed/cifar10/p", "p pooled 0.8164, p welch 0.8236, p pooled population 0.8495"),
        (
            "multiseed/cifar100/p",
            "p pooled 0.001869, p welch 0.003409, p pooled population 0.003971, p welch population 0.0065",
        ),
        ("claims/best-is-final", "59.96 (Table blocksize_ablation), not 61.47"),
        ("seeds-text/q-localadam/cifar100/change", "percent change 11.66"),
        ("seeds-text/q-localadam/cifar10/change", "percent change 0.1265"),
        ("contributions/orders", "orders 9 of 1e-12, 1e-3"),
        ("states/variance/ratio", "ratio 1e9 of 1e-3, 1e-12"),
        # sizes that need 12 bytes a block where the text has 8
        ("method/metadata", "block bytes 12.01 of 64"),
        ("method/reduction", "gives 3.556, not 3.37"),
        ("results/overhead", "percent of codes 18.77"),
        ("blocks/cifar10/32/metadata", "percent of codes 37.52"),
        ("scaling/megabyte", "megabytes 80 of 10M"),
        # found by this ledger
        ("contributions/partial/high", "ratio 1.542 of 50.35"),
        ("contributions/reduction", "greatest ratio 3.657"),
        ("implications/reduction", "ratio 3.368"),
        ("claims/one-of-three/cifar10/q-localadam", "87.44 (Table c10-het), 87.04, 0.24 (Table multiseed)"),
        ("claims/one-of-three/cifar100/naive-int8", "1.00 (Table main), 12.74, 4.75 (Table multiseed)"),
        ("claims/partial-degrades", "81.91 (Table main), 82.48, 82.27 (Table component_ablation)"),
        ("claims/all-dealt/cifar10/0.1", "sum 49,969"),
        ("bold/blocks/cifar100/final", "59.96, 60.56, 55.97"),
        ("bold/rates/cifar10", "81.79, 81.91"),
        ("reference/results/reinitialized", "7 (Algorithm, line number), not 5"),
        ("reference/scaling/ranges/last", "13 (Equation number), not 15"),
    ],
)
def test_a_disagreement_of_the_paper_with_itself_is_computed(ledger, name, said):
    assert ledger.loc[name, "verdict"] == "contradicts itself"
    assert said in ledger.loc[name, "reason"]


def test_what_is_right_is_not_called_wrong(ledger):
    for name in ("claims/one-of-three/cifar10/fp32", "bold/rates/cifar100", "claims/monotone/fp32", "intro/orders"):
        assert ledger.loc[name, "verdict"] in ("consistent", "not run"), name
    for name in ("heterogeneity/cifar10/times", "per-client/cifar10/times", "heterogeneity/times"):
        assert ledger.loc[name, "verdict"] == "consistent", "digits that are cut off, and `nearly'"
    assert ledger.loc["claims/log-better", "verdict"] == "fails here", "the dynamic code is better from 0.01 on"
    for place in ("c10-het", "c100-het"):
        gaps = ledger.index.str.startswith(f"{place}/caption/")
        assert (ledger[gaps]["verdict"] == "consistent").all()
    assert ledger.loc["seeds-text/naive/cifar100/change", "verdict"] == "consistent"
    assert ledger.loc["claims/dettmers-linear", "verdict"] == "fails here"
    assert ledger.loc["seeds-text/few-classes", "verdict"] == "fails here"
    assert "rounded first: 4.55" in ledger.loc["data_distribution/cifar100/1.0/dominant", "reason"]
    assert ledger.loc["imbalance/C9/steps", ["verdict", "reason"]].tolist() == [
        "exact",
        "equal to the last printed digit; steps of a loop that keeps the last, smaller batch: 34",
    ]


def test_the_method_as_printed_is_judged_by_its_control_arms(published):
    finals = {"fp32": 35.6, "q-localadam": 35.3, "printed-equations": 10.9, "no-floor": 10.9, "naive-floor": 34.0}
    numbers = [
        of_run("final", arm, final + place * more, seed=seed)  # differences that are all the same could not be tested
        for place, (arm, final) in enumerate(finals.items())
        for seed, more in {42: 0.0, 1: 0.5, 2: 0.7}.items()
    ]
    numbers += [chance_of(), *residual_of("final", 0.25, 20)]
    frame = judge(published, as_read(*numbers), "small").set_index("id")
    for name in ("as-printed", "no-floor", "log-essential"):
        assert frame.loc[f"claims/{name}/cifar10", "verdict"] == "fails here"
        assert frame.loc[f"claims/{name}/cifar100", "verdict"] == "not run"
    assert frame.loc["claims/final-order/cifar10", "verdict"] == "holds here"


def test_a_trained_number_names_the_claim_behind_it(published):
    reached = {"fp32": 60.0, "q-localadam": 70.0}
    numbers = [of_run(metric, arm, value) for arm, value in reached.items() for metric in ("best", "final")]
    frame = judge(published, as_read(chance_of(), *numbers), "quick").set_index("id")
    row = frame.loc["main/cifar10/fp32/acc"]
    assert row["verdict"] == "not comparable at this scale"
    assert row["reason"].endswith("the claim behind it, claims/order/cifar10/0.1: undecided here")
    assert (row["rebuilt"], row["difference"], row["file"]) == (60.0, -21.67, "results/a.csv")
    trained = frame[frame["kind"] == "trained"]
    assert set(trained["verdict"]) <= {"not comparable at this scale", "not run"}


def test_nothing_computed_leaves_only_the_papers_own_checks(published):
    frame = judge(published, {}, "quick")
    assert len(frame) == len(published)
    assert set(frame["verdict"]) == {"consistent", "contradicts itself", "not run"}


# What is shown.


def test_the_summary_counts_everything_and_has_a_line_for_each_disagreement(ledger):
    frame = ledger.reset_index()
    lines = presentation.summary(frame).splitlines()
    assert lines[0].split() == ["exact", "trained", "derived", "claim", "all"]
    last = next(line for line in lines if line.startswith("all"))
    assert int(last.split()[-1]) == len(frame)
    assert sum(map(int, last.split()[1:-1])) == len(frame)
    assert sum(line.startswith("  ") and ": " in line for line in lines) == len(presentation.disagreements(frame))
    assert any(line.startswith("  Abstract; Related work: eight: ") for line in lines)


def test_the_same_ledger_is_the_same_bytes(published, exact, ledger):
    again = judge(load(PUBLISHED), exact, "quick")
    assert tuple(again.columns) == claims.COLUMNS
    text = again.to_csv(index=False, lineterminator="\n")
    assert text == ledger.reset_index().to_csv(index=False, lineterminator="\n")
    assert 'cifar10_detailed/0.1/C0/samples,Table cifar10_detailed,exact,count,"9,348",9348,0.0,,exact,' in text
    assert "-0.0," not in text


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex")
def test_the_tables_compile_and_fit_the_page(ledger, tmp_path):
    frame = ledger.reset_index()
    text = presentation.counts_latex(frame, "node_2") + presentation.disagreements_latex(frame, "node_2")
    assert text.count(r"\label{tab:claims}") == text.count(r"\label{tab:disagreements}") == 1
    (tmp_path / "tables.tex").write_text(text)
    (tmp_path / "macros.tex").write_text(presentation.macros(frame))
    (tmp_path / "all.tex").write_text(
        r"\documentclass{article}\usepackage[textwidth=7in,textheight=9in]{geometry}\usepackage{booktabs,longtable}"
        r"\input{macros}\begin{document}\printed{precision/log} \verdict{abstract/orders} "
        r"\ledger{within the seeds' spread}\input{tables}\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout


def test_a_ledger_with_nothing_wrong_has_an_empty_list(tmp_path):
    frame = judge([entry(rebuilt="n")], as_read(plain("n", 1.5)), "paper")
    assert presentation.disagreements(frame).empty
    assert presentation.summary(frame).splitlines()[-1].split() == ["all", "1", "0", "0", "0", "1"]
    assert r"\label{tab:disagreements}" in presentation.disagreements_latex(frame, "paper")
    assert isinstance(presentation.counts(frame), pd.DataFrame)
