"""Wrong configurations: each is refused before any job in one line that has the key, its value and what is accepted."""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import ROOT, TEST, Project, mistake

from qlocaladam.experiments import configuration
from qlocaladam.experiments.grid import GROUPS
from qlocaladam.results import kinds

CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
SCHEMA = yaml.safe_load((ROOT / configuration.SCHEMA).read_text())
DIGITS = ("scales", "test", "datasets", "cifar10")
PANEL = {"experiments": ["heterogeneity"], "hue": "alpha"}
HELD = {"kind": "clients", "caption": "Words"}
TEXT = {"dataset": "text"}
SEEDS = {"kind": "significance", "experiments": ["main"], "caption": "Words"}


def table(**entry: Any) -> dict[str, Any]:
    return {"kind": "runs", "experiments": ["main"], "rows": "arm", "columns": ["best"], "caption": "Words", **entry}


@pytest.fixture(autouse=True)
def project(monkeypatch):
    monkeypatch.chdir(ROOT)


def refused(change, *overrides: tuple[str, Any]) -> str:
    config = {**deepcopy(CONFIG), "scale": "test"}
    change(config)
    with pytest.raises(ValueError, match=r"^\S+: ") as error:
        configuration.check(config, ["config.yaml"], dict(overrides), kinds.check)
    said = str(error.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("place", "key"),
    [
        (("defaults", "alpha"), "defaults.alpha"),
        (("defaults", "lr"), "defaults.lr"),
        (("experiments", 0, "alpha"), "experiments[0].alpha"),
        (("experiments", 0, "lr"), "experiments[0].lr"),
        (("arms", "fp32", "lr"), "arms.fp32.lr"),
        (("tables", "beyond", "margin"), "tables.beyond.margin"),
        (("arms", "no-floor", "options", "variance_floor"), "arms['no-floor'].options.variance_floor"),
    ],
)
def test_a_number_is_finite(place, key, value):
    assert refused(mistake(*place, value=value)).startswith(f"config.yaml: {key} is {value!r}; accepted: ")


