"""Tables: the paper's cells to the last digit, marks that follow from the numbers, LaTeX that compiles and fits."""

import io
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml
from analysis_files import CONTRASTS, MEMORY, write_exact
from registered_runs import LABELS as ALL_LABELS
from registered_runs import answered

from qlocaladam.experiments.grid import GRID, run_name
from qlocaladam.experiments.runs import read_runs
from qlocaladam.federated import record
from qlocaladam.results import released
from qlocaladam.results.kinds import shown_as
from qlocaladam.results.latex import FIRST_LINE, escape, listed, power_of_ten
from qlocaladam.results.tables import build

LABELS = {
    "dataset": {"cifar10": "Digits", "cifar100": "Digit pairs"},
    "arm": {"fp32": "FP32", "q-localadam": "Q-LocalAdam", "naive-int8": "Naive INT8"},
}
STANDS_FOR = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
SIGNIFICANCE = """\
dataset,alpha,arm,n,seeds,mean,std,min,max,difference,relative_percent,ci_low,ci_high,t,df,p,welch_t,welch_df,welch_p,welch_ci_low,welch_ci_high,cohens_d,reason
cifar10,0.5,fp32,3,1 2 3,86.93,0.73,86.0,87.5,,,,,,,,,,,,,,
cifar10,0.5,q-localadam,3,1 2 3,87.04,0.24,86.8,87.3,0.11,0.1,-1.12,1.34,0.2,4.0,0.82,0.2,2.4,0.83,-1.5,1.7,0.2,
cifar100,0.1,fp32,3,1 2 3,54.99,1.28,54.0,56.0,,,,,,,,,,,,,,
cifar100,0.1,q-localadam,3,1 2 3,61.40,0.82,60.0,62.0,6.41,11.7,3.97,8.85,7.3,4.0,0.0019,7.3,3.4,0.034,3.5,9.3,6.0,
cifar100,0.1,naive-int8,1,1,1.5,,1.5,1.5,-53.49,-97.3,,,,,,,,,,,,one seed: 100 % of a_b
"""
STEPS = """\
arm,step,layer,numel,live,median,p99,max,idle_max,over_ten,under_ten,over_ten_lr
q-localadam,24,all,1000,0.5,0.0012345,0.0417,12345.6,0,0.00771,0.029,0.00001
naive-int8,24,all,1000,0.5,0.000828,5.58,74900.0,7170.0,0.0174,0.00061,1.0
"""
VARIANCE = """\
round,layer,dimensions,numel,zero,below,p1,p10,median,p90,p99
1,all,,3600000,0.0123,0.4567,1e-12,1e-10,1e-8,1e-6,1e-4
1,layer1.0.conv1.weight,4,3600000,0.0123,0.4567,1e-12,1e-10,1e-8,1e-6,1e-4
15,all,,3600000,1.0,0.0,,,,,
15,layer1.0.conv1.weight,4,3600000,1.0,0.0,,,,,
"""
ANALYSED = {"step_errors": "step_errors.csv", "variance": "variance.csv", "summary": "found.json"}


def write_run(folder, best, final=None, diverged=None, classes=10, **changed):
    """A run's files. `folder` ends in the run's place in the grid."""
    settings = {"rounds": 20, "clients_per_round": 5, "epochs": 2, "batch_size": 16, "width": 8, "image_size": 32}
    data = {"name": "digits", "classes": classes, "training_images": 1437, "test_images": 360}
    settings |= {name: value for name, value in changed.items() if name in settings}
    data |= {name: value for name, value in changed.items() if name in data}
    accuracies = [0.0] * settings["rounds"]
    accuracies[6], accuracies[-1] = float(best), float(best if final is None else final)
    folder.mkdir(parents=True)
    made = {
        "settings": {"arm": "fp32", "seed": 42, "lr": 0.001, **settings},
        "dataset": data,
        "partition": {"clients": 10, "alpha": 0.1},
    }
    measured = {"parameters": 175258, "diverged": diverged, "optimizer_bytes": {"held": 394330, "published": 416237}}
    rounds = [[number, accuracy, 1.0, 1.0, 100, "0 1", 2] for number, accuracy in enumerate(accuracies, 1)]
    record.write(folder, made, rounds, [], measured)


@pytest.fixture
def runs(tmp_path):
    """Runs from entries such as {"arm": "fp32", "best": 85}; what an entry leaves out is the same for all."""

    def make(*entries):
        usual = {"dataset": "cifar10", "alpha": "0.1", "arm": "q-localadam", "block_size": 64, "lr": 0.001, "seed": 42}
        folders = []
        for number, entry in enumerate(entries):
            place = {**usual, **{name: entry[name] for name in GRID if name in entry}}
            folder = tmp_path / f"runs{number}" / run_name(place)
            results = {name: value for name, value in entry.items() if name not in GRID}
            write_run(folder, classes=100 if place["dataset"] == "cifar100" else 10, **results)
            folders.append(folder)
        return read_runs(folders)

    return make


