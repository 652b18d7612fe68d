"""Real faults on real processes: each loses at most the work since the last checkpoint, puts no wrong number into a
table and says what to do."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from projects import ROOT, RUN, TEST, Project, training_process

SUMMARY = RUN.format(arm="q-localadam")
FOLDER = str(Path(SUMMARY).parent)
TABLE = "results/test/tables/main.csv"
FIGURE = "figures/test/convergence_cifar10.png"
REPEATED = ("history.csv", "settings.json", "summary.json")
"""What has the same bytes however a run came about."""
FILLER = "results/test/filler"
SAID = "said.txt"
"""What a snakemake in the background wrote."""


def two_runs_a_table_and_a_figure(config):
    config["experiments"] = [{"name": "main", "dataset": "cifar10", "arm": ["fp32", "q-localadam"]}]
    config["tables"] = {"main": {**config["tables"]["main"], "experiments": ["main"]}}
    config["figures"] = {"convergence_cifar10": config["figures"]["convergence_cifar10"]}
    config["gallery"] = []
    del config["figures"]["convergence_cifar10"]["panels"][1:]
    config["scales"]["test"]["training"]["rounds"] = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results without a fault. Not to be changed."""
    project = Project.fresh(tmp_path_factory.mktemp("faults") / "made")
    project.configure(two_runs_a_table_and_a_figure)
    project.snakemake("train", "tables", "figures", *TEST)
    return project


@pytest.fixture
def faulty(made, tmp_path):
    """The same, to be damaged."""
    shutil.copytree(made.folder, tmp_path / "faulty", symlinks=True)
    return Project(tmp_path / "faulty")


@pytest.fixture
def unfinished(faulty):
    """With one run yet to be made."""
    shutil.rmtree(faulty.folder / FOLDER)
    return faulty


def goes_on(project: Project, made: Project, *targets: str) -> str:
    """Called again, Snakemake makes the same bytes as without a fault. What it says."""
    said = project.snakemake("train", "tables", *targets, *TEST)
    for name in (TABLE, *(f"{FOLDER}/{name}" for name in REPEATED)):
        assert (project.folder / name).read_bytes() == (made.folder / name).read_bytes(), name
    return said


def hidden(project: Project) -> list[Path]:
    return list((project.folder / FOLDER).glob(".*"))


@contextmanager
def going(project: Project):
    """Snakemake in the background and the training process it started, once that has saved a checkpoint."""
    command = [sys.executable, "-m", "snakemake", SUMMARY, *TEST]
    with (
        (project.folder / SAID).open("w") as said,
        subprocess.Popen(command, cwd=project.folder, stdout=said, stderr=said, start_new_session=True) as process,
    ):
        try:
            wait_for(lambda: (project.folder / FOLDER / "checkpoint.pt").exists(), project, process)
            training = training_process(project.folder)
            assert training, "it ended too soon; a signal to 0 would go to this process"
            yield process, training
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise


def wait_for(condition, project: Project, process: subprocess.Popen) -> None:
    while not condition():
        assert process.poll() is None, (project.folder / SAID).read_text()
        time.sleep(0.01)


def test_snakemake_killed_with_its_jobs(made, unfinished):
    with going(unfinished) as (process, _):
        os.killpg(process.pid, signal.SIGKILL)
    (unfinished.folder / FOLDER / ".checkpoint.pt.0123abcd.part").write_bytes(b"as a kill leaves it while writing")

    said = unfinished.snakemake(SUMMARY, *TEST, ok=False)
    advice = (
        "Another snakemake works here, or one was killed. If none does: snakemake --unlock, then the same call again"
    )
    assert advice in said
    assert "`snakemake --unlock`" in (ROOT / "README.md").read_text()
    unfinished.snakemake("--unlock", *TEST)
    goes_on(unfinished, made)
    assert "going on after round" in (unfinished.folder / FOLDER / "run.log").read_text()
    assert hidden(unfinished) == []