MISTAKES = [
    (("clients",), 10.0, "clients is 10.0; accepted: a whole number of at least 1"),
    (("clients",), True, "clients is True; accepted: a whole number of at least 1"),
    (("clients",), 4, "clients is 4; accepted: at least clients_per_round, which is 5 for cifar10"),
    ((*DIGITS, "training"), {"clients_per_round": 11}, "clients is 10; accepted: at least clients_per_round"),
    (("scales", "test", "training", "rounds"), 2.0, "scales.test.training.rounds is 2.0; accepted: a whole number"),
    (("scales", "test", "training", "image_size"), 1, "scales.test.training.image_size is 1; accepted: a whole"),
    (("scales", "test", "training", "device"), "gpu", "scales.test.training.device is 'gpu'; accepted: cpu, cuda, or"),
    (("scales", "test", "training", "device"), "cpu; touch x #", "scales.test.training.device is 'cpu; touch x #'"),
    ((*DIGITS, "train_images"), 1438, "scales.test.datasets.cifar10.train_images is 1438; accepted: 1 to 1,437"),
    ((*DIGITS, "test_images"), 361, "scales.test.datasets.cifar10.test_images is 361; accepted: 1 to 360"),
    ((*DIGITS, "data"), "imagenet", "scales.test.datasets.cifar10.data is 'imagenet'; accepted: digits, digit-pairs"),
    (("sources",), {"digits": "pyproject.toml"}, "sources.digits is 'pyproject.toml'; accepted: none: digits is"),
    (("sources",), {"mine": "nowhere.npz"}, "sources.mine is 'nowhere.npz'; accepted: a file or folder that is there"),
    (("arms", "naive-int8", "block_size"), 33, None),
    (("arms", "fp32", "options"), {"bits": 4}, "arms.fp32.options.bits is 4; accepted: none: both of its states"),
    (("arms", "q-localadam", "label"), "FP32", "arms.q-localadam.label is 'FP32'; accepted: a label of its own"),
    (("arms", "fp32", "label"), "FP{32}", "arms.fp32.label is 'FP{32}'; accepted: some text without braces, dollars"),
    (("arms", "fp32", "label"), "a $x$ b", "arms.fp32.label is 'a $x$ b'; accepted: some text without braces, dollars"),
    ((*DIGITS, "label"), "$$", "scales.test.datasets.cifar10.label is '$$'; accepted: some text without braces"),
    (("tables", "main", "columns"), ["best", "best"], "tables.main.columns is ['best', 'best']; accepted: a list of"),
    (
        ("tables", "main", "where"),
        {"dataset": {"a": "b"}},
        "tables.main.where.dataset is {'a': 'b'}; accepted: a value",
    ),
    (("tables", "claims"), table(), "tables has a table that is 'claims'; accepted: any name but claims"),
    (("tables", "mixed"), table(experiments=["heterogeneity"]), "tables.mixed: a row for cifar10, fp32 mixes alpha"),
    (("tables", "mixed"), table(experiments=["block-size"]), "tables.mixed: a row for cifar10, q-localadam mixes"),
    (("tables", "seeds"), SEEDS, "tables.seeds has seed 42 alone for cifar10, 0.1, fp32; accepted: at least two seeds"),
    (
        ("tables", "held"),
        {"kind": "clients", "caption": "W", "where": {"dataset": "text"}},
        "tables.held.where.dataset is",
    ),
    (("tables", "held"), {**HELD, "where": {"arm": "fp32"}}, "tables.held.where is {'arm':"),
    (
        ("figures", "held"),
        {"kind": "heatmap", "where": {"dataset": "text"}},
        "figures.held.where.dataset is 'text'; accepted",
    ),
    (("figures", "states"), {"kind": "distributions", "where": TEXT}, "figures.states.where.dataset is 'text'"),
    (
        ("figures", "states"),
        {"kind": "distributions", "where": {"dataset": ["cifar10", "cifar100"]}},
        "figures.states.where.dataset is ['cifar10', 'cifar100']; accepted: a name of letters",
    ),
    (
        ("tables", "main", "margin"),
        0.1,
        "tables.main has an unknown key 'margin'; accepted: kind, caption, group, section, experiments, rows, columns, "
        "where",
    ),
    (("tables", "main", "kind"), "pie", "tables.main.kind is 'pie'; accepted: client_memory, "),
    (("figures", "lines"), {"kind": "convergence", "panels": [PANEL]}, "figures.lines.panels[0]: a line for iid mixes"),
    (("arms", "x" * 20), {"label": "X", "arm": "fp32"}, f"arms is {'x' * 20!r}; accepted: a name of letters"),
    (("colour",), "red", "the file has an unknown key 'colour'; accepted: scale, controls,"),
    (("scales", "quick", "training", "roundz"), 3, "scales.quick.training has an unknown key 'roundz'"),
    (("scales", "quick", "training", "rounds"), "3", "scales.quick.training.rounds is '3'; accepted: a whole"),
    (("experiments", 0, "alpha"), -1, "experiments[0].alpha is -1; accepted: a number above 0, iid, or"),
    (("experiments", 0, "arm"), "sgd", "experiments, main: arm is 'sgd'; accepted: fp32, q-localadam"),
    (("experiments", 0, "block_size"), 0, "experiments[0].block_size is 0; accepted: a whole number of"),
    (("experiments", 1, "name"), "main", "experiments: 2 of them have the name 'main'; each needs its own"),
    (("experiments", 0, "lr"), "5e-4", "experiments[0].lr is '5e-4'; accepted: a number above 0 (write"),
    (("arms", "fp32", "arm"), "sgd", "arms.fp32.arm is 'sgd'; accepted: fp32, q-localadam, naive-int8"),
    (("scale",), "huge", "scale is 'huge'; accepted: test, quick, small, paper"),
    (("experiments", 0, "dataset"), "mnist", "experiments, main: dataset is 'mnist'; accepted: cifar10, cifar100"),
    (("tables", "main", "experiments"), ["mine"], "tables, main: experiments is 'mine'; accepted: main,"),
    (("tables", "main", "where"), {"seed": 1}, "tables, main: where {'seed': 1} selects none of the runs"),
    (("figures", "block_size", "panels", 1, "hue"), "x", "figures.block_size.panels[1].hue is 'x'; accepted"),
    (("tables", "beyond", "margin"), 0, "tables.beyond.margin is 0; accepted: a share of the baseline between 0 and 1"),
    (
        ("figures", "beyond", "table"),
        "main",
        "figures, beyond: table is 'main'; accepted: beyond, beyond_elsewhere, peers",
    ),
    (("experiments", 0, "name"), "ab" * 20, f"experiments[0].name is {'ab' * 20!r}; accepted: a name of letters"),
]