@pytest.fixture
def main_runs(runs):
    arms = ("fp32", "q-localadam", "naive-int8")
    return runs(
        *({"arm": arm, "best": best} for arm, best in zip(arms, (81.67, 81.914999, 11.5), strict=True)),
        *({"dataset": "cifar100", "arm": arm, "best": best} for arm, best in zip(arms, (61.47, 55.73, 1), strict=True)),
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The analyses: memory and tests as given, partitions and scaling as they are."""
    folder = tmp_path_factory.mktemp("analyses")
    (folder / "memory.csv").write_text(MEMORY)
    (folder / "significance.csv").write_text(SIGNIFICANCE)
    (folder / "contrasts.csv").write_text(CONTRASTS)
    answered(folder / "answers.csv")
    arms = {name: {"arm": name} for name in ("fp32", "q-localadam")}
    for name in ("data_distribution", "scaling", "client_memory"):
        write_exact(name, folder, arms, [])
    (folder / "step_errors.csv").write_text(STEPS)
    (folder / "variance.csv").write_text(VARIANCE)
    found = {"steps": 24, "samples": 1234, "round": 4, "partition": {"alpha": 0.1}, "floor": 1e-8}
    (folder / "found.json").write_text(json.dumps(found))
    names = (
        "memory",
        "significance",
        "contrasts",
        "answers",
        "data_distribution",
        "clients",
        "scaling",
        "client_memory",
    )
    analysed = {f"{name}.{dataset}": folder / file for name, file in ANALYSED.items() for dataset in STANDS_FOR}
    return {**{name: folder / f"{name}.csv" for name in names}, **analysed}


def spec(kind, **entry):
    """A table's entry, as the workflow hands it over."""
    common = {"name": "t_1", "caption": "Words", "scale": "quick", "labels": LABELS, "stands_for": STANDS_FOR}
    return {**common, "kind": kind, **entry}


def arms_table(**entry):
    return spec("runs", **{"rows": "arm", "columns": ["best", "memory"], **entry})


def rows_of(table):
    """The cells of the body, as they stand in the LaTeX."""
    above, below = (r"\endfoot", r"\end{longtable}") if table.breaks else (r"\midrule", r"\bottomrule")
    body = table.latex().partition(f"{above}\n")[2].rpartition(below)[0]
    lines = [line for line in body.splitlines() if line != r"\midrule"]
    return [[cell.strip() for cell in line.removesuffix(r"\\").split("&")] for line in lines]


def csv_of(table):
    return pd.read_csv(io.StringIO(table.csv()), dtype={"alpha": str, "seeds": str, "best_round": str})


def notes_of(table):
    return " ".join(table.notes)


def test_main_has_the_papers_memory_and_marks_by_rule(main_runs, files):
    table = build(arms_table(), main_runs, files)
    assert rows_of(table) == [
        [r"\multirow{3}{*}{Digits}", "FP32", "81.67", "50.35"],
        ["", "Q-LocalAdam", r"\textbf{81.91}", r"\textbf{14.95}"],
        ["", "Naive INT8", r"11.50\rlap{$^{c}$}", "14.95"],
        [r"\multirow{3}{*}{Digit pairs}", "FP32", r"\textbf{61.47}", "89.82"],
        ["", "Q-LocalAdam", "55.73", r"\textbf{26.67}"],
        ["", "Naive INT8", r"1.00\rlap{$^{c}$}", "26.67"],
    ]
    assert table.notes == [
        r"$^{c}$~collapsed: ends below twice the chance level of 10\,\% (Digits) and 1\,\% (Digit pairs)."
    ]


def test_a_file_is_one_whole_environment(main_runs, files):
    lines = build(arms_table(name="main"), main_runs, files).latex().splitlines()
    assert lines[0] == FIRST_LINE == "% made by the table rule; edit config.yaml, not this file"
    assert lines[1] == r"\begin{table}"
    assert lines[-1] == r"\end{table}"
    assert sum(line.endswith(r"\label{tab:main}") for line in lines) == 1
    assert r"\begin{tabular}{llrr}" in lines


def test_caption_says_what_was_trained(main_runs, files):
    caption = build(arms_table(caption="50 % & more_words."), main_runs, files).caption
    assert caption == (
        r"50 \% \& more\_words. Scale \emph{quick}: "
        "Digits (1,437 training and 360 test images, in the place of CIFAR-10) and "
        "Digit pairs (1,437 training and 360 test images, in the place of CIFAR-100). "
        r"ResNet-18, width 8, $32\times32$ inputs, $\alpha=0.1$, 20 rounds, 5 of 10 clients a round, 2 local epochs, "
        "seed 42. Test accuracy; best is over all rounds. "
        r"Memory: the paper's models in the paper's layout; 1~MB is $10^6$ bytes."
    )


def test_caption_of_the_papers_own_data_names_no_stand_in(runs, files):
    made = runs(
        {"best": 80, "width": 48, "epochs": 1},
        {"best": 60, "dataset": "cifar100", "width": 64, "epochs": 1, "training_images": 50000},
    )
    entry = arms_table(labels={"dataset": STANDS_FOR, "arm": {}}, columns=["best"])
    caption = build(entry, made, files).caption
    assert "in the place of" not in caption
    assert "Memory" not in caption
    assert "width 48 (CIFAR-10) and width 64 (CIFAR-100)" in caption
    assert "CIFAR-100 (50,000 training and 360 test images)" in caption
    assert "1 local epoch," in caption


def test_csv_has_full_precision_and_what_is_not_shown(main_runs, files):
    table = build(arms_table(), main_runs, files)
    data = csv_of(table)
    assert data["best"].tolist() == [81.67, 81.914999, 11.5, 61.47, 55.73, 1]
    row = data.iloc[1]
    assert (row["arm"], row["alpha"], row["seeds"], row["best_round"]) == ("q-localadam", "0.1", "42", "7")
    assert (row["final"], row["diverged"], row["runs"]) == (81.914999, 0, 1)
    assert (row["held_bytes"], row["published_bytes"], row["parameters"]) == (394330, 416237, 175258)
    assert (row["paper_held_bytes"], row["memory_bytes"]) == (14162100, 14950112)
    assert data["collapsed"].tolist() == [False, False, True] * 2
    assert "\\" not in table.csv()
    assert table.csv() == build(arms_table(), main_runs, files).csv()


def test_several_seeds_are_a_mean_and_a_sample_deviation(runs, files):
    made = runs(*({"best": best, "seed": seed} for seed, best in enumerate((80.0, 82.0, 84.0))))
    table = build(arms_table(columns=["best", "final"]), made, files)
    assert rows_of(table) == [["Digits", "Q-LocalAdam", r"82.00$\pm$2.00", r"82.00$\pm$2.00"]]
    assert notes_of(table) == r"$\pm$ is the sample standard deviation over seeds."
    assert "seeds 0, 1 and 2." in table.caption
    assert csv_of(table).loc[0, ["runs", "seeds", "best_std"]].tolist() == [3, "0 1 2", 2.0]


def test_a_run_that_two_experiments_share_counts_once(runs, files):
    made = runs({"best": 80})
    table = build(arms_table(), pd.concat([made, made], ignore_index=True), files)
    assert rows_of(table) == [["Digits", "Q-LocalAdam", "80.00", "14.95"]]


def test_nothing_is_bold_where_all_print_the_same(runs, files):
    made = runs({"best": 80.001, "lr": 0.001}, {"best": 80.004, "lr": 0.0005})
    assert "textbf" not in build(arms_table(rows="lr"), made, files).latex()


def test_equal_accuracies_are_all_bold_and_the_first_has_the_memory(runs, files):
    made = runs(
        {"arm": "fp32", "best": 70}, {"arm": "q-localadam", "best": 80.001}, {"arm": "naive-int8", "best": 80.0}
    )
    bold = [[cell.startswith(r"\textbf") for cell in row[2:]] for row in rows_of(build(arms_table(), made, files))]
    assert bold == [[False, False], [True, True], [True, False]]


def test_an_arm_without_a_size_in_the_paper_shows_its_own_and_is_not_compared(runs, files):
    made = runs({"arm": "fp32", "best": 80}, {"arm": "q-localadam", "best": 70}, {"arm": "new_arm", "best": 60})
    table = build(arms_table(), made, files)
    assert [row[-1] for row in rows_of(table)] == ["50.35", r"\textbf{14.95}", r"0.42\rlap{$^{\dagger}$}"]
    assert rows_of(table)[2][1] == r"new\_arm"
    assert notes_of(table) == r"$^{\dagger}$~of the model trained here: the paper has no size for it."


def test_memory_of_an_unknown_data_set_is_what_was_measured(runs, files):
    other = build(arms_table(), runs({"dataset": "own", "best": 80}), files)
    assert rows_of(other) == [["own", "Q-LocalAdam", "80.00", r"0.42\rlap{$^{\dagger}$}"]]
    assert "in the place of" not in other.caption


def test_state_bytes_are_those_of_the_model_that_was_trained(runs, files):
    table = build(arms_table(columns=["best", "bytes"]), runs({"best": 80}), files)
    assert rows_of(table)[0][-1] == "2.25" == f"{394330 / 175258:.2f}"


def test_diverged_and_collapsed_runs_are_marked(runs, files):
    made = runs(
        {"arm": "fp32", "best": 19.99, "diverged": {"round": 3, "client": 1}},
        {"arm": "q-localadam", "best": 20.0},
        {"arm": "naive-int8", "best": 50, "diverged": {"round": 1, "client": 1}},
    )
    made.loc[2, ["best", "final"]] = float("nan")
    table = build(arms_table(columns=["best", "final"]), made, files)
    assert [row[2:] for row in rows_of(table)] == [
        [r"19.99\rlap{$^{cd}$}", "19.99"],
        [r"\textbf{20.00}", r"\textbf{20.00}"],
        [r"--\rlap{$^{d}$}", "--"],
    ]
    assert "$^{d}$~diverged: in at least one run weights were not finite any more" in notes_of(table)
    assert rows_of(build(arms_table(columns=["final"]), made, files))[0][2] == r"19.99\rlap{$^{cd}$}"


def test_a_mean_over_seeds_is_not_shown_where_one_has_no_accuracy(runs, files):
    made = runs({"best": 80, "seed": 1}, {"best": 80, "seed": 2})
    made.loc[1, "best"] = float("nan")
    assert rows_of(build(arms_table(), made, files))[0][2] == "--"


def test_a_missing_run_is_a_dash(runs, files):
    made = runs(
        {"arm": "fp32", "best": 80},
        {"arm": "q-localadam", "best": 81},
        {"dataset": "cifar100", "arm": "fp32", "best": 9},
    )
    table = build(arms_table(columns=["best", "difference", "memory"]), made, files)
    assert rows_of(table)[3] == ["", "Q-LocalAdam", "--", "--", "--"]
    assert rows_of(table)[1][2:] == [r"\textbf{81.00}", "$+1.00$", r"\textbf{14.95}"]
    assert "there is no such run" in notes_of(table)


def test_learning_rates_and_differences(runs, files):
    made = runs({"best": 81.91}, {"best": 81.79, "lr": 0.0005})
    table = build(arms_table(rows="lr", columns=["best", "difference"]), made, files)
    assert rows_of(table) == [
        [r"\multirow{2}{*}{Digits}", "$10^{-3}$", r"\textbf{81.91}", "--"],
        ["", r"$5\times10^{-4}$", "81.79", "$-0.12$"],
    ]
    assert "from the first row of a data set" in table.caption


def test_rows_stand_in_the_order_of_the_runs(runs, files):
    made = runs(*({"best": 80, "block_size": size} for size in (64, 32, 128)))
    table = build(arms_table(rows="block_size"), made, files)
    assert [row[1] for row in rows_of(table)] == ["64", "32", "128"]
    assert [row[3] for row in rows_of(table)] == ["14.95", "17.31", r"\textbf{13.77}"]


def test_rows_by_alpha_and_by_seed(runs, files):
    made = runs(*({"best": 80, "alpha": alpha, "seed": seed} for seed, alpha in enumerate(("iid", "1.0"))))
    by_alpha = build(arms_table(rows="alpha", columns=["best"]), made, files)
    assert [row[1] for row in rows_of(by_alpha)] == ["IID", "1.0"]
    assert r"\alpha=" not in by_alpha.caption
    made["alpha"] = "0.5"
    by_seed = build(arms_table(rows="seed", columns=["best"]), made, files)
    assert [row[1] for row in rows_of(by_seed)] == ["0", "1"]


def test_runs_that_differ_in_more_than_the_seed_are_not_averaged(runs, files):
    made = runs({"best": 80}, {"best": 90, "alpha": "iid"})
    with pytest.raises(ValueError, match=r"table t_1: alpha is 0\.1, iid in the one row for dataset=cifar10, arm=q-l"):
        build(arms_table(), made, files)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"kind": "pie"}, "tables.t_1.kind is 'pie'; accepted: client_memory, .*, runs"),
        ({"rows": "width"}, "table t_1: rows must be one of alpha, arm, block_size, .*, seed, got 'width'"),
        ({"columns": ["best", "time"]}, "table t_1: columns must be one of best, final, .*, got 'time'"),
    ],
)
def test_errors_name_the_key_and_what_is_accepted(main_runs, files, entry, message):
    with pytest.raises(ValueError, match=message):
        build({**arms_table(), **entry}, main_runs, files)


