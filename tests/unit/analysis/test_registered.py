"""The registered questions: the grid has the runs they ask for, no others have their seeds; how they are answered."""

import itertools
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from registered_runs import CONFIG, LABELS, QUESTIONS, REGISTRATION, SEEDS, answered, simulated
from scipy import stats
from scripts import run_script

from qlocaladam.analysis import registered as module
from qlocaladam.analysis.registered import answers
from qlocaladam.experiments import configuration, grid
from qlocaladam.experiments.configuration import registration as load
from qlocaladam.results import kinds
from qlocaladam.results.kinds import registered as shown

ROOT = Path(__file__).parents[3]


@pytest.fixture
def registered():
    return deepcopy(REGISTRATION)


@pytest.fixture(scope="module")
def runs():
    return grid.expand({**CONFIG, **dict.fromkeys(grid.GROUPS, True), "scale": REGISTRATION["scale"]})


def test_the_grid_has_a_run_for_every_seed_of_every_question(registered, runs):
    wanted = {
        (dataset, str(registered["alpha"]), question[side], grid.text(question.get("loss_scale", 1.0)), str(seed))
        for question in registered["questions"]
        for dataset, side, seed in itertools.product(registered["datasets"], ("arm", "baseline"), registered["seeds"])
    }
    own = runs[runs["experiment"].str.startswith("registered")]
    there = set(own[["dataset", "alpha", "arm", "loss_scale", "seed"]].itertuples(index=False, name=None))
    assert there == wanted


def test_registered_seeds_are_used_for_nothing_else(registered, runs):
    others = runs[~runs["experiment"].str.startswith("registered")]
    assert not set(map(str, registered["seeds"])) & set(others["seed"])


# Simulated runs: arms of loss scale 1, then of 1e-4, and how far each is from FP32, which is at 60 %.


def said(table):
    """Answer and status of each question, which are the same in all of its rows."""
    for _, own in table.groupby("question"):
        assert own["dataset"].tolist() == REGISTRATION["datasets"]
        assert len(own[["answer", "status"]].drop_duplicates()) == 1
    first = table.drop_duplicates("question").set_index("question")
    return dict(zip(first.index, first[["answer", "status"]].itertuples(index=False, name=None), strict=True))


def test_answers_are_as_expected_where_the_runs_are():
    table = answers(REGISTRATION, simulated(), "small")
    assert tuple(table) == module.COLUMNS
    assert said(table) == {name: ("no" if name == "above-fp32" else "yes", "final") for name in QUESTIONS}
    assert set(table["n"]) == set(table["seeds_wanted"]) == {8}
    assert set(table["seeds"]) == {" ".join(map(str, SEEDS))}
    assert set(table.loc[table["question"] == "floor-needed", "variance"]) == {"paired"}, "its runs collapsed"
    assert set(table.loc[table["question"] != "floor-needed", "variance"]) == {"pooled"}
    assert table["margin"].tolist() == pytest.approx((0.05 * table["baseline_mean"]).tolist())
    assert table["wider_margin"].tolist() == pytest.approx((0.1 * table["baseline_mean"]).tolist())
    assert table["succeeds"].tolist() == (table["p"] < 0.05).tolist()
    assert table["paired_succeeds"].tolist() == (table["paired_p"] < 0.05).tolist()
    collapsed = table["variance"] == "paired"
    assert table.loc[collapsed, "paired_p"].tolist() == pytest.approx(table.loc[collapsed, "p"].tolist())
    own = simulated().query("dataset == 'cifar10' and loss_scale == 1").pivot(index="seed", columns="arm")["last_third"]
    last = table[(table["question"] == "above-fp32") & (table["dataset"] == "cifar10")].iloc[0]
    alone = stats.ttest_rel(own["q-localadam"], own["fp32"], alternative="greater").pvalue
    assert (last["paired_p"], last["variance"]) == (pytest.approx(alone), "pooled")


