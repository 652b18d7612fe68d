"""Figures: what they show, that an arm looks the same in all, that nothing is cut off, that bytes repeat."""

import json
import math
import shutil
from itertools import combinations, cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.image import imread
from matplotlib.patches import StepPatch
from matplotlib.text import Text
from registered_runs import answered
from simulated_runs import Runs

from qlocaladam.analysis.client_memory import client_memory
from qlocaladam.analysis.contrasts import compare, differences
from qlocaladam.experiments.grid import AS_IN_THE_PAPER
from qlocaladam.experiments.runs import METRICS
from qlocaladam.results import figures
from qlocaladam.results.kinds.precision import CODE_ARMS
from qlocaladam.results.style import COLUMN, PAGE, arm_colours, ordered_colours, theme

ARMS = {
    "fp32": "FP32",
    "q-localadam": "Q-LocalAdam",
    "naive-int8": "Naive INT8",
    "momentum-only": "Momentum-only",
    "variance-only": "Variance-only",
    "printed-equations": "Equations as printed",
    "no-floor": "Q-LocalAdam without floor",
    "rounding-floor": "Q-LocalAdam rounding down",
    "rounding-stochastic": "Q-LocalAdam stochastic",
    "naive-floor": "Naive INT8 with floor",
    "momentum-only-floor": "Momentum-only with floor",
    "fp32-floor": "FP32 with floor",
    "fp32-eps": "FP32 with eps 1e-4",
    "dynamic-8bit": "Dynamic 8-bit",
}
LABELS = {"dataset": {"cifar10": "Digits", "cifar100": "Digit pairs"}, "arm": ARMS}
ALPHA = "\N{GREEK SMALL LETTER ALPHA}"


def spec(kind, **entry):
    papers = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
    return {"kind": kind, "name": "shown", "scale": "test", "labels": LABELS, "stands_for": papers, **entry}


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


@pytest.fixture(scope="module")
def results_once(tmp_path_factory):
    return results(tmp_path_factory.mktemp("results"))


@pytest.fixture
def files(results_once, tmp_path):
    """Copies, which a test may change."""
    return {name: Path(shutil.copy(path, tmp_path)) for name, path in results_once.items()}


def results(tmp_path):
    """Small results of the analyses, in the form that these write."""
    paths = {name: tmp_path / f"{name}.csv" for name in ("precision", "clients")}
    _precision().to_csv(paths["precision"], index=False)
    _clients().to_csv(paths["clients"], index=False)
    paths["client_memory"] = tmp_path / "client_memory.csv"
    client_memory({arm: {"arm": "fp32" if arm == "fp32" else "q-localadam"} for arm in ARMS}).to_csv(
        paths["client_memory"], index=False
    )
    for dataset in LABELS["dataset"]:
        paths[f"decades.{dataset}"] = tmp_path / f"decades_{dataset}.csv"
        _decades().to_csv(paths[f"decades.{dataset}"], index=False)
        paths[f"step_errors.{dataset}"] = tmp_path / f"step_errors_{dataset}.csv"
        _step_layers().to_csv(paths[f"step_errors.{dataset}"], index=False)
        paths[f"variance.{dataset}"] = tmp_path / f"variance_{dataset}.csv"
        _variance().to_csv(paths[f"variance.{dataset}"], index=False)
        paths[f"histograms.{dataset}"] = tmp_path / "histograms.csv"
        _histograms().to_csv(paths[f"histograms.{dataset}"], index=False)
        paths[f"summary.{dataset}"] = tmp_path / "summary.json"
        paths[f"summary.{dataset}"].write_text(json.dumps(SUMMARY))
    paths["differences"], paths["contrasts"] = (tmp_path / f"{name}.csv" for name in ("differences", "contrasts"))
    paths["answers"] = answered(tmp_path / "answers.csv")
    _write_contrasts(paths, ("cifar10", "cifar100"), ("0.1", "0.5"))
    return paths


SUMMARY = {"floor": 1e-8, "log_offset": 1e-8, "variance": {"below_offset": 0.613, "zero_fraction": 0.402}}