@pytest.mark.parametrize("none", [None, pd.DataFrame()])
@pytest.mark.parametrize("kind", ["runs", "side_by_side", "significance", "contrasts"])
def test_tables_of_runs_need_runs(files, none, kind):
    with pytest.raises(ValueError, match=f"table t_1: kind '{kind}' needs training runs, got none"):
        build(spec(kind, rows="arm", columns=["best"]), none, files)


def test_side_by_side_has_a_row_for_each_alpha_and_compares_within_it(runs, files):
    best = {"iid": (89.09, 88.78), "1.0": (88.25, 88.35), "0.1": (81.67, 11.5)}
    made = runs(
        *({"alpha": a, "arm": "fp32", "best": both[0]} for a, both in best.items()),
        *({"alpha": a, "arm": "q-localadam", "best": both[1]} for a, both in best.items()),
    )
    table = build(spec("side_by_side"), made, files)
    # The best accuracy stands twice in 20 rounds, once of them in the last 7.
    assert [[row[0], *row[1:3], *row[3:5]] for row in rows_of(table)] == [
        ["IID", r"\textbf{12.73}", "12.68", r"\textbf{89.09}", "88.78"],
        ["1.0", "12.61", r"\textbf{12.62}", "88.25", r"\textbf{88.35}"],
        ["0.1", r"\textbf{11.67}", r"1.64\rlap{$^{c}$}", r"\textbf{81.67}", "11.50"],
    ]
    assert next(row[5:] for row in rows_of(table)) == [
        *(r"\textbf{89.09}", "88.78", r"\textbf{8.91}", "8.88", "50.35", r"\textbf{14.95}")
    ]
    heads = ("Last third", "Best acc.", "Final acc.", "All rounds")
    assert " & ".join(rf"\multicolumn{{2}}{{c}}{{{head} (\%)}}" for head in heads) in table.latex()
    assert r" & \multicolumn{2}{c}{Opt. mem. (MB)} \\" in table.latex()
    assert r"\cmidrule(lr){2-3} \cmidrule(lr){4-5}" in table.latex()
    assert csv_of(table)["difference"].round(2).tolist() == [0, -0.31, 0, 0.1, 0, -70.17]