def one_question(expected):
    question = {"name": "one", "asks": "Is it?", "arm": "normalised", "baseline": "fp32", "expected": expected}
    return {**deepcopy(REGISTRATION), "questions": [question]}


@pytest.mark.parametrize(
    ("expected", "shift", "answer"),
    [
        ("worse", -2.0, "yes"),
        ("worse", 0.0, "no"),
        ("worse", 2.0, "no"),
        ("better", 2.0, "yes"),
        ("better", 0.0, "no"),
        ("better", -2.0, "no"),
        ("equivalent", 0.0, "yes"),
        ("equivalent", -1.5, "yes"),  # certainly below, and inside of 5 % of 60
        ("equivalent", 3.0, "no"),
        ("equivalent", -3.0, "no"),
        ("equivalent", -8.0, "no"),
        ("not_worse", -1.5, "yes"),
        ("not_worse", 8.0, "yes"),
        ("not_worse", -3.2, "no"),
        ("not_worse", -8.0, "no"),
    ],
)
def test_each_kind_of_question_says_yes_and_no(expected, shift, answer):
    table = answers(one_question(expected), simulated({(1.0, "normalised"): shift}), "small")
    assert said(table) == {"one": (answer, "final")}


def test_the_wider_margin_is_shown_and_decides_nothing():
    table = answers(one_question("equivalent"), simulated({(1.0, "normalised"): -4.5}), "small")
    assert said(table)["one"] == ("no", "final")
    assert (table["p"] > 0.05).all()
    assert (table["wider_p"] < 0.05).all()


def test_both_data_sets_must_succeed():
    runs = simulated()
    runs.loc[(runs["dataset"] == "cifar100") & (runs["arm"] == "normalised"), "last_third"] -= 6
    table = answers(one_question("equivalent"), runs, "small")
    assert table["succeeds"].tolist() == [True, False]
    assert said(table)["one"] == ("no", "final")


def test_the_tests_are_one_sided_at_the_full_level(registered):
    """A p-value between 2.5 and 5 % is a yes, and the 90 % interval says the same."""
    for seed in range(100):
        random = np.random.default_rng(seed)
        runs = simulated()
        chosen = (runs["arm"] == "normalised") & (runs["loss_scale"] == 1.0)
        runs.loc[chosen, "last_third"] += random.normal(0.4, 0.6, chosen.sum())
        row = answers(one_question("better"), runs, "small").iloc[0]
        assert row["succeeds"] == (row["tost_ci_low"] > 0)
        if 0.025 < row["p"] < 0.05:
            assert row["ci_low"] < 0
            return
    pytest.fail("no such case among a hundred")


def test_after_the_first_no_the_rest_is_exploratory():
    table = answers(REGISTRATION, simulated({(1.0, "fp32-floor"): 20.0}), "small")
    assert [answer for answer, _ in said(table).values()] == ["yes", "no", *["exploratory"] * 5]
    assert {status for _, status in said(table).values()} == {"final"}
    assert table["succeeds"].sum() > 6, "though their tests would succeed, which is shown"


def test_after_a_question_that_is_open_the_rest_is_exploratory_or_open():
    missing = {(1.0, "fp32-floor"): None, (0.0001, "normalised"): None}
    found = said(answers(REGISTRATION, simulated(missing), "small"))
    assert [answer for answer, _ in found.values()] == [
        *("yes", "open", "exploratory", "exploratory", "open", "exploratory", "exploratory"),
    ]
    assert [name for name, (_, status) in found.items() if status == "runs missing"] == [
        "same-floor",
        "loss-scale-normalised",
    ]


def test_runs_of_one_data_set_alone_leave_a_question_open():
    runs = simulated()
    table = answers(REGISTRATION, runs[runs["dataset"] == "cifar10"], "small")
    assert set(said(table).values()) == {("open", "runs missing")}
    assert table[table["dataset"] == "cifar10"]["p"].notna().all()


