"""Whole runs: the same bytes however they are made, and an answer for whatever goes wrong."""

import dataclasses
import json
import shutil
from functools import cache

import numpy as np
import pytest
import torch
from command_line import refused
from training_runs import SAME, results, rows, small_part, stop_after

import qlocaladam
from qlocaladam import ARMS
from qlocaladam.cli import main
from qlocaladam.federated import checkpoint, rounds
from qlocaladam.federated.partition import Partition, labels_sha256, load_partition, partition
from qlocaladam.federated.run import kernel_name, run
from qlocaladam.federated.settings import RunSettings
from qlocaladam.kernels import fused

TINY = RunSettings(rounds=3, width=4, image_size=32, batch_size=16, flip=False, epochs=1)
small, parts = small_part("digits", alpha=0.5)


@pytest.fixture(scope="module")
def straight(small, parts, tmp_path_factory):
    """The folder of a run that nothing disturbed, not to be changed, and what it returned."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, run(TINY, small, parts, folder)


@pytest.fixture(scope="module")
def cut_off(small, parts, tmp_path_factory):
    """What the same run leaves if it is cut off after two of its three rounds. Not to be changed."""
    folder = tmp_path_factory.mktemp("cut")
    with pytest.MonkeyPatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(KeyboardInterrupt):
            run(TINY, small, parts, folder)
    return folder


@pytest.fixture(scope="module")
def run_of(small, parts, tmp_path_factory):
    """The folder of a run of each arm and what it returned, made once."""

    @cache
    def made(arm):
        folder = tmp_path_factory.mktemp(arm)
        return folder, run(dataclasses.replace(TINY, arm=arm, rounds=2), small, parts, folder)

    return made


def test_a_run_leaves_what_it_should(small, parts, straight):
    folder, summary = straight
    assert sorted(p.name for p in folder.iterdir()) == sorted((*SAME, "run.log", "timings.csv"))
    history = rows(folder)
    assert [row["round"] for row in history] == ["1", "2", "3"]
    assert all(len(row["clients"].split()) == 5 for row in history)
    accuracies = [float(row["accuracy"]) for row in history]
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["best_accuracy"] == max(accuracies)
    assert summary["final_accuracy"] == accuracies[-1]
    assert summary["diverged"] is None
    assert summary["optimizer_bytes"]["held"] < summary["optimizer_bytes"]["published"] < 8 * summary["parameters"]
    settings = json.loads((folder / "settings.json").read_text())
    assert settings["settings"]["arm"] == "q-localadam"
    assert settings["arithmetic"] == qlocaladam.ARITHMETIC_SINCE
    assert settings["versions"]["torch"] == torch.__version__
    assert settings["dataset"]["sha256"] == small.sha256
    assert settings["partition"]["sha256"] == parts.sha256
    log = (folder / "run.log").read_text()
    assert "round 3/3" in log
    assert "best" in log


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_runs_and_repeats(arm, run_of, small, parts, tmp_path):
    run(dataclasses.replace(TINY, arm=arm, rounds=2), small, parts, tmp_path)
    assert results(run_of(arm)[0]) == results(tmp_path)


def test_memory_is_that_of_the_arm(run_of):
    sizes = {arm: run_of(arm)[1] for arm in ARMS}
    held = {arm: summary["optimizer_bytes"]["held"] for arm, summary in sizes.items()}
    assert held["fp32"] == 8 * sizes["fp32"]["parameters"]
    assert held["q-localadam"] == held["naive-int8"] < held["momentum-only"] == held["variance-only"] < held["fp32"]


def test_settings_change_results(small, parts, straight, tmp_path):
    seen = [(straight[0] / "history.csv").read_bytes()]
    changes = [{}, {"lr": 1e-2}, {"seed": 1}, {"epochs": 2}, {"flip": True}, {"optimizer": {"block_size": 32}}]
    changes += [{"loss_scale": 1e-4}, {"optimizer": {"eps_floor": 1e-6}}]
    changes = [{"rounds": 1, **change} for change in changes] + [{"states": "persist"}]
    for number, change in enumerate(changes):
        run(dataclasses.replace(TINY, **change), small, parts, tmp_path / str(number))
        seen.append((tmp_path / str(number) / "history.csv").read_bytes())
    assert len(set(seen)) == len(changes) + 1


def test_a_power_of_two_in_front_of_the_loss_changes_nothing_without_eps(small, parts, tmp_path):
    """With neither eps nor a floor every step of Adam is the same, and a power of two is exact in float32."""
    options = {"optimizer": {"eps": 0.0}, "arm": "fp32", "rounds": 2}
    for scale in (1.0, 2.0**-13):
        run(dataclasses.replace(TINY, loss_scale=scale, **options), small, parts, tmp_path / str(scale))
    columns = [[row["accuracy"] for row in rows(tmp_path / str(scale))] for scale in (1.0, 2.0**-13)]
    assert columns[0] == columns[1]


@pytest.mark.parametrize("arm", ["fp32", "q-localadam", "normalised-4bit"])
def test_states_that_persist_are_those_of_the_clients_last_round(arm, small, parts, tmp_path, monkeypatch):
    started: list[tuple[int, int]] = []
    ended: dict[int, int] = {}
    original = rounds.train_client

    def recorded(model, data, indices, how, round_, client, states):
        steps = {state["step"] for state in states["state"].values()} if states else {0}
        started.append((client, *steps))
        assert steps == {ended.get(client, 0)}
        result = original(model, data, indices, how, round_, client, states)
        (ended[client],) = {int(state["step"]) for state in result.optimizer.state.values()}
        return result

    monkeypatch.setattr(rounds, "train_client", recorded)
    run(dataclasses.replace(TINY, arm=arm, states="persist", rounds=4), small, parts, tmp_path)
    assert any(steps for _, steps in started), "no client took part twice"


def test_states_that_persist_survive_a_run_that_is_cut_off(small, parts, tmp_path, monkeypatch):
    settings = dataclasses.replace(TINY, arm="normalised", states="persist", rounds=4)
    run(settings, small, parts, tmp_path / "straight")
    original = rounds.train_client

    def cut(model, data, indices, how, round_, client, states):
        if round_ == 3:
            raise KeyboardInterrupt
        return original(model, data, indices, how, round_, client, states)

    monkeypatch.setattr(rounds, "train_client", cut)
    with pytest.raises(KeyboardInterrupt):
        run(settings, small, parts, tmp_path / "cut")
    monkeypatch.setattr(rounds, "train_client", original)
    run(settings, small, parts, tmp_path / "cut")
    assert results(tmp_path / "straight") == results(tmp_path / "cut")


def test_every_client_rounds_with_noise_of_its_own():
    def seed(how, round_, client):
        return how.make_optimizer([torch.zeros(1, requires_grad=True)], round_, client).param_groups[0]["seed"]

    how = dataclasses.replace(TINY, arm="normalised").local_training()
    assert len({seed(how, *place) for place in ((1, 0), (1, 1), (2, 0), (2, 1))}) == 4
    kept = dataclasses.replace(how, persist=True)
    assert seed(kept, 1, 0) == seed(kept, 2, 0) != seed(kept, 2, 1)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_threads_repeat_too(small, parts, tmp_path, two_threads):
    for name in ("one", "two"):
        run(dataclasses.replace(TINY, rounds=1), small, parts, tmp_path / name)
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_a_run_is_not_resumed_with_another_number_of_threads(small, parts, tmp_path, monkeypatch):
    """torch's convolutions round differently with another number, so a mixture would be nobody's result."""
    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 2)
        stop_after(1, patch)
        with pytest.raises(KeyboardInterrupt):
            run(TINY, small, parts, tmp_path)
    run(TINY, small, parts, tmp_path)
    assert "made with other settings" in (tmp_path / "run.log").read_text()
    assert json.loads((tmp_path / "settings.json").read_text())["versions"]["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("damage", ["none", "truncated", "flipped", "empty", "gone", "both", "foreign"])
def test_resuming_gives_the_same_bytes_whatever_became_of_the_checkpoint(
    damage, small, parts, straight, cut_off, tmp_path, monkeypatch
):
    cut = shutil.copytree(cut_off, tmp_path / "cut")
    file = cut / "checkpoint.pt"
    data = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "gone":
        file.unlink()
    elif damage == "both":
        file.write_bytes(b"nonsense")
        checkpoint.previous(file).write_bytes(b"nonsense")
    elif damage == "foreign":
        checkpoint.save(file, {"identity": "another run"})
    trained = []
    original = rounds.train_client
    monkeypatch.setattr(rounds, "train_client", lambda *a: trained.append(a[4]) or original(*a))
    run(TINY, small, parts, cut)
    assert results(straight[0]) == results(cut)
    first = {"none": 3, "both": 1, "foreign": 1}.get(damage, 2)
    assert min(trained) == first, "damage costs one checkpoint interval, and all of them only if both are lost"
    log = (cut / "run.log").read_text()
    assert ("passed over" in log) == (damage in ("truncated", "flipped", "empty", "both"))
    assert ("made with other settings" in log) == (damage == "foreign")
    assert not file.exists()


def test_a_checkpoint_of_other_settings_is_not_used(small, parts, run_of, cut_off, tmp_path):
    shutil.copytree(cut_off, tmp_path, dirs_exist_ok=True)
    run(dataclasses.replace(TINY, arm="fp32", rounds=2), small, parts, tmp_path)
    assert results(tmp_path) == results(run_of("fp32")[0])


def test_interval_between_checkpoints_changes_nothing(small, parts, straight, tmp_path):
    run(TINY, small, parts, tmp_path, checkpoint_every=2)
    assert results(straight[0]) == results(tmp_path)


def test_a_run_that_diverges_is_a_result(small, parts, tmp_path, monkeypatch):
    settings = dataclasses.replace(TINY, rounds=5)
    original = rounds.train_client

    def spoil(model, data, indices, how, round_, client, states):
        result = original(model, data, indices, how, round_, client, states)
        if round_ == 2:
            with torch.no_grad():
                model.fc.weight[0, 0] = torch.nan
            result = dataclasses.replace(result, finite=False, loss=float("nan"))
        return result

    monkeypatch.setattr(rounds, "train_client", spoil)
    summary = run(settings, small, parts, tmp_path)
    history = rows(tmp_path)
    assert summary["diverged"]["round"] == 2
    assert summary["rounds"] == len(history) == 2
    assert history[1]["finite_clients"] == "0"
    assert summary["best_accuracy"] >= summary["final_accuracy"] == float(history[1]["accuracy"])
    assert "diverged in round 2" in (tmp_path / "run.log").read_text()
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=pytest.fail)


def test_a_learning_rate_that_explodes_is_recorded(small, parts, tmp_path):
    summary = run(dataclasses.replace(TINY, lr=1e38, arm="fp32"), small, parts, tmp_path)
    assert summary["diverged"]["round"] == 1
    assert 0 <= summary["final_accuracy"] <= 100


@pytest.fixture
def uneven(small):
    """A client with nothing, one with one image, one with one class, one with the rest, and another with nothing."""
    same = np.flatnonzero(small.y_train == 3)
    rest = np.setdiff1d(np.arange(200), same)
    indices = [np.array([], np.int64), rest[:1], same, rest[1:], np.array([], np.int64)]
    return Partition("dirichlet-1", 0, 0.1, indices, 200, labels_sha256(small.y_train))


def test_resuming_in_a_round_without_work_evaluates_the_restored_model(small, uneven, tmp_path, monkeypatch):
    settings = dataclasses.replace(TINY, clients_per_round=1, rounds=12, seed=3)
    run(settings, small, uneven, tmp_path / "straight")
    work = [row["images"] != "0" for row in rows(tmp_path / "straight")]
    idle = next(i for i in range(1, len(work)) if not work[i] and any(work[:i]))
    with monkeypatch.context() as patch:
        stop_after(idle, patch)
        with pytest.raises(KeyboardInterrupt):
            run(settings, small, uneven, tmp_path / "cut")
    run(settings, small, uneven, tmp_path / "cut")
    assert results(tmp_path / "straight") == results(tmp_path / "cut")


def test_empty_clients_and_tiny_ones_are_fine(small, uneven, tmp_path):
    run(dataclasses.replace(TINY, clients_per_round=5), small, uneven, tmp_path / "all")
    assert {row["images"] for row in rows(tmp_path / "all")} == {"200"}
    run(dataclasses.replace(TINY, clients_per_round=1, rounds=12, seed=3), small, uneven, tmp_path / "one")
    idle = [row for row in rows(tmp_path / "one") if row["images"] == "0"]
    assert idle
    assert all(row["train_loss"] == "" for row in idle)


def test_a_thousand_clients_work(small, tmp_path):
    part = partition(small.y_train, 1000, 0.1, 42)
    assert (part.sizes == 0).any()
    summary = run(dataclasses.replace(TINY, clients_per_round=50, rounds=2), small, part, tmp_path)
    assert summary["rounds"] == 2


def test_a_partition_of_other_labels_is_refused_before_training(small, tmp_path):
    other = partition(np.roll(small.y_train, 1), 10, 0.5, 42)
    with pytest.raises(ValueError, match="labels must be the ones that the partition was made for"):
        run(TINY, small, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arm": "int4"}, "arm must be one of fp32, q-localadam, .* got 'int4'"),
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"epochs": 1.5}, "epochs must be a whole number of at least 1, got 1.5"),
        ({"lr": -1.0}, "lr must be .* got -1.0"),
        ({"stem": "5x5"}, "stem must be one of 7x7, 3x3, got '5x5'"),
        ({"precision": "fp8"}, "precision must be one of fp32, bf16, got 'fp8'"),
        ({"optimizer": {"block_size": 0}}, "block_size must be .* got 0"),
        ({"optimizer": {"blocks": 64}}, "optimizer has an option that QLocalAdam does not have: .*'blocks'"),
        ({"optimizer": {"lr": 0.1}}, "optimizer must not set lr"),
        ({"seed": -1}, "seed must be .* got -1"),
        ({"loss_scale": 0.0}, "loss_scale must be a finite number greater than 0, got 0.0"),
        ({"states": "kept"}, "states must be one of reset, persist, got 'kept'"),
        ({"arm": "torchao-8bit", "states": "persist"}, "states must be reset for torchao-8bit"),
    ],
)
def test_bad_settings_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


def test_more_clients_a_round_than_there_are_is_refused(small, parts, tmp_path):
    with pytest.raises(ValueError, match="clients_per_round must be a whole number from 1 to 10, got 11"):
        run(dataclasses.replace(TINY, clients_per_round=11), small, parts, tmp_path)


@pytest.mark.parametrize("device", ["gpu7", "cuda"])
def test_a_device_that_is_not_there_is_refused(device, small, parts, tmp_path):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(ValueError, match=device):
        run(dataclasses.replace(TINY, device=device), small, parts, tmp_path)


def test_bf16_runs(small, parts, tmp_path):
    summary = run(dataclasses.replace(TINY, precision="bf16", rounds=1), small, parts, tmp_path)
    assert summary["diverged"] is None


def test_the_command_line_from_data_to_results(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "digits", "--out", "d.npz"]) == 0
    assert main(["partition", "--data", "d.npz", "--alpha", "iid", "--clients", "3", "--out", "p.npz"]) == 0
    assert load_partition("p.npz").clients == 3
    options = ["--rounds", "1", "--clients-per-round", "2", "--width", "4", "--image-size", "32", "--no-flip"]
    options += ["--epochs", "1"]
    arguments = ["train", "--data", "d.npz", "--partition", "p.npz", "--out", "r", *options]
    assert main([*arguments, "--arm", "fp32", "--option", "variance_floor=1e-8", "--option", "rounding=floor"]) == 0
    settings = json.loads((tmp_path / "r" / "settings.json").read_text())["settings"]
    assert settings["optimizer"] == {"variance_floor": 1e-8, "rounding": "floor"}
    assert settings["epochs"] == 1
    assert not settings["flip"]
    capsys.readouterr()
    for wrong, text in (
        (["--arm", "x"], "arm must be one of"),
        (["--data", "missing.npz"], "missing.npz does not exist"),
        (["--partition", "missing.npz"], "missing.npz"),
        (["--option", "eps"], "'eps' is not of the form NAME=VALUE"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, *wrong])
        assert stopped.value.code != 0
        assert text in capsys.readouterr().err
    assert "either --data or --labels-of" in refused(capsys, ["partition", "--out", "p.npz"])


def test_the_published_partition_from_the_command_line(tmp_path, capsys):
    assert main(["partition", "--labels-of", "cifar10", "--out", str(tmp_path / "p.npz")]) == 0
    printed = capsys.readouterr().out
    assert "9,826" in printed
    assert "49,969 samples dealt out, 31 left over" in printed


def test_the_kernel_is_part_of_what_a_run_is(small, parts, straight, tmp_path, monkeypatch):
    folder, first = straight
    made = json.loads((folder / "settings.json").read_text())
    name = made["versions"]["kernel"]
    assert name == kernel_name(TINY)
    assert f"kernel: {name}\n" in (folder / "run.log").read_text()
    chosen = dataclasses.replace(TINY, optimizer={"backend": "reference"})
    assert kernel_name(chosen) == "reference"

    with monkeypatch.context() as patch:
        patch.setattr(fused, "library", lambda: None)
        stop_after(1, patch)
        with pytest.raises(KeyboardInterrupt):
            run(TINY, small, parts, tmp_path)
    said = (tmp_path / "run.log").read_text()
    assert said.count("kernel: reference. The compiled kernel is not there: ") == 1
    assert "`pip install .` builds it" in said
    if name == "reference":
        pytest.skip("no compiled kernel here")
    assert name.startswith("fused-")
    assert run(TINY, small, parts, tmp_path) == first
    assert "made with other settings, data or versions; starting anew" in (tmp_path / "run.log").read_text()


def test_a_finished_run_is_kept_and_one_that_was_made_otherwise_is_not_overwritten(small, parts, straight, tmp_path):
    folder, first = straight
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    dates = {name: (tmp_path / name).stat().st_mtime_ns for name in SAME}
    assert run(TINY, small, parts, tmp_path) == first
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in SAME} == dates
    other = dataclasses.replace(TINY, rounds=2)
    said = r"holds a finished run that was made otherwise: settings\.rounds is 3, not 2; choose another"
    with pytest.raises(ValueError, match=said):
        run(other, small, parts, tmp_path)
    assert run(other, small, parts, tmp_path, overwrite=True)["rounds"] == 2


def test_commands_say_in_one_line_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (
            ["train", "--threads=0", "--data=d", "--partition=p", "--out=o"],
            "--threads: '0' is not a whole number of at",
        ),
        (["claims"], "results/quick/numbers.json is not there; `snakemake claims --config scale=quick` makes it"),
        (["check"], "config.yaml: cannot be read"),
    ):
        assert said in refused(capsys, arguments)