def test_side_by_side_of_two_data_sets_has_a_group_for_each(main_runs, files):
    table = build(spec("side_by_side"), main_runs, files)
    assert [row[:2] for row in rows_of(table)] == [
        ["Digits", "0.1"],
        [r"\shortstack[l]{Digit\strut\\[-3pt]pairs\strut}", "0.1"],
    ]
    assert r"\cmidrule(lr){3-5} \cmidrule(lr){6-8}" in table.latex()


def test_arms_stand_beside_each_other_for_other_rows_than_alphas(runs, files):
    sizes = itertools.product(("q-localadam", "naive-int8"), (32, 64), (1, 2))
    made = runs(*({"arm": a, "block_size": b, "seed": s, "best": 80 + s, "final": b} for a, b, s in sizes))
    table = build(spec("side_by_side", rows="block_size"), made, files)
    assert [row[:5] for row in rows_of(table)] == [
        [str(b), *[rf"{b / 7:.2f}$\pm$0.00"] * 2, *["81.50"] * 2] for b in (32, 64)
    ]
    assert [row[9] for row in rows_of(table)] == ["17.31", "14.95"]
    assert r"$\alpha=0.1$" in table.caption
    assert "seeds 1 and 2." in table.caption


def test_text_is_no_image_and_a_transformer_no_resnet(runs, files):
    of_text = {"dataset": "text", "best": 40, "width": 64, "image_size": None, "name": "text"}
    made = runs({"best": 80}, of_text)
    entry = arms_table(labels={"dataset": {"cifar10": "Digits", "text": "Text"}, "arm": {}}, columns=["best"])
    both, alone = (build(entry, chosen, files).caption for chosen in (made, made[1:]))
    assert "Digits (1,437 training and 360 test images, in the place of CIFAR-10) and Text (1,437 training and" in both
    assert "360 test windows). ResNet-18 (Digits) and Transformer (Text), width 8 (Digits) and width 64 (Text)" in both
    assert r"$32\times32$ inputs (Digits) and 64 characters (Text), $\alpha=0.1$" in both
    assert "Transformer, width 64, 64 characters, " in alone