def test_only_registered_seeds_alphas_and_loss_scales_count_in_any_order():
    own, others = simulated(), simulated({(1.0, "normalised"): 30.0}, seeds=range(1, 9))
    more = [simulated({(1.0, "normalised"): 30.0}).assign(alpha="0.5"), own.assign(loss_scale=0.01)]
    mixed = pd.concat([others, *more, own]).sample(frac=1, random_state=3)
    found, alone = (answers(REGISTRATION, given, "small") for given in (mixed, own))
    pd.testing.assert_frame_equal(found, alone, rtol=1e-9)
    assert set(said(answers(REGISTRATION, others, "small")).values()) == {("open", "runs missing")}


def test_another_scale_answers_nothing():
    table = answers(REGISTRATION, simulated(), "quick")
    assert set(said(table).values()) == {("open", "another scale")}
    assert table["difference"].notna().all(), "what was found is shown"


@pytest.mark.parametrize("seeds", [2, 7])
def test_an_answer_is_preliminary_until_all_seeds_are_in(seeds):
    found = said(answers(REGISTRATION, simulated(seeds=SEEDS[:seeds]), "small"))
    assert {status for _, status in found.values()} == {"preliminary"}
    assert found["floor-needed"][0] == "yes"
    one_arm_less = simulated()
    last = (one_arm_less["seed"] == SEEDS[-1]) & (one_arm_less["arm"] == "normalised-4bit")
    found = said(answers(REGISTRATION, one_arm_less[~last], "small"))
    assert [name for name, (_, status) in found.items() if status == "preliminary"] == ["normalised-4bit"]


def test_one_seed_is_not_enough():
    table = answers(REGISTRATION, simulated(seeds=SEEDS[:1]), "small")
    assert set(said(table).values()) == {("open", "runs missing")}
    assert (set(table["n"]), set(table["reason"])) == ({1}, {"one seed: nothing to test"})


@pytest.mark.parametrize("none", [pd.DataFrame(), simulated()[:0]], ids=["no columns", "no rows"])
def test_without_runs_every_question_is_open(none):
    table = answers(REGISTRATION, none, "small")
    assert said(table) == dict.fromkeys(QUESTIONS, ("open", "runs missing"))
    assert (set(table["n"]), set(table["reason"])) == ({0}, {"runs of either arm are missing"})
    assert len(table) == 14


def test_runs_that_are_there_but_the_same_are_not_called_missing():
    runs = simulated()
    runs = runs[runs["arm"].isin(["fp32", "normalised"]) & (runs["loss_scale"] == 1.0)]
    theirs = runs.loc[runs["arm"] == "fp32", "last_third"].to_numpy()
    runs.loc[runs["arm"] == "normalised", "last_third"] = theirs
    table = answers(one_question("equivalent"), runs, "small")
    assert said(table)["one"] == ("open", "nothing to test")
    assert set(table["n"]) == {8}


# The registration itself.


@pytest.fixture
def written(registered, tmp_path, monkeypatch):
    """Write a registration with a change, and load it."""
    monkeypatch.chdir(ROOT)

    def write(change):
        change(registered)
        path = tmp_path / "registered.yaml"
        path.write_text(yaml.safe_dump(registered, sort_keys=False))
        return path

    return write


