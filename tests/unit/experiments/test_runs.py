"""Training runs as tables, and the commands that make tables and figures of them."""

import re
from pathlib import Path

import pytest
from analysis_files import MEMORY
from scripts import run_script
from simulated_runs import Runs

from qlocaladam.experiments.grid import GRID, place, run_name, short_name
from qlocaladam.experiments.runs import collapsed, read_histories, read_runs


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


def test_a_folder_says_where_a_run_stands():
    folder = Path("results/a~b/dataset~cifar10/alpha~1.0/arm~q-localadam/block_size~128/lr~1e-05/seed~4294967295")
    assert place(folder) == {
        "dataset": "cifar10",
        "alpha": "1.0",
        "arm": "q-localadam",
        "block_size": 128,
        "lr": 1e-5,
        "loss_scale": 1.0,
        "clients": 10,
        "clients_per_round": 5,
        "states": "reset",
        "seed": 4294967295,
    }


def test_a_folder_names_what_is_not_as_in_the_paper():
    name = "dataset~cifar10/alpha~iid/arm~fp32/block_size~64/lr~0.001/loss_scale~0.0001/clients~5/states~persist/seed~1"
    at = place(Path("results/runs") / name)
    assert (at["loss_scale"], at["clients"], at["clients_per_round"], at["states"]) == (1e-4, 5, 5, "persist")
    assert run_name(at) == name
    assert short_name(at) == "cifar10/iid/fp32/64/0.001/loss_scale=0.0001/clients=5/states=persist/1"


@pytest.mark.parametrize(
    "folder",
    [
        "results",
        "alpha~1.0/dataset~cifar10/arm~fp32/block_size~64/lr~0.001/seed~42",
        "dataset~cifar10/alpha~1.0/arm~fp32/block_size~64/lr~0.001/seed~42/summary.json",
        "dataset~cifar10/alpha~1.0/arm~fp32/block_size~64/lr~0.001/loss_scale~1.0/seed~42",
        "dataset~cifar10/alpha~1.0/arm~fp32/block_size~64/lr~0.001/clients~5/loss_scale~0.1/seed~42",
    ],
)
def test_another_folder_is_refused(folder):
    usual = "/".join(f"{name}~..." for name in ("dataset", "alpha", "arm", "block_size", "lr", "seed"))
    message = re.escape(f"{folder}: a run's folder ends in {usual}, with loss_scale")
    with pytest.raises(ValueError, match=f"^{message}"):
        place(Path(folder))


def test_one_row_a_run_in_the_order_given(runs):
    found = runs({"accuracy": [10.0, 85.5, 80.25], "arm": "naive-int8"}, {"accuracy": [1.0], "classes": 100})
    assert found.columns.tolist()[: len(GRID)] == list(GRID)
    assert found["arm"].tolist() == ["naive-int8", "fp32"]
    assert found.drop(columns=["folder", "history_sha256"]).iloc[0].to_dict() == {
        "dataset": "cifar10",
        "alpha": "0.1",
        "arm": "naive-int8",
        "block_size": 64,
        "lr": 0.001,
        "loss_scale": 1.0,
        "clients": 10,
        "clients_per_round": 5,
        "states": "reset",
        "seed": 42,
        "best": 85.5,
        "best_round": 2,
        "final": 80.25,
        "last_third": 80.25,
        "mean": (10 + 85.5 + 80.25) / 3,
        "diverged": False,
        "rounds": 3,
        "parameters": 1000,
        "held_bytes": 1,
        "published_bytes": 1,
        "data": "digits",
        "classes": 10,
        "training_images": 100,
        "test_images": 50,
        "epochs": 20,
        "batch_size": 20,
        "width": 20,
        "image_size": 20,
    }
    assert found["classes"].tolist() == [10, 100]


def test_a_run_that_diverged_says_so(runs):
    assert runs({"accuracy": [10.0], "diverged": True}, {"accuracy": [9.0], "seed": 1})["diverged"].tolist() == [
        True,
        False,
    ]


def test_folders_may_be_words(runs):
    found = runs({"accuracy": [10.0]})
    assert read_runs(found["folder"]).equals(found)