@pytest.mark.parametrize(
    ("place", "value", "said"), MISTAKES, ids=lambda part: None if part is None else str(part)[:40]
)
def test_a_mistake_is_one_line(place, value, said):
    if said is None:
        config = {**deepcopy(CONFIG), "scale": "test"}
        mistake(*place, value=value)(config)
        configuration.check(config, ["config.yaml"], {}, kinds.check)  # 8 bits have blocks of any size
        place, value = ("arms", "naive-int8"), {"label": "N", "arm": "normalised-4bit", "block_size": 33}
        said = "arms.naive-int8 is normalised-4bit with {'block_size': 33}; "
    assert refused(mistake(*place, value=value)).startswith(f"config.yaml: {said}")


@pytest.mark.parametrize("place", [("tables", "beyond", "margin"), ("tables", "main", "rows"), ("defaults",)], ids=str)
def test_what_is_missing_is_named(place):
    *above, key = place

    def remove(config):
        for name in above:
            config = config[name]
        del config[key]

    assert refused(remove).startswith(f"config.yaml: {'.'.join(above) or 'the file'} lacks the key {key!r}")


def test_a_peer_takes_only_its_own_options():
    pytest.importorskip("torchao")
    change = mistake("arms", "fp32", value={"label": "T", "arm": "torchao-8bit", "options": {"variance_floor": 0}})
    assert "arms.fp32 is torchao-8bit with " in refused(change)


def test_a_mistake_says_where_it_came_from(tmp_path):
    nothing = lambda config: None  # noqa: E731
    assert refused(nothing, ("clients", 3)).startswith("--config: clients is 3; accepted: ")
    assert refused(nothing, ("colour", 1)).startswith("--config: the file has an unknown key 'colour'; accepted: ")
    assert refused(nothing, ("scales", {"test": {"training": {"rounds": 0}}})).startswith(
        "--config: scales.test.training"
    )
    (tmp_path / "mine.yaml").write_text("clients: 3\n")
    files = ["config.yaml", tmp_path / "mine.yaml"]
    with pytest.raises(ValueError, match=rf"^{re.escape(os.path.relpath(files[1]))}: clients is 3; accepted: "):
        configuration.check({**deepcopy(CONFIG), "scale": "test", "clients": 3}, files, {}, kinds.check)


def test_values_of_the_command_line_mean_what_they_do_in_the_file():
    given = {"beyond": "true", "scale": "test", "scales": {"test": {"training": {"rounds": "9", "flip": "true"}}}}
    config = deepcopy(CONFIG)
    configuration.check_or_stop(config, ["config.yaml"], given, kinds.check)
    assert config["beyond"] is True
    assert config["scales"]["test"]["training"] == {**CONFIG["scales"]["test"]["training"], "rounds": 9, "flip": True}


def test_a_command_is_told_the_same_configuration():
    given = {"scale": "test", "clients": 7, "scales": {"test": {"training": {"rounds": "9"}}}}
    arguments = configuration.as_arguments(["config.yaml"], given)
    assert arguments[:3] == ["--configfile", "config.yaml", "--config"]
    config = configuration.load(["config.yaml"], arguments[3:], kinds.check)
    assert (config["scale"], config["clients"], config["scales"]["test"]["training"]["rounds"]) == ("test", 7, 9)


def strings(part: Any, *place: Any):
    """The place of every string of a configuration, of a list of strings the first: the others are read as it is."""
    if isinstance(part, dict):
        for key, value in part.items():
            yield from strings(value, *place, key)
    elif isinstance(part, list):
        for number, value in enumerate(part):
            if number == 0 or not isinstance(value, str):
                yield from strings(value, *place, number)
    elif isinstance(part, str):
        yield place


