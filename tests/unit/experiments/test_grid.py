"""The grid of config.yaml: which runs it names, what a table selects, and mistakes that are said in one line."""

import copy
import itertools
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from qlocaladam.experiments import configuration, grid
from qlocaladam.experiments.configuration import refuse_unreadable
from qlocaladam.experiments.grid import GRID
from qlocaladam.results import kinds

ROOT = Path(__file__).parents[3]
CONFIG = {
    "scale": "tiny",
    "reference": False,
    "clients": 10,
    "controls": False,
    "beyond": False,
    "datasets": {"ten": {}, "hundred": {}},
    "arms": {"fp32": {}, "dynamic": {"block_size": 256, "lr": 0.01}, "floor": {}},
    "defaults": {"alpha": 0.1, "block_size": 64, "lr": 0.001, "seed": 42},
    "experiments": [
        {"name": "main", "dataset": ["ten", "hundred"], "arm": ["fp32", "dynamic"]},
        {"name": "alphas", "dataset": "ten", "arm": "fp32", "alpha": ["iid", 1, 0.1]},
        {"name": "controls", "group": "controls", "dataset": "ten", "arm": "floor"},
    ],
    "tables": {"main": {"kind": "runs", "experiments": ["main"]}},
    "figures": {"lines": {"kind": "convergence", "panels": [{"experiments": ["main"]}, {"experiments": ["alphas"]}]}},
    "scales": {
        "tiny": {"training": {"rounds": 2, "width": 4}, "datasets": {"ten": {"training": {"width": 8}}, "hundred": {}}},
        "large": {"training": {"rounds": 120}, "datasets": {"ten": {}}},
    },
}


@pytest.fixture
def config():
    return copy.deepcopy(CONFIG)


def words(rows):
    usual = [name for name in GRID if name not in grid.AS_IN_THE_PAPER]
    return [" ".join(row) for row in rows[usual].itertuples(index=False)]


def checked(config):
    grid.check(config)
    for part in ("tables", "figures"):
        for name, entry in config[part].items():
            kinds.check_selection(config, f"{part}, {name}", entry)


@pytest.mark.parametrize(
    ("value", "word"), [(1, "1.0"), (1.0, "1.0"), (0.1, "0.1"), (5e-4, "0.0005"), (1e-5, "1e-05"), ("iid", "iid")]
)
def test_a_value_has_one_word(value, word):
    assert grid.text(value) == word


def test_a_list_makes_a_run_for_each_entry_in_the_order_of_the_file(config):
    runs = grid.expand(config)
    assert runs["experiment"].tolist() == ["main"] * 4 + ["alphas"] * 3
    assert words(runs) == [
        "ten 0.1 fp32 64 0.001 42",
        "ten 0.1 dynamic 256 0.01 42",
        "hundred 0.1 fp32 64 0.001 42",
        "hundred 0.1 dynamic 256 0.01 42",
        "ten iid fp32 64 0.001 42",
        "ten 1.0 fp32 64 0.001 42",
        "ten 0.1 fp32 64 0.001 42",
    ]


def test_an_experiment_comes_before_its_arm_and_that_before_the_defaults(config):
    config["experiments"] = [{"name": "a", "dataset": "ten", "arm": ["dynamic", "fp32"], "lr": [0.5, 2], "seed": 0}]
    assert words(grid.expand(config)) == [
        "ten 0.1 dynamic 256 0.5 0",
        "ten 0.1 dynamic 256 2.0 0",
        "ten 0.1 fp32 64 0.5 0",
        "ten 0.1 fp32 64 2.0 0",
    ]


def test_a_group_is_one_key_away(config):
    assert "controls" not in set(grid.expand(config)["experiment"])
    config["controls"] = True
    assert words(grid.expand(config))[-1] == "ten 0.1 floor 64 0.001 42"
    assert grid.is_on(config, {"group": "controls"})
    assert grid.is_on({}, {})


