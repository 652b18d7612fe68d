"""Where the variance lives: states whose shares are known beforehand, real clients, and what is made of them."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from analysis_files import made_by

from qlocaladam.analysis import variance
from qlocaladam.analysis.variance import measure
from qlocaladam.cli import main
from qlocaladam.federated.partition import load_partition
from qlocaladam.federated.settings import RunSettings
from qlocaladam.results import figures, tables
from qlocaladam.results.kinds import KINDS

IMAGES = {"train-images": 150, "test-images": 20}
TINY = {"width": 4, "image-size": 32, "batch-size": 8, "epochs": 1, "rounds": 3}


def command(dealt_digits, out, **options):
    words = ["--data", dealt_digits[0], "--partition", dealt_digits[2], "--out", out]
    words += [word for name, value in {**TINY, **IMAGES, **options}.items() for word in (f"--{name}", value)]
    assert main(["analyse", "variance", "--no-flip", *map(str, words)]) == 0
    return {path.name: path.read_bytes() for path in out.iterdir()}


made = made_by(command)


def held(model, *variances):
    """Optimizers of clients that hold these, one for each parameter."""
    return [
        SimpleNamespace(
            state={
                param: {"variance": torch.tensor(values).reshape(param.shape)}
                for param, values in zip(model.parameters(), client, strict=True)
            }
        )
        for client in variances
    ]


def test_shares_are_of_all_clients_of_a_round():
    model = torch.nn.Linear(2, 2)
    first = ([0.0, 1e-12, 1e-8, 1e-2], [0.0, 0.0])
    second = ([0.0, 1e-9, 1e-4, 1.0], [0.0, 0.0])
    everything, weight, bias = measure(7, model, held(model, first, second))
    assert [row["layer"] for row in (everything, weight, bias)] == ["all", "weight", "bias"]
    assert [row["dimensions"] for row in (everything, weight, bias)] == [None, 2, 1]
    assert all(row["round"] == 7 for row in (everything, weight, bias))
    assert (weight["numel"], weight["zero"], weight["below"]) == (8, 2 / 8, 2 / 8), "the floor itself is not below it"
    assert (everything["numel"], everything["zero"], everything["below"]) == (12, 6 / 12, 2 / 12)
    assert weight["median"] == pytest.approx((1e-8 + 1e-4) / 2, rel=1e-4), "of those above 0"
    assert (bias["zero"], bias["below"]) == (1, 0)
    assert "median" not in bias, "nothing above 0"


def test_a_round_without_clients_has_no_rows():
    assert measure(1, torch.nn.Linear(1, 1), []) == []


def test_the_states_are_those_that_clients_end_with(dealt_digits, monkeypatch):
    """v after a step is 0.999 v + 0.001 g^2, so the mean of all is a sum over the gradients that were seen."""
    expected = []
    original = variance.Federation.train_round

    def followed(federation, number):
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        own = {}

        def follow(optimizer, *_):
            for group in optimizer.param_groups:
                for param in group["params"]:
                    before = own.setdefault(id(optimizer), {}).get(param, torch.zeros_like(param))
                    own[id(optimizer)][param] = 0.999 * before + 0.001 * param.grad**2

        with register_optimizer_step_pre_hook(follow):
            results = list(original(federation, number))
        everything = [values.reshape(-1) for states in own.values() for values in states.values()]
        expected.append(torch.cat(everything).double().numpy())
        return iter(results)

    monkeypatch.setattr(variance.Federation, "train_round", followed)
    settings = RunSettings(width=4, image_size=32, batch_size=8, epochs=1, flip=False, rounds=2)
    table, found = variance.analyse(settings, dealt_digits[1], load_partition(dealt_digits[2]))
    everything = table[table["layer"] == "all"]
    assert everything["round"].tolist() == [1, 2]
    for row, states in zip(everything.to_dict("records"), expected, strict=True):
        assert row["numel"] == len(states)
        assert row["zero"] == pytest.approx((states == 0).mean(), abs=1e-12)
        assert row["below"] == pytest.approx(((states > 0) & (states < 1e-8)).mean(), abs=1e-4)
        assert row["median"] == pytest.approx(np.median(states[states > 0]), rel=1e-3)
    assert found["settings"]["arm"] == "fp32"


def test_the_command_writes_the_same_bytes_every_time(dealt_digits, made, tmp_path, capfd):
    first = {path.name: path.read_bytes() for path in made.iterdir()}
    assert sorted(first) == ["summary.json", "variance.csv"]
    assert command(dealt_digits, tmp_path) == first
    assert "round 2/3  " in capfd.readouterr().err, "and says how long it will take"
    assert command(dealt_digits, tmp_path, seed=7) != first
    table = pd.read_csv(made / "variance.csv")
    assert tuple(table) == variance.COLUMNS
    layers = table[table["layer"] != "all"]
    sums, everything = layers.groupby("round")["numel"].sum(), table[table["layer"] == "all"].set_index("round")
    assert sums.equals(everything["numel"])
    assert table[["zero", "below"]].stack().between(0, 1).all()


def spec(**entry):
    labels = {"dataset": {"cifar10": "Digits"}, "arm": {}}
    common = {"name": "variance", "scale": "test", "labels": labels, "where": {"dataset": "cifar10"}}
    return {**common, "kind": "variance", "caption": "Where.", **entry}


def files(made):
    return {"variance.cifar10": made / "variance.csv", "summary.cifar10": made / "summary.json"}


def test_the_table_has_a_row_for_each_part_of_the_model(made):
    table = tables.build(spec(), None, files(made))
    rows = {cells[0]: list(cells[1:]) for cells in table.groups[0].rows}
    assert list(rows) == ["all", "conv1", "bn1", "layer1", "layer2", "layer3", "layer4", "fc"]
    found = pd.read_csv(made / "variance.csv")
    ends = found[(found["layer"] == "all") & found["round"].isin([1, 3])]
    assert rows["all"] == [f"{100 * value:.1f}" for value in ends[["zero", "below"]].to_numpy().flat]
    fc = found[found["layer"].str.startswith("fc") & (found["round"] == 3)]
    assert rows["fc"][2] == f"{100 * np.average(fc['zero'], weights=fc['numel']):.1f}"
    assert "3 rounds at $\\alpha=0.1$ (Digits)" in table.caption
    assert "$10^{-8}$" in table.caption
    assert len(table.data) == len(found) * 2 / 3, "the CSV has every layer in these rounds"
    assert set(table.data["round"]) == {1, 3}


def test_the_figure_shows_every_round_and_matrix(made):
    figure = figures.draw(spec(), [], files(made))
    found = pd.read_csv(made / "variance.csv")
    spans, layers = figure.axes[:2]
    everything = found[found["layer"] == "all"]
    median = next(line for line in spans.get_lines() if line.get_label() == "median")
    np.testing.assert_array_equal(median.get_ydata(), everything["median"])
    assert spans.get_title() == "Digits"
    matrices = found[found["dimensions"] > 1]
    mesh = layers.collections[0].get_array()
    assert mesh.shape == (matrices["layer"].nunique(), 3)
    wanted = matrices[(matrices["layer"] == "layer4.0.conv1.weight") & (matrices["round"] == 3)].iloc[0]
    place = matrices["layer"].unique().tolist().index("layer4.0.conv1.weight")
    assert wanted["zero"] > 0, "taps that see nothing but padding"
    assert mesh[place, 2] == pytest.approx(100 * wanted["below"] / (1 - wanted["zero"]))
    assert [text.get_text() for text in layers.get_yticklabels()] == matrices["layer"].unique().tolist()


def test_numbers_are_those_of_the_first_and_the_last_round(made):
    found = {number.name: number for number in KINDS["variance"].numbers("cifar10", made / "variance.csv", str)}
    rows = pd.read_csv(made / "variance.csv")
    last = rows[(rows["layer"] == "all") & (rows["round"] == 3)].iloc[0]
    assert found["variance/cifar10/last/zero_percent"].value == pytest.approx(100 * last["zero"])
    assert found["variance/cifar10/last/median"].value == pytest.approx(last["median"])
    assert found["variance/cifar10/first/below_percent"].text.count(".") == 1
    assert json.loads((made / "summary.json").read_text())["floor"] == 1e-8