def test_contrasts_have_differences_both_intervals_and_every_metric(main_runs, files):
    table = build(spec("contrasts", margin=0.05), main_runs, files)
    assert [" & ".join(row) for row in rows_of(table)] == [
        r"\multirow{4}{*}{\shortstack[l]{Digits\strut\\[-3pt]$\alpha=0.1$\strut}} & FP32 & 80.00$\pm$1.50 & -- & -- & "
        r"\textbf{82.00} & \textbf{79.00} & \textbf{75.00} & -- & 0 of 5",
        r" & Q-LocalAdam & \textbf{80.25$\pm$1.25} & $+0.25$ [$-0.37$, $+0.87$] & [$-0.60$, $+1.10$] & "
        r"79.50 & 76.50 & 72.50 & 4 & 0 of 5",
        r" & Naive INT8 & 11.50$\pm$2.00 & $-68.50$ [$-71.00$, $-66.00$] & [$-72.50$, $-64.50$] & "
        r"14.50 & 11.50 & 7.50 & 3 & 5 of 5",
        r" & Q-LocalAdam, 4 bits & 78.01$\pm$3.50 & $-1.99$ [$-7.00$, $+3.00$] & [$-9.00$, $+5.00$] & "
        r"80.00 & 77.00 & 73.00 & $\infty$ & 1 of 5",
        r"\multirow{2}{*}{\shortstack[l]{Digit pairs\strut\\[-3pt]$\alpha=0.5$\strut}} & FP32 & 60.00 & -- & -- & "
        "62.00 & 59.00 & 55.00 & -- & 0 of 1",
        r" & Q-LocalAdam & \textbf{61.00} & -- & -- & \textbf{63.00} & \textbf{60.00} & \textbf{56.00} & -- & 0 of 1",
    ]
    said = notes_of(table)
    assert "Exploratory: intervals, and no verdicts. Differences to FP32 over the last third of the rounds" in said
    assert "hold for all arms of a data set together (Bonferroni)" in said
    assert "because a run collapsed: Naive INT8 and Q-LocalAdam, 4 bits." in said
    assert "for want of a run of the baseline or of an accuracy: Digits: Naive INT8, seed 6." in said
    assert "Scatter more" not in said
    assert r"equivalence within 5\,\% of the baseline" in said
    assert "-- one seed: nothing to test (Digit pairs: Q-LocalAdam)." in said


