"""Numbers that a text quotes: the paper's own where nothing is trained, arithmetic where something is, and LaTeX."""

import json
from pathlib import Path

import pandas as pd
import pytest
from analysis_files import CONTRASTS, write_exact
from command_line import refused
from registered_runs import answered
from scripts import run_script
from simulated_runs import Runs

from qlocaladam.experiments.grid import typed
from qlocaladam.results.columns import p_value
from qlocaladam.results.layout import EXACT_FILES
from qlocaladam.results.number import Number
from qlocaladam.results.numbers import as_json, collect, truncated, whole

DEFAULTS = {"alpha": 0.1, "block_size": 64, "lr": 0.001, "seed": 42}
LABELS = {"cifar10": "Digits", "cifar100": "Digit pairs", "own": "Own", "text": "Text"}
PAPERS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
SPEC = {"scale": "node-2", "defaults": DEFAULTS, "labels": {"dataset": LABELS}, "stands_for": PAPERS}
ARMS = {name: {"arm": name} for name in ("fp32", "q-localadam", "momentum-only")}
PLACES = [
    *((dataset, arm, 64) for dataset in ("cifar10", "cifar100") for arm in ARMS),
    *((dataset, "q-localadam", size) for dataset in ("cifar10", "cifar100") for size in (32, 128)),
]


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """What needs no training, as rules make it."""
    folder = tmp_path_factory.mktemp("exact")
    for name in EXACT_FILES:
        write_exact(name, folder, ARMS, PLACES)
    assert {path.name for path in folder.iterdir()} == {name for names in EXACT_FILES.values() for name in names}
    return {path.stem: path for path in folder.iterdir()}


def test_an_analysis_that_cannot_be_made_says_why_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = "qlocaladam: none/summary.json is not there; delete the run's folder"
    assert refused(capsys, ["analyse", "significance", "--runs", "none", "--out", "made"]).startswith(said)
    assert list(tmp_path.iterdir()) == []
    output, places = {"csv": tmp_path / "memory.csv"}, [("cifar10", "sgd", 64)]
    given = {"analysis": "memory", "options": {"arms": ARMS, "places": places}}
    said = run_script("exact_analysis", tmp_path / "job", output, ok=False, params=given)
    assert said == "qlocaladam: arm must be one of fp32, q-localadam, momentum-only, got 'sgd'\n"
    assert not (tmp_path / "memory.csv").exists()


def test_data_of_your_own_has_no_memory_in_the_paper(runs, exact, tmp_path):
    given = {"analysis": "memory", "options": {"arms": ARMS, "places": [("own", "fp32", 64)]}}
    run_script("exact_analysis", tmp_path / "job", {"csv": tmp_path / "memory.csv"}, params=given)
    assert (tmp_path / "memory.csv").read_text().splitlines() == exact["memory"].read_text().splitlines()[:1]
    numbers = collected(runs({"accuracy": [50.0], "dataset": "own"}), {**exact, "memory": tmp_path / "memory.csv"})
    assert numbers["best/own/0.1/fp32"].text == "50.00"
    assert not [name for name in numbers if name.startswith("memory/")]


def test_what_a_peer_would_hold_of_the_papers_models_is_not_guessed(exact, tmp_path):
    arms = {**ARMS, "theirs": {"arm": "torchao-8bit"}}
    write_exact("memory", tmp_path, arms, [("cifar10", "fp32", 64), ("cifar10", "theirs", 256)])
    assert (tmp_path / "memory.csv").read_text().splitlines() == exact["memory"].read_text().splitlines()[:2]


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


def collected(runs, files):
    return {number.name: number for number in collect(SPEC, runs, files)}


@pytest.fixture
def numbers(runs, exact):
    return collected(runs({"accuracy": [50.0]}), exact)