def test_snakemake_killed_while_its_job_lives_on(made, unfinished):
    """The next one waits for the job that nobody owns any more, and takes its results."""
    with going(unfinished) as (process, orphan):
        os.kill(orphan, signal.SIGSTOP)
        process.kill()
    unfinished.snakemake("--unlock", *TEST)
    log = unfinished.folder / FOLDER / "run.log"
    with going(unfinished) as (process, _):
        wait_for(lambda: "waiting" in log.read_text(), unfinished, process)
        os.kill(orphan, signal.SIGCONT)
    assert process.returncode == 0
    assert f"another process still trains in {FOLDER}; waiting for it to end" in log.read_text()
    assert log.read_text().count("round 12/12") == 1
    goes_on(unfinished, made)


def test_a_run_that_finished_while_snakemake_was_dead_is_kept(made, unfinished):
    """Snakemake takes it for unfinished, and would delete it and train from the first round."""
    with going(unfinished) as (process, orphan):
        os.kill(orphan, signal.SIGSTOP)
        process.kill()
        process.wait()
        os.kill(orphan, signal.SIGCONT)
        while Path(f"/proc/{orphan}").exists():
            time.sleep(0.01)
    assert (unfinished.folder / SUMMARY).exists()
    unfinished.snakemake("--unlock", *TEST)
    assert "training_run" not in goes_on(unfinished, made)
    assert (unfinished.folder / FOLDER / "run.log").read_text().count("round 1/12") == 1


def test_two_at_once(made, unfinished):
    with going(unfinished) as (process, training):
        os.kill(training, signal.SIGSTOP)
        said = unfinished.snakemake(SUMMARY, *TEST, ok=False)
        os.kill(training, signal.SIGCONT)
    assert "Please make sure that no other Snakemake process is trying to create the same files" in said
    assert process.returncode == 0
    goes_on(unfinished, made)


@pytest.fixture
def small_disk(unfinished):
    """Results on a disk of their own."""
    folder = unfinished.folder / "results/test"
    aside = folder.rename(folder.with_name("aside"))
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs mount, which is not permitted here: {mounted.stderr.strip()}")
    shutil.copytree(aside, folder, dirs_exist_ok=True)
    yield unfinished
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as disk, suppress(OSError):
        while True:
            disk.write(bytes(4096))
    assert shutil.disk_usage(file).free == 0


@pytest.mark.parametrize(("writing", "every"), [("checkpoint.pt", 1), ("timings.csv", 7)])
def test_disk_full(made, small_disk, writing, every):
    """While a checkpoint is written, and, with none due after round 7, while results are."""

    def save_every(config):
        config["scales"]["test"]["training"]["checkpoint_every"] = every

    small_disk.configure(save_every)
    with going(small_disk) as (process, training):
        os.kill(training, signal.SIGSTOP)
        fill(small_disk.folder / FILLER)
        os.kill(training, signal.SIGCONT)
    said = (small_disk.folder / SAID).read_text()
    assert process.returncode != 0
    advice = "free some space and run snakemake again, nothing that was saved is lost"
    line = f"qlocaladam: {FOLDER}/{writing}: No space left on device: {advice}; the newest checkpoint is of round "
    assert line in said
    assert "Traceback" not in said
    newest = re.search(re.escape(line) + r"(\d+)$", said, re.MULTILINE)[1]
    assert not (small_disk.folder / SUMMARY).exists()
    assert hidden(small_disk) == []

    (small_disk.folder / FILLER).unlink()
    goes_on(small_disk, made)
    assert f"going on after round {newest}\n" in (small_disk.folder / FOLDER / "run.log").read_text()


def flip(file: Path) -> None:
    """Damage one bit, as a bad disk would: the date stays."""
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=times)


def test_a_damaged_data_file(made, unfinished):
    """Made again in its place, it costs no run that was finished."""
    data = "results/data/digits.npz"
    flip(unfinished.folder / data)
    said = unfinished.snakemake("train", "tables", *TEST, ok=False)
    assert "qlocaladam: results/data/digits.npz: SHA-256 is" in said
    assert "make it again" in said
    assert not (unfinished.folder / SUMMARY).exists()
    make_again = [sys.executable, "-m", "qlocaladam", "data", "digits", "--out", data]
    subprocess.run(make_again, cwd=unfinished.folder, check=True, capture_output=True)
    assert "1 of 1 training runs finished" in goes_on(unfinished, made)