def _decades():
    """Step errors by decade of the variance, the wider the smaller that is."""
    decades = [("zero", 1e5), *((str(exponent), 10.0 ** (-exponent / 2 - 4)) for exponent in range(-20, 3))]
    rows = [
        {"arm": arm, "step": 7, "decade": decade, "numel": 1 + 10 * i, "median": error, "p99": 10 * error}
        for arm in ARMS
        for i, (decade, error) in enumerate(decades)
    ]
    return pd.DataFrame(rows)


def _variance():
    """The layers of a ResNet-18 over as many rounds as the paper has."""
    sizes = {"p1": 1e-14, "p10": 1e-11, "median": 1e-8, "p90": 1e-5, "p99": 1e-2}
    rows = [
        {
            "round": number,
            "layer": layer,
            "dimensions": 4 if layer != "all" else None,
            "zero": 0.2,
            "below": 0.3,
            **sizes,
        }
        for number in range(1, 121)
        for layer in ("all", *MATRICES)
    ]
    return pd.DataFrame(rows)


MATRICES = [
    "conv1.weight",
    *(f"layer{stage}.{block}.conv{i}.weight" for stage in range(1, 5) for block in (0, 1) for i in (1, 2)),
    *(f"layer{stage}.0.downsample.0.weight" for stage in range(2, 5)),
    "fc.weight",
]


def _step_layers():
    """Errors by layer, from none to the largest."""
    errors = cycle((0.0, 1e-5, 0.123, 12.3, 45678.9, math.nan))
    rows = [
        {"arm": arm, "step": 7, "layer": layer, "dimensions": 4, "max": next(errors)}
        for arm in ARMS
        for layer in MATRICES
    ]
    return pd.DataFrame(rows)


SHIFTS = {
    "fp32": (0, 0, 0),
    "q-localadam": (0.1, -0.1, 0.3),
    "naive-int8": (-70, -71.5, -69),
    "variance-only": (-5, 4, 2),
    "printed-equations": (9.9, 10.1, 10.0),
    "dynamic-8bit": (80, 81, 82),
}
"""How far each arm is above FP32, by seed."""


def _write_contrasts(paths, datasets, alphas):
    """Contrasts as the analysis writes them. An arm far below has collapsed."""
    rows = [
        {**dict.fromkeys(("block_size", "lr"), 1), "dataset": dataset, "alpha": alpha, "arm": arm, "seed": seed}
        | dict.fromkeys(METRICS, 80.0 + shift)
        | {**AS_IN_THE_PAPER, "classes": 10, "diverged": False}
        for dataset in datasets
        for alpha in alphas
        for arm, shifts in SHIFTS.items()
        for seed, shift in enumerate(shifts)
    ]
    compare(pd.DataFrame(rows), margin=0.025).to_csv(paths["contrasts"], index=False)
    differences(pd.DataFrame(rows)).to_csv(paths["differences"], index=False)


def _histograms():
    views = {
        ("variance", "linear"): (0, 0.01, [100_000, 10, 1, 0, 2]),
        ("variance", "log10"): (-12, -2, [10, 15_000, 20_000, 20_000, 20_000, 20_000, 13]),
        ("momentum", "full"): (-0.2, 0.2, [1, 10, 100_000, 10, 2]),
        ("momentum", "zoomed"): (-0.0002, 0.0002, [15_000, 20_000, 24_000, 20_000, 18_000]),
    }
    tables = []
    for (state, view), (low, high, counts) in views.items():
        edges = np.linspace(low, high, len(counts) + 1)
        at = {"state": state, "view": view, "left": edges[:-1], "right": edges[1:], "count": counts}
        tables.append(pd.DataFrame(at))
    return pd.concat(tables)


def _precision():
    """Two values in each of two quarters of a decade; errors differ by code."""
    value, error = np.array([1.1e-3, 1.2e-3, 1.1e-1, 1.2e-1]), np.array([0.01, 0.03, 0.02, 0.02])
    tables = [
        pd.DataFrame({"code": code, "value": value, "decoded": value, "relative_error": error * factor})
        for factor, code in enumerate(CODE_ARMS, 1)
    ]
    return pd.concat(tables)