PAPER = {  # in the form in which they are printed; the ledger has the others
    # a client's memory, blocks
    "memory/cifar100/fp32/64/client_fp32_ratio": "3",
    "memory/cifar10/q-localadam/64/parameters_millions": "6.3",
    "memory/cifar100/q-localadam/64/published_mb": "26.67",
    "memory/cifar100/q-localadam/64/published_ratio": "3.37",
    "memory/cifar100/q-localadam/64/metadata_of_codes_percent": "12.50",
    "memory/cifar100/momentum-only/64/published_ratio": "1.54",
    "memory/cifar100/momentum-only/64/published_over_q-localadam": "2.18",
    "memory/cifar100/momentum-only/64/metadata_of_codes_percent": "--",
    "memory/cifar100/fp32/64/metadata_of_codes_percent": "--",
    "scaling/10000000000/held_mib": "21,457.7",
    # who holds what
    "partition/cifar10/0.1/published_percent": "65.7",
    "partition/cifar10/iid/published_percent": "10.6",
    "partition/cifar100/1.0/published_percent": "4.5",
    "partition/cifar100/1.0/published_ratio": "4.5",
    "partition/cifar10/0.5/sample_std": "2,101",
    "partition/cifar10/0.1/min_samples": "1,040",
    "partition/cifar10/0.1/max_samples": "9,826",
    "partition/cifar10/0.1/dropped": "31",
    "client/cifar10/0.1/5/dominant_name": "Ship",
    "client/cifar10/0.1/5/samples": "4,481",
    "client/cifar100/0.1/4/ratio": "18.4",
    # who takes part
    "sampling/std": "6.3",
    "steps/cifar10/0.1/smallest/client": "9",
    "steps/cifar10/0.1/largest/steps": "308",
    "steps/cifar10/0.1/largest/ratio": "9.4",
    # what codes lose
    "precision/dynamic/nearest/mean_percent": "11.62",
    "precision/tree/nearest/zero_percent": "78.0",
    # what a whole client holds, and how little of that the states are
    "client_memory/cifar10/224/fp32/total_mb": "1,175.0",
    "client_memory/cifar10/224/q-localadam/states_mb": "15.0",
    "client_memory/cifar10/224/q-localadam/saved_percent": "3.0",
    "client_memory/cifar100/224/fp32/total_mb": "1,599.3",
    "client_memory/cifar100/224/q-localadam/total_mb": "1,536.1",
    "client_memory/cifar100/224/q-localadam/saved_percent": "3.9",
    "client_memory/cifar100/32/q-localadam/saved_percent": "30.2",
}


def test_what_needs_no_training_is_as_published_or_as_it_should_have_been(numbers):
    assert {name: numbers[name].text for name in PAPER if name in numbers} == PAPER


def test_every_number_knows_its_file(numbers, exact):
    assert numbers["memory/cifar10/fp32/64/fp32_mb"] == Number(
        *("memory/cifar10/fp32/64/fp32_mb", 50.353616, "50.35", str(exact["memory"])),
        of={"kind": "memory", "dataset": "cifar10", "arm": "fp32", "block_size": 64, "quantity": "fp32_mb"},
    )
    assert numbers["client/cifar10/0.1/5/dominant"].file == str(exact["clients"])
    assert numbers["partition/cifar10/0.1/highest_dominant_percent"].file == str(exact["clients"])
    assert numbers["partition/cifar10/0.1/samples"].file == str(exact["data_distribution"])
    assert numbers["steps/cifar10/0.1/smallest/steps"].value == 34
    for number in numbers.values():
        assert all(Path(file).exists() or file == "config.yaml" for file in number.file.split(", ")), number


def test_a_client_without_samples_has_dashes(runs, exact, tmp_path):
    lines = exact["clients"].read_text().splitlines()
    assert lines[1].startswith("cifar10,0.1,0,9348,3,Cat")
    (tmp_path / "clients.csv").write_text("\n".join([lines[0], "cifar10,0.1,0,0,,,,0", *lines[2:]]))
    numbers = collected(runs({"accuracy": [50.0]}), {**exact, "clients": tmp_path / "clients.csv"})
    empty = {
        name: numbers[f"client/cifar10/0.1/0/{name}"] for name in ("samples", "dominant", "dominant_name", "ratio")
    }
    assert [number.text for number in empty.values()] == ["0", "--", "--", "--"]
    assert [number.value for number in empty.values()] == [0, None, None, None]
    assert numbers["client/cifar10/0.1/1/dominant"].text == "4"