def test_the_registration_is_read_as_it_is(registered, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert load("paper/registered.yaml") == registered


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(seeds=[2001]), r"seeds is \[2001\]; accepted: a list of at least two whole numbers"),
        (lambda r: r.update(seeds=[1, 1]), r"seeds is \[1, 1\]; accepted: a list of at least two whole numbers"),
        (lambda r: r.update(margin=5), "margin is 5; accepted: a number between 0 and 1"),
        (lambda r: r.update(level=0), "level is 0; accepted: a number between 0 and 1"),
        (lambda r: r.update(metric="worst"), "metric is 'worst'; accepted: last_third, best, final, mean"),
        (lambda r: r.update(alpha=-1), "alpha is -1; accepted: a number above 0, or iid"),
        (lambda r: r.update(datasets="cifar10"), "datasets is 'cifar10'; accepted: a list of data sets"),
        (lambda r: r.update(questions=[]), r"questions is \[\]; accepted: a list of questions, each with name, asks"),
        (lambda r: r.pop("wider_margin"), "the file lacks the key 'wider_margin'"),
        (lambda r: r.update(extra=1), "the file has an unknown key 'extra'; accepted: scale, datasets, alpha"),
        (lambda r: r["questions"][0].pop("arm"), r"questions\[0\] lacks the key 'arm'"),
        (
            lambda r: r["questions"][1].update(expected="same"),
            r"questions\[1\].expected is 'same'; accepted: worse, better, equivalent, not_worse",
        ),
        (
            lambda r: r["questions"][3].update(loss_scale="1e-4"),
            r"questions\[3\].loss_scale is '1e-4'; accepted: a number above 0 \(write 0.0001 or 1.0e-4\)",
        ),
        (
            lambda r: r["questions"][1].update(name="floor-needed"),
            "questions has 'floor-needed' 2 times; each needs a name of its own",
        ),
        (
            lambda r: r["questions"][1].update(arm="fp32-floor"),
            "same-floor: arm is 'fp32-floor', which is its baseline, too; accepted: another",
        ),
    ],
)
def test_a_registration_that_is_wrong_is_refused_in_one_line(written, change, message):
    path = written(change)
    with pytest.raises(ValueError, match=f"^{path}: {message}") as error:
        load(path)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_registration_is_refused(written, tmp_path):
    path = written(lambda r: None)
    path.write_text(path.read_text() + "scale: quick\n")
    with pytest.raises(ValueError, match=f"^{path}: line .* has the key 'scale' a second time"):
        load(path)
    with pytest.raises(ValueError, match=r"none.yaml: cannot be read"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(scale="tiny"), "scale is 'tiny'; accepted: test, quick, small, paper"),
        (lambda r: r.update(datasets=["mnist"]), "datasets is 'mnist'; accepted: cifar10, cifar100, "),
        (lambda r: r["questions"][0].update(arm="none"), "floor-needed: arm is 'none'; accepted: fp32, q-localadam, "),
        (
            lambda r: r["questions"][1].update(baseline="x"),
            "same-floor: baseline is 'x'; accepted: fp32, q-localadam, ",
        ),
    ],
)
def test_questions_ask_for_what_the_configuration_has(written, monkeypatch, change, message):
    monkeypatch.setattr(configuration, "REGISTERED", str(written(change)))
    with pytest.raises(ValueError, match=rf"^config.yaml: tables.registered shows \S+, whose {message}") as error:
        configuration.load(["config.yaml"], [], kinds.check)
    assert "\n" not in str(error.value)


def test_seeds_of_other_experiments_are_refused(written, monkeypatch):
    monkeypatch.setattr(configuration, "REGISTERED", str(written(lambda r: r.update(seeds=[456, 3002, 42]))))
    said = "registered.yaml: seeds has 42, which experiments.main has, too; accepted: seeds that nothing else uses$"
    with pytest.raises(ValueError, match=said):
        configuration.load(["config.yaml"], [], kinds.check)


