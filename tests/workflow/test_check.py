"""Whether results are what their configuration makes: each kind of file is tampered with, and each is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from contextlib import chdir
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from projects import ROOT, RUN, TEST, mistake

from qlocaladam import ARITHMETIC_SINCE
from qlocaladam.cli import main
from qlocaladam.report.check import KINDS, MISSING, SOUND, UNKNOWN, WRONG, check, failed
from qlocaladam.results.layout import Layout, lacks

SUMMARY = RUN.format(arm="fp32")
FOLDER = str(Path(SUMMARY).parent)
SETTINGS = f"{FOLDER}/settings.json"
NOTE = "results/data/digits.npz.json"
PARTITION = "results/test/partitions/digits/images~300/clients~10/alpha~0.1/seed~42.npz"
STATES = "results/test/analysis/distributions/cifar10"


def checked(folder: Path, *overrides: str, kinds: Collection[str] = KINDS) -> pd.DataFrame:
    with chdir(folder):
        return check(Layout.load(["config.yaml"], ["scale=test", *overrides]), kinds)


def replace(old: str, new: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        text = file.read_text()
        assert old in text, f"{file} has no {old!r}"
        file.write_text(text.replace(old, new, 1))

    return change


def set_json(*keys: str, value: object) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        content = json.loads(file.read_text())
        part = content
        for key in keys[:-1]:
            part = part[key]
        assert part[keys[-1]] != value
        part[keys[-1]] = value
        file.write_text(json.dumps(content, indent=2) + "\n")

    return change


def other_partition(file: Path) -> None:
    """A whole one, of another seed."""
    shutil.copy(file.with_name("seed~42.npz").parents[1] / "alpha~iid/seed~42.npz", file)


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def first_number(file: Path) -> None:
    """Another digit in the second line."""
    lines = file.read_text().splitlines(keepends=True)
    place = next(i for i, character in enumerate(lines[1]) if character.isdigit())
    lines[1] = lines[1][:place] + str((int(lines[1][place]) + 1) % 10) + lines[1][place + 1 :]
    file.write_text("".join(lines))


TAMPERED = [
    ("run", SUMMARY, set_json("best_accuracy", value=99.0), "best_accuracy is 99.0, but history.csv and"),
    ("run", SUMMARY, set_json("final_accuracy", value=99.0), "final_accuracy is 99.0, but history.csv"),
    ("run", SUMMARY, set_json("rounds", value=9), "rounds is 9, but history.csv and settings.json make it 2"),
    ("run", SUMMARY, set_json("optimizer_bytes", "held", value=1), "sha256 is"),
    ("run", SUMMARY, set_json("diverged", value={"round": 1, "client": 1}), "sha256 is"),
    ("run", SUMMARY, lambda file: file.write_text("{}"), "lacks the key 'parameters'"),
    ("run", SUMMARY, lambda file: file.write_text("{"), "summary.json is not whole"),
    ("run", SETTINGS, set_json("settings", "rounds", value=9), "settings.json is not the file that"),
    ("run", SETTINGS, set_json("versions", "torch", value="1.0"), "settings.json is not the file that"),
    ("run", SETTINGS, set_json("versions", "kernel", value="reference"), "settings.json is not the file"),
    (
        "run",
        f"{FOLDER}/history.csv",
        first_number,
        "history.csv is not the file that its summary.json was written with",
    ),
    ("data", "results/data/digits.npz", damage, "SHA-256 is"),
    ("data", NOTE, set_json("sha256", value="0" * 64), "SHA-256 is"),
    ("data", NOTE, set_json("source", value="another"), "was not made from its own origin as"),
    ("partition", PARTITION, damage, "is not a whole partition file"),
    ("partition", PARTITION, other_partition, "alpha is 'iid', not 0.1"),
    ("analysis", f"{STATES}/quantiles.csv", first_number, "SHA-256 is"),
    ("analysis", f"{STATES}/summary.json", set_json("steps", value=51), "it is not as it was written"),
    ("exact", "results/exact/memory.csv", first_number, "and its inputs make it"),
    ("exact", "results/exact/clients.csv", first_number, "and its inputs make it"),
    ("test", "results/test/analysis/significance/multiseed/significance.csv", first_number, "and its inputs make it"),
    ("table", "results/test/tables/main.csv", first_number, "row 1, dataset is"),
    ("table", "paper/generated/test/tables/main.tex", replace("FP32 &", "FP32 & 99.00 \\%"), "line "),
    ("numbers", "results/test/numbers.json", replace("value", "valve"), "line "),
    ("numbers", "paper/generated/test/numbers.tex", first_number, "line "),
    ("claims", "results/test/claims.csv", first_number, "and its inputs make it"),
    ("claims", "paper/generated/test/claims.tex", first_number, "line "),
    ("claims", "paper/generated/test/tables/disagreements.tex", replace("Table", "Tabel"), "line "),
    ("page", "results/test/claims.html", replace("Table main", "Table mine"), "line "),
    ("page", "results/test/RESULTS.md", replace("runs were trained", "runs were not trained"), "line "),
    ("page", "results/test/tables/main.html", replace("FP32", "FP64"), "line "),
    ("figure", "figures/test/convergence_cifar10.png", damage, "it is not what its inputs make"),
    ("figure", "figures/test/quant_error.pdf", damage, "it is not what its inputs make"),
]


def test_results_that_nobody_touched_are_as_asked(finished):
    """The check at the end of everything has looked at everything, and its outcome is a page of the report."""
    found = pd.read_csv(finished.folder / "results/test/check.csv")
    assert set(found["verdict"]) == {SOUND}, failed(found).to_string()
    assert set(found["kind"]) == set(KINDS)
    assert (found["kind"] == "run").sum() == 41
    assert (finished.folder / "results/test/check.passed").exists()
    html = (finished.folder / "results/test/check.html").read_text()
    assert "files are what the configuration makes" in html


def passes():
    """Where no file is made of another one, one check finds all of them."""
    for kind, of_kind in groupby(TAMPERED, itemgetter(0)):
        cases = list(of_kind)
        together = kind in ("exact", "table", "numbers", "claims", "page", "figure")
        yield from [cases] if together else [[case] for case in cases]


def test_each_kind_of_file_that_is_tampered_with_is_found(copy):
    """The file itself is named with what is wrong."""
    assert {kind for kind, *_ in TAMPERED} == set(KINDS)
    for cases in passes():
        before = {name: (copy.folder / name).read_bytes() for _, name, *_ in cases}
        for _, name, tamper, _ in cases:
            tamper(copy.folder / name)
            assert (copy.folder / name).read_bytes() != before[name], name
        wrong = failed(checked(copy.folder, kinds=[cases[0][0]]))
        for name, content in before.items():
            (copy.folder / name).write_bytes(content)
        for _, name, _, reason in cases:
            named = wrong[[name.startswith(found) for found in wrong["file"]]]
            if name.endswith(".npz.json"):
                named = wrong[wrong["file"] == name.removesuffix(".json")]
            assert len(named), f"{name}: not found among\n{wrong.to_string()}"
            assert set(named["verdict"]) == {WRONG}, name
            assert reason in named["reason"].iloc[0], name


def test_what_is_not_there_is_missing_and_what_cannot_be_compared_says_so(copy):
    for name in ("results/test/tables/main.csv", "results/data/digits.npz"):
        (copy.folder / name).unlink()
    shutil.rmtree(copy.folder / FOLDER)
    kinds = ("data", "partition", "run", "table")
    found = checked(copy.folder, kinds=kinds).set_index("file")
    assert found["verdict"][[FOLDER, "results/test/tables/main.csv"]].tolist() == [MISSING] * 2
    assert found["verdict"]["results/data/digits.npz"] == UNKNOWN
    assert found["reason"][PARTITION] == "its data are not here"
    found = checked(copy.folder, "train=false", kinds=["run"]).set_index("file")
    assert found["verdict"][FOLDER] == UNKNOWN
    assert found["reason"][FOLDER] == "not there; train is false, so it is left out"


def test_every_partition_of_every_run_is_looked_at(tmp_path, monkeypatch):
    """With another number of clients there is another one of the same data, alpha and seed."""
    monkeypatch.chdir(ROOT)
    layout = Layout.load(["config.yaml"], ["scale=test", "mechanism=true"])
    monkeypatch.chdir(tmp_path)
    files = {layout.partition_file(place) for place in layout.runs.to_dict("records")}
    assert any("/clients~5/" in file for file in files)
    assert set(check(layout, ["partition"])["file"]) == files


def test_another_configuration_is_named_for_every_run(copy):
    copy.configure(mistake("scales", "test", "training", "rounds", value=9))
    found = checked(copy.folder, kinds=["run", "table"])
    runs = found[found["kind"] == "run"]
    assert set(runs["verdict"]) == {WRONG}
    assert set(runs["reason"]) == {"settings.rounds is 2, not 9"}
    reason = found.set_index("file")["reason"]["results/test/tables/main.csv"]
    assert "settings.json: settings.rounds is 2, not 9, as the configuration asks" in reason


def test_a_partition_that_others_trained_on_is_found(copy):
    """Whole, and as its name says, but not that of the run."""
    file = copy.folder / PARTITION
    with np.load(file) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    flat = content["indices"]
    flat[[0, -1]] = flat[[-1, 0]]
    described = json.loads(str(content["metadata"]))
    from qlocaladam.federated.partition import Partition

    held = np.split(flat, content["offsets"][1:-1])
    names = ("recipe", "seed", "alpha", "label_count", "labels_sha256")
    Partition(indices=held, **{name: described[name] for name in names}).save(file)
    wrong = failed(checked(copy.folder, kinds=["run", "partition"]))
    runs = wrong[wrong["kind"] == "run"]
    assert FOLDER in set(runs["file"])
    assert runs["reason"].str.startswith("partition.sha256 is ").all()
    assert PARTITION in set(wrong["file"])


def test_the_command_lists_everything_and_ends_with_1_where_anything_is_wrong(copy, capsys, tmp_path):
    written = [f"--csv={tmp_path / 'c.csv'}", f"--html={tmp_path / 'c.html'}"]
    arguments = ["check", "--only", "run", *written, "--config", "scale=test"]
    with chdir(copy.folder):
        assert main(arguments) == 0
        said = capsys.readouterr().out
        assert "check: all of " in said
        assert "41 runs made with kernel " in said
        set_json("best_accuracy", value=99.0)(Path(SUMMARY))
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 1
    said = capsys.readouterr().out
    assert f"wrong:\n  {FOLDER}: {FOLDER}/summary.json: best_accuracy is 99.0, but " in said
    assert WRONG in pd.read_csv(tmp_path / "c.csv")["verdict"].tolist()
    html = (tmp_path / "c.html").read_text()
    assert html.index("best_accuracy is 99.0") < html.index("as asked")


def test_an_edited_result_stops_the_table_and_the_comparison_with_both_values(copy):
    summary = copy.folder / FOLDER / "summary.json"
    set_json("best_accuracy", value=99.0)(summary)
    said = copy.snakemake("tables", *TEST, ok=False)
    stopped = f"qlocaladam: {FOLDER}/summary.json: best_accuracy is 99.0, but history.csv and settings.json make it "
    assert stopped in said
    assert not (copy.folder / "paper/generated/test/tables/main.tex").exists()
    with chdir(copy.folder), pytest.raises(SystemExit):
        main(["analyse", "significance", "--runs", FOLDER, "--out", "elsewhere"])


def test_the_workflow_checks_when_it_is_asked(copy):
    set_json("best_accuracy", value=99.0)(copy.folder / FOLDER / "summary.json")
    said = copy.snakemake("check", *TEST, ok=False)
    assert f"{FOLDER}/summary.json: best_accuracy is 99.0, but " in said
    assert (copy.folder / "results/test/check.html").exists(), "a bad outcome is kept, too"


def test_a_run_of_an_earlier_arithmetic_is_not_the_one_that_is_asked_for(tmp_path):
    """Whatever made it: its settings can be the same to the letter."""
    record = tmp_path / "settings.json"
    record.write_text(json.dumps({"settings": {"arm": "fp32"}}))
    asked = {"arithmetic": ARITHMETIC_SINCE, "settings": {"arm": "fp32"}}
    assert lacks([str(record)], str(record), asked) == f"arithmetic is None, not {ARITHMETIC_SINCE!r}"
    record.write_text(json.dumps(asked))
    assert lacks([str(record)], str(record), asked) == ""


def test_an_arm_that_means_something_else_now_is_named(copy, monkeypatch):
    """Runs say what their arm stood for; the configuration says only its name."""
    from qlocaladam import optim

    monkeypatch.setitem(optim.ARMS, "fp32", {**optim.ARMS["fp32"], "eps": 1e-4})
    wrong = failed(checked(copy.folder, kinds=["run"]))
    assert len(wrong) == 12
    assert set(wrong["reason"]) == {"optimizer.eps is 1e-08, not 0.0001"}