def grid_of_runs(runs):
    return runs(
        {"accuracy": [40.0, 55.73, 50.0]},
        {"accuracy": [30.0, 61.47, 59.96], "arm": "q-localadam"},
        {"accuracy": [30.0, 55.0, 55.97], "arm": "q-localadam", "block_size": 128},
        {"accuracy": [30.0, 60.71, 60.56], "arm": "q-localadam", "block_size": 32},
        {"accuracy": [61.82, 60.0, 58.09], "arm": "q-localadam", "lr": 0.0005},
        {"accuracy": [52.49, 12.0], "arm": "momentum-only", "diverged": True},
        {"accuracy": [62.24], "alpha": "iid"},
        {"accuracy": [62.97], "alpha": "iid", "arm": "q-localadam"},
        {"accuracy": [70.0], "arm": "dynamic-8bit", "block_size": 256, "seed": 1234567},
        {"accuracy": [60.0], "arm": "fp32", "lr": 0.5, "seed": 1234567},
        {"accuracy": [65.0], "arm": "fp32", "seed": 1234567},
        {"accuracy": [1.0, 1.9], "dataset": "cifar100", "classes": 100},
    )


def test_runs_have_short_names_and_differences(runs, exact):
    numbers = collected(grid_of_runs(runs), exact)
    expected = {
        "best/cifar10/0.1/fp32": "55.73",
        "final/cifar10/0.1/fp32": "50.00",
        "best_round/cifar10/0.1/fp32": "2",
        "final_over_best/cifar10/0.1/fp32": "-5.73",
        "best_over_fp32/cifar10/0.1/q-localadam": "+5.74",
        "final_over_fp32/cifar10/0.1/q-localadam": "+9.96",
        "best_over_fp32/cifar10/0.1/q-localadam/lr=0.0005": "+6.09",
        "best_over_default/cifar10/0.1/q-localadam/lr=0.0005": "+0.35",
        "final_over_default/cifar10/0.1/q-localadam/block_size=128": "-3.99",
        "best_over_q-localadam/cifar10/0.1/momentum-only": "-8.98",
        "best_spread/block_size/cifar10/0.1/q-localadam": "5.50",
        "final_spread/block_size/cifar10/0.1/q-localadam": "4.59",
        "best_spread/lr/cifar10/0.1/q-localadam": "0.35",
        "best_over_fp32_min/cifar10/q-localadam": "+0.73",
        "best_over_fp32_max/cifar10/q-localadam": "+5.74",
        "best/cifar10/0.1/dynamic-8bit/block_size=256/seed=1234567": "70.00",
        "best_over_fp32/cifar10/0.1/dynamic-8bit/block_size=256/seed=1234567": "+5.00",
        "best/cifar10/0.1/fp32/lr=0.5/seed=1234567": "60.00",
        "above_fp32_from/cifar10/0.1/q-localadam": "2",
        "above_fp32_from/cifar10/0.1/q-localadam/block_size=128": "3",
        "above_fp32_from/cifar10/0.1/q-localadam/lr=0.0005": "1",
        "above_fp32_from/cifar10/0.1/momentum-only": "--",
        "above_fp32_from/cifar10/iid/q-localadam": "1",
        "runs/all": "12",
        "runs/diverged": "1",
        "runs/collapsed": "2",
        "scale": "node-2",
        "setting/lr": "0.001",
        "setting/cifar10/clients": "10",
        "setting/cifar10/parameters": "1,000",
        "setting/cifar10/chance": "10.00",
        "setting/cifar100/chance": "1.00",
    }
    assert {name: numbers[name].text for name in expected if name in numbers} == expected


def test_nothing_is_compared_with_itself_or_with_what_is_not_there(runs, exact):
    names = set(collected(grid_of_runs(runs), exact))
    assert not names & {
        "best_over_fp32/cifar10/0.1/fp32",
        "best_over_q-localadam/cifar10/0.1/fp32",
        "best_over_q-localadam/cifar10/0.1/q-localadam/lr=0.0005",
        "best_over_default/cifar10/0.1/q-localadam",
        "best_over_fp32/cifar100/0.1/fp32",
        "best_over_q-localadam/cifar10/0.1/dynamic-8bit/block_size=256/seed=1234567",
        "best_over_fp32_min/cifar10/momentum-only",
        "best_spread/lr/cifar10/0.1/fp32",
        "above_fp32_from/cifar10/0.1/fp32",
    }


