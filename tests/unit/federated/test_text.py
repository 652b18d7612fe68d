"""Text in the federated engine: batches, losses over every character, and whole runs."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn
from training_runs import results, rows, small_part, stop_after

from qlocaladam import ARMS
from qlocaladam.cli import main
from qlocaladam.data.dataset import SYMBOLS, WINDOW
from qlocaladam.federated.batches import TextSet, image_sets, sample_sets
from qlocaladam.federated.client import LocalTraining, train_client
from qlocaladam.federated.partition_statistics import class_counts
from qlocaladam.federated.run import run
from qlocaladam.federated.server import evaluate
from qlocaladam.federated.settings import RunSettings
from qlocaladam.models import Transformer

CPU = torch.device("cpu")
TINY = RunSettings(rounds=3, width=8, batch_size=16, epochs=1, lr=1e-2)


small, parts = small_part("text", alpha=0.1)


def test_a_batch_is_symbols_and_their_successors(small):
    train, test = sample_sets(small, 0, CPU)
    inputs, targets = train.batch(torch.tensor([7, 2]))
    assert inputs.shape == targets.shape == (2, 64)
    assert inputs.tolist() == small.x_train[[7, 2], :-1].tolist()
    assert targets.tolist() == small.x_train[[7, 2], 1:].tolist()
    assert (len(train), len(test)) == (200, 50)
    assert train.labels.tolist() == small.y_train.tolist()
    assert train.windows.dtype == torch.uint8


def test_evaluation_counts_every_place(small):
    """A model that always says the same: right where that is the next symbol, and its loss is known."""

    class Fixed(nn.Module):
        def forward(self, symbols):
            return nn.functional.one_hot(torch.zeros_like(symbols), SYMBOLS) * 5.0

    _, test = sample_sets(small, 0, CPU)
    accuracy, loss = evaluate(Fixed(), test, 7)
    spaces = (small.x_test[:, 1:] == 0).mean()
    assert 0.1 < spaces < 0.5
    assert accuracy == pytest.approx(100 * spaces)
    assert loss == pytest.approx(np.log(np.exp(5) + 96) - 5 * spaces, rel=1e-5)


@pytest.mark.parametrize("count", [1, 17])
def test_a_client_learns_its_text(small, count):
    train, _ = sample_sets(small, 0, CPU)
    torch.manual_seed(0)
    how = LocalTraining({**ARMS["q-localadam"], "lr": 1e-2}, 20, 16, flip=False, autocast=False, seed=1)
    indices = torch.arange(count)
    model = Transformer(SYMBOLS, WINDOW, 16)
    mine = TextSet(small.x_train[:count], small.y_train[:count], CPU)
    _, before = evaluate(model, mine, 500)
    result = train_client(model, train, indices, how, 1, 0)
    _, after = evaluate(model, mine, 500)
    assert before == pytest.approx(np.log(97), abs=0.5)
    assert after < result.loss < before - 1
    assert (result.images, result.finite) == (20 * count, True)


def test_text_is_dealt_out_by_section(parts, small):
    counts = class_counts(parts, small.y_train)
    held = counts[counts.sum(1) > 0]
    assert (held.max(1) / held.sum(1)).mean() > 0.5


def test_a_run_on_text_says_what_it_was(small, parts, tmp_path):
    summary = run(dataclasses.replace(TINY, rounds=8), small, parts, tmp_path)
    made = json.loads((tmp_path / "settings.json").read_text())
    assert made["dataset"] == {
        "name": "text",
        "sha256": small.sha256,
        "origin": small.origin,
        "training_images": 200,
        "test_images": 50,
        "classes": 97,
    }
    assert f"Python {made['versions']['python']}, " in made["dataset"]["origin"]
    assert [made["settings"][name] for name in ("stem", "image_size", "flip", "width")] == [None, None, None, 8]
    assert summary["parameters"] == sum(p.numel() for p in Transformer(97, 64, 8).parameters())
    history = rows(tmp_path)
    assert float(history[-1]["test_loss"]) < float(history[0]["test_loss"]) < np.log(97) + 0.1
    assert summary["best_accuracy"] > 15


def test_what_only_images_have_changes_nothing(small, parts, tmp_path):
    run(TINY, small, parts, tmp_path / "one")
    other = dataclasses.replace(TINY, flip=not TINY.flip, image_size=32, stem="3x3")
    run(other, small, parts, tmp_path / "two")
    assert results(tmp_path / "one") == results(tmp_path / "two")


@pytest.mark.parametrize("arm", ["fp32", "q-localadam"])
def test_a_resumed_run_on_text_gives_the_same_bytes(arm, small, parts, tmp_path, monkeypatch):
    settings = dataclasses.replace(TINY, arm=arm)
    run(settings, small, parts, tmp_path / "straight")
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(KeyboardInterrupt):
            run(settings, small, parts, tmp_path / "cut")
    run(settings, small, parts, tmp_path / "cut")
    assert "going on after round 2" in (tmp_path / "cut" / "run.log").read_text()
    assert results(tmp_path / "straight") == results(tmp_path / "cut")


def test_bf16_runs_on_text(small, parts, tmp_path):
    assert run(dataclasses.replace(TINY, precision="bf16", rounds=1), small, parts, tmp_path)["diverged"] is None


def test_a_width_without_heads_is_refused(small, parts, tmp_path):
    with pytest.raises(ValueError, match="width of a transformer must be a multiple of its 4 heads, got 10"):
        run(dataclasses.replace(TINY, width=10), small, parts, tmp_path)


def test_text_is_not_taken_for_images(small):
    with pytest.raises(ValueError, match=r"text is text of shape \(200, 65\); accepted are images"):
        image_sets(small, 32, CPU)


def test_the_command_line_from_text_to_results(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "text", "--out", "t.npz"]) == 0
    printed = capsys.readouterr().out
    assert "test windows of 10 sections\norigin: pydoc_data.topics of Python " in printed
    sizes = ["--train-images", "200", "--test-images", "50"]
    assert main(["partition", "--data", "t.npz", "--clients", "4", "--alpha", "iid", *sizes, "--out", "p.npz"]) == 0
    assert "200 samples dealt out, 0 left over" in capsys.readouterr().out
    options = ["--rounds", "1", "--clients-per-round", "2", "--width", "8", "--arm", "naive-int8"]
    assert main(["train", "--data", "t.npz", "--partition", "p.npz", *sizes, *options, "--out", "r"]) == 0
    assert rows(tmp_path / "r")[0]["images"] == "200"
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["dataset"] == "text"
