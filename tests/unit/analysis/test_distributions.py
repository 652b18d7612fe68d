"""The distributions of Adam's states: numbers that can be known beforehand, and the same bytes every time."""

import dataclasses
import io
import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from analysis_files import row

from qlocaladam.analysis import distributions
from qlocaladam.analysis.distributions import (
    States,
    analyse,
    codecs,
    error_table,
    histogram_table,
    quantile_table,
    shape_of,
    shape_table,
    train_states,
)
from qlocaladam.codecs import Encoded
from qlocaladam.data.dataset import load, subset
from qlocaladam.federated.settings import RunSettings
from qlocaladam.optim import ARMS, QLocalAdam, state_codecs

TABLES = ("histograms", "quantiles", "shape", "errors")
TINY = RunSettings(width=4, image_size=32, flip=False)


@pytest.fixture(scope="module")
def small(digits):
    return subset(load(digits), 100, 20)


@pytest.fixture(scope="module")
def made(small):
    return analyse(TINY, small, steps=3, batch_size=16)


def saved(result):
    return {name: made if name == "summary" else made.to_csv() for name, made in result._asdict().items()}


def states_of(momentum, variance, step=50):
    """One layer for each pair of lists."""
    layers = [
        {f"layer{i}": torch.tensor(v, dtype=torch.float32) for i, v in enumerate(side)} for side in (momentum, variance)
    ]
    return States(*layers, step=step)


def sample(seed, count=4096):
    """A layer with normal momentum and log-normal variance."""
    draw = np.random.default_rng(seed)
    return 0.02 * draw.standard_normal(count), 10 ** (-7 + draw.standard_normal(count))


def test_the_same_settings_give_the_same_bytes_whatever_the_arm(small, made):
    first = saved(made)
    assert sorted(first) == sorted([*TABLES, "summary"])
    before = torch.random.get_rng_state()
    other_arm = dataclasses.replace(TINY, arm="naive-int8", optimizer={"eps": 1e-4}, epochs=7, batch_size=3)
    assert saved(analyse(other_arm, small, steps=3, batch_size=16)) == first
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("change", [{"seed": 43}, {"lr": 1e-2}, {"flip": True}])
def test_settings_that_count_change_the_states(change, small):
    states, other = (train_states(settings, small, 3, 16) for settings in (TINY, dataclasses.replace(TINY, **change)))
    assert not np.array_equal(states.values("momentum"), other.values("momentum"))


def test_what_is_saved_is_read_back_as_it_was(made):
    for name in TABLES:
        text = getattr(made, name).to_csv(index=False)
        assert "nan" not in text.lower()
        assert "inf" not in text.lower()
        read = pd.read_csv(io.StringIO(text))
        pd.testing.assert_frame_equal(read, getattr(made, name), check_exact=True, check_dtype=False)
    assert json.loads(json.dumps(made.summary, allow_nan=False)) == made.summary


def test_after_one_step_both_states_are_those_of_one_gradient(small):
    states = train_states(TINY, small, 1, 16)
    momentum, variance = states.values("momentum"), states.values("variance")
    assert states.step == 1
    assert np.abs(momentum).max() > 1e-3
    large = np.abs(momentum) > 1e-12  # squares of smaller ones are denormal
    np.testing.assert_allclose(variance[large], 0.1 * momentum[large] ** 2, rtol=1e-5)


def test_every_image_is_drawn_as_often_as_any_other(small, monkeypatch):
    drawn = []

    def note(model, data, indices, how, round_, client):
        drawn.append((indices, how))
        return train(model, data, indices, how, round_, client)

    train = distributions.train_client
    monkeypatch.setattr(distributions, "train_client", note)
    train_states(TINY, small, 5, 48)
    train_states(dataclasses.replace(TINY, seed=43), small, 5, 48)
    (indices, how), (others, _) = drawn
    assert (len(indices), how.epochs, how.batch_size) == (5 * 48, 1, 48)
    assert set(np.bincount(indices, minlength=100)) == {2, 3}
    assert not torch.equal(indices[:100], torch.arange(100))
    assert not torch.equal(indices, others)


def test_refusals_name_what_is_wrong(small):
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, got 0"):
        train_states(TINY, small, steps=0)
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 0"):
        train_states(TINY, small, batch_size=0)
    with pytest.raises(ValueError, match=r"log_offset must be .*, got 0"):
        train_states(TINY, small, log_offset=0)
    with pytest.raises(ValueError, match=r"lr must be one that training survives, got 1e\+30"):
        train_states(dataclasses.replace(TINY, lr=1e30), small, 5, 16)