def test_a_damaged_checkpoint(made, unfinished):
    saved = unfinished.folder / FOLDER / "checkpoint.pt"
    with going(unfinished) as (process, training):
        wait_for(lambda: saved.with_name("checkpoint.pt.previous").exists(), unfinished, process)
        os.kill(training, signal.SIGKILL)
    assert process.returncode != 0
    assert not (unfinished.folder / SUMMARY).exists()
    flip(saved) if saved.exists() else saved.write_bytes(b"cut off")
    goes_on(unfinished, made)
    log = (unfinished.folder / FOLDER / "run.log").read_text()
    assert "passed over" in log
    assert "going on after round" in log


def test_a_truncated_history(made, faulty):
    history = faulty.folder / FOLDER / "history.csv"
    history.write_bytes(history.read_bytes()[:-100])
    said = faulty.snakemake("tables", "figures", "--forcerun", "table", "figure", *TEST, ok=False)
    refused = f"{FOLDER}/history.csv is not the file that its summary.json was written with; delete the run's folder"
    assert said.count(f"{refused} and run snakemake again") == 2
    assert not (faulty.folder / TABLE).exists()
    assert not (faulty.folder / FIGURE).exists()
    shutil.rmtree(history.parent)
    goes_on(faulty, made, "figures")
    assert (faulty.folder / FIGURE).exists()


@pytest.mark.parametrize(("runs", "inputs"), [(-10_000, 365), (365, -10_000)])
def test_a_clock_set_back(made, faulty, runs, inputs):
    """Runs from long before their data and partitions, or after: all are fixed by hashes, so none is trained again, and
    tables stay right."""
    results = faulty.folder / "results"
    dealt = [*(results / "data").iterdir(), *(results / "test/partitions").rglob("*.npz")]
    for days, files in ((runs, (results / "test/runs").rglob("*")), (inputs, dealt)):
        when = time.time() + days * 86400
        for path in files:
            os.utime(path, (when, when))
    assert "training_run" not in goes_on(faulty, made, "figures")


@pytest.mark.parametrize(("file", "target", "rule"), [(SUMMARY, "train", "training_run"), (TABLE, "tables", "table")])
def test_a_result_deleted_by_hand(made, faulty, file, target, rule):
    (faulty.folder / file).unlink()
    assert faulty.planned(target, *TEST) == {rule: 1, target: 1}
    goes_on(faulty, made)


def test_a_file_of_a_run_deleted_by_hand_is_missed(faulty):
    """The history by the figure that shows it."""
    settings = faulty.folder / FOLDER / "settings.json"
    settings.rename(aside := faulty.folder / "aside")
    assert faulty.planned("train", *TEST) == {"training_run": 1, "train": 1}
    aside.rename(settings)
    (faulty.folder / FOLDER / "history.csv").unlink()
    (faulty.folder / FIGURE).unlink()
    assert faulty.planned("figures", *TEST)["training_run"] == 1


def test_a_run_that_diverges(faulty):
    faulty.configure(lambda config: config["arms"]["q-localadam"].update(lr=1e38))
    said = faulty.snakemake("train", "tables", "figures", *TEST)
    assert "1 of 1 training runs finished" in said
    log = next((faulty.folder / "results/test/logs/runs").rglob("lr~1e+38/*.log")).read_text()
    assert "diverged in round 1: weights are not finite any more" in log
    with (faulty.folder / TABLE).open() as file:
        assert {row["arm"]: row["diverged"] for row in csv.DictReader(file)} == {"fp32": "0", "q-localadam": "1"}
    tex = (faulty.folder / "paper/generated/test/tables/main.tex").read_text()
    assert "d}$~diverged: in at least one run weights were not finite any more and training ended." in tex