def _clients():
    rows = [
        (dataset, alpha, client, 100 * (client + 1), 0, "Bird", 10.0 * client / scale, 10)
        for dataset, scale in (("cifar10", 1), ("cifar100", 10))
        for alpha in ("iid", "1.0", "0.5", "0.1")
        for client in range(10)
    ]
    columns = ["dataset", "alpha", "client", "samples", "dominant", "dominant_name", "dominant_percent", "classes"]
    return pd.DataFrame(rows, columns=columns)


def panel(hue):
    return spec("convergence", panels=[{"hue": hue}])


def legend(axes):
    found = axes.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def names(axes):
    """Of the lines, as they stand beside their ends."""
    return [text.get_text() for text in axes.texts]


def line(axes, label):
    return next(found for found in axes.lines if str(found.get_label()).startswith(label))


MAIN = [
    {"arm": "naive-int8", "accuracy": [14.0, 10.0, 10.5]},
    {"arm": "q-localadam", "accuracy": [20.0, 80.04, 70.0]},
    {"arm": "fp32", "accuracy": [25.0, 60.0, 85.76]},
]


def test_convergence_shows_every_run_its_best_and_chance(runs):
    (axes,) = figures.draw(panel("arm"), [runs(*MAIN)], {}).axes
    assert names(axes) == ["FP32: 85.8", "Q-LocalAdam: 80.0", "Naive INT8: 14.0", "chance: 10.0", "best (%)"]
    assert axes.get_title() == f"Digits, {ALPHA} = 0.1"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Round", "Test accuracy (%)")
    assert line(axes, "FP32").get_xydata().tolist() == [[1, 25.0], [2, 60.0], [3, 85.76]]
    chance = line(axes, "chance")
    assert chance.get_ydata() == [10, 10]
    assert chance.get_linestyle() == "--"
    assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize(
    ("accuracy", "classes", "shown"),
    [([30.0, 20.0], 10, False), ([30.0, 19.9], 10, True), ([5.9, 0.8], 100, True), ([5.9, 2.0], 100, False)],
)
def test_chance_is_shown_where_an_arm_ends_near_it(runs, accuracy, classes, shown):
    (axes,) = figures.draw(panel("arm"), [runs({"accuracy": accuracy, "classes": classes})], {}).axes
    assert (f"chance: {100 / classes:.1f}" in names(axes)) == shown


def test_seeds_are_a_mean_and_a_band(runs):
    found = runs(*({"seed": seed, "accuracy": [seed, 80.0 + seed]} for seed in (1, 2, 6)))
    (axes,) = figures.draw(panel("arm"), [found], {}).axes
    assert line(axes, "FP32: 83.0").get_ydata().tolist() == [3.0, 83.0]
    corners = axes.collections[0].get_paths()[0].vertices.tolist()
    assert {(1, 1), (1, 6), (2, 81), (2, 86)} == {tuple(corner) for corner in corners}


@pytest.mark.parametrize(
    ("hue", "values", "labels", "title"),
    [
        ("alpha", ["iid", "10.0", "0.5"], [f"{ALPHA} = 0.5", f"{ALPHA} = 10.0", "IID"], "Digits, FP32"),
        ("block_size", [128, 64], ["B = 64", "B = 128"], f"Digits, FP32, {ALPHA} = 0.1"),
        ("lr", [0.001, 0.0005], ["lr = 0.0005", "lr = 0.001"], f"Digits, FP32, {ALPHA} = 0.1"),
        ("seed", [123, 42], ["seed 42", "seed 123"], f"Digits, FP32, {ALPHA} = 0.1"),
    ],
)
def test_ordered_hues_stand_in_order(runs, hue, values, labels, title):
    found = runs(*({hue: value, "accuracy": [50.0, 60.0]} for value in values))
    (axes,) = figures.draw(panel(hue), [found], {}).axes
    assert names(axes) == [*(f"{label}: 60.0" for label in labels), "best (%)"]
    assert axes.get_title() == title