def test_a_difference_names_both_of_its_files(runs, exact):
    made = grid_of_runs(runs)
    numbers = collected(made, exact)
    fp32, method, large = (f"{folder}/summary.json" for folder in made["folder"][:3])
    assert numbers["best/cifar10/0.1/fp32"].file == fp32
    assert numbers["best_over_fp32/cifar10/0.1/q-localadam"].file == f"{method}, {fp32}"
    assert numbers["best_spread/block_size/cifar10/0.1/q-localadam"].file == f"{large}, {method}"
    assert numbers["runs/diverged"].file == str(runs.root)


def test_the_counterpart_is_at_the_same_learning_rate_or_at_the_defaults_whatever_comes_first(runs, exact):
    made = runs(
        {"accuracy": [10.0], "lr": 0.5},
        {"accuracy": [20.0]},
        {"accuracy": [50.0], "arm": "a", "lr": 0.5},
        {"accuracy": [50.0], "arm": "b", "lr": 0.3},
    )
    numbers = collected(made, exact)
    assert numbers["best_over_fp32/cifar10/0.1/a/lr=0.5"].text == "+40.00"
    assert numbers["best_over_fp32/cifar10/0.1/b/lr=0.3"].text == "+30.00"


def test_no_difference_has_no_minus(runs, exact):
    made = runs({"accuracy": [50.0]}, {"accuracy": [49.999], "arm": "q-localadam"})
    number = collected(made, exact)["best_over_fp32/cifar10/0.1/q-localadam"]
    assert number.text == "+0.00"
    assert number.value == pytest.approx(-0.001)


SIGNIFICANCE = """\
dataset,alpha,arm,n,seeds,mean,std,min,max,difference,relative_percent,ci_low,ci_high,t,df,p,\
welch_ci_low,welch_ci_high,welch_t,welch_df,welch_p,cohens_d,reason
cifar100,0.1,fp32,3,42 123 456,54.99,1.28,54.0,56.0,,,,,,,,,,,,,,
cifar100,0.1,q-localadam,3,42 123 456,61.4,0.82,60.0,62.0,6.41,11.66,3.97,8.85,7.3,4.0,0.00186,,,,,0.00001,5.96,
cifar100,0.1,naive-int8,3,42 123 456,12.74,4.75,10.0,18.23,-42.25,-76.83,-50.1,-34.4,-14.9,4.0,0.5,,,,,,-12.1,
cifar10,0.5,q-localadam,1,7,90.0,,90.0,90.0,,,,,,,,,,,,,,no fp32 runs to compare with
cifar10,1.0,fp32,2,1 2,10.0,0.0,10.0,10.0,,,,,,,,,,,,,,
cifar10,1.0,naive-int8,2,1 2,15.0,1.0,14.0,16.0,5.0,50.0,1.0,9.0,5.0,2.0,0.04,,,,,,7.1,
"""


@pytest.fixture
def tested(tmp_path):
    (tmp_path / "significance.csv").write_text(SIGNIFICANCE)
    return tmp_path / "significance.csv"


def test_tests_over_seeds(runs, exact, tested):
    numbers = collected(runs({"accuracy": [50.0]}), {**exact, "significance.multiseed": tested})
    expected = {
        "cifar100/0.1/fp32/seeds": "42, 123, 456",
        "cifar100/0.1/fp32/p": "--",
        "cifar100/0.1/q-localadam/difference": "+6.41",
        "cifar100/0.1/q-localadam/p": "0.0019",
        "cifar100/0.1/q-localadam/welch_p": "<0.0001",
        "cifar100/0.1/q-localadam/df": "4",
        "cifar100/0.1/q-localadam/std_over_fp32": "0.6",
        "cifar100/0.1/naive-int8/relative_percent": "-76.8",
        "cifar100/0.1/naive-int8/max": "18.23",
        "cifar100/0.1/naive-int8/p": "0.50",
        "cifar100/0.1/naive-int8/std_over_q-localadam": "5.8",
        "cifar10/0.5/q-localadam/std": "--",
        "cifar10/0.5/q-localadam/std_over_fp32": "--",
        "cifar10/0.5/q-localadam/seeds": "7",
        "cifar10/1.0/naive-int8/std_over_fp32": "--",
    }
    assert {name: numbers[f"significance/{name}"].text for name in expected} == expected
    assert numbers["significance/cifar100/0.1/fp32/p"].value is None