def test_contrasts_name_arms_that_scatter_more_than_the_others(main_runs, files, tmp_path):
    (tmp_path / "contrasts.csv").write_text(CONTRASTS.replace("pooled,0.5", "pooled,0.04"))
    table = build(spec("contrasts", margin=0.05), main_runs, {**files, "contrasts": tmp_path / "contrasts.csv"})
    assert "($F$-test, $p<0.05$), so that intervals may be too narrow: Digits: Q-LocalAdam." in notes_of(table)


def test_contrasts_keep_every_digit_of_every_metric(main_runs, files):
    data = build(spec("contrasts", margin=0.05), main_runs, files).csv()
    assert data == CONTRASTS


@pytest.fixture
def seed_runs(runs):
    cells = [("cifar10", "0.5", "fp32"), ("cifar10", "0.5", "q-localadam")]
    cells += [("cifar100", "0.1", arm) for arm in ("fp32", "q-localadam", "naive-int8")]
    return runs(
        *(
            {"dataset": dataset, "alpha": alpha, "arm": arm, "seed": seed, "best": 50, "final": 40}
            for dataset, alpha, arm in cells
            for seed in ((1,) if arm == "naive-int8" else (1, 2, 3))
        )
    )


ALIKE = ("5.71", "40.00", "4.50")
"""Over the last 7 of 20 rounds, in the last, and over all, with 50 % in one and 40 % in the last."""


def test_significance_shows_tests_and_says_why_one_is_missing(seed_runs, files):
    table = build(spec("significance"), seed_runs, files)
    first, *others = rows_of(table)
    assert first == [
        r"\multirow{2}{*}{\shortstack[l]{Digits\strut\\[-3pt]$\alpha=0.5$\strut}}",
        *("FP32", r"86.93$\pm$0.73", "--", "--", "--", *ALIKE, "50.35"),
    ]
    interval = "$+0.11$ [$-1.12$, $+1.34$]"
    assert others[0][1:] == [
        "Q-LocalAdam",
        r"\textbf{87.04$\pm$0.24}",
        interval,
        "0.820",
        "0.830",
        *ALIKE,
        r"\textbf{14.95}",
    ]
    assert others[2][4:6] == ["0.002", "0.034"]
    assert others[3][1:] == ["Naive INT8", "1.50", "$-53.49$", "--", "--", *ALIKE, "26.67"]
    assert "Exploratory: intervals, and no verdicts." in notes_of(table)
    assert table.notes[-1] == r"-- one seed: 100 \% of a\_b (Digit pairs: Naive INT8)."
    assert "seeds 1, 2 and 3." in table.caption


def test_significance_csv_joins_tests_and_runs(seed_runs, files):
    row = csv_of(build(spec("significance"), seed_runs, files)).iloc[3]
    assert (row["arm"], row["alpha"], row["p"], row["welch_ci_high"]) == ("q-localadam", "0.1", 0.0019, 9.3)
    assert (row["best_round"], row["final"], row["paper_held_bytes"], row["difference"]) == (
        "7 7 7",
        40,
        25262584,
        6.41,
    )


def test_significance_shows_only_what_is_selected(seed_runs, files):
    table = build(spec("significance"), seed_runs[seed_runs["dataset"] == "cifar10"], files)
    assert [row[1] for row in rows_of(table)] == ["FP32", "Q-LocalAdam"]


def test_tiny_p_values_are_not_zero(seed_runs, files, tmp_path):
    (tmp_path / "significance.csv").write_text(SIGNIFICANCE.replace("0.0019", "1e-7"))
    table = build(spec("significance"), seed_runs, {**files, "significance": tmp_path / "significance.csv"})
    assert rows_of(table)[3][4] == "$<$0.001"


def test_scaling_has_the_published_digits(files):
    table = build(spec("scaling"), None, files)
    assert rows_of(table) == [
        ["10M", "76.3", "21.5", r"3.56$\times$", "22.6", r"3.37$\times$"],
        ["100M", "762.9", "214.6", r"3.56$\times$", "226.5", r"3.37$\times$"],
        ["1B", "7,629", "2,146", r"3.56$\times$", "2,265", r"3.37$\times$"],
        ["10B", "76,294", "21,458", r"3.56$\times$", "22,650", r"3.37$\times$"],
    ]
    assert table.caption.startswith("Words. At the paper's own size whatever the scale")
    assert csv_of(table)["held_ratio"].tolist() == [8 / 2.25] * 4


