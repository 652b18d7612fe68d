"""What the workflow says while it runs, from events as Snakemake sends them."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

import pytest
from projects import ROOT
from snakemake.logging import LogEvent

from qlocaladam.federated.progress import PlannedRun
from qlocaladam.report import progress
from qlocaladam.results.layout import Layout

DATA = "Digits for CIFAR-10 and Digit pairs for CIFAR-100"
RUNS = {
    "42": PlannedRun("Digits for CIFAR-10, seed 42", "cifar10", "fp32", 100),
    "123": PlannedRun("Digits for CIFAR-10, seed 123", "cifar10", "fp32", 100),
    "pairs": PlannedRun("Digit pairs for CIFAR-100, seed 42", "cifar100", "fp32", 300),
    "slow": PlannedRun("Digits for CIFAR-10, slow, seed 42", "cifar10", "slow", 100),
    "slow 123": PlannedRun("Digits for CIFAR-10, slow, seed 123", "cifar10", "slow", 100),
}


class Listener(progress.TrainingProgress):
    """Progress with a clock that is set by hand, and what it wrote."""

    now = 100.0

    def __init__(self) -> None:
        super().__init__(RUNS, RUNS, DATA, io.StringIO(), lambda: self.now)

    def send(self, event: LogEvent | None, **content: Any) -> None:
        self.handle(logging.makeLogRecord({"event": event, **content}))

    def plan(self, *runs: str, **others: int) -> None:
        """These runs are to be trained, which are all that are not there, and so many jobs of other rules."""
        self.waiting = set(runs)
        self.send(LogEvent.RUN_INFO, stats={progress.TRAINING: len(runs), **others})

    def start(self, number: int, run: str = "42", rule: str = progress.TRAINING) -> None:
        self.send(LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards={"run": run})

    def finish(self, number: int) -> None:
        self.send(LogEvent.JOB_FINISHED, job_id=number)

    def do(self, number: int, run: str = "42", rule: str = progress.TRAINING, *, seconds: float = 0) -> None:
        self.start(number, run, rule)
        self.now += seconds
        self.finish(number)

    def fail(
        self, number: int, rule: str = progress.TRAINING, log: Any = (), output: Any = (), reported: str | None = None
    ) -> None:
        content = {"rule_name": rule, "rule_msg": reported, "log": list(log), "output": list(output)}
        self.send(LogEvent.JOB_ERROR, jobid=number, **content)

    def lines(self) -> list[str]:
        said = self.screen.getvalue().splitlines()
        return [re.sub(r"^\[\d\d:\d\d:\d\d\] ", "", line) for line in said]


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_events_have_the_names_that_snakemake_gives_them():
    names = {str(event) for event in LogEvent}
    assert names >= progress.REPLACED
    assert names >= {"run_info", "job_info", "job_finished", "job_error"}


def test_what_is_to_do_is_said_once_most_first(listener):
    listener.send(LogEvent.RUN_INFO, stats={"all": 1, "table": 12, "training_run": 41, "figure": 10, "total": 64})
    listener.send(LogEvent.RUN_INFO, stats={"training_run": 7, "total": 7})
    assert listener.lines()[0] == "to do: 41 training_run, 12 table, 10 figure"
    assert len(listener.lines()) == 2
    assert re.match(r"\[\d\d:\d\d:\d\d\] to do", listener.screen.getvalue())


def test_data_are_named_as_what_they_are_where_something_is_trained(listener):
    listener.send(LogEvent.RUN_INFO, stats={"training_run": 2, "table": 3})
    assert listener.lines() == ["to do: 3 table, 2 training_run", f"data: {DATA}"]


def test_from_the_first_run_on_the_rest_is_estimated_by_its_work(listener):
    listener.plan("42", "pairs", "123")
    listener.do(1, seconds=20)
    assert listener.lines()[2:] == [
        "1 of 3 training runs finished, about 1m 20s left (Digits for CIFAR-10, seed 42: 20s)",
    ]


@pytest.mark.parametrize(
    ("scale", "measured"),
    [
        # Two cores with AVX2, nothing else running: a sample of digits 1.18 ms, of pairs 0.70 ms, the start 3 s.
        ("quick", {"cifar10": 1.18e-3 * 15 * 2 * 1437 / 2 + 3, "cifar100": 0.704e-3 * 15 * 2 * 2000 / 2 + 3}),
        # The start, and a second at most.
        ("test", {"cifar10": 3.3, "cifar100": 3.6}),
    ],
)
def test_a_run_of_either_data_tells_how_long_the_other_takes(scale, measured):
    layout = Layout.load([ROOT / "config.yaml"], [f"scale={scale}"])
    places = {place["dataset"]: place for place in layout.runs.to_dict("records") if place["arm"] == "fp32"}
    work = {dataset: layout.described(place).work for dataset, place in places.items()}
    assert work["cifar10"] / work["cifar100"] == pytest.approx(measured["cifar10"] / measured["cifar100"], rel=0.1)


def test_runs_of_the_same_data_and_arm_tell_more_than_others(listener):
    listener.plan("42", "pairs", "slow", "123", "slow 123")
    for number, (run, seconds) in enumerate({"42": 10, "pairs": 15, "slow": 100}.items()):
        listener.do(number, run, seconds=seconds)
    assert "3 of 5 training runs finished, about 1m 50s left" in listener.lines()[-1], "10 s and 100 s"


def test_runs_side_by_side_are_not_waited_for_one_after_the_other(listener):
    listener.plan("42", "123", "slow", "slow 123")
    listener.start(1, "42")
    listener.start(2, "123")
    listener.now += 20
    listener.finish(1)
    assert "1 of 4 training runs finished, about 20s left" in listener.lines()[-1], "the second is about to finish"
    listener.start(3, "slow")
    listener.now += 4
    listener.finish(2)
    assert "2 of 4 training runs finished, about 20s left" in listener.lines()[-1], "18 s and 22 s, two at a time"


def test_a_long_run_at_the_end_is_waited_for_alone(listener):
    listener.plan("42", "pairs")
    listener.start(1, "42")
    listener.start(2, "pairs")
    listener.now += 10
    listener.finish(1)
    assert "about 20s left" in listener.lines()[-1], "30 s in all, whatever runs beside it"


def test_other_jobs_take_their_time_too(listener):
    listener.plan("42", table=3, figure=2)
    listener.do(1, rule="table", seconds=4)
    listener.do(2, seconds=30)
    assert "1 of 1 training runs finished, about 16s left" in listener.lines()[-1]


def test_where_fewer_runs_are_asked_for_than_are_missing_they_are_taken_for_the_average(listener):
    listener.plan("42", "123", "pairs")
    listener.total = 2
    listener.do(1, seconds=10)
    assert "1 of 2 training runs finished, about 20s left" in listener.lines()[-1], "10 s or 30 s"


def test_on_a_cluster_a_job_that_was_submitted_may_still_be_waiting(listener):
    listener.queued = True
    listener.plan("42", "123", "pairs", table=7)
    for number, run in enumerate(("42", "123", "pairs")):
        listener.start(number, run)
    listener.now += 50
    listener.finish(0)
    assert "1 of 3 training runs finished, about 3m 20s left" in listener.lines()[-1], "4 times the work"


def test_a_workflow_that_has_this_one_as_a_module_may_call_the_rule_otherwise(listener):
    listener.waiting = {"42", "123"}
    listener.send(LogEvent.RUN_INFO, stats={"their_training_run": 2, "their_table": 1})
    listener.do(1, rule="their_training_run", seconds=10)
    assert listener.lines()[1:] == [
        f"data: {DATA}",
        "1 of 2 training runs finished, about 10s left (Digits for CIFAR-10, seed 42: 10s)",
    ]


def test_the_last_run_leaves_nothing(listener):
    listener.plan("42")
    listener.do(5, seconds=3)
    assert listener.lines()[-1].startswith("1 of 1 training runs finished, about 0s left")


def test_other_rules_are_not_counted(listener):
    listener.plan(table=1)
    listener.do(1, rule="table")
    listener.send(LogEvent.PROGRESS, done=1, total=2)
    listener.send(None, msg="Building DAG of jobs...")
    assert len(listener.lines()) == 1


def test_a_failed_run_shows_the_end_of_its_log_and_is_not_waited_for(listener, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("".join(f"line {number}\n" for number in range(1, 10)))
    listener.plan("42", "123", "slow")
    listener.start(1)
    listener.fail(1, log=[log])
    listener.do(2, "123", seconds=8)
    assert listener.lines()[2:] == [
        f"FAILED: training_run Digits for CIFAR-10, seed 42; its log is {log}",
        *(f"  line {number}" for number in (5, 6, 7, 8, 9)),
        "1 of 3 training runs finished, 1 failed, about 8s left (Digits for CIFAR-10, seed 123: 8s)",
    ]


def test_a_run_that_is_tried_again_has_not_failed(listener):
    listener.plan("42")
    listener.start(1)
    listener.fail(1)
    listener.do(1)
    assert listener.lines()[-1].startswith("1 of 1 training runs finished, about 0s left")


def test_any_rule_that_fails_is_named_by_its_output(listener, tmp_path):
    listener.fail(7, rule="table", output=["a.tex", "a.csv"], log=[tmp_path / "never.log"])
    listener.fail(8, rule="figure", output=["b.pdf"])
    assert listener.lines() == [
        f"FAILED: table a.tex, a.csv; its log is {tmp_path / 'never.log'}",
        "FAILED: figure b.pdf; its log is none",
    ]
    assert not listener.failed


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        (
            "SLURM-job '7' failed, SLURM status is: 'TIMEOUT'. Detailed failure reason unavailable (status command is "
            "not 'sacct').For further error details see the cluster/cloud log and the log files of the involved "
            "rule(s).",
            "TIMEOUT",
        ),
        (
            "SLURM sbatch failed. The error message was 'sbatch: error: invalid partition specified: gpu'.\n"
            "    sbatch call:\n        sbatch --parsable",
            "SLURM sbatch failed. The error message was 'sbatch: error: invalid partition specified: gpu'.",
        ),
    ],
)
def test_a_job_that_slurm_ended_or_did_not_take_says_why(listener, reported, said):
    listener.start(1)
    listener.fail(1, reported=reported)
    assert listener.lines() == [f"FAILED: training_run Digits for CIFAR-10, seed 42: {said}; its log is none"]


def test_a_log_of_any_bytes_is_shown(listener, tmp_path):
    (tmp_path / "log").write_bytes(b"caf\xe9\n")
    listener.fail(1, rule="prepare", output=["x"], log=[tmp_path / "log"])
    assert listener.lines()[-1] == "  caf\N{REPLACEMENT CHARACTER}"


def test_an_event_of_another_form_stops_nothing(listener, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    listener.send(LogEvent.RUN_INFO)
    listener.send(LogEvent.JOB_INFO, jobid=1, rule_name=progress.TRAINING, wildcards={})
    assert listener.lines() == []


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def heard(quiet: bool) -> list[str]:
    """What Snakemake's own handler still gets."""
    logger, kept = logging.Logger("workflow"), Kept()
    logger.addHandler(kept)
    for _ in range(2):
        progress.listen(logger, quiet, RUNS, RUNS, DATA)
    assert [type(handler) for handler in logger.handlers] == [Kept, progress.TrainingProgress]
    logger.info("Building DAG of jobs...")
    logger.info("Select jobs to execute...")
    for event in (LogEvent.JOB_STARTED, LogEvent.JOB_FINISHED, LogEvent.PROGRESS, LogEvent.ERROR):
        logger.info(event.value, extra={"event": event, "job_id": 0})
    return kept.messages


def test_where_snakemake_is_to_be_quiet_its_lines_make_room():
    assert heard(quiet=True) == ["Building DAG of jobs...", "error"]


def test_otherwise_it_says_all_it_has_to_say():
    assert heard(quiet=False) == [
        *("Building DAG of jobs...", "Select jobs to execute..."),
        *("job_started", "job_finished", "progress", "error"),
    ]