def test_two_tables_may_test_the_same_but_not_disagree(runs, exact, tested, tmp_path):
    made, other = runs({"accuracy": [50.0]}), tmp_path / "other.csv"
    other.write_text(SIGNIFICANCE)
    files = {**exact, "significance.a": tested, "significance.b": other}
    assert collected(made, files)["significance/cifar100/0.1/fp32/n"].file == str(tested)
    other.write_text(SIGNIFICANCE.replace("54.99", "54.98"))
    both = f"54.99 of {tested} and 54.98 of {other}"
    with pytest.raises(ValueError, match=f"^two numbers have the name 'significance/cifar100/0.1/fp32/mean': {both}$"):
        collect(SPEC, made, files)


def test_contrasts_are_named_by_their_table_and_metric(runs, exact, tmp_path):
    (tmp_path / "contrasts.csv").write_text(CONTRASTS)
    files = {**exact, "contrasts.one": tmp_path / "contrasts.csv", "contrasts.two": tmp_path / "other.csv"}
    (tmp_path / "other.csv").write_text(CONTRASTS.replace("0.0004", "0.5"))
    numbers = collected(runs({"accuracy": [50.0]}), files)
    expected = {
        "cifar10/0.1/fp32/last_third/mean": "80.00",
        "cifar10/0.1/fp32/last_third/difference": "--",
        "cifar10/0.1/fp32/best/mean": "82.00",
        "cifar10/0.1/q-localadam/last_third/n": "5",
        "cifar10/0.1/q-localadam/last_third/difference": "+0.25",
        "cifar10/0.1/q-localadam/last_third/error": "0.30",
        "cifar10/0.1/q-localadam/last_third/freedom": "8",
        "cifar10/0.1/q-localadam/last_third/ci_high": "+0.87",
        "cifar10/0.1/q-localadam/last_third/simultaneous_low": "-0.60",
        "cifar10/0.1/q-localadam/last_third/tost_ci_low": "-0.20",
        "cifar10/0.1/q-localadam/last_third/margin": "4.00",
        "cifar10/0.1/q-localadam/last_third/tost_p": "0.00040",
        "cifar10/0.1/q-localadam/last_third/wider_margin": "8.00",
        "cifar10/0.1/q-localadam/last_third/seeds_needed": "4",
        "cifar10/0.1/q-localadam/final/difference": "-2.50",
        "cifar10/0.1/q-localadam/mean/baseline_mean": "75.00",
        "cifar10/0.1/naive-int8/last_third/p": "<0.0001",
        "cifar10/0.1/naive-int8/last_third/collapsed": "5",
        "cifar10/0.1/Q-LocalAdam, 4 bits/last_third/seeds_needed": "--",
        "cifar100/0.5/q-localadam/best/p": "--",
    }
    assert {name: numbers[f"contrasts/one/{name}"].text for name in expected} == expected
    assert numbers["contrasts/two/cifar10/0.1/q-localadam/last_third/tost_p"].text == "0.50"
    assert not [name for name in numbers if "verdict" in name]


def test_registered_questions_have_an_answer_and_a_difference_on_each_data_set(runs, exact, tmp_path):
    path = answered(tmp_path / "answers.csv")
    numbers = collected(runs({"accuracy": [50.0]}), {**exact, "registered.asked": path})
    rows = pd.read_csv(path).set_index(["question", "dataset"])
    for question, answer, status in (
        ("floor-needed", "yes", "final"),
        ("normalised-8bit", "no", "final"),
        ("loss-scale-floor", "exploratory", "final"),
        ("loss-scale-normalised", "open", "runs missing"),
    ):
        for dataset in ("cifar10", "cifar100"):
            own = {name: numbers[f"registered/{question}/{dataset}/{name}"].text for name in ("answer", "status", "n")}
            assert own == {"answer": answer, "status": status, "n": "0" if answer == "open" else "8"}
            difference = rows.loc[(question, dataset), "difference"]
            said = "--" if pd.isna(difference) else f"{difference:+.2f}"
            assert numbers[f"registered/{question}/{dataset}/difference"].text == said
    assert numbers["registered/floor-needed/cifar10/p"].text == "<0.0001"
    assert numbers["registered/loss-scale-normalised/cifar10/p"].text == "--"