def test_summary_repeats_the_tables(made, small):
    summary, variance = made.summary, row(made.quantiles, state="variance", layer="all")
    assert summary["parameters"] == sum(summary["layers"].values()) == variance["numel"]
    assert (summary["dataset"], summary["steps"], summary["batch_size"]) == ("digits", 3, 16)
    assert summary["settings"] == {name: getattr(TINY, name) for name in distributions.USED}
    for name in ("orders_of_magnitude", "min_positive", "max", "zero_fraction", "below_offset"):
        assert summary["variance"][name] == variance[name]
    shape = row(made.shape, what="log10 variance", layer="all")
    assert summary["variance"]["log10_ks_distance"] == shape["ks_distance"]
    momentum = train_states(TINY, small, 3, 16).values("momentum")
    assert summary["momentum"]["abs_max"] == np.abs(momentum).max()
    assert summary["momentum"]["within_0.05"] == (np.abs(momentum) <= 0.05).mean()
    nonzero = shape_of(momentum[momentum != 0])
    assert summary["momentum"]["nonzero_skewness"] == nonzero["skewness"]


def test_histograms_hold_every_value(made):
    parameters = made.summary["parameters"]
    counts = made.histograms.groupby("view")["count"].agg(["size", "sum"])
    assert counts["size"].to_dict() == {"linear": 60, "log10": 60, "full": 80, "zoomed": 80}
    assert counts["sum"]["linear"] == counts["sum"]["full"] == parameters
    zeros = made.summary["variance"]["zero_fraction"] * parameters
    assert counts["sum"]["log10"] == parameters - round(zeros)
    assert counts["sum"]["zoomed"] / parameters == pytest.approx(0.95, abs=1e-3)


def test_histogram_edges():
    table = histogram_table(states_of([[-0.1, 0.0, 0.0, 0.3]], [[0.0, 1e-6, 1.5e-4, 1e-2]]))
    ends = table.groupby("view").agg({"left": "min", "right": "max"})
    assert ends.loc["linear"].tolist() == pytest.approx([0, 1e-2])
    assert ends.loc["log10"].tolist() == pytest.approx([-6, -2])
    assert ends.loc["full"].tolist() == pytest.approx([-0.1, 0.3])
    assert ends.loc["zoomed", "left"] == -ends.loc["zoomed", "right"]
    log10 = table[table["view"] == "log10"]
    assert log10["count"].to_numpy().nonzero()[0].tolist() == [0, 32, 59]  # 32 is 60 * log10(150) / 4


def test_quantiles_of_known_values():
    variance = np.array([0, *np.logspace(-12, -3, 98)])
    momentum = np.arange(-49, 50) / 49
    table = quantile_table(states_of([momentum], [variance]))
    of_variance = row(table, state="variance", layer="layer0")
    assert of_variance["orders_of_magnitude"] == pytest.approx(9)
    assert of_variance["min_positive"] == pytest.approx(1e-12)
    assert of_variance["zero_fraction"] == pytest.approx(1 / 99)
    assert of_variance["below_offset"] == pytest.approx(45 / 99)  # 0 and the 44 with 9 / 97 * i < 4
    of_momentum = row(table, state="momentum", layer="layer0")
    expected = {"min": -1, "q0.05": -0.9, "q0.5": 0, "q0.99": 0.98, "max": 1, "zero_fraction": 1 / 99}
    assert of_momentum[list(expected)].tolist() == pytest.approx(list(expected.values()), abs=1e-7)
    assert of_momentum["std"] == pytest.approx(momentum.std())
    assert of_momentum[["min_positive", "orders_of_magnitude", "below_offset"]].isna().all()


def test_a_log_normal_variance_and_a_normal_momentum_are_recognised():
    momentum, variance = sample(0)
    table = shape_table(states_of([momentum], [variance]))
    for what in ("log10 variance", "momentum"):
        found = row(table, what=what, layer="all")
        assert abs(found["skewness"]) < 0.1
        assert abs(found["excess_kurtosis"]) < 0.2
        assert found["normality_p"] > 0.05
        assert found["ks_distance"] < 0.02
    found = row(table, what="momentum", layer="all")
    assert found["within_0.05"] == pytest.approx(math.erf(2.5 / math.sqrt(2)), abs=0.01)
    assert found["within_0.1"] == 1


def test_what_is_not_normal_is_rejected():
    exponential = shape_of(np.random.default_rng(0).exponential(size=4096))
    assert exponential["skewness"] == pytest.approx(2, abs=0.3)
    assert exponential["normality_p"] < 1e-100
    # Mean and deviation are both 1, so a sixth of the fitted normal lies below 0, where no value is.
    assert exponential["ks_distance"] == pytest.approx(0.5 * math.erfc(1 / math.sqrt(2)), abs=0.01)


