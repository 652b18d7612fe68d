"""The plan of the first call after a change is the one that leaves nothing to do, for every key of config.yaml.

What must be made follows from two plans of fresh clones, with and without the change: the jobs whose command or files
are others, and all that follows from them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import yaml
from projects import ROOT, TEST, Project, mistake

from qlocaladam.experiments.grid import GROUPS
from qlocaladam.results.layout import CLIENT_FILES

CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
SCALE = ("scales", "test")
DIGITS, PAIRS = ((*SCALE, "datasets", name) for name in ("cifar10", "cifar100"))


class Job(NamedTuple):
    rule: str
    input: frozenset[str]
    output: frozenset[str]
    command: str
    params: str
    light: bool


def jobs(project: Project, *arguments: str) -> set[Job]:
    """All jobs of a plan that make files."""
    return {
        Job(**{**job, "input": frozenset(job["input"]), "output": frozenset(job["output"])})
        for job in project.jobs(*TEST, *arguments)
        if job["output"]
    }


def needed(before: set[Job], after: set[Job]) -> set[frozenset[str]]:
    """The outputs of what a change makes necessary."""
    must = {job for job in after if job not in before}
    while more := {job for job in after - must if any(job.input & other.output for other in must)}:
        must |= more
    return {job.output for job in must}


def change_of(*place: object, value: object) -> tuple[str, object]:
    return ".".join(map(str, place)), mistake(*place, value=value)


def several(*changes: tuple[str, Callable[[dict[str, Any]], None]]) -> tuple[str, Callable[[dict[str, Any]], None]]:
    """One plan shows several changes if the first that is made of one is made of no other: runs of two arms, say."""

    def change(config: dict[str, Any]) -> None:
        for _, one in changes:
            one(config)

    return " and ".join(name for name, _ in changes), change


CHANGES = [
    change_of("controls", value=True),
    change_of("clients", value=7),
    change_of("datasets", "cifar10", "label", value="Other"),
    change_of("arms", "fp32", "label", value="Other"),
    several(
        change_of("arms", "naive-int8", "arm", value="dynamic-8bit"),
        change_of("arms", "momentum-only", "lr", value=0.01),
        change_of("arms", "variance-only", "block_size", value=32),
    ),
    change_of("arms", "naive-int8", "options", value={"variance_floor": 1e-8}),
    change_of("defaults", "alpha", value=0.2),
    change_of("defaults", "block_size", value=32),
    change_of("defaults", "lr", value=0.01),
    change_of("defaults", "seed", value=7),
    change_of("experiments", 4, "alpha", value=0.2),
    several(
        change_of("tables", "main", "caption", value="Other"),
        change_of("tables", "lr_sensitivity", "columns", value=["best"]),
        change_of("tables", "blocksize_ablation", "where", value={"dataset": "cifar10"}),
        change_of("figures", "block_size", "panels", 0, "where", value={"dataset": "cifar100"}),
        change_of("figures", "optimizer_dist_c10", "where", value={"dataset": "cifar100"}),
    ),
    change_of(*SCALE, "training", "rounds", value=3),
    *(
        several(change_of(*DIGITS, "training", value=of_digits), change_of(*PAIRS, "training", value=of_pairs))
        for of_digits, of_pairs in (
            ({"clients_per_round": 4}, {"epochs": 2}),
            ({"batch_size": 16}, {"width": 6}),
            ({"image_size": 44}, {"stem": "3x3"}),
            ({"flip": True}, {"precision": "bf16"}),
        )
    ),
    several(change_of(*DIGITS, "data", value="digit-pairs"), change_of(*PAIRS, "label", value="Other")),
    several(change_of(*DIGITS, "train_images", value=200), change_of(*PAIRS, "test_images", value=50)),
]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A clone in which nothing was made, and its plan."""
    project = Project.fresh(tmp_path_factory.mktemp("fresh") / "project")
    return project, jobs(project)


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_the_first_plan_leaves_nothing_to_do(finished, fresh, name, change, tmp_path):
    clone, before = fresh
    (tmp_path / "config.yaml").write_text((ROOT / "config.yaml").read_text())
    changed = Project(tmp_path)
    changed.configure(change)
    config = ("--configfile", str(tmp_path / "config.yaml"))
    wanted = needed(before, jobs(clone, *config))
    assert wanted, "it changes something"
    planned = {job.output for job in jobs(finished, *config)}
    assert planned == wanted
    assert not (clone.folder / "results").exists()