@pytest.mark.parametrize("name", ["summary.json", "settings.json"])
def test_a_file_that_is_cut_off_is_named(runs, name):
    folder = Path(runs({"accuracy": [10.0]})["folder"][0])
    (folder / name).write_text((folder / name).read_text()[:-2])
    with pytest.raises(ValueError, match=rf"{name} is not whole \(.*\); delete the run's folder and run snakemake"):
        read_runs([folder])


def test_a_run_without_its_summary_is_not_read(runs):
    folder = Path(runs({"accuracy": [10.0]})["folder"][0])
    (folder / "summary.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"summary\.json"):
        read_runs([folder])


def test_collapsed_is_to_end_below_twice_guessing(runs):
    found = runs(
        {"accuracy": [90.0, 19.99]},
        {"accuracy": [5.0, 20.0], "seed": 1},
        {"accuracy": [1.99], "seed": 2, "classes": 100},
        {"accuracy": [2.0], "seed": 3, "classes": 100},
    )
    assert collapsed(found).tolist() == [True, False, True, False]


def test_of_two_classes_twice_guessing_would_be_perfect(runs):
    found = runs({"accuracy": [74.9], "classes": 2}, {"accuracy": [75.0], "classes": 2, "seed": 1})
    assert collapsed(found).tolist() == [True, False]


def test_histories_are_every_round_of_every_run(runs):
    found = runs({"accuracy": [10.0, 20.0]}, {"accuracy": [30.0], "seed": 7, "alpha": "iid"})
    rounds = read_histories(found)
    shown = ["round", "accuracy", "test_loss", "train_loss", "images", "participants", "finite_clients"]
    assert rounds.columns.tolist() == [*GRID, *shown]
    assert rounds[["alpha", "seed", "round", "accuracy"]].to_numpy().tolist() == [
        ["0.1", 42, 1, 10.0],
        ["0.1", 42, 2, 20.0],
        ["iid", 7, 1, 30.0],
    ]
    assert rounds["participants"].tolist() == ["0 3"] * 3
    assert rounds["clients"].tolist() == [10] * 3


def test_a_history_that_was_changed_is_refused(runs):
    found = runs({"accuracy": [10.0]})
    path = Path(found["folder"][0]) / "history.csv"
    path.write_text(path.read_text().replace("10.0", "99.0"))
    with pytest.raises(ValueError, match=r"history\.csv is not the file that its summary\.json was written with"):
        read_histories(found)


def make_table(runs, folder, memory, ok=True, **entry):
    spec = {
        "name": "main",
        "kind": "runs",
        "rows": "arm",
        "columns": ["best", "memory"],
        "caption": "Words",
        "scale": "test",
        "labels": {"dataset": {}, "arm": {}},
        "stands_for": {},
        "asked": None,
    }
    params = {"spec": {**spec, **entry}, "runs": runs["folder"].tolist()}
    output = {kind: folder / f"t.{kind}" for kind in ("tex", "csv")}
    return run_script("table", folder, output, ok, input={"memory": str(memory)}, params=params)


@pytest.fixture
def memory(tmp_path):
    (tmp_path / "memory.csv").write_text(MEMORY)
    return tmp_path / "memory.csv"


def test_mistakes_are_said_in_one_line(runs, memory, tmp_path):
    found = runs({"accuracy": [81.67]})
    said = make_table(found, tmp_path, memory, ok=False, kind="pie")
    assert said.startswith("qlocaladam: tables.main.kind is 'pie'; accepted: client_memory, ")
    assert said.count("\n") == 1
    said = make_table(found.assign(folder=str(tmp_path)), tmp_path, memory, ok=False)
    advice = "is not there; delete the run's folder and run snakemake again"
    assert said == f"qlocaladam: {tmp_path / 'summary.json'} {advice}\n"
    said = make_table(found, tmp_path, tmp_path / "none.csv", ok=False)
    assert said == f"qlocaladam: [Errno 2] No such file or directory: '{tmp_path / 'none.csv'}'\n"
    assert list(tmp_path.glob("t.*")) == []
