"""Step errors: hand-made states whose errors are known beforehand, real clients, and what is made of them."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from analysis_files import made_by, row
from torch.optim import optimizer as torch_optimizer

from qlocaladam.analysis import step_errors, trained
from qlocaladam.analysis.step_errors import Moment, decade_of, displacement, measure, observe
from qlocaladam.federated import rounds
from qlocaladam.federated.client import train_client
from qlocaladam.federated.partition import load_partition
from qlocaladam.federated.run import run
from qlocaladam.federated.settings import RunSettings
from qlocaladam.jobs import write_analysis
from qlocaladam.optim import ARMS
from qlocaladam.results import figures, tables
from qlocaladam.results.kinds import ANALYSES

TINY = RunSettings(width=4, image_size=32, batch_size=8, epochs=1, flip=False)
SCHEMES = {
    "momentum-only": {"arm": "momentum-only"},
    "q-localadam": {"arm": "q-localadam", "options": {"block_size": 32}},
    "normalised": {"arm": "normalised"},
    "stochastic": {"arm": "q-localadam", "options": {"rounding": "stochastic"}},
}
SMALL, STEP = 5e-12, 1000
"""A variance in the decade of 1e-12, and a late step, where corrections for a start at 0 are easily written down."""


def command(dealt_digits, out, **options):
    """As its rule makes it."""
    data, _, dealt = dealt_digits
    size = {"width": 4, "image_size": 32, "batch_size": 8, "epochs": 1, "after": 1, "flip": False}
    size |= {"train_images": 150, "test_images": 20}
    analysed = trained.analyse("step_errors", {**size, **options}, data, dealt, SCHEMES)
    write_analysis(out, dict(zip(ANALYSES["step_errors"].files, analysed, strict=True)))
    return {path.name: path.read_bytes() for path in out.iterdir()}


made = made_by(command)


def block(weights):
    """One layer of 64 weights, of momentum from -1 to 1 and variance 1, but for these: index -> (m, v, g)."""
    momentum, variance, gradient = torch.full((64,), 1.0), torch.ones(64), torch.zeros(64)
    momentum[0] = -1.0
    for index, values in weights.items():
        momentum[index], variance[index], gradient[index] = values
    return Moment(STEP, {"layer": momentum}, {"layer": variance}, {"layer": gradient})


def divisor(variance):
    """What Adam divides by at that step, after a gradient of 0."""
    return math.sqrt(0.999 * variance / (1 - 0.999**STEP)) + 1e-8


def test_a_step_is_that_of_adam():
    param = torch.nn.Parameter(torch.zeros(7))
    adam = torch.optim.Adam([param], lr=0.25)
    draw = torch.Generator().manual_seed(0)
    for _ in range(4):
        param.grad = torch.randn(7, generator=draw)
        state = {name: value.clone() for name, value in adam.state[param].items()}
        before = param.detach().double().clone()
        adam.step()
    moment = Moment(4, {"p": state["exp_avg"]}, {"p": state["exp_avg_sq"]}, {"p": param.grad})
    kept = {name: value.clone() for name, value in moment.momentum.items()}
    moved = displacement(moment, ARMS["fp32"])
    np.testing.assert_allclose(moved, (param.detach().double() - before).numpy() / 0.25, rtol=1e-4)
    assert torch.equal(moment.momentum["p"], kept["p"]), "a moment can be used again"


def test_exact_states_have_no_error():
    by_layer, by_decade = measure([block({5: (1e-9, SMALL, 1e-6), 7: (0.0, 0.0, 0.0)})], {"fp32": ARMS["fp32"]})
    assert (by_layer[[*step_errors.ERRORS, "idle_max"]].to_numpy() == 0).all()
    assert (by_decade["max"] == 0).all()


def test_the_error_of_linear_momentum_is_divided_by_the_root_of_a_tiny_variance():
    """Momentum of nearly 0 between levels 127 and 128 of [-1, 1] is read as 1/255, whatever its variance is."""
    moment = block({5: (1e-6, SMALL, 0.0)})
    moved = displacement(moment, ARMS["momentum-only"])
    assert moved[5] == pytest.approx(-0.9 / 255 / divisor(SMALL), rel=3e-4)
    assert moved[5] < -1000
    # Divided by the root first, the same half of a level is multiplied by it again.
    bounded = displacement(moment, {**ARMS["normalised"], "rounding": "nearest"})
    ratio = np.float32(1e-6) / math.sqrt(SMALL)
    read = round(ratio * 127) / 127
    assert bounded[5] == pytest.approx(-0.9 * read * math.sqrt(SMALL) / divisor(SMALL), rel=1e-3)
    exact = displacement(moment, ARMS["fp32"])
    assert abs(bounded - exact).max() < 1 / 255
    # The released code's floor bounds it, too; the price is a divisor that is far too large.
    floored = displacement(moment, {**ARMS["momentum-only"], "variance_floor": 1e-8})
    assert floored[5] == pytest.approx(-0.9 / 255 / divisor(1e-8), rel=3e-4)


def test_rows_count_what_is_too_large_too_small_or_too_far_off():
    # 62 weights as they should be, one thrown, one idle.
    by_layer, by_decade = measure(
        [block({5: (1e-6, SMALL, 0.0), 7: (0.0, 0.0, 0.0)})],
        {"momentum-only": ARMS["momentum-only"], "floored": {**ARMS["fp32"], "variance_floor": 400.0}},
    )
    thrown = row(by_layer, arm="momentum-only", layer="all")
    assert (thrown["step"], thrown["numel"], thrown["live"]) == (STEP, 64, 63 / 64)
    assert thrown["over_ten"] == thrown["over_ten_lr"] == 1 / 63
    assert thrown["under_ten"] == thrown["median"] == 0
    error = 0.9 / 255 / divisor(SMALL) - 0.9e-6 / divisor(SMALL)
    assert thrown["max"] == pytest.approx(error, rel=3e-4)
    assert thrown["p99"] == pytest.approx(0.38 * error, rel=3e-4)  # at position 0.99 * 62 = 61.38 of 0 to 62
    assert thrown["idle_max"] == pytest.approx(0.9 / 255 / 1e-8, rel=3e-4)
    own = row(by_layer, arm="momentum-only", layer="layer")
    assert thrown.drop(["layer", "dimensions"]).equals(own.drop(["layer", "dimensions"]))
    assert own["dimensions"] == 1

    small = row(by_layer, arm="floored", layer="all")  # every step is divided by 20 times as much, or by far more
    assert (small["under_ten"], small["over_ten"], small["over_ten_lr"], small["idle_max"]) == (1, 0, 0, 0)
    usual = 0.9 * (1 / divisor(1) - 1 / divisor(400))
    assert small["median"] == pytest.approx(usual, rel=3e-4)

    found = by_decade[by_decade["arm"] == "momentum-only"].set_index("decade")
    assert found["numel"].to_dict() == {"zero": 1, "-12": 1, "0": 62}
    assert found["max"].to_dict() == pytest.approx({"zero": thrown["idle_max"], "-12": thrown["max"], "0": 0})
    assert found["over_ten"].isna().to_dict() == {"zero": True, "-12": False, "0": False}, "0 is compared with nothing"


def test_layers_without_live_or_idle_weights_have_empty_cells():
    zeros, ones = torch.zeros(3), torch.ones(2, 2)
    moment = Moment(3, {"dead": zeros, "live": ones}, {"dead": zeros, "live": ones}, {"dead": zeros, "live": ones})
    by_layer, _ = measure([moment], {"normalised": ARMS["normalised"]})
    assert by_layer["layer"].tolist() == ["all", "dead", "live"]
    dead, live = (row(by_layer, layer=name) for name in ("dead", "live"))
    assert (dead["numel"], dead["live"], dead["idle_max"]) == (3, 0, 0)
    assert math.isnan(dead["max"])
    assert (live["numel"], live["live"]) == (4, 1)
    assert math.isnan(live["idle_max"])


def test_decades():
    found = decade_of(np.array([0.0, 1e-300, 9.9e-9, 1e-8, 1.1e-8, 1.0, 25.0]))
    assert found.tolist() == [-math.inf, -300, -9, -8, -8, 0, 1]


def test_blocks_and_draws_are_those_of_the_optimizer():
    """Two steps of the optimizer itself: the second starts from what the first stored."""
    options = {**ARMS["q-localadam"], "rounding": "stochastic", "block_size": 8, "variance_floor": 0.0}
    draw = torch.Generator().manual_seed(3)
    params = {name: torch.zeros(shape) for name, shape in (("a", (5, 5)), ("b", (9,)))}
    first, second = ({name: torch.randn(p.shape, generator=draw) for name, p in params.items()} for _ in range(2))
    optimizer = step_errors.QLocalAdam(params.values(), lr=1.0, seed=11, backend="reference", **options)
    for gradients in (first, second):
        for name, param in params.items():
            param.zero_().grad = gradients[name]
        optimizer.step()
    exact = [{name: factor * g**power for name, g in first.items()} for factor, power in ((0.1, 1), (0.001, 2))]
    moved = displacement(Moment(2, *exact, second), options, seed=11)
    wanted = torch.cat([param.reshape(-1) for param in params.values()])
    close = np.isclose(moved, wanted.numpy(), rtol=1e-4)
    assert close.mean() > 0.9, "float32 puts a few values just beyond a level"
    assert not np.isclose(displacement(Moment(2, *exact, second), options, seed=12), wanted.numpy()).mean() > 0.9


def test_rounds_are_those_of_a_run(dealt_digits, tmp_path, monkeypatch):
    """Who trains when, from which weights."""
    _, data, dealt = dealt_digits
    calls = []

    def recorded(model, *args):
        calls.append((*args[3:5], sum(float(p.detach().double().sum()) for p in model.parameters())))
        return train_client(model, *args)

    for module in (rounds, step_errors):
        monkeypatch.setattr(module, "train_client", recorded)
    part = load_partition(dealt)
    run(RunSettings(**{**vars(TINY), "arm": "fp32", "rounds": 3}), data, part, tmp_path)
    trained, calls = calls, []
    _, found = observe(TINY, data, part, after=2)
    *before, last_client = calls
    assert before == [call for call in trained if call[0] < 3]
    assert last_client in trained
    clients = [client for number, client, _ in trained if number == 3]
    assert found["client"] == last_client[1] == max(clients, key=lambda client: part.sizes[client])
    assert (found["round"], found["samples"]) == (3, part.sizes[found["client"]])
    assert found["settings"]["arm"] == "fp32"


def test_moments_are_what_the_steps_start_from(dealt_digits, monkeypatch):
    monkeypatch.setattr(step_errors, "EARLY_STEPS", (2, 3))
    _, data, dealt = dealt_digits
    moments, found = observe(TINY, data, load_partition(dealt), after=0)
    assert [moment.step for moment in moments] == sorted({2, 3, found["steps"]})
    second, third = moments[:2]
    for name, gradient in second.gradient.items():
        torch.testing.assert_close(third.momentum[name], second.momentum[name].lerp(gradient, 0.1))
        torch.testing.assert_close(third.variance[name], 0.999 * second.variance[name] + 0.001 * gradient**2)
    assert sum(values.numel() for values in second.variance.values()) == found["parameters"]
    assert not torch_optimizer._global_optimizer_pre_hooks, "nobody else's optimizer is watched"


def test_the_command_writes_the_same_bytes_every_time(dealt_digits, made, tmp_path):
    first = {path.name: path.read_bytes() for path in made.iterdir()}
    assert sorted(first) == ["step_errors.csv", "step_errors_by_decade.csv", "summary.json"]
    before = torch.random.get_rng_state()
    assert command(dealt_digits, tmp_path) == first
    assert torch.equal(before, torch.random.get_rng_state())
    assert command(dealt_digits, tmp_path, seed=7) != first


def test_real_clients_show_the_mechanism(made):
    by_layer, by_decade = (pd.read_csv(made / name) for name in ("step_errors.csv", "step_errors_by_decade.csv"))
    found = json.loads((made / "summary.json").read_text())
    assert tuple(by_layer) == step_errors.BY_LAYER
    assert tuple(by_decade) == step_errors.BY_DECADE
    assert by_layer["arm"].unique().tolist() == list(SCHEMES)
    assert by_layer["step"].unique().tolist() == found["looked_at"] == [2, found["steps"]]
    everything = by_layer[by_layer["layer"] == "all"]
    assert (everything["numel"] == found["parameters"]).all()
    layers = by_layer[by_layer["layer"] != "all"]
    assert (layers.groupby(["arm", "step"])["numel"].sum() == found["parameters"]).all()
    assert (by_decade.groupby(["arm", "step"])["numel"].sum() == found["parameters"]).all()
    last = everything[everything["step"] == found["steps"]].set_index("arm")
    assert last.loc["momentum-only", "max"] > 1 > 10 * last.loc["normalised", "max"]
    assert last.loc["momentum-only", "idle_max"] > 1000
    assert last.loc["normalised", "idle_max"] == 0
    assert last.loc["q-localadam", "max"] < 7.3, "the floor leaves no more than the step itself"


@pytest.mark.parametrize(
    ("arms", "after", "batch", "message"),
    [
        ({"x": {"arm": "adagrad"}}, 1, 16, "arm of 'x' must be one of fp32, .*, got 'adagrad'"),
        ({}, -1, 16, "after must be .*, got -1"),
        ({}, 0, 10_000, "must take at least 2 steps, got 1: it has [0-9]+ samples"),
    ],
)
def test_mistakes_are_named(dealt_digits, arms, after, batch, message):
    settings = RunSettings(**{**vars(TINY), "batch_size": batch})
    with pytest.raises(ValueError, match=message):
        step_errors.analyse(settings, dealt_digits[1], load_partition(dealt_digits[2]), arms, after)


def spec(**entry):
    labels = {"dataset": {"cifar10": "Digits"}, "arm": {name: f"arm {name}" for name in SCHEMES}}
    where = {"dataset": "cifar10", "arm": ["momentum-only", "normalised"]}
    common = {"name": "steps", "scale": "test", "labels": labels, "stands_for": {"cifar10": "CIFAR-10"}, "where": where}
    return {**common, "kind": "step_errors", "caption": "Steps.", **entry}


def test_the_table_shows_the_last_step(made):
    files = {"step_errors.cifar10": made / "step_errors.csv", "summary.cifar10": made / "summary.json"}
    table = tables.build(spec(), None, files)
    found = json.loads((made / "summary.json").read_text())
    assert table.groups[0].label == "Digits"
    assert [cells[0] for cells in table.groups[0].rows] == ["arm momentum-only", "arm normalised"]
    assert (
        f"step {found['steps']} with {found['samples']} samples in round 2 at $\\alpha=0.1$ (Digits)" in table.caption
    )
    assert sorted(set(table.data["step"]), key=int) == [str(step) for step in found["looked_at"]], "the CSV has all"
    assert set(table.data["layer"]) == {"all"}
    idle = row(table.data, arm="normalised", step=str(found["steps"]))["idle_max"]
    assert (float(idle), table.groups[0].rows[1][4]) == (0, "0")
    latex = table.latex()
    assert latex == tables.build(spec(), None, files).latex()
    assert r"\multicolumn{4}{c}{Error (learning rates)}" in latex


def test_cells_have_two_digits_however_large(made, tmp_path):
    rows = pd.read_csv(made / "step_errors.csv")
    last = rows["step"].max()
    shown = {"median": 0.00123, "p99": 0.0456, "max": 12345.6, "idle_max": 99.6, "over_ten_lr": 0.00001}
    rows.loc[(rows["arm"] == "momentum-only") & (rows["layer"] == "all") & (rows["step"] == last), list(shown)] = list(
        shown.values()
    )
    rows.to_csv(tmp_path / "step_errors.csv", index=False)
    files = {"step_errors.cifar10": tmp_path / "step_errors.csv", "summary.cifar10": made / "summary.json"}
    cells = tables.build(spec(), None, files).groups[0].rows[0]
    assert list(cells[1:6]) == ["0.0012", "0.046", r"$1.2\times10^{4}$", "100", "$<$0.01"]


def test_the_figure_by_layer_shows_the_matrices(made):
    found = pd.read_csv(made / "step_errors.csv")
    figure = figures.draw(spec(kind="step_layers"), [], {"step_errors.cifar10": made / "step_errors.csv"})
    last = found[(found["step"] == found["step"].max()) & (found["dimensions"] > 1)]
    layers = last["layer"].unique().tolist()
    assert {"conv1.weight", "layer4.1.conv2.weight", "fc.weight"} <= set(layers)
    assert not any("bn" in layer or "bias" in layer for layer in layers)
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == layers
    assert [text.get_text() for text in axes.get_xticklabels()] == ["arm momentum-only", "arm normalised"]
    errors = last.pivot(index="layer", columns="arm", values="max").loc[layers, ["momentum-only", "normalised"]]
    assert [text.get_text() for text in axes.texts] == [f"{error:.1g}" for error in errors.to_numpy().flat]


def test_the_figure_draws_every_decade_of_the_last_step(made):
    file = made / "step_errors_by_decade.csv"
    figure = figures.draw(spec(), [], {"decades.cifar10": file})
    errors = pd.read_csv(file)
    last = errors[errors["step"] == errors["step"].max()]
    median, _, weights = figure.axes
    lines = {line.get_label(): line for line in median.get_lines()}
    wanted = last[(last["arm"] == "normalised") & (last["decade"] != "zero")]
    places = wanted["decade"].astype(float) + 0.5
    np.testing.assert_array_equal(lines["arm normalised"].get_xdata(), places)
    np.testing.assert_array_equal(lines["arm normalised"].get_ydata(), wanted["median"])
    assert "arm q-localadam" not in lines, "where says which arms"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["arm momentum-only", "arm normalised"]
    assert (
        sum(bar.get_height() for bar in weights.patches)
        == json.loads((made / "summary.json").read_text())["parameters"]
    )
    low, high = median.get_ylim()
    assert low < 0, "an error of 0 is not cut off"
    assert high > last.loc[last["arm"] == "momentum-only", "median"].max()
    assert median.get_title() == f"Digits, local step {last['step'].iloc[0]}"