def test_a_configuration_without_the_table_needs_no_questions(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(configuration, "REGISTERED", "nowhere.yaml")
    kinds.check({**CONFIG, "tables": {"main": CONFIG["tables"]["main"]}, "figures": {}, "gallery": []})
    with pytest.raises(ValueError, match=r"nowhere\.yaml: cannot be read"):
        kinds.check(CONFIG)


def test_the_script_answers_without_runs_and_refuses_in_one_line(written, tmp_path):
    params = {"analysis": "registered", "runs": [], "asked": None, "options": {"scale": "small"}}
    path, out = written(lambda r: None), {"csv": tmp_path / "answers.csv"}
    run_script("test_over_seeds", tmp_path / "job", out, input={"questions": str(path)}, params=params)
    table = pd.read_csv(tmp_path / "answers.csv")
    assert tuple(table) == module.COLUMNS
    assert set(table["status"]) == {"runs missing"}
    path = written(lambda r: r.update(margin=5))
    inputs = {"questions": str(path)}
    said = run_script("test_over_seeds", tmp_path / "job", out, ok=False, input=inputs, params=params)
    assert said == f"qlocaladam: {path}: margin is 5; accepted: a number between 0 and 1\n"


# As they are shown.

SPEC = {"kind": "registered", "name": "registered", "caption": "Answers", "scale": "small", "labels": LABELS}


def test_a_table_has_every_question_its_answer_and_what_it_rests_on(tmp_path):
    table = shown.table(SPEC, None, {"answers": answered(tmp_path / "answers.csv")})
    assert table.caption == r"Answers. Scale \emph{small}: 2 yes, 1 no, 3 exploratory, 1 open."
    rows = [row for group in table.groups for row in group.rows]
    assert len(rows) == 14
    assert [row[-1] for row in rows[::2]] == [
        *(r"\textbf{yes}", r"\textbf{yes}", r"\textbf{no}", "exploratory", "open"),
        *("exploratory", "exploratory"),
    ]
    assert [row[-1] for row in rows[1::2]] == [*[""] * 4, "(runs missing)", "", ""]
    assert [row[0] for row in rows[:4]] == [
        *(LABELS["arm"]["no-floor"], f"below {LABELS['arm']['fp32']}"),
        *(LABELS["arm"]["q-localadam"], f"equivalent to {LABELS['arm']['fp32-floor']}"),
    ]
    assert rows[7][0] == rf"below {LABELS['arm']['fp32']}, losses $\times$0.0001"
    assert [column.head for column in table.columns][3:6] == ["Best", "Final", "All"]
    assert rows[0][3:6] == [rows[0][2].partition(" [")[0]] * 3, "the other metrics are 1 higher in both arms"
    assert rows[0][6] == "--", "a difference alone has no margin"
    assert rows[2][6] == f"{0.05 * table.data.loc[2, 'baseline_mean']:.2f}"
    assert rows[0][7] == "$<$0.001"
    assert rows[8][2:9] == [*["--"] * 6, "0 of 8"]
    assert [row[8] for row in rows[:8]] == ["8 of 8"] * 8


def test_a_run_without_an_accuracy_is_named_and_leaves_the_answer_preliminary(tmp_path):
    runs = simulated()
    unknown = (runs["arm"] == "q-localadam") & (runs["seed"] == SEEDS[2]) & (runs["dataset"] == "cifar10")
    runs.loc[unknown & (runs["loss_scale"] == 1.0), "last_third"] = np.nan
    found = answers(REGISTRATION, runs, "small")
    row = found[(found["question"] == "same-floor") & (found["dataset"] == "cifar10")].iloc[0]
    assert (row["n"], row["status"], row["variance"]) == (7, "preliminary", "paired")
    assert str(SEEDS[2]) not in row["seeds"].split()
    assert row["reason"] == f"left out, for want of an accuracy: seed {SEEDS[2]}"
    found.to_csv(tmp_path / "answers.csv", index=False)
    notes = " ".join(shown.table(SPEC, None, {"answers": tmp_path / "answers.csv"}).notes)
    assert f"same-floor, CIFAR-10: left out, for want of an accuracy: seed {SEEDS[2]}." in notes
    assert "CIFAR-100: left out" not in notes


def test_a_table_says_where_the_paired_test_of_two_seeds_says_otherwise(tmp_path):
    found = answers(REGISTRATION, simulated(seeds=SEEDS[:2]), "small")
    found.to_csv(tmp_path / "answers.csv", index=False)
    notes = shown.table(SPEC, None, {"answers": tmp_path / "answers.csv"}).notes
    otherwise = found[(found["p"] < 0.05) != (found["paired_p"] < 0.05)].to_dict("records")
    assert 0 < len(otherwise) < len(found)
    said = [f"{row['question']}, {LABELS['dataset'][row['dataset']]}" for row in otherwise]
    p = [f"$p={row['paired_p']:.3f}$" for row in otherwise]
    assert notes[len(shown.NOTES) :] == [
        f"{where}: the paired test says otherwise, {value}." for where, value in zip(said, p, strict=True)
    ]


def test_a_figure_has_a_row_for_every_question(tmp_path):
    path = answered(tmp_path / "answers.csv")
    figure = shown.figure(SPEC, [], {"answers": path})
    assert [axes.get_title() for axes in figure.axes] == ["CIFAR-10", "CIFAR-100"]
    labels = [" ".join(label.get_text().split()) for label in figure.axes[0].get_yticklabels()]
    assert labels == [question["asks"] for question in REGISTRATION["questions"]]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["yes", "no", "exploratory", "open", "90 % interval", "margin of equivalence"]
    table = pd.read_csv(path)
    for axes, dataset in zip(figure.axes, REGISTRATION["datasets"], strict=True):
        own = table[table["dataset"] == dataset].reset_index()
        points = {line.get_ydata()[0]: line for line in axes.lines if line.get_marker() in shown.MARKERS.values()}
        assert {place: line.get_marker() for place, line in points.items()} == {
            place: shown.MARKERS[row["answer"]] for place, row in own.iterrows() if place not in (0, 4)
        }
        far = [text.get_text() for text in axes.texts if text.get_position()[1] == 0 and text.get_text()]
        percent = 100 * own.loc[0, "difference"] / own.loc[0, "baseline_mean"]
        assert far == [f"{percent:.1f}".replace("-", "\N{MINUS SIGN}")], "one that collapsed is an arrow and a number"
        low, high = axes.get_xlim()
        for place, line in points.items():
            percent = 100 * own.loc[place, "difference"] / own.loc[place, "baseline_mean"]
            assert line.get_xdata()[0] == pytest.approx(percent)
        assert [text.get_text() for text in axes.texts if text.get_position()[1] == 4] == ["runs missing"]
        assert low < -5 < 5 < high, "the margin is seen whole"


def test_a_figure_says_what_is_preliminary_and_where_an_interval_goes_on(tmp_path):
    runs = simulated(seeds=SEEDS[:2])
    chosen = (runs["arm"] == "q-localadam") & (runs["loss_scale"] == 0.0001)
    runs.loc[chosen, "last_third"] += 4 * (-1) ** np.arange(chosen.sum())
    answers(REGISTRATION, runs, "small").to_csv(tmp_path / "answers.csv", index=False)
    figure = shown.figure(SPEC, [], {"answers": tmp_path / "answers.csv"})
    labels = [" ".join(label.get_text().split()) for label in figure.axes[0].get_yticklabels()]
    assert labels == [f"{question['asks']} (preliminary)" for question in REGISTRATION["questions"]]
    place = QUESTIONS.index("loss-scale-floor")
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "<"]
    assert [line.get_ydata()[0] for line in marks] == [place]
    assert marks[0].get_xdata()[0] == figure.axes[0].get_xlim()[0]


def test_questions_without_any_runs_can_be_shown(tmp_path):
    path = tmp_path / "answers.csv"
    answers(REGISTRATION, pd.DataFrame(), "small").to_csv(path, index=False)
    table = shown.table(SPEC, None, {"answers": path})
    assert table.caption.endswith("7 open.")
    figure = shown.figure(SPEC, [], {"answers": path})
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == ["runs missing"] * 7
        assert axes.get_xticks().tolist() == [], "no numbers where there is nothing to read off"