@pytest.mark.parametrize("scale", ["test", "quick", "small", "paper"])
def test_what_goes_beyond_the_paper_leaves_its_runs_as_they_are(scale):
    config = {**yaml.safe_load((ROOT / "config.yaml").read_text()), "scale": scale}
    paper, both = (grid.unique(grid.expand({**config, "beyond": on})) for on in (False, True))
    assert words(both)[: len(paper)] == words(paper)
    assert set(paper["dataset"]) == {"cifar10", "cifar100"}
    assert len(both) - len(paper) == 137 + 18 + 12 + 18 + 30 + 18
    checked({**config, "beyond": True})
    seeds = both.groupby(["dataset", "alpha", "arm", "block_size", "lr"])["seed"].nunique()
    for dataset, alpha, arm in itertools.product(("cifar10", "cifar100"), ("0.1", "0.5"), ("fp32", "normalised-4bit")):
        assert seeds[dataset, alpha, arm, "64", "0.001"] == 5


def test_data_that_only_a_group_uses_need_not_be_there_while_it_is_off(config):
    config["datasets"]["text"] = {}
    config["experiments"].append({"name": "text", "group": "beyond", "dataset": "text", "arm": "fp32"})
    checked(config)
    config["beyond"] = True
    said = "experiments, text: dataset at scale tiny is 'text'; accepted: ten, hundred"
    with pytest.raises(ValueError, match=f"^{said}$"):
        checked(config)


def test_a_figure_draws_the_tests_of_a_table_that_is_there_whenever_it_is(config):
    tests = {"kind": "contrasts", "experiments": ["main"], "margin": 0.05}
    config["tables"] |= {"always": tests, "controls": {**tests, "group": "controls", "experiments": ["controls"]}}
    figure = config["figures"]["tests"] = {"kind": "contrasts", "table": "always"}
    checked(config)
    for wrong in ("controls", "main", "nothing"):
        figure["table"] = wrong
        with pytest.raises(ValueError, match=f"^figures, tests: table is '{wrong}'; accepted: always$"):
            checked(config)
    figure |= {"group": "controls", "table": "controls"}
    checked(config)


def test_a_baseline_is_an_arm_of_the_table(config):
    arms = config["experiments"][0]["arm"]
    table = config["tables"]["tests"] = {"kind": "contrasts", "experiments": ["main"], "margin": 0.05}
    table["baseline"] = arms[-1]
    checked(config)
    table["baseline"] = "floor"
    with pytest.raises(ValueError, match=f"^tables, tests: baseline is 'floor'; accepted: {', '.join(arms)}$"):
        checked(config)


def test_no_experiments_are_an_empty_grid_with_columns(config):
    config["experiments"] = []
    assert grid.unique(grid.expand(config)).columns.tolist() == list(GRID)


def test_what_two_experiments_share_is_trained_once(config):
    runs = grid.unique(grid.expand(config))
    assert len(runs) == 6
    assert runs.columns.tolist() == list(GRID)
    assert grid.selected(grid.expand(config), {"experiments": ["alphas"]}).index.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("entry", "count"),
    [
        ({"experiments": ["main"]}, 4),
        ({"experiments": ["main", "alphas"]}, 6),
        ({"experiments": ["alphas"], "where": {"alpha": 1}}, 1),
        ({"experiments": ["alphas"], "where": {"alpha": ["iid", 0.1]}}, 2),
        ({"experiments": ["main"], "where": {"dataset": "ten", "lr": 0.01}}, 1),
        ({"experiments": ["main"], "where": {"block_size": 256}}, 2),
        ({"experiments": ["main"], "where": {"seed": [42, 7]}}, 4),
        ({"experiments": ["main"], "where": {"seed": 7}}, 0),
        ({"experiments": []}, 0),
    ],
)
def test_where_selects_by_value(config, entry, count):
    assert len(grid.selected(grid.expand(config), entry)) == count


def test_how_a_data_set_is_trained_comes_before_how_its_scale_is(config):
    assert grid.training(config, "ten") == {"rounds": 2, "width": 8}
    assert grid.training(config, "hundred") == {"rounds": 2, "width": 4}
    assert grid.training({**config, "scale": "large"}, "ten") == {"rounds": 120}


@pytest.mark.parametrize("scale", ["test", "quick", "small", "paper"])
def test_the_grid_of_the_project_fits_together(scale):
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    checked({**config, "scale": scale})
    arms = Counter(grid.unique(grid.expand(config))["arm"])
    assert arms == {"fp32": 12, "q-localadam": 18, "naive-int8": 7, "momentum-only": 2, "variance-only": 2}


