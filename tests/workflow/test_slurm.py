"""The workflow through its SLURM profile on a real SLURM of one node: the same bytes, whatever happens to a job."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from filelock import FileLock
from projects import RUN, TEST, Project, mistake, training_process
from slurm_node import Slurm, slurm, until, why_not

# One SLURM a machine: a lock makes other test processes wait their turn.
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# A machine of one's own may be asked every second, and keeps no accounts.
CLUSTER = (
    *("--workflow-profile", "slurm"),
    *("--slurm-status-command", "squeue", "--slurm-init-seconds-before-status-checks", "1"),
)
MADE = ("results", "figures", "paper/generated")
TIMED = re.compile(r"/logs/|/benchmarks/|\.log$|\.benchmark\.tsv$|/timings\.csv$|/build/|/paper\.pdf$")
"""What holds times: logs, benchmarks, timings, and the document, in which TeX writes when and where it was made."""
KEPT = ("history.csv", "settings.json", "summary.json")


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with FileLock(Path("/run/lock/qlocaladam-slurm")), slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """A project whose runs take long enough for something to happen, and one such run, made without SLURM."""
    project = Project.fresh(tmp_path_factory.mktemp("longer") / "project")
    project.configure(mistake("scales", "test", "training", "rounds", value=12))
    project.snakemake(RUN.format(arm="q-localadam"), *TEST)
    return project


class Submitted:
    """A `snakemake` that submits one training run, which has come to a halt in the middle."""

    def __init__(self, longer: Project, folder: Path, *arguments: str, change=lambda config: None) -> None:
        shutil.copytree(longer.folder, folder, symlinks=True)
        self.project = Project(folder)
        self.project.configure(change)
        self.run = folder / Path(RUN.format(arm="q-localadam")).parent
        self.wanted = results(self.run)
        shutil.rmtree(self.run)
        self.process = self.snakemake(*arguments)
        until((self.run / "checkpoint.pt").exists, "the run has a checkpoint")
        training = training_process(folder)
        assert training, "the run was over before it could be stopped"
        os.kill(training, signal.SIGSTOP)

    def snakemake(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "snakemake", RUN.format(arm="q-localadam"), *CLUSTER, *arguments, *TEST]
        return subprocess.Popen(
            command, cwd=self.project.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def went_on_to_the_same_bytes(self) -> bool:
        return "going on after round" in (self.run / "run.log").read_text() and results(self.run) == self.wanted


def results(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in KEPT}


def made(project: Project) -> dict[str, bytes]:
    """Every result, by name: data, runs, analyses, tables, figures, numbers, claims, pages, the document."""
    files = [path for part in MADE for path in (project.folder / part).rglob("*") if path.is_file()]
    names = {path: path.relative_to(project.folder).as_posix() for path in files}
    return {name: path.read_bytes() for path, name in names.items() if not TIMED.search(name)}


def test_a_job_over_its_time_limit_is_tried_again_with_more_time(node: Slurm, longer: Project, tmp_path, request):
    submitted = Submitted(longer, tmp_path / "copy", change=mistake("scales", "test", "resources", "runtime", value=1))
    [[job, limit]] = node.queue("jobid", "timelimit")
    assert limit == "1:00"
    request.getfixturevalue("finished")  # made meanwhile, as no limit is shorter than a minute
    said, _ = submitted.process.communicate()
    assert submitted.process.returncode == 0, said
    assert "FAILED: training_run Digits for CIFAR-10, alpha 0.1, Q-LocalAdam, seed 42: TIMEOUT; its log is " in said
    assert "JobState=TIMEOUT" in node.ask("scontrol", "show", "job", job)
    assert "TimeLimit=00:02:00" in node.ask("scontrol", "show", "job", str(int(job) + 1))
    assert submitted.went_on_to_the_same_bytes()


def test_what_jobs_make_has_the_bytes_of_a_local_run(node: Slurm, copy: Project, finished: Project):
    """Runs of every block size and learning rate that the paper has, states of both models, and what shows them."""
    runs = copy.folder / "results/test/runs"
    lost = [run for name in ("block_size~32", "block_size~128", "lr~0.0005") for run in runs.rglob(name)]
    for folder in (*lost, copy.folder / "results/test/analysis/distributions"):
        shutil.rmtree(folder)
    command = [sys.executable, "-m", "snakemake", "train", "analysis", "tables", "figures", *CLUSTER, *TEST]
    said = copy.folder / "said.txt"
    jobs: dict[str, list[str]] = {}
    with (
        said.open("w") as screen,
        subprocess.Popen(command, cwd=copy.folder, stdout=screen, stderr=screen) as going,
    ):
        while going.poll() is None:
            jobs |= {
                job: asked
                for job, *asked in node.queue("jobid", "comment", "timelimit", "numcpus", "minmemory", "tres-per-job")
            }
            time.sleep(0.5)
    assert going.returncode == 0, said.read_text()
    assert "6 of 6 training runs finished" in said.read_text()
    # Light rules are not submitted; a run, and a model whose states are looked at, asks for what its scale says.
    rules = Counter(comment.split("_wildcards_")[0] for comment, *_ in jobs.values())
    assert rules == {"rule_training_run": 6, "rule_distributions": 2}
    assert {tuple(asked) for _, *asked in jobs.values()} == {("5:00", "1", "1500M", "N/A")}

    wanted, got = made(finished), made(copy)
    assert got.keys() == wanted.keys()
    assert [name for name in wanted if got[name] != wanted[name]] == []


def test_a_cancelled_job_goes_on_when_snakemake_is_called_again(node: Slurm, longer: Project, tmp_path):
    """And a run whose scale has a GPU asks for one."""
    gpu = mistake("scales", "test", "resources", "gpu", value=1)
    submitted = Submitted(longer, tmp_path / "copy", "--retries", "0", change=gpu)
    assert node.queue("tres-per-job") == [["gres:gpu:1"]]
    [[job]] = node.queue("jobid")
    node.ask("scancel", job)
    said, _ = submitted.process.communicate()
    assert submitted.process.returncode == 1
    assert "FAILED: training_run Digits for CIFAR-10, alpha 0.1, Q-LocalAdam, seed 42: CANCELLED; its log is " in said
    assert "JobState=CANCELLED" in node.ask("scontrol", "show", "job", job)
    assert not (submitted.run / "summary.json").exists()

    again = submitted.snakemake()
    said, _ = again.communicate()
    assert again.returncode == 0, said
    assert submitted.went_on_to_the_same_bytes()


def test_a_job_whose_node_dies_goes_on_when_the_node_is_back(node: Slurm, longer: Project, tmp_path):
    submitted = Submitted(longer, tmp_path / "copy")
    node.kill_node()
    until(
        lambda: node.queue("state") == [["PENDING"]],
        "SLURM has seen that the node is gone, and the job is queued again",
    )
    node.start_node()
    said, _ = submitted.process.communicate()
    assert submitted.process.returncode == 0, said
    assert submitted.went_on_to_the_same_bytes()
