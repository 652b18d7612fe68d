"""Arms in their own training beside exact states: as a client trains, with errors that are known beforehand."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import refused

from qlocaladam.analysis import microscope, model_size
from qlocaladam.analysis.closed_loop import Step, follow
from qlocaladam.cli import main
from qlocaladam.data.dataset import load, subset
from qlocaladam.federated.batches import image_sets
from qlocaladam.federated.client import train_client
from qlocaladam.federated.rounds import make_model
from qlocaladam.federated.settings import RunSettings
from qlocaladam.report import html
from qlocaladam.results import figures, layout, tables
from qlocaladam.results.kinds import KINDS, section

TINY = RunSettings(width=4, image_size=40, batch_size=8, epochs=1)
ARMS = {
    "fp32": {"arm": "fp32"},
    "q-localadam": {"arm": "q-localadam", "options": {"block_size": 32}},
    "naive-int8": {"arm": "naive-int8"},
    "normalised": {"arm": "normalised"},
}
LABELS = {"dataset": {"cifar10": "Digits", "text": "Text"}, "arm": {arm: arm.upper() for arm in ARMS}}


@pytest.fixture(scope="module")
def digits(digits):
    return digits, subset(load(digits), 150, 20)


@pytest.fixture(scope="module")
def text(text):
    return text, subset(load(text), 100, 20)


def trained(data, settings, how=None, **options):
    model = make_model(settings, data.outputs, torch.device("cpu"))
    images, _ = image_sets(data, settings.image_size, torch.device("cpu"))
    found = follow(model, images, torch.arange(60), how or settings.local_training(), **options)
    return model, found


# Following.


@pytest.mark.parametrize("arm", ["fp32", "q-localadam"])
def test_a_followed_client_ends_with_the_weights_of_any_client(digits, arm):
    settings = replace(TINY, arm=arm, epochs=2)
    followed, found = trained(digits[1], settings, client=3)
    model = make_model(settings, digits[1].outputs, torch.device("cpu"))
    images, _ = image_sets(digits[1], settings.image_size, torch.device("cpu"))
    result = train_client(model, images, torch.arange(60), settings.local_training(), 1, 3)
    assert all(torch.equal(one, other) for one, other in zip(followed.parameters(), model.parameters(), strict=True))
    assert [step.step for step in found] == list(range(1, 17))
    sizes = [8] * 7 + [4]
    mean = np.average([step.loss for step in found], weights=sizes * 2)
    assert mean == pytest.approx(result.loss, rel=1e-5)


def test_exact_states_make_the_steps_of_fp32(digits):
    """But for the rounding of weights, a ten-thousandth of a learning rate."""
    _, found = trained(digits[1], replace(TINY, arm="fp32"), steps=5)
    assert len(found) == 5
    for step in found:
        assert step.max < 3e-4
        assert step.way == pytest.approx(step.exact_way, rel=1e-5)
        assert step.far == 0


def test_a_floor_shortens_steps_and_a_code_without_one_throws_them(digits):
    q, naive, normalised = (
        trained(digits[1], replace(TINY, arm=arm), steps=4)[1] for arm in ("q-localadam", "naive-int8", "normalised")
    )
    assert q[0].max < 3e-4, "the first step has no floor"
    assert sum(step.way for step in q[1:]) < sum(step.exact_way for step in q[1:])
    assert max(step.max for step in naive) > 100 > 2 > max(step.max for step in q)
    assert max(step.max for step in normalised) < 1
    assert 0 < q[-1].below < 1


def test_shares_are_of_the_exact_variance(digits):
    """With losses a million times smaller every variance with a gradient is below the floor."""
    _, found = trained(digits[1], replace(TINY, loss_scale=1e-6), steps=2)
    assert found[-1].zero + found[-1].below == 1
    assert found[-1].zero < 0.5


def test_no_steps_are_refused(digits):
    with pytest.raises(ValueError, match=r"steps must be .* got 0"):
        trained(digits[1], TINY, steps=0)


# The size of models.


def test_wider_models_have_smaller_variances_and_the_floor_shortens_their_way(text):
    found, made = model_size.analyse(RunSettings(batch_size=8), text[1], ARMS, widths=(8, 32), steps=4)
    assert found["arm"].tolist() == list(ARMS) * 2
    by = found.set_index(["arm", "width"])
    assert (by["relative_way"]["fp32"] == 1).all()
    assert by["below"]["fp32", 8] < by["below"]["fp32", 32]
    assert by["relative_way"]["q-localadam", 32] < by["relative_way"]["q-localadam", 8] < 1
    assert by["relative_way"]["normalised"].to_numpy() == pytest.approx(1, abs=0.01)
    model = make_model(RunSettings(width=32), text[1].outputs, torch.device("cpu"), text=True)
    assert by["parameters"]["fp32", 32] == sum(param.numel() for param in model.parameters())
    assert (made["widths"], made["steps"], made["settings"]["batch_size"]) == ([8, 32], 4, 8)


def test_model_sizes_are_those_of_transformers(digits):
    with pytest.raises(ValueError, match="dataset must be text, on which transformers are trained, got 'digits'"):
        model_size.analyse(TINY, digits[1], ARMS)


# The microscope.


def test_the_client_is_the_smallest_that_fills_a_batch():
    assert microscope.smallest_client(np.array([3, 70, 64, 0, 500]), 64) == 2
    assert microscope.smallest_client(np.array([3, 7, 0]), 64) == 1


def test_every_arm_sees_the_same_client(digits):
    table, by_step, found = microscope.analyse(replace(TINY, epochs=4), digits[1], ARMS, steps=3)
    assert table["arm"].tolist() == list(ARMS)
    assert table["first_loss"].nunique() == 1
    assert (by_step.groupby("arm")["step"].max() == 3).all()
    assert found["partition"]["clients"] == 10
    assert found["samples"] >= TINY.batch_size
    assert found["most_steps"] == 3
    rows = table.set_index("arm")
    assert rows["max"]["fp32"] < rows["max"]["normalised"] < rows["max"]["q-localadam"] < rows["max"]["naive-int8"]


def test_a_summary_is_over_all_steps():
    steps = [Step(i + 1, 4.0 - i, 2.0, 1.0, i, i, 10.0 * i, i / 10, 0.5 - i / 10, i / 10) for i in range(4)]
    (row,) = microscope.summarise(pd.DataFrame([{"arm": "a", **step._asdict()} for step in steps])).to_dict("records")
    first = {"arm": "a", "steps": 4, "first_loss": 4.0, "last_loss": 1.0, "median": 1.5, "p99": 1.5}
    assert row == first | {"max": 30.0, "far": 0.3, "relative_way": 2.0, "zero": pytest.approx(0.2), "below": 0.3}


# What is made of them.


def command(name, data, out, *words):
    arms = ["--arms", *ARMS, "--data", data, "--out", out, "--batch-size", 8]
    assert main(["analyse", name, *map(str, [*arms, *words])]) == 0
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture(scope="module")
def made(digits, text, tmp_path_factory):
    """Files of both analyses, by the names that tables and figures have for them."""
    sizes, client = tmp_path_factory.mktemp("sizes"), tmp_path_factory.mktemp("client")
    command("model-size", text[0], sizes, "--widths", 8, 16, "--steps", 2, "--train-images", 60)
    command("microscope", digits[0], client, "--width", 4, "--image-size", 40, "--steps", 2, "--no-flip")
    return {
        "model_size.text": sizes / "model_size.csv",
        "summary.text": sizes / "summary.json",
        "microscope.cifar10": client / "microscope.csv",
        "by_step.cifar10": client / "microscope_by_step.csv",
        "summary.cifar10": client / "summary.json",
    }


def spec(kind, dataset):
    where = {"dataset": dataset, "arm": ["q-localadam", "naive-int8", "normalised"]}
    names = {"name": kind, "caption": "Words", "scale": "test", "labels": LABELS, "stands_for": {}}
    return {"kind": kind, "where": where, **names}


def test_commands_write_the_same_bytes_again_and_a_sealed_summary(made, text, tmp_path):
    again = command("model-size", text[0], tmp_path, "--widths", 8, 16, "--steps", 2, "--train-images", 60)
    assert set(again) == set(layout.CLIENT_FILES["model_size"])
    assert again["model_size.csv"] == made["model_size.text"].read_bytes()
    for name, files in (("text", ["model_size.csv"]), ("cifar10", ["microscope.csv", "microscope_by_step.csv"])):
        assert list(json.loads(made[f"summary.{name}"].read_text())["files"]) == files


def test_widths_that_are_none_are_refused(capsys):
    said = refused(capsys, ["analyse", "model-size", "--data", "d", "--out", "o", "--arms", "fp32", "--widths", "8-16"])
    assert "argument --widths: invalid int value: '8-16'" in said


def test_tables_have_a_row_for_each_width_and_for_each_arm(made):
    sizes = tables.build(spec("model_size", "text"), None, made)
    (group,) = sizes.groups
    assert [row[0] for row in group.rows] == ["8", "16"]
    assert len(group.rows[0]) == 4 + 3
    assert "2 steps of batches of 8 windows of Text" in sizes.caption
    client = tables.build(spec("microscope", "cifar10"), None, made)
    (group,) = client.groups
    assert [row[0] for row in group.rows] == ["Q-LOCALADAM", "NAIVE-INT8", "NORMALISED"]
    assert r"2 steps, width 4, $40\times40$" in client.caption
    assert r"\begin{tabular}" in client.latex()


def test_figures_show_every_arm(made):
    figure = figures.draw(spec("model_size", "text"), [], made)
    share, way = figure.axes
    sizes = pd.read_csv(made["model_size.text"]).query("arm == 'fp32'")
    assert share.lines[0].get_ydata() == pytest.approx(100 * (sizes["zero"] + sizes["below"]))
    assert len(way.get_legend_handles_labels()[1]) == 3
    figure = figures.draw(spec("microscope", "cifar10"), [], made)
    loss, error = figure.axes
    assert loss.get_legend_handles_labels()[1] == ["Q-LOCALADAM", "NAIVE-INT8", "NORMALISED"]
    assert error.get_yscale() == "log"


def test_a_title_is_about_the_arms_that_are_drawn_and_needs_no_two_widths(made, tmp_path):
    sizes = pd.read_csv(made["model_size.text"])
    sizes.loc[sizes["arm"] == "naive-int8", "relative_way"] = 0.1
    sizes.loc[sizes["arm"] == "q-localadam", "relative_way"] = [0.5, 0.25]
    shown = spec("model_size", "text")
    shown["where"]["arm"].remove("naive-int8")
    for widths, said in (((16, 8), "0.50 to 0.25 of FP32's"), ((8,), "0.50 to 0.50 of FP32's")):
        pd.concat(sizes[sizes["width"] == width] for width in widths).to_csv(tmp_path / "sizes.csv", index=False)
        figure = figures.draw(shown, [], {**made, "model_size.text": tmp_path / "sizes.csv"})
        assert figure.get_suptitle().replace("\n", " ").endswith(f"path of Q-LOCALADAM {said}")


def test_numbers_and_pages_have_them(made):
    found = {number.name: number for number in KINDS["model_size"].numbers("text", made["model_size.text"], str)}
    assert found["model_size/text/1/width"].text == "8"
    assert found["model_size/text/largest/normalised/relative_way"].text == "1.00"
    assert found["model_size/text/largest/below_percent"].value == found["model_size/text/2/below_percent"].value
    found = {number.name: number for number in KINDS["microscope"].numbers("cifar10", made["microscope.cifar10"], str)}
    assert found["microscope/cifar10/fp32/steps"].value == 2
    for kind, dataset in (("model_size", "text"), ("microscope", "cifar10")):
        origin = {"rule": "table", "rulefile": "tables.smk", "code": f"{kind}.py", "runs": [], "files": []}
        text = html.table_page({**spec(kind, dataset), "made": origin}, made[f"{kind}.{dataset}"])
        assert "v below the floor" in text
        assert section({"kind": kind}) == "Optimizer states"
