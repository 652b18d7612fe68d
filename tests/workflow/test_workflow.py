"""The DAG as its users meet it: what a change makes again, what a mistake says, what a failure leaves."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from projects import ROOT, RUN, TEST

from qlocaladam.experiments import grid

PAPER = {"training_run": 41, "table": 15, "figure": 11}
"""How much the paper has of what."""


@pytest.mark.parametrize("scale", ["small", "paper"])
def test_a_dry_run_shows_the_41_runs_of_the_paper_at_larger_scales_too(project, scale):
    assert project.planned("--config", f"scale={scale}").items() >= PAPER.items()


@pytest.mark.parametrize(
    ("group", "runs", "made"),
    [
        ("controls", 112, {"contrasts": 2}),
        ("beyond", 233, {"contrasts": 3}),
        ("mechanism", None, {"contrasts": 6}),
        ("registered", 144, {"registered": 1}),  # nine arms and loss scales, two data sets, eight seeds
    ],
)
def test_groups_are_one_key_away(project, group, runs, made):
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    both = grid.unique(grid.expand({**config, group: True}))
    assert runs is None or len(both) == 41 + runs
    planned = project.planned("--config", f"{group}=true")
    assert planned["training_run"] == len(both) > 41
    assert planned["significance"] == 1
    assert {rule: planned[rule] for rule in ("contrasts", "registered") if rule in planned} == made
    for part in ("table", "figure"):
        assert planned[part] == len([e for e in config[f"{part}s"].values() if e.get("group") in (None, group)])


def test_a_question_that_asks_for_an_unknown_arm_is_named_before_any_job(project):
    path = project.folder / "paper/registered.yaml"
    path.write_text(path.read_text().replace("arm: no-floor", "arm: no-flor"))
    output = project.snakemake(ok=False)
    assert "config.yaml: tables.registered shows paper/registered.yaml, whose floor-needed: arm is 'no-flor'" in output
    assert "to do" not in output


@pytest.mark.parametrize(
    ("target", "rules"),
    [
        ("partitions", {"partition", "data_distribution", "prepare", "partitions"}),
        ("train", {"training_run", "partition", "prepare", "train"}),
        ("data", {"prepare", "data"}),
    ],
)
def test_targets_that_people_ask_for_have_names(project, target, rules):
    assert set(project.planned(target)) == rules


def test_everything_is_there_at_the_end(finished):
    config = yaml.safe_load((finished.folder / "config.yaml").read_text())
    for name in (n for n, entry in config["tables"].items() if "group" not in entry):
        assert (finished.folder / f"paper/generated/test/tables/{name}.tex").stat().st_size > 500
        assert (finished.folder / f"results/test/tables/{name}.csv").stat().st_size > 50
    for name in (n for n, entry in config["figures"].items() if "group" not in entry):
        assert (finished.folder / f"figures/test/{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (finished.folder / f"figures/test/{name}.png").stat().st_size > 10_000
    assert len(list(finished.folder.glob("results/test/runs/**/summary.json"))) == 41
    assert "41 of 41 training runs finished, about " in finished.said
    (planned,) = re.findall(r"to do: (.*)", finished.said)
    assert {f"{count} {rule}" for rule, count in PAPER.items()} <= set(planned.split(", "))


def test_the_terminal_ends_with_what_a_reader_wants(finished):
    """Five lines: what was made of what, what holds, what fails, what is open, and where to look."""
    said = finished.said.partition("\nMade at scale ")[2].splitlines()
    assert re.fullmatch(
        r"test in .*, from 41 training runs on Digits for CIFAR-10 and Digit pairs for CIFAR-100\.", said[0]
    )
    assert [line.partition(":")[0] for line in said[1:5]] == ["Holds", "Fails", "Open", "Look"]
    for file in ("results/test/RESULTS.md", "results/test/claims.html", "figures/test"):
        assert file in said[4]
        assert (finished.folder / file).exists()


def test_the_terminal_names_data_as_what_they_are(finished):
    assert "data: Digits for CIFAR-10 and Digit pairs for CIFAR-100\n" in finished.said
    runs = re.findall(r"training runs finished, about .* left \((.*): .*\)", finished.said)
    assert len(set(runs)) == 41, "each has a name of its own"
    assert "Digits for CIFAR-10, alpha 0.1, FP32, seed 42" in runs
    assert "Digit pairs for CIFAR-100, IID, Q-LocalAdam, seed 42" in runs
    assert "Digits for CIFAR-10, alpha 0.1, Q-LocalAdam, block size 32, seed 42" in runs


def test_every_job_that_trains_leaves_a_benchmark(finished):
    folder = finished.folder / "results/test/benchmarks"
    assert len(list(folder.glob("runs/**/*.tsv"))) == 41
    assert len(list(folder.glob("distributions/*.tsv"))) == 2


@pytest.mark.parametrize(
    "targets", [(), ("partitions", "train", "tables", "figures", "numbers", "claims", "pages")], ids=["all", "each"]
)
def test_a_second_time_there_is_nothing_to_do(finished, targets):
    assert finished.planned(*targets, *TEST) == {}


def test_results_of_two_scales_live_side_by_side(finished):
    planned = finished.planned("--config", "scale=quick")
    assert planned.items() >= PAPER.items()
    assert "memory" not in planned, "what needs no training is made once for all scales"
    assert finished.planned(*TEST) == {}


def test_how_a_table_looks_is_not_what_it_was_trained_on(copy):
    copy.configure(lambda config: config["tables"]["main"].update(caption="Another caption"))
    assert copy.planned("tables", *TEST) == {"table": 1, "tables": 1}
    tables = copy.folder / "src/qlocaladam/results/tables.py"
    tables.write_text(tables.read_text() + "\n# another look\n")
    assert copy.planned("tables", *TEST) == {"table": 15, "tables": 1}


def test_one_more_experiment_trains_one_run(copy):
    more = {"name": "more", "dataset": "cifar10", "arm": "q-localadam", "alpha": 0.3}
    copy.configure(lambda config: config["experiments"].append(more))
    planned = copy.planned(*TEST)
    assert planned["training_run"] == planned["partition"] == planned["collect_numbers"] == 1
    assert not planned.keys() & {"table", "figure", "distributions", "significance"}, "what shows other runs stays"


def test_another_learning_rate_of_an_arm_trains_that_arm_and_makes_what_shows_it(copy):
    copy.configure(lambda config: config["arms"]["naive-int8"].update(lr=0.01))
    said = copy.snakemake("--dry-run", "--quiet", "host", *TEST)
    runs = re.findall(r"output: results/test/runs/\S*arm~(\S+?)/\S*lr~(\S+?)/\S*history.csv", said)
    assert runs == [("naive-int8", "0.01")] * 7
    tables = set(re.findall(r"output: paper/generated/test/tables/(\S+)\.tex", said))
    figures = set(re.findall(r"output: figures/test/(\S+)\.pdf", said))
    assert tables == {"main", "multiseed"}
    assert figures == {"convergence_cifar10", "convergence_cifar100"}


@pytest.fixture
def copied(finished, project):
    """Results of another machine: no data, no partitions, no record of how they were made, and older than the code."""
    shutil.copytree(finished.folder / "results/test", project.folder / "results/test")
    for part in ("partitions", "tables", "logs"):
        shutil.rmtree(project.folder / "results/test" / part)
    for path in project.folder.glob("results/**/*"):
        os.utime(path, (1, 1))
    return project


def test_results_of_another_machine_are_shown_and_not_trained_again(copied):
    planned = copied.planned("tables", "figures", "numbers", "analysis", "claims", "pages", "paper", *TEST)
    assert not planned.keys() & {"training_run", "partition", "prepare", "distributions"}
    assert (planned["table"], planned["figure"], planned["collect_numbers"]) == (15, 11, 1)


def test_without_training_missing_runs_are_named_and_tables_have_gaps_in_their_place(copied):
    """One of three arms, one of three seeds, and one that was made otherwise."""
    runs = copied.folder / "results/test/runs"
    arm = Path(RUN.format(arm="naive-int8")).parent
    seed = Path(str(arm).replace("alpha~0.1", "alpha~0.5"))
    other = next(runs.glob("dataset~cifar100/**/lr~0.0005/seed~42"))
    for folder in (arm, seed):
        shutil.rmtree(copied.folder / folder)
    made = json.loads((other / "settings.json").read_text())
    made["settings"]["rounds"] = 9
    (other / "settings.json").write_text(json.dumps(made))

    said = copied.snakemake("tables", "numbers", *TEST, "train=false")
    assert "train is false, and 3 of 41 runs are not there as asked:\n" in said
    assert f"  {arm}: not there\n" in said
    assert f"  {other.relative_to(copied.folder)}: settings.rounds is 9, not 2\n" in said
    tables = copied.folder / "paper/generated/test/tables"
    assert re.search(r"Naive INT8 & --\\rlap\{\$\^\{m\}\$\}", (tables / "main.tex").read_text())
    assert "$^{m}$~missing: runs that the configuration asks for" in (tables / "main.tex").read_text()
    assert re.search(r"Naive INT8 & .*\\pm.*\\rlap\{\$\^\{c?m\}\$\}", (tables / "multiseed.tex").read_text())
    assert re.search(r"5\\times10\^\{-4\}\$ & --\\rlap", (tables / "lr_sensitivity.tex").read_text())
    assert "missing" not in (tables / "c10-het.tex").read_text()


def test_a_key_that_is_there_twice_is_refused(project):
    with (project.folder / "config.yaml").open("a") as file:
        file.write("\nscale: paper\n")
    assert "has the key 'scale' a second time; each may be there once" in project.snakemake("-n", ok=False)


def test_a_failed_run_is_named_with_its_log_and_others_go_on(project):
    good = RUN.format(arm="fp32")
    bad = good.replace("cifar10", "cifar100")
    project.snakemake("data", *TEST)
    (project.folder / "results/data/digit-pairs.npz").write_bytes(b"damaged")
    said = project.snakemake(bad, good, *TEST, ok=False)
    assert "FAILED: partition results/test/partitions/digit-pairs/" in said
    assert "qlocaladam: results/data/digit-pairs.npz: SHA-256 is " in said
    assert (project.folder / good).exists()
    assert not (project.folder / bad).exists()


def test_jobs_get_the_threads_memory_time_and_gpus_of_their_scale(project):
    run = RUN.format(arm="fp32").replace("/test/", "/paper/")
    said = project.snakemake(run, "-n", "--quiet", "host", "--cores", "8", "--config", "scale=paper")
    block = said[said.index("training_run:") :]
    assert re.search(r"threads: 4\b", block)
    assert re.search(r"mem_mb=16000\b", block)
    assert re.search(r"runtime=720\b", block)
    assert re.search(r"gpu=1\b", block)


def test_the_schema_knows_the_arms_and_options_of_the_package():
    import inspect

    import torch

    from qlocaladam import ARMS, QLocalAdam
    from qlocaladam.codecs import ROUNDINGS
    from qlocaladam.experiments.grid import GROUPS
    from qlocaladam.federated.settings import PEERS, RunSettings
    from qlocaladam.optim import MOMENTUM_CODECS, VARIANCE_CODECS

    schema = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
    arm = schema["properties"]["arms"]["additionalProperties"]["properties"]
    options = arm["options"]["properties"]
    assert set(arm["arm"]["enum"]) == {*ARMS, *PEERS}
    assert set(options) <= set(inspect.signature(QLocalAdam).parameters)
    assert set(options["momentum"]["enum"]) == set(MOMENTUM_CODECS)
    assert set(options["variance"]["enum"]) == set(VARIANCE_CODECS)
    assert set(options["rounding"]["enum"]) == set(ROUNDINGS)
    for bits in options["bits"]["enum"]:
        QLocalAdam([torch.zeros(1)], bits=bits)
    assert set(schema["$defs"]["training"]["properties"]) - {"checkpoint_every"} <= set(
        RunSettings.__dataclass_fields__
    )
    assert set(schema["$defs"]["group"]["enum"]) == set(GROUPS)


def test_what_is_kept_is_shown_without_making_it_again(project):
    shutil.copy2(ROOT / "paper/RESULTS.template.md", project.folder / "paper")
    shutil.copytree(ROOT / "paper/reference", project.folder / "paper/reference")
    assert project.planned("RESULTS.md") == {"kept_results_page": 1}