def test_a_client_holds_more_than_states(files):
    where = {"dataset": "cifar10", "arm": ["fp32", "q-localadam"]}
    table = build(spec("client_memory", where=where), None, files)
    assert rows_of(table) == [
        [r"\multirow{2}{*}{CIFAR-10}", "FP32", "1,074.3", "25.2", "25.2", "50.4", "1,175.0", "0.0", "0.0"],
        ["", "Q-LocalAdam", "1,074.3", "25.2", "25.2", "15.0", "1,139.6", "3.0", "28.8"],
    ]
    assert r"with 64 images of $224\times224$" in table.caption
    assert csv_of(table)["image_size"].tolist() == [224, 224, 32, 32]


def test_data_distribution_has_every_published_cell(files):
    table = build(spec("data_distribution_summary"), None, files)
    cells = [[cell.replace(r"\rlap{$^{r}$}", "") for cell in row[1:]] for row in rows_of(table)]
    assert cells == [
        ["0.1", "65.7", r"6.6$\times$", "3,204", "Extreme"],
        ["0.5", "42.6", r"4.3$\times$", "2,101", "High"],
        ["1.0", "26.8", r"2.7$\times$", "936", "Moderate"],
        ["IID", "10.6", r"1.1$\times$", "0", "Balanced"],
        ["0.1", "10.4", r"10.4$\times$", "1,309", "Extreme"],
        ["0.5", "5.5", r"5.5$\times$", "410", "High"],
        ["1.0", "4.5", r"4.5$\times$", "455", "Moderate"],
        ["IID", "1.4", r"1.4$\times$", "0", "Balanced"],
    ]
    assert [row[0] for row in rows_of(table)][::4] == [r"\multirow{4}{*}{CIFAR-10}", r"\multirow{4}{*}{CIFAR-100}"]


def test_data_distribution_says_where_the_published_average_rounds_otherwise(files):
    table = build(spec("data_distribution"), None, files)
    assert len(rows_of(table)[0]) == 5
    assert [row[2] for row in rows_of(table) if "rlap" in row[2]] == [r"4.5\rlap{$^{r}$}"]
    assert notes_of(table).endswith(r"exactly it would be CIFAR-100, $\alpha=1.0$: 4.6\,\%.")
    assert csv_of(table)["dominant_percent"][6] == pytest.approx(4.5603493927685355, abs=0)


def test_where_selects_rows_of_an_analysis(files):
    only = build(spec("data_distribution", where={"dataset": "cifar10", "alpha": [1.0, "iid"]}), None, files)
    assert [row[1:3] for row in rows_of(only)] == [["1.0", "26.8"], ["IID", "10.6"]]
    assert only.notes == []
    with pytest.raises(ValueError, match=r"table t_1: where .*'svhn'.* selects no row of"):
        build(spec("clients", where={"dataset": "svhn"}), None, files)
    with pytest.raises(ValueError, match=r"table t_1: where must be one of parameters, .*, got 'dataset'"):
        build(spec("scaling", where={"dataset": "cifar10"}), None, files)


def test_clients_have_names_only_in_cifar10(files):
    ten = rows_of(build(spec("clients", where={"dataset": "cifar10"}), None, files))
    assert ten[0] == ["0.1", "C0", "9,348", "3 (Cat)", "37.3"]
    assert ten[7] == ["", "C7", "1,590", "1 (Automobile)", "93.6"]
    assert ten[30] == ["IID", "C0", "5,000", "2 (Bird)", "10.5"]
    hundred = rows_of(build(spec("clients", where={"dataset": "cifar100"}), None, files))
    assert hundred[4] == ["", "C4", "2,653", "29", "18.4"]
    assert len(ten) == len(hundred) == 40


def test_clients_of_two_data_sets_and_a_client_without_samples(files, tmp_path):
    path = tmp_path / "clients.csv"
    head = "dataset,alpha,client,samples,dominant,dominant_name,dominant_percent,classes"
    path.write_text(f"{head}\ncifar10,0.1,0,0,,,,0\nown,0.1,0,7,1,,57.14285714285714,2\n")
    table = build(spec("clients"), None, {**files, "clients": path})
    assert rows_of(table) == [
        [r"\shortstack[l]{CIFAR-10\strut\\[-3pt]$\alpha=0.1$\strut}", "C0", "0", "--", "--"],
        [r"\shortstack[l]{own\strut\\[-3pt]$\alpha=0.1$\strut}", "C0", "7", "1", "57.1"],
    ]
    assert table.csv() == path.read_text()