def test_zeros_do_not_count_as_momentum_where_it_says_so():
    momentum, variance = sample(0)
    idle = np.zeros(10_000)
    table = shape_table(states_of([[*momentum, *idle]], [[*variance, *idle]]))
    alone = shape_of(np.float64(np.float32(momentum)))
    assert row(table, what="nonzero momentum", layer="all")["ks_distance"] == alone["ks_distance"]
    assert row(table, what="momentum", layer="all")["ks_distance"] > 0.3
    assert row(table, what="log10 variance", layer="all")["numel"] == len(variance)


def test_layers_that_have_no_shape_say_why():
    momentum, variance = sample(1, 100)
    awkward = [[0.0] * 64, [0.25], [0.5] * 30, [1e-45, 2e-45]]
    states = states_of([momentum, *awkward], [variance, *awkward])
    shape = shape_table(states).set_index(["what", "layer"])
    few, equal = "fewer than 20 values", "all values are equal"
    assert shape.loc["momentum", "reason"].tolist()[2:] == [equal, few, equal, few]
    assert shape.loc["log10 variance", "reason"].tolist()[2:] == [few, few, equal, few]
    assert shape.loc["momentum", "reason"].iloc[:2].isna().all()
    assert shape.loc[("log10 variance", "layer1"), "numel"] == 0
    assert shape.loc["momentum", "within_0.1"].tolist()[2:] == [1, 0, 0, 1]
    quantiles = quantile_table(states)
    zero = row(quantiles, state="variance", layer="layer1")
    assert (zero["reason"], zero["zero_fraction"], zero["below_offset"]) == ("no positive value", 1, 1)
    assert row(quantiles, state="variance", layer="layer2")["orders_of_magnitude"] == 0
    assert row(quantiles, state="variance", layer="layer3")["std"] == 0
    errors = error_table(states)
    zeros = errors[errors["layer"] == "layer1"]
    assert set(zeros["reason"]) == {"all values are 0"}
    assert (zeros["mean_absolute_error"] == 0).all()
    assert zeros[["mean_relative_error", "zeroed_fraction", "step_error_median"]].isna().all(axis=None)
    assert errors[errors["layer"] != "layer1"]["reason"].isna().all()


def test_states_of_zeros_alone_have_no_log10_view():
    table = histogram_table(states_of([[0.0, 0.0]], [[0.0, 0.0]]))
    assert table.groupby("view")["count"].sum().to_dict() == {"linear": 2, "full": 2, "zoomed": 2}


def test_every_codec_of_the_optimizer_is_tried(made):
    assert {codec.name for codec in codecs("momentum")} == {"linear", "dynamic", "softsign"}
    assert {codec.name for codec in codecs("variance")} == {"log", "linear", "dynamic", "root", "nonzero"}
    assert {codec.signed for codec in codecs("variance") if codec.name == "dynamic"} == {False}
    tried = made.errors.groupby(["state", "codec", "block_size"])["rounding"].agg(lambda column: sorted(set(column)))
    assert set(tried.index) == {
        *(("momentum", code, 64) for code in ("linear", "softsign")),
        *(("momentum", "dynamic", size) for size in (64, 256)),
        *(("variance", code, 64) for code in ("linear", "log", "root", "nonzero")),
        *(("variance", "dynamic", size) for size in (64, 256)),
    }
    assert all(roundings == ["floor", "nearest", "stochastic"] for roundings in tried)
    layers = made.errors.groupby(["state", "codec", "block_size", "rounding"])["layer"].agg(list)
    assert all(names == ["all", *made.summary["layers"]] for names in layers)


def test_equal_values_have_no_error():
    errors = error_table(states_of([[0.03] * 100], [[2e-6] * 100]))
    numbers = [name for name in errors if name.endswith(("_error", "_fraction")) or name.startswith("step_error_")]
    assert (errors[numbers].drop(columns="step_error_p99_idle") == 0).all(axis=None)
    assert errors["step_error_p99_idle"].isna().all()


def test_log_errors_are_those_of_its_levels():
    variance = 10 ** np.random.default_rng(0).uniform(-4, -2, (200, 64))
    variance[:, :2] = 1e-4, 1e-2
    errors = error_table(states_of([variance.ravel()], [variance.ravel()]))
    level = math.log(100) / 255
    log = {rounding: row(errors, codec="log", rounding=rounding, layer="all") for rounding in ("nearest", "floor")}
    assert log["nearest"]["max_relative_error"] == pytest.approx(math.expm1(level / 2), rel=0.01)
    assert log["nearest"]["mean_relative_error"] == pytest.approx(level / 4 * 62 / 64, rel=0.03)
    assert log["floor"]["mean_relative_error"] == pytest.approx(level / 2 * 62 / 64, rel=0.03)
    # A step goes with the root of the variance.
    assert log["nearest"]["step_error_median"] == pytest.approx(level / 8, rel=0.05)
    assert log["nearest"]["zeroed_fraction"] == 0