def test_names_of_lines_that_end_together_are_moved_apart_in_order(runs):
    ends = {"fp32": 60.0, "q-localadam": 60.1, "naive-int8": 59.9, "momentum-only": 20.0}
    found = runs(*({"arm": arm, "accuracy": [50.0, end]} for arm, end in ends.items()))
    (axes,) = figures.draw(panel("arm"), [found], {}).axes
    heights = {text.get_text().partition(":")[0]: text.get_position()[1] for text in axes.texts}
    gap = heights["FP32"] - heights["Naive INT8"]
    assert gap > 0.03
    assert heights["Q-LocalAdam"] - heights["FP32"] == pytest.approx(gap)
    end = axes.transAxes.inverted().transform(axes.transData.transform((2, 20.0)))[1]
    assert heights["Momentum-only"] == pytest.approx(end, abs=0.02)


def test_a_trend_joins_the_means_of_runs(runs):
    made = [
        {"arm": arm, "loss_scale": scale, "seed": seed, "accuracy": [50.0 + seed - (scale < 1) * 40 * (arm != "fp32")]}
        for arm in ("q-localadam", "fp32")
        for scale in (1.0, 1e-4)
        for seed in (1, 3)
    ]
    found = runs(*made)
    drawn = figures.draw(spec("trend", axis="loss_scale", falling=True), [found], {})
    (axes,) = drawn.axes
    assert line(axes, "FP32").get_xydata().tolist() == [[1, 52], [1e-4, 52]]
    assert line(axes, "Q-LocalAdam").get_xydata().tolist() == [[1, 52], [1e-4, 12]]
    assert names(axes) == ["FP32", "Q-LocalAdam"]
    said = drawn.get_suptitle().replace("\N{NO-BREAK SPACE}", " ")
    assert said == "Loss scale 0.0001 costs Q-LocalAdam 77 % of the accuracy, the others at most 0 %"
    level = figures.draw(spec("trend", axis="loss_scale"), [found.assign(last_third=50.0)], {})
    assert level.get_suptitle() == "No arm loses more than 0 % of its accuracy"
    assert axes.xaxis_inverted()
    dots = [one for one in axes.lines if one.get_marker() == "."]
    assert sorted(y for one in dots for y in one.get_ydata()) == [11, 13, 51, 51, 51, 53, 53, 53]


def pixels(figure, colour):
    """How many pixels are of this colour."""
    canvas = FigureCanvasAgg(figure)
    with theme():
        canvas.draw()
    shown = np.asarray(canvas.buffer_rgba())[..., :3] / 255
    return int((np.abs(shown - to_rgb(colour)).max(axis=-1) < 0.02).sum())


def test_a_single_round_can_be_seen(runs):
    figure = figures.draw(panel("arm"), [runs({"accuracy": [50.0]})], {})
    (axes,) = figure.axes
    for text in (*axes.texts, *axes.lines[1:]):
        text.remove()
    assert pixels(figure, arm_colours(ARMS)["fp32"].color) > 30
    shown = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert shown == [1]


def test_markers_are_few_and_not_all_in_the_same_rounds(runs):
    found = runs(*({"arm": arm, "accuracy": [50.0] * 120} for arm in ("fp32", "q-localadam")))
    (axes,) = figures.draw(panel("arm"), [found], {}).axes
    assert [one.get_markevery() for one in axes.lines[:2]] == [(0, 20), (10, 20)]


def test_a_diverged_run_ends_in_a_cross(runs):
    found = runs(
        {"arm": "naive-int8", "accuracy": [30.0, 40.0, 9.8], "diverged": True},
        {"arm": "fp32", "accuracy": [30.0, 40.0, 50.0, 60.0]},
    )
    (axes,) = figures.draw(panel("arm"), [found], {}).axes
    assert line(axes, "Naive INT8").get_xdata().tolist() == [1, 2, 3]
    (cross,) = [found for found in axes.lines if found.get_marker() == "x"]
    assert (list(cross.get_xdata()), list(cross.get_ydata())) == ([3], [9.8])
    assert cross.get_color() == line(axes, "Naive INT8").get_color()
    assert "diverged" in names(axes)


def test_nonsense_is_refused(runs, files):
    found = runs({"arm": "unheard-of", "accuracy": [1.0]})
    with pytest.raises(ValueError, match=r"figures.shown.kind is 'pie'; accepted: client_memory, .*convergence"):
        figures.draw(spec("pie"), [], {})
    with pytest.raises(ValueError, match=r"arm must be one of fp32, .*, got unheard-of"):
        figures.draw(panel("arm"), [found], {})
    _histograms().query("view != 'zoomed'").to_csv(files["histograms.cifar10"], index=False)
    with pytest.raises(ValueError, match="has no rows with state momentum and view zoomed"):
        figures.draw(spec("distributions", where={"dataset": "cifar10"}), [], files)