PAYLOAD = 'x\'; touch pwned; "`touch pwned`" & | # {'
PLAIN = "x'; touch pwned; `touch pwned` & | #"
"""Of it what a label may have: neither braces nor dollars."""


def with_payloads(config: dict[str, Any], places: dict[tuple[Any, ...], int], payload: str) -> dict[str, Any] | None:
    """The configuration with a payload at each of these places, if it is accepted."""
    tried = deepcopy(config)
    for place, number in places.items():
        mistake(*place, value=f"{payload} {number}")(tried)
    try:
        configuration.refuse_by_schema(tried, SCHEMA)  # read once, as this is done hundreds of times
        configuration.check(tried, ["config.yaml"], {}, kinds.check)
    except ValueError:
        return None
    return tried


def test_no_string_of_the_configuration_reaches_a_shell_as_a_command(copy):
    """Each is refused, or put into a plan of everything, of which a table, its page and a figure are made."""
    config = {**yaml.safe_load((copy.folder / "config.yaml").read_text()), "scale": "test"}
    alike: dict[str, dict[tuple[Any, ...], int]] = defaultdict(dict)
    for number, place in enumerate(strings(config)):
        alike[[key for key in place if isinstance(key, str)][-1]][place] = number
    accepted = 0
    for places in alike.values():
        together = with_payloads(config, places, PLAIN) is not None
        for some in [places] if together else [{place: number} for place, number in places.items()]:
            for payload in (PLAIN, PAYLOAD):  # what refuses the one refuses the other
                if (tried := with_payloads(config, some, payload)) is None:
                    break
                config = tried
                accepted += len(some) * (payload == PLAIN)
    assert accepted > 50, "captions and labels"
    (copy.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    plan = copy.jobs(*TEST, *(f"{group}=true" for group in GROUPS))
    assert [job["rule"] for job in plan if "pwned" in job["command"]] == []
    copy.snakemake("results/test/tables/main.html", "figures/test/convergence_cifar10.pdf", *TEST)
    assert "pwned" in (copy.folder / "results/test/tables/main.html").read_text()
    assert list(copy.folder.rglob("pwned*")) == []
    assert list(Path.cwd().glob("pwned*")) == []


def test_every_word_of_every_command_is_quoted():
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for command in re.findall(r"    shell:\n((?: {8,}.*\n?)+)", path.read_text()):
            placeholders = re.findall(r"(?<!\{)\{([^{}]+)\}(?!\})", command)
            assert [word for word in placeholders if not word.endswith(":q") and word != "threads"] == [], path


def test_snakemake_says_it_in_one_line_without_a_word_about_python(tmp_path):
    project = Project.fresh(tmp_path / "project")
    for arguments, said in (
        (
            ("--config", "clients=3"),
            "--config: clients is 3; accepted: at least clients_per_round, which is 5 for cifar10",
        ),
        (("--config", "scale=huge"), "--config: scale is 'huge'; accepted: test, quick, small, paper"),
    ):
        lines = project.snakemake("-n", *arguments, ok=False).splitlines()
        assert lines[-1] == said
        assert not any("to do" in line for line in lines)
        assert not any(re.search(r"line \d|Traceback|\.py|\.smk", line) for line in lines)
    (project.folder / "config.yaml").write_text("")
    said = project.snakemake("-n", ok=False)
    assert said.splitlines()[-1] == "config.yaml: is empty; accepted: YAML with keys, as config.yaml has it"


def test_a_device_that_is_not_there_is_refused_before_any_job(tmp_path):
    project = Project.fresh(tmp_path / "project")
    project.configure(mistake("scales", "test", "training", "device", value="cuda:99"))
    said = project.snakemake("train", *TEST, ok=False)
    assert "scales.test.datasets.cifar10.training: device is 'cuda:99'; accepted: cpu" in said
    assert not (project.folder / "results/data").exists()
    project.snakemake("-n", "train", *TEST)  # a host without the device may plan for one that has it