def test_groups_change_no_job_of_the_plain_call(fresh):
    """What is made by the same command from the same inputs has the same bytes. And what trains is all that a cluster
    gets of it."""
    clone, plain = fresh
    more = jobs(clone, *(f"{group}=true" for group in GROUPS))
    assert {job.rule for job in more if not job.light} == {"training_run", *CLIENT_FILES}
    made = frozenset().union(*(job.output for job in plain))
    shared = {job for job in more if job.output & made}
    assert {"memory", "table", "figure", "training_run", "distributions"} <= {job.rule for job in shared}
    assert shared <= plain
    pages = {"ledger_page", "reproducibility_page", "results_page"}
    together = {"collect_numbers", "judge", *pages, "check_results", "passed"}
    assert {job.rule for job in plain - shared} - {"compile"} == together, "they have a folder of their own"


def test_groups_change_no_file_of_the_plain_call(copy):
    """Registered questions are shown without runs, too."""
    files = [path for part in ("results", "figures", "paper/generated") for path in (copy.folder / part).rglob("*.*")]
    before = {path: path.read_bytes() for path in files if path.is_file() and "logs" not in path.parts}
    copy.snakemake("claims", "results/test/tables/registered.csv", *TEST, "registered=true", "train=false")
    assert (copy.folder / "results/test/with-registered/claims.csv").exists()
    assert {path: path.read_bytes() for path in before} == before
    assert copy.planned(*TEST) == {}


def test_what_a_job_gets_and_how_often_a_run_is_saved_decide_nothing(copy):
    """Threads are recorded with each run, but a laptop may show what a cluster trained."""
    for key in ("threads", "mem_mb", "runtime", "gpu"):
        copy.configure(mistake(*SCALE, "resources", key, value=2))
    copy.configure(mistake(*SCALE, "training", "checkpoint_every", value=2))
    assert "training_run" not in copy.planned(*TEST)


def test_all_images_are_more_than_some(copy):
    copy.configure(lambda config: config["scales"]["test"]["datasets"]["cifar10"].pop("train_images"))
    planned = copy.planned(*TEST)
    assert (planned["training_run"], planned["partition"], planned["distributions"]) == (21, 6, 1)


def test_copied_runs_that_were_made_otherwise_are_trained_again(finished, tmp_path):
    """They carry no record of Snakemake's, and their dates say nothing."""
    project = Project.fresh(tmp_path / "project")
    shutil.copytree(finished.folder / "results/test/runs", project.folder / "results/test/runs")
    assert "training_run" not in project.planned("tables", *TEST)
    project.configure(mistake(*SCALE, "training", "rounds", value=9))
    assert project.planned("train", *TEST)["training_run"] == 41


def test_a_source_must_be_there_and_a_prepared_file_remembers_it(copy):
    import numpy as np

    images = np.zeros((300, 8, 8), np.uint8)
    labels = np.arange(300) % 10
    for name in ("one", "two"):
        arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
        np.savez(copy.folder / f"{name}.npz", **arrays)
    own = {"data": "mine", "label": "Mine", "train_images": 300, "test_images": 100}

    def use(source):
        return lambda config: (
            config.update(sources={"mine": source}),
            config["scales"]["test"]["datasets"].update(cifar10=own),
        )

    copy.configure(use("one.npz"))
    assert copy.planned("train", *TEST) == {"prepare": 1, "partition": 6, "training_run": 21, "train": 1}
    copy.snakemake("data", *TEST)
    assert "prepare" not in copy.planned("train", *TEST)
    shutil.rmtree(copy.folder / ".snakemake")  # as where it was copied
    copy.configure(use("two.npz"))
    assert copy.planned("train", *TEST)["prepare"] == 1
    copy.configure(use("nowhere.npz"))
    assert "sources.mine is 'nowhere.npz'; accepted: a file or folder that is there" in copy.snakemake("-n", ok=False)


def test_a_finished_run_may_be_asked_for_by_its_file(copy):
    run = "results/test/runs/dataset~cifar10/alpha~0.1/arm~fp32/block_size~64/lr~0.001/seed~42/summary.json"
    before = (copy.folder / run).read_bytes()
    assert copy.planned(run, *TEST) == {"there": 1}
    copy.snakemake(run, *TEST)
    assert (copy.folder / run).read_bytes() == before
    assert "training_run" not in copy.planned(*TEST)