def test_contrasts_have_a_panel_for_each_data_set_and_alpha(files):
    figure = figures.draw(spec("contrasts", table="a"), [], files)
    assert [axes.get_title() for axes in figure.axes] == [
        f"{data}, {ALPHA} = {alpha}" for data in ("Digits", "Digit pairs") for alpha in (0.1, 0.5)
    ]
    arms = ["Q-LocalAdam", "Naive INT8", "Variance-only", "Equations as printed", "Dynamic 8-bit"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == arms, "all but FP32 itself"
    below = "Last third above FP32 (pp)"
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", below, below]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["simultaneous interval", "95 % interval", "one seed", "margin of equivalence"]


def test_a_forest_shows_seeds_and_both_intervals(files):
    axes = figures.draw(spec("contrasts", table="a"), [], files).axes[0]
    colour, tests = arm_colours(ARMS)["q-localadam"].color, pd.read_csv(files["contrasts"])
    row = tests[(tests["arm"] == "q-localadam") & (tests["metric"] == "last_third")].iloc[0]
    drawn = [one for one in axes.lines if one.get_color() == colour]
    seeds, wide, narrow, mean = (np.asarray(one.get_xdata()).tolist() for one in drawn)
    assert seeds == pytest.approx(SHIFTS["q-localadam"])
    assert wide == [row["simultaneous_low"], row["simultaneous_high"]]
    assert narrow == [row["ci_low"], row["ci_high"]]
    assert wide[0] < narrow[0] < mean[0] < narrow[1] < wide[1]
    assert drawn[1].get_linewidth() < drawn[2].get_linewidth()
    assert mean == pytest.approx([0.1])
    low, high = axes.get_xlim()
    assert -12 <= low < -2 < 2 < high <= 12
    (band,) = axes.patches
    assert (band.get_x(), band.get_width()) == pytest.approx((-2, 4)), "2.5 % of 80"
    means = {int(one.get_ydata()[0]) for one in axes.lines if one.get_marker() == "o"}
    assert means == {0, 2, 3}, "all but those that are far off"


def test_a_panel_has_an_axis_and_a_margin_of_its_own(files):
    tests = pd.read_csv(files["contrasts"], dtype={"alpha": str})
    tests.loc[tests["dataset"] == "cifar100", "margin"] = 1.0
    tests.to_csv(files["contrasts"], index=False)
    figure = figures.draw(spec("contrasts", table="a"), [], files)
    assert figure.axes[0].get_xlim()[1] == pytest.approx(12)
    assert figure.axes[2].get_xlim()[1] == pytest.approx(6)


def test_an_arm_that_is_far_off_is_an_arrow_and_a_number(files):
    axes = figures.draw(spec("contrasts", table="a"), [], files).axes[0]
    far = {text.get_text(): text.get_position() for text in axes.texts if text.get_text()}
    assert far == {"\N{MINUS SIGN}70.2": (0.12, 1), "+81.0": (0.88, 4)}
    arrows = [text for text in axes.texts if not text.get_text()]
    assert [arrow.xy for arrow in arrows] == [(0.01, 1), (0.99, 4)]


def test_an_arm_that_was_not_compared_is_left_out(files):
    tests = pd.read_csv(files["contrasts"]).astype({"reason": object})
    numbers = ["difference", "ci_low", "ci_high", "simultaneous_low", "simultaneous_high", "p", "tost_p"]
    untested = tests["arm"].isin(["variance-only", "printed-equations"])
    tests.loc[untested, numbers] = math.nan
    tests.loc[untested, "reason"] = "one seed: nothing to test"
    # Where no baseline is, there is no margin: none of these arms is taken for the baseline.
    tests.loc[tests["arm"] == "variance-only", "margin"] = math.nan
    tests.sort_values("arm", ascending=False, kind="stable").to_csv(files["contrasts"], index=False)
    figure = figures.draw(spec("contrasts", table="a"), [], files)
    arms = {label.get_text() for label in figure.axes[0].get_yticklabels()}
    assert arms == {"Q-LocalAdam", "Naive INT8", "Dynamic 8-bit"}
    assert figure.axes[-1].get_xlabel() == "Last third above FP32 (pp)"
    tests[tests["arm"] == "fp32"].to_csv(files["contrasts"], index=False)
    assert [text.get_text() for text in figures.draw(spec("contrasts", table="a"), [], files).texts] == [
        "no arm to compare"
    ]
    tests[untested].to_csv(files["contrasts"], index=False)
    said = [text.get_text() for text in figures.draw(spec("contrasts", table="a"), [], files).texts]
    assert said == ["one seed: nothing to test"]


def test_distributions_show_the_counts_and_what_the_offset_hides(files):
    figure = figures.draw(spec("distributions", where={"dataset": "cifar100"}), [], files)
    assert figure.get_suptitle() == "Digit pairs"
    views = [bins for _, bins in _histograms().groupby(["state", "view"], sort=False)]
    for axes, bins in zip(figure.axes, views, strict=True):
        (bars,) = [patch for patch in axes.patches if isinstance(patch, StepPatch)]
        assert bars.get_data().values.tolist() == bins["count"].tolist()
        assert bars.get_data().edges.tolist() == [*bins["left"], bins["right"].iloc[-1]]
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear", "log", "linear"]
    logarithm = figure.axes[1]
    assert logarithm.lines[0].get_xdata() == [-8, -8]
    assert logarithm.get_title() == "61.3 % below offset $10^{-8}$;\n40.2 % are 0 and not shown"


def test_precision_is_the_mean_error_by_quarters_of_a_decade(files):
    (axes,) = figures.draw(spec("precision"), [], files).axes
    assert legend(axes) == [f"{code}: {2 * i:.2f}" for i, code in enumerate(CODE_ARMS, 1)]
    shown = line(axes, "log, floor")
    assert shown.get_xdata() == pytest.approx([10**-2.875, 10**-0.875])
    assert shown.get_ydata() == pytest.approx([4.0, 4.0])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_bars_of_a_client_add_up_and_say_what_is_saved(files):
    where = {"dataset": ["cifar10", "cifar100"], "arm": ["q-localadam", "fp32"]}
    figure = figures.draw(spec("client_memory", where=where), [], files)
    assert [axes.get_title() for axes in figure.axes] == ["CIFAR-10", "CIFAR-100"]
    for axes, total in zip(figure.axes, ([1139.6, 1175.0], [1536.1, 1599.3]), strict=True):
        ends = [[bar.get_x() + bar.get_width() for bar in part] for part in axes.containers]
        assert len(ends) == 4
        assert ends[-1] == pytest.approx(total, abs=0.05)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["Q-LocalAdam", "FP32"]
    behind = [text.get_text().strip() for text in figure.axes[0].texts[::2]]
    assert behind == ["1,140, states 15.0, 3.0 % less", "1,175, states 50.4"]


def test_heatmap_shows_every_client_on_common_scales(files):
    figure = figures.draw(spec("heatmap", where={"dataset": "cifar10"}), [], files)
    panels, bars = figure.axes[:4], figure.axes[4:]
    assert figure.get_suptitle() == "CIFAR-10"
    assert [axes.get_title() for axes in panels] == [f"{ALPHA} = {alpha}" for alpha in (0.1, 0.5, 1.0)] + ["IID"]
    for axes in panels:
        numbers = [text.get_text() for text in axes.texts]
        assert numbers == [f"{10 * i:.1f}" for i in range(10)] + [f"{i:.1f}" for i in range(1, 11)]
        assert [mesh.get_clim() for mesh in axes.collections] == [(0, 90), (0, 10)]
    assert {bar.get_xlabel() for bar in bars} == {"Dominant class (%)", "Samples / 100"}


def test_a_client_without_samples_has_an_empty_cell(files):
    _clients().replace({"dominant_percent": {0.0: None}}).to_csv(files["clients"], index=False)
    figure = figures.draw(spec("heatmap", where={"dataset": "cifar10"}), [], files)
    assert [text.get_text() for text in figure.axes[0].texts][:2] == ["10.0", "20.0"]


def test_an_arm_looks_the_same_in_every_figure(runs, files):
    found = runs(*({"arm": arm, "accuracy": [50.0, 60.0]} for arm in ARMS))
    (crowded,) = figures.draw(panel("arm"), [found], {}).axes
    (few,) = figures.draw(panel("arm"), [found[found["arm"].isin(["dynamic-8bit", "q-localadam"])]], {}).axes
    (codes,) = figures.draw(spec("precision"), [], files).axes
    for arm, label, code in (("q-localadam", "Q-LocalAdam:", "log, nearest"), ("dynamic-8bit", "Dynamic", "dynamic")):
        drawn = [line(crowded, label), line(few, label), line(codes, code)]
        assert {(one.get_color(), one.get_marker()) for one in drawn} == {arm_colours(ARMS)[arm][::2]}


def test_lines_can_be_told_apart():
    arms = arm_colours(ARMS)
    assert list(arms) == list(ARMS)
    assert len({arm.marker for arm in arms.values()}) >= 12
    assert len({(arm.color, arm.linestyle) for arm in arms.values()}) == len(ARMS)
    fixed = [to_hex(arms[arm].color) for arm in ("fp32", "q-localadam", "naive-int8", "momentum-only", "variance-only")]
    assert fixed == ["#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7"]
    assert not {arm.color for arm in list(arms.values())[5:]} & {arm.color for arm in list(arms.values())[:5]}
    ordered = list(ordered_colours([1, 2, 3, 4]).values())
    light = [float(np.dot(to_rgb(one.color), (0.2126, 0.7152, 0.0722))) for one in ordered]
    assert light == sorted(light)
    assert light[-1] < 0.65
    assert len({(one.linestyle, one.marker) for one in ordered}) == 4


@pytest.fixture(scope="module")
def everything(results_once, tmp_path_factory):
    """A figure of every kind and layout, with the most that it may have to hold."""
    folder, files = tmp_path_factory.mktemp("everything"), results_once
    runs = Runs(folder / "runs")
    accuracy = np.linspace(8, 99.9, 120).tolist()
    arms = runs(*({"arm": arm, "accuracy": accuracy} for arm in ARMS))
    seeds = runs(*({"dataset": "cifar100", "seed": i, "accuracy": [0.5, 1.0], "diverged": i > 1} for i in range(3)))
    alphas = runs(*({"arm": "fp32", "seed": 1, "alpha": alpha, "accuracy": [90.0]} for alpha in ("iid", "0.1", "0.5")))
    two = spec("convergence", panels=[{"hue": "arm"}, {"hue": "alpha"}])
    made = {
        "one panel": figures.draw(panel("arm"), [arms[:5]], {}),
        "seeds": figures.draw(panel("arm"), [seeds], {}),
        "two panels": figures.draw(two, [arms[:5], alphas], {}),
        "crowded": figures.draw(spec("convergence", panels=[{"hue": "arm"}] * 2), [arms, arms], {}),
        "distributions": figures.draw(spec("distributions", where={"dataset": "cifar10"}), [], files),
        "precision": figures.draw(spec("precision"), [], files),
        "heatmap": figures.draw(spec("heatmap", where={"dataset": "cifar10"}), [], files),
        "client memory": figures.draw(
            spec("client_memory", where={"dataset": list(LABELS["dataset"]), "arm": list(ARMS)}), [], files
        ),
        "steps": figures.draw(
            spec("step_errors", where={"dataset": list(LABELS["dataset"]), "arm": list(ARMS)}), [], files
        ),
        "step layers": figures.draw(
            spec("step_layers", where={"dataset": list(LABELS["dataset"]), "arm": list(ARMS)[:6]}), [], files
        ),
        "variance": figures.draw(spec("variance", where={"dataset": list(LABELS["dataset"])}), [], files),
        "four forests": figures.draw(spec("contrasts", table="a"), [], files),
        "three forests": figures.draw(spec("contrasts", table="a"), [], three_forests(folder)),
        "questions": figures.draw(spec("registered", table="a"), [], files),
        "heatmap 100": figures.draw(spec("heatmap", where={"dataset": "cifar100"}), [], files),
    }
    for figure in made.values():
        with theme():
            FigureCanvasAgg(figure).draw()
    return made


def three_forests(folder):
    paths = {name: folder / f"three_{name}.csv" for name in ("contrasts", "differences")}
    _write_contrasts(paths, ("cifar10",), ("0.1", "0.5", "iid"))
    return paths


def drawn_texts(figure):
    """All that can be read. Ticks beyond the ends of an axis have labels, too, but these are not drawn."""
    ticks = [
        (tick, axis)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
    ]
    hidden = set()
    for tick, axis in ticks:
        low, high = sorted(axis.get_view_interval())
        if not low <= tick.get_loc() <= high:
            hidden |= {tick.label1, tick.label2}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [text for text in texts if text not in hidden]


def test_no_text_is_cut_off_or_overlaps(everything):
    for name, figure in everything.items():
        with theme():
            boxes = {text: text.get_window_extent() for text in drawn_texts(figure)}
        assert len(boxes) > 8, name
        width, height = figure.bbox.width, figure.bbox.height
        for text, box in boxes.items():
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            assert inside, f"{name}: {text.get_text()!r} is cut off"
        inner = {text: box.padded(-1) for text, box in boxes.items()}
        for (one, first), (other, second) in combinations(inner.items(), 2):
            assert not first.overlaps(second), f"{name}: {one} and {other}"


def test_legends_are_whole_and_beside_the_panels(everything):
    for name, figure in everything.items():
        with theme():
            for axes in figure.axes:
                if axes.get_legend() is None:
                    continue
                box = axes.get_legend().get_window_extent()
                assert box.x0 >= 0, name
                assert box.y0 >= 0, name
                assert box.x1 <= figure.bbox.width, name
                assert not any(box.overlaps(other.get_window_extent()) for other in figure.axes), name
                assert axes.get_window_extent().height > 0.3 * figure.bbox.height, name


def test_figures_have_the_widths_of_the_paper(everything):
    widths = {name: figure.get_figwidth() for name, figure in everything.items()}
    wide = {
        "two panels",
        "crowded",
        "client memory",
        "steps",
        "step layers",
        "variance",
        "four forests",
        "three forests",
        "questions",
    }
    assert {name for name, width in widths.items() if width == PAGE} == wide
    assert set(widths.values()) == {COLUMN, PAGE}


def saved(figure, folder):
    pdf, png = folder / "figure.pdf", folder / "figure.png"
    figures.save(figure, pdf, png)
    assert sorted(folder.iterdir()) == [pdf, png]
    return pdf.read_bytes(), png.read_bytes()


def test_saving_twice_and_drawing_twice_give_the_same_bytes(runs, files, tmp_path):
    """Whatever the caller has set. Those of all kinds are made again, and compared, by the check of results."""
    accuracies = runs(*MAIN)
    wanted = [
        (panel("arm"), [accuracies]),
        (spec("heatmap", where={"dataset": "cifar10"}), []),
        (spec("step_errors", where={"dataset": "cifar10", "arm": ["fp32", "q-localadam"]}), []),
        *((spec(kind, table="a"), []) for kind in ("contrasts", "registered")),
    ]
    for one, of_panel in wanted:
        figure = figures.draw(one, of_panel, files)
        first = saved(figure, tmp_path / "a")
        with mpl.rc_context({"font.size": 20, "lines.linewidth": 5, "axes.grid": False, "pdf.fonttype": 3}):
            anew = saved(figures.draw(one, of_panel, files), tmp_path / "a")
        assert first == anew, one["kind"]
    assert saved(figure, tmp_path / "a") == first


def test_files_are_fit_for_print(files, tmp_path):
    pdf, _ = saved(figures.draw(spec("precision"), [], files), tmp_path / "saved")
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf
    assert imread(tmp_path / "saved" / "figure.png").shape[:2] == (640, 666)


def test_the_users_settings_stay_as_they_are(files, tmp_path):
    before = dict(mpl.rcParams)
    saved(figures.draw(spec("heatmap", where={"dataset": "cifar10"}), [], files), tmp_path / "saved")
    assert dict(mpl.rcParams) == before
