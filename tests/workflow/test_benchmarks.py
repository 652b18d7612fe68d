"""The benchmarks are no tests, but what they print has to be what they measured."""

import importlib
import json

import pytest

from benchmarks import report
from benchmarks.__main__ import SUITES, main
from benchmarks.timing import Plan
from qlocaladam import ARMS


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_is_there(suite):
    assert callable(importlib.import_module(f"benchmarks.{suite}").run)


def test_an_unknown_suite_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["optimisers"])
    assert stopped.value.code == 2
    assert "no suite optimisers; there are: optimizers, federated" in capsys.readouterr().err


def test_tables_are_saved_as_they_are_printed(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    table = report.Table("Title", {"who": str, "ms": "{:.1f}".format}, [{"who": "ours", "ms": 1.25}], ["a note"])
    assert "1.2" in table.text()
    report.save("suite", [table], {"cores": "2"}, quick=False)
    assert "| ours | 1.2 |" in (tmp_path / "suite.md").read_text()
    assert "1.25" in json.dumps(json.loads((tmp_path / "suite.json").read_text())), "all digits are kept"


def test_the_first_ten_minutes_on_a_gpu_work_on_a_cpu_too(tmp_path, monkeypatch, capsys):
    """Parity, step ratio, images per second, and what to send back."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    plan = Plan(seconds=0.01, fewest=1, most=1, turn_seconds=0.0)
    monkeypatch.setattr("benchmarks.gpu.QUICK", plan)
    assert main(["gpu", "--quick"]) == 0
    said = capsys.readouterr().out
    assert "No GPU was found" in said
    parity, steps, images = json.loads((tmp_path / "gpu-quick.json").read_text())["tables"]
    assert {row["arm"] for row in parity["rows"]} == set(ARMS)
    assert all(row["furthest"] < 1e-4 and (row["codes apart"] or 0) < 1e-3 for row in parity["rows"])
    assert all(row["ratio"] > 0 for row in steps["rows"])
    assert all(row["images per second"] > 0 for row in images["rows"])