def test_a_table_is_as_wide_as_it_has_to_be(runs, files):
    made = runs({"arm": "fp32", "best": 80}, {"arm": "q-localadam", "best": 81})

    def shape(columns, arm):
        entry = arms_table(columns=columns, labels={"dataset": {"cifar10": "Digit pairs"}, "arm": {"fp32": arm}})
        latex = build(entry, made, files).latex()
        return r"\begin{table*}" in latex, "shortstack" in latex

    assert shape(["best"], "FP32") == (False, False)
    assert shape(["best", "memory"], "FP32") == (False, True)
    assert shape(["best", "final", "memory"], "An arm with a very long name") == (True, False)


def test_every_table_of_runs_shows_all_four_accuracies(main_runs, seed_runs, files):
    config = yaml.safe_load((Path(__file__).parents[3] / "config.yaml").read_text())
    made = {"runs": main_runs, "side_by_side": main_runs, "significance": seed_runs, "contrasts": main_runs}
    names = {"runs": "Last third.*Best.*Final.*All", "side_by_side": "Last third.*Best.*Final.*All"}
    names |= {"significance": "Best.*Last.*third.*Final.*All", "contrasts": "Last third.*Best.*Final.*All"}
    tables = [entry for entry in config["tables"].values() if entry["kind"] in made]
    assert {entry["kind"] for entry in tables} == set(made)
    assert {entry["kind"] for entry in config["tables"].values() if "experiments" in entry} == {*made, "registered"}
    for entry in tables:
        asked = spec(**{**entry, "name": "t_1", "where": {}, "rows": "arm" if entry["kind"] == "runs" else "alpha"})
        table = build(asked, made[entry["kind"]], files)
        heads = " ".join(f"{column.over or ''} {column.head}" for column in table.columns)
        assert re.search(names[entry["kind"]], heads), entry
        assert {"last_third", "best", "final", "mean"} <= {*table.data, *table.data.get("metric", ())}


def test_words():
    assert escape(r"50 % of a_b & {c} #1 $x^2$ ~ \ <>|") == (
        r"50 \% of a\_b \& \{c\} \#1 \$x\textasciicircum{}2\$ $\sim$ \textbackslash{} "
        r"\textless{}\textgreater{}\textbar{}"
    )
    assert escape("10^6 bytes, 2^20, ~10^-3") == (
        r"10\textsuperscript{6} bytes, 2\textsuperscript{20}, $\sim$10\textsuperscript{-3}"
    ), "no sign is set as an accent"
    assert [listed(list(words)) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
    assert [power_of_ten(lr) for lr in (1.0, 0.0025, 3e-5)] == ["$10^{0}$", r"$2.5\times10^{-3}$", r"$3\times10^{-5}$"]


@pytest.mark.skipif(shutil.which("latexmk") is None, reason="latexmk is not installed")
def test_every_kind_compiles_and_fits_the_paper(main_runs, seed_runs, files, tmp_path):
    two_arms = main_runs[main_runs["arm"] != "naive-int8"]
    runs_of = {"runs": main_runs, "side_by_side": two_arms, "significance": seed_runs, "contrasts": main_runs}
    entry = {"rows": "arm", "columns": ["best", "memory"], "caption": "50 % of a_b & c", "where": {}, "margin": 0.05}
    apart = ("registered", "clients", "step_errors", "variance", "released", "model_size", "microscope")
    specs = [spec(kind, **{**entry, "name": kind}) for kind in shown_as("tables") if kind not in apart]
    specs += [spec("registered", name="registered", labels=ALL_LABELS)]
    specs += [spec("released", name=part, part=part) for part in released.PARTS]
    specs += [spec("clients", name=name, where={"dataset": name}) for name in STANDS_FOR]
    specs += [arms_table(name="wide", columns=["best", "final", "difference", "memory"])]
    specs += [spec("step_errors", name="steps", where={"dataset": list(STANDS_FOR), "arm": list(LABELS["arm"])})]
    specs += [spec("variance", name="variance", where={"dataset": list(STANDS_FOR)})]
    files = {**files, "released": Path(__file__).parents[3] / released.SOURCE}
    made = {one["name"]: build(one, runs_of.get(one["kind"]), files) for one in specs}
    for name, table in made.items():
        (tmp_path / f"{name}.tex").write_text(table.latex())
    breaking = [name for name, table in made.items() if table.breaks]
    assert set(released.PARTS) <= set(breaking) < set(made)
    (tmp_path / "all.tex").write_text(
        r"\documentclass[twocolumn]{article}\usepackage[textwidth=7in,textheight=9in]{geometry}"
        r"\setlength{\columnsep}{0.4in}\usepackage{booktabs,multirow,longtable}\begin{document}"
        + "".join(rf"\input{{{one['name']}}}\clearpage" for one in specs if one["name"] not in breaking)
        + r"\onecolumn"
        + "".join(rf"\input{{{one['name']}}}\clearpage" for one in specs if one["name"] in breaking)
        + r"\end{document}"
    )
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:]
    log = (tmp_path / "all.log").read_text(errors="replace")
    assert [float(points) for points in re.findall(r"Overfull \\[hv]box \(([\d.]+)pt", log) if float(points) > 5] == []
    assert "Float too large" not in log