def test_check_accepts_what_fits(config):
    config["tables"]["controls"] = {"kind": "runs", "group": "controls", "experiments": ["controls"]}
    config["tables"]["mixed"] = {"kind": "runs", "experiments": ["main", "controls"]}
    config["figures"]["states"] = {"kind": "distributions", "where": {"dataset": "ten"}}
    checked(config)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("scale",), "huge", "scale is 'huge'; accepted: tiny, large"),
        (("scale",), "large", "experiments, main: dataset at scale large is 'hundred'; accepted: ten"),
        (("experiments", 0, "arm"), ["fp32", "sgd"], "experiments, main: arm is 'sgd'; accepted: fp32, dynamic, floor"),
        (("experiments", 1, "name"), "main", "experiments: 2 of them have the name 'main'; each needs its own"),
        (
            ("figures", "lines", "panels", 1, "experiments"),
            ["beta"],
            "figures, lines, panel 2: experiments is 'beta'; accepted: main, alphas, controls",
        ),
        (
            ("figures", "lines", "panels", 0, "where"),
            {"alpha": 0.3},
            "figures, lines, panel 1: where {'alpha': 0.3} selects none of the runs of its experiments that are on",
        ),
        (
            ("tables", "main", "experiments"),
            ["controls"],
            "tables, main: where {} selects none of the runs of its experiments that are on",
        ),
        (
            ("tables", "held"),
            {"kind": "clients", "where": {"dataset": ["ten", "mnist"]}},
            "tables, held: where: dataset is 'mnist'; accepted: ten, hundred",
        ),
    ],
)
def test_what_does_not_fit_is_named(config, place, value, message):
    part = config
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        checked(config)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", 3),
        ("a:\n  b: 1\n  c: 2\n  b: 1\n", "b", 4),
        ("a:\n  - {b: 1}\n  - {c: 1, d: 2, c: 3}\n", "c", 3),
        ("a: 1\n'a': 1\n", "a", 2),
    ],
)
def test_a_key_twice_in_one_mapping_is_refused(tmp_path, text, key, line):
    (tmp_path / "config.yaml").write_text(text)
    said = f"config.yaml: line {line} has the key '{key}' a second time; each may be there once"
    with pytest.raises(ValueError, match=f"{re.escape(said)}$"):
        refuse_unreadable(tmp_path / "config.yaml")


@pytest.mark.parametrize("text", ["a: {b: 1}\nc: {b: 1}\n", "d:\n- {a: 1}\n- {a: 1}\n", "a: b\nb: a\n"])
def test_a_key_in_two_mappings_is_fine(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    refuse_unreadable(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("# nothing but a comment\n", "is empty"),
        ("- a\n- b\n", "is without keys"),
        ("a: [1\n", "is not YAML (while parsing a flow sequence"),
        ("a: \x00\n", "is not YAML (unacceptable character"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused_in_one_line(tmp_path, text, said):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"config.yaml: {said}")) as refused:
        refuse_unreadable(tmp_path / "config.yaml")
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith("; accepted: YAML with keys, as config.yaml has it")


SCHEMA = {
    "additionalProperties": False,
    "required": ["scale"],
    "properties": {
        "scale": {"type": "string", "description": "a name"},
        "stem": {"enum": ["7x7", "3x3"]},
        "arms": {
            "type": "array",
            "items": {"additionalProperties": False, "required": ["lr"], "properties": {"lr": {"type": "number"}}},
        },
    },
}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"scale": "a", "colour": 1}, "the file has an unknown key 'colour'; accepted: scale, stem, arms"),
        ({}, "the file lacks the key 'scale'"),
        ({"scale": 3}, "scale is 3; accepted: a name"),
        ({"scale": "a", "stem": 7}, "stem is 7; accepted: 7x7, 3x3"),
        ({"scale": "a", "arms": [{"lr": 1}, {"lr": 1, "eps": 0}]}, "arms[1] has an unknown key 'eps'; accepted: lr"),
        ({"scale": "a", "arms": [{}]}, "arms[0] lacks the key 'lr'"),
        ({"scale": "a", "arms": [{"lr": "x"}]}, "arms[0].lr is 'x'; accepted: 'x' is not of type 'number'"),
    ],
)
def test_a_complaint_of_the_schema_is_one_line(config, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        configuration.refuse_by_schema(config, SCHEMA)
