"""What the workflow says while it runs, from events as Snakemake sends them."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

import pytest
from snakemake.logging import LogEvent

from qlocaladam.paper import progress
from qlocaladam.paper.grid import AS_IN_THE_PAPER, GRID

USUAL = [name for name in GRID if name not in AS_IN_THE_PAPER]


class Watched(progress.TrainingProgress):
    """Progress with a clock that is set by hand, and what it wrote."""

    def __init__(self) -> None:
        super().__init__(io.StringIO(), lambda: self.now)
        self.now = 100.0

    def send(self, event: LogEvent | None, **content: Any) -> None:
        self.handle(logging.makeLogRecord({"event": event, **content}))

    def start(self, number: int, rule: str = progress.TRAINING, seed: int = 42) -> None:
        at = zip(USUAL, ("cifar10", "0.1", "fp32", 64, 0.001, seed), strict=True)
        run = "/".join(f"{name}~{value}" for name, value in at)
        self.send(LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards={"run": run})

    def finish(self, number: int) -> None:
        self.send(LogEvent.JOB_FINISHED, job_id=number)

    def fail(
        self, number: int, rule: str = progress.TRAINING, log: Any = (), output: Any = (), told: str | None = None
    ) -> None:
        content = {"rule_name": rule, "rule_msg": told, "log": list(log), "output": list(output)}
        self.send(LogEvent.JOB_ERROR, jobid=number, **content)

    def lines(self) -> list[str]:
        said = self.screen.getvalue().splitlines()
        return [re.sub(r"^\[\d\d:\d\d:\d\d\] ", "", line) for line in said]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_events_have_the_names_that_snakemake_gives_them():
    names = {str(event) for event in LogEvent}
    assert names >= progress.REPLACED
    assert names >= {"run_info", "job_info", "job_finished", "job_error"}


def test_what_is_to_do_is_said_once_most_first(watched):
    watched.send(LogEvent.RUN_INFO, stats={"all": 1, "table": 12, "training_run": 41, "figure": 10, "total": 64})
    watched.send(LogEvent.RUN_INFO, stats={"training_run": 7, "total": 7})
    assert watched.lines() == ["to do: 41 training_run, 12 table, 10 figure"]
    assert watched.total == 41
    assert re.match(r"\[\d\d:\d\d:\d\d\] to do", watched.screen.getvalue())


def test_training_runs_are_counted_and_the_rest_is_estimated_from_them(watched):
    watched.send(LogEvent.RUN_INFO, stats={"training_run": 4, "table": 1})
    watched.start(1)
    watched.now += 10
    watched.start(2, seed=123)
    watched.now += 10
    watched.finish(1)
    watched.now += 70
    watched.finish(2)
    assert watched.lines()[1:] == [
        "1 of 4 training runs finished, 1m 00s left (cifar10 0.1 fp32 64 0.001 42: 20s)",
        "2 of 4 training runs finished, 1m 30s left (cifar10 0.1 fp32 64 0.001 123: 1m 20s)",
    ]


def test_the_last_run_leaves_nothing(watched):
    watched.send(LogEvent.RUN_INFO, stats={"training_run": 1})
    watched.start(5)
    watched.now += 3
    watched.finish(5)
    assert watched.lines()[-1].startswith("1 of 1 training runs finished, 0s left")


def test_other_rules_are_not_counted(watched):
    watched.send(LogEvent.RUN_INFO, stats={"training_run": 1, "table": 1})
    watched.start(1, rule="table")
    watched.finish(1)
    watched.send(LogEvent.PROGRESS, done=1, total=2)
    watched.send(None, msg="Building DAG of jobs...")
    assert len(watched.lines()) == 1


def test_a_failed_run_shows_the_end_of_its_log_and_is_not_waited_for(watched, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("".join(f"line {number}\n" for number in range(1, 10)))
    watched.send(LogEvent.RUN_INFO, stats={"training_run": 3})
    watched.start(1)
    watched.start(2)
    watched.fail(1, log=[log])
    watched.now += 8
    watched.finish(2)
    assert watched.lines()[1:] == [
        f"FAILED: training_run cifar10 0.1 fp32 64 0.001 42; its log is {log}",
        *(f"  line {number}" for number in (5, 6, 7, 8, 9)),
        "1 of 3 training runs finished, 1 failed, 8s left (cifar10 0.1 fp32 64 0.001 42: 8s)",
    ]


def test_a_run_that_is_tried_again_has_not_failed(watched):
    watched.send(LogEvent.RUN_INFO, stats={"training_run": 1})
    watched.start(1)
    watched.fail(1)
    watched.start(1)
    watched.finish(1)
    assert watched.lines()[-1].startswith("1 of 1 training runs finished, 0s left")


def test_any_rule_that_fails_is_named_by_its_output(watched, tmp_path):
    watched.fail(7, rule="table", output=["a.tex", "a.csv"], log=[tmp_path / "never.log"])
    watched.fail(8, rule="figure", output=["b.pdf"])
    assert watched.lines() == [
        f"FAILED: table a.tex, a.csv; its log is {tmp_path / 'never.log'}",
        "FAILED: figure b.pdf; its log is none",
    ]
    assert not watched.failed


@pytest.mark.parametrize(
    ("told", "said"),
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
def test_a_job_that_slurm_ended_or_did_not_take_says_why(watched, told, said):
    watched.start(1)
    watched.fail(1, told=told)
    assert watched.lines() == [f"FAILED: training_run cifar10 0.1 fp32 64 0.001 42: {said}; its log is none"]


def test_a_log_of_any_bytes_is_shown(watched, tmp_path):
    (tmp_path / "log").write_bytes(b"caf\xe9\n")
    watched.fail(1, rule="prepare", output=["x"], log=[tmp_path / "log"])
    assert watched.lines()[-1] == "  caf\N{REPLACEMENT CHARACTER}"


def test_an_event_of_another_form_stops_nothing(watched, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)
    watched.send(LogEvent.RUN_INFO)
    watched.send(LogEvent.JOB_INFO, jobid=1, rule_name=progress.TRAINING, wildcards={})
    assert watched.lines() == []


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
    progress.listen(logger, quiet)
    progress.listen(logger, quiet)
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