def test_a_variance_that_linear_codes_lose_changes_the_step_as_computed_by_hand():
    errors = error_table(states_of([[0.0, 0.1, 0.1]], [[0.0, 1e-9, 1e-3]]))
    found = row(errors, state="variance", codec="linear", rounding="nearest", layer="all")
    assert found["zeroed_fraction"] == 0.5
    assert (found["mean_relative_error"], found["max_relative_error"]) == (0.5, 1)
    assert found["mean_absolute_error"] == pytest.approx(1e-9 / 3)
    correction = 1 - 0.999**50
    exact, floored = (math.sqrt(v / correction) + 1e-8 for v in (1e-9, 1e-8))
    assert found["step_error_max"] == pytest.approx(exact / 1e-8 - 1, rel=1e-6)
    assert found["step_error_max_floored"] == pytest.approx(1 - exact / floored, rel=1e-6)
    assert found["step_error_median"] == pytest.approx(found["step_error_max"] / 2)  # of two values, the other exact
    assert np.isnan(found["step_error_p99_idle"])


def test_a_momentum_that_linear_codes_shift_moves_weights_as_computed_by_hand():
    errors = error_table(states_of([[-0.1, 0.0, 0.0, 0.1]], [[1e-4, 0.0, 1e-10, 1e-4]]))
    found = row(errors, state="momentum", codec="linear", rounding="nearest", layer="all")
    shift = 0.2 / 510 / (1 - 0.9**50)  # 0 is half-way between two levels
    correction = 1 - 0.999**50
    assert found["step_error_p99_idle"] == pytest.approx(shift / 1e-8, rel=1e-3)
    assert found["step_error_max"] == pytest.approx(shift / (math.sqrt(1e-10 / correction) + 1e-8), rel=1e-3)
    assert found["step_error_max_floored"] == pytest.approx(shift / (math.sqrt(1e-8 / correction) + 1e-8), rel=1e-3)
    assert found["step_error_median"] < 1e-4
    dynamic = row(errors, state="momentum", codec="dynamic", rounding="nearest", block_size=64, layer="all")
    assert dynamic["step_error_p99_idle"] == 0


def test_layers_are_stored_apart():
    small, large = sample(2, 32)[0], 1000 * sample(3, 32)[0]
    variance = np.ones(32)
    together = error_table(states_of([small, large], [variance, variance]))
    alone = error_table(states_of([small], [variance]))
    where = {"state": "momentum", "codec": "linear", "rounding": "nearest", "layer": "layer0"}
    assert row(together, **where)["mean_relative_error"] == row(alone, **where)["mean_relative_error"] > 0


def test_stochastic_errors_are_those_that_the_optimizer_makes():
    gradients = {"first": torch.tensor(sample(4, 100)[0]).float(), "second": torch.tensor(sample(5, 70)[0]).float()}

    def stepped(**options):
        params = [torch.zeros_like(gradient, requires_grad=True) for gradient in gradients.values()]
        optimizer = QLocalAdam(params, seed=7, backend="reference", **options)
        for param, gradient in zip(params, gradients.values(), strict=True):
            param.grad = gradient
        optimizer.step()
        return [optimizer.state[param] for param in params]

    exact = stepped(**ARMS["fp32"])
    fp32 = [dict(zip(gradients, (s[name] for s in exact), strict=True)) for name in ("momentum", "variance")]
    errors = error_table(States(*fp32, step=1, seed=7))
    options = {"momentum": "linear", "variance": "log", "rounding": "stochastic"}
    both = state_codecs(**options, block_size=64, log_offset=1e-8)
    for layer, state in zip(gradients, stepped(**options, variance_floor=0), strict=True):
        for (name, codec), values in zip((("momentum", both[0]), ("variance", both[1])), fp32, strict=True):
            stored = codec.decode(Encoded(state[f"{name}_codes"], state[f"{name}_ranges"]))
            found = row(errors, state=name, codec=codec.name, rounding="stochastic", layer=layer)
            expected = (stored.double() - values[layer].double()).abs().mean().item()
            assert found["mean_absolute_error"] == pytest.approx(expected, rel=1e-12, abs=0)


def test_states_carry_the_seed_of_the_run(small):
    assert train_states(TINY, small, 1, 16).seed == TINY.seed