def test_text_has_no_image_size(runs, exact, tmp_path):
    made = runs({"accuracy": [50.0]}, {"accuracy": [40.0], "dataset": "text"})
    made.loc[1, "image_size"] = pd.NA
    numbers = collected(made, exact)
    assert (numbers["setting/cifar10/image_size"].text, numbers["setting/text/image_size"].text) == ("20", "--")


def test_states_of_the_optimizer(runs, exact, tmp_path):
    variance = {"orders_of_magnitude": 10.17, "min_positive": 6.788e-13, "max": 0.0101, "zero_fraction": 0.612}
    summary = {
        "steps": 50,
        "batch_size": 64,
        "parameters": 6294202,
        "log_offset": 1e-8,
        "variance": {**variance, "below_offset": 0.6135},
        "momentum": {"abs_max": 0.1128, "within_0.05": 0.99937, "skewness": None},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    numbers = collected(runs({"accuracy": [50.0]}), {**exact, "distributions.own": tmp_path / "summary.json"})
    states = {name: number.text for name, number in numbers.items() if name.startswith("states/")}
    assert states == {
        "states/own/variance/orders_of_magnitude": "10.2",
        "states/own/variance/min_positive": "6.79e-13",
        "states/own/variance/max": "0.0101",
        "states/own/variance/max_over_min": "1.49e+10",
        "states/own/variance/zero_fraction": "0.612",
        "states/own/variance/zero_fraction_percent": "61.20",
        "states/own/variance/below_offset": "0.614",
        "states/own/variance/below_offset_percent": "61.35",
        "states/own/momentum/abs_max": "0.113",
        "states/own/momentum/within_0.05": "0.999",
        "states/own/momentum/within_0.05_percent": "99.94",
        "states/own/momentum/skewness": "--",
        "states/own/steps": "50",
        "states/own/batch_size": "64",
        "states/own/parameters": "6,294,202",
        "states/own/log_offset": "1e-08",
    }


def test_words_for_numbers():
    assert [p_value(p) for p in (1.0, 0.5, 0.0823, 0.00084, 0.0001, 0.0000999)] == [
        *("1.0", "0.50", "0.082", "0.00084", "0.00010", "<0.0001"),
    ]
    assert [whole(value) for value in (32.5, 33.5, 32.49, 1234.0)] == ["33", "34", "32", "1,234"]
    assert [truncated(value) for value in (2101.94, 0.0)] == ["2,101", "0"]


def test_numbers_need_runs(runs, exact):
    made = runs({"accuracy": [50.0]})
    with pytest.raises(ValueError, match=r"^runs: numbers need training runs, got none$"):
        collect(SPEC, made[:0], exact)


def test_the_script_writes_what_a_number_is_and_where_it_comes_from(runs, exact, tmp_path):
    made = grid_of_runs(runs)
    given = {"input": {name: str(path) for name, path in exact.items()}}
    spec, out = {**SPEC, "asked": None}, {kind: tmp_path / f"numbers.{kind}" for kind in ("tex", "json")}
    run_script("numbers", tmp_path / "job", out, params={"spec": spec, "runs": made["folder"].tolist()}, **given)
    content = json.loads(out["json"].read_text())
    assert content["best/cifar10/0.1/fp32"] == {
        "value": 55.73,
        "text": "55.73",
        "file": f"{made['folder'][0]}/summary.json",
        "measured_on": "Digits in the place of CIFAR-10",
        "of": {"quantity": "best", **typed({"dataset": "cifar10", **DEFAULTS, "alpha": "0.1", "arm": "fp32"})},
    }
    assert content["memory/cifar10/fp32/64/fp32_mb"]["measured_on"] == "", "nothing was trained for it"
    assert len(out["tex"].read_text().splitlines()) == len(content) + 2
    out = {kind: tmp_path / "none" / kind for kind in ("tex", "json")}
    said = run_script("numbers", tmp_path / "job", out, ok=False, params={"spec": spec, "runs": []}, **given)
    assert said == "qlocaladam: runs: numbers need training runs, got none\n"
    assert not (tmp_path / "none").exists()


def test_json_has_no_number_that_json_does_not_know():
    with pytest.raises(ValueError, match="Out of range float"):
        as_json([Number("a", float("nan"), "--", "f")])
