"""The results that are kept: the same bytes again, every round to the letter, and what is said of one's own runs."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import shutil
import statistics
from pathlib import Path

import pandas as pd
import pytest
from projects import ROOT, RUN, TEST, Project
from scipy import stats

from qlocaladam.cli import main
from qlocaladam.experiments.grid import AXES_OF_TRAINING
from qlocaladam.federated import record
from qlocaladam.report import reference
from qlocaladam.report.reference import (
    AGREES,
    DIFFERS,
    EARLIER,
    IDENTICAL,
    MISSING,
    OTHER,
    UNDECIDED,
    Spread,
    describe,
    spreads,
    summary,
    verify,
)
from qlocaladam.results.layout import Layout

SEEDS = ("cifar10", "0.5", "fp32")
"""Data, alpha and arm of three runs that differ in their seed alone."""


def folders(results: Path) -> list[Path]:
    return sorted(path.parent for path in results.glob("runs/**/summary.json"))


def collect(results: Path, out: Path, *, of: slice = slice(None)) -> None:
    reference.write(out, folders(results)[of], results / "claims.csv", sorted(results.glob("tables/*.csv")))


@pytest.fixture(scope="module")
def results(finished):
    return finished.folder / "results/test"


@pytest.fixture(scope="module")
def root(results, tmp_path_factory):
    """A folder with a reference of the test scale."""
    folder = tmp_path_factory.mktemp("reference")
    collect(results, folder / "test")
    return folder


@pytest.fixture
def kept(root):
    return reference.read(root, "test")


def kind(frame: pd.DataFrame, dataset: str, alpha: str, arm: str) -> pd.Series:
    return (frame["dataset"] == dataset) & (frame["alpha"] == alpha) & (frame["arm"] == arm)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What is kept.


def test_collected_twice_it_has_the_same_bytes_and_no_path_of_the_machine(finished, results, root, tmp_path):
    collect(results, tmp_path / "again")
    first, again = contents(root / "test"), contents(tmp_path / "again")
    assert first == again
    tables = {f"tables/{path.name}" for path in results.glob("tables/*.csv")}
    assert len(tables) == len(Layout.load([ROOT / "config.yaml"], ["scale=test"]).tables)
    assert first.keys() == {"runs.csv", "histories.csv.gz", "claims.csv", *tables}
    for name in ("claims.csv", *tables):
        assert first[name] == (results / name).read_bytes()
    plain = first | {"histories.csv.gz": gzip.decompress(first["histories.csv.gz"])}
    assert not [name for name, content in plain.items() if str(finished.folder.parent).encode() in content]
    assert sum(map(len, first.values())) < 300_000


def test_one_row_a_run_says_what_it_was_and_what_came_out(finished, root):
    table = pd.read_csv(root / "test/runs.csv", dtype={"alpha": str})
    assert len(table) == 41
    assert tuple(table.columns) == reference.COLUMNS
    folder = (finished.folder / RUN.format(arm="q-localadam")).parent
    row = table[table["run"] == "cifar10/0.1/q-localadam/64/0.001/42"].iloc[0]
    ended, made = (json.loads((folder / f"{name}.json").read_text()) for name in ("summary", "settings"))
    assert (row["best"], row["final"]) == (ended["best_accuracy"], ended["final_accuracy"])
    assert (row["held_bytes"], row["published_bytes"]) == tuple(ended["optimizer_bytes"].values())
    assert row["history_sha256"] == hashlib.sha256((folder / "history.csv").read_bytes()).hexdigest()
    assert row["partition_sha256"] == made["partition"]["sha256"]
    assert row["dataset_sha256"] == made["dataset"]["sha256"]
    assert row["torch"] == made["versions"]["torch"]
    assert (row["rounds"], row["width"], row["image_size"], row["flip"]) == (2, 4, 40, False)
    assert (row["data"], row["training_images"], row["test_images"]) == ("digits", 300, 100)
    assert row["seconds"] == round(pd.read_csv(folder / "timings.csv")["seconds"].sum(), 1)


def test_every_setting_that_decides_the_numbers_of_a_run_is_kept():
    from qlocaladam.federated.settings import RunSettings

    elsewhere = {"arm": "optimizer", "optimizer": "options", "lr": "lr", "seed": "seed", "device": "device"}
    names = {elsewhere.get(name, name) for name in RunSettings.__dataclass_fields__}
    assert names <= {*reference.SETTINGS, *AXES_OF_TRAINING, "lr", "seed", "device"}


def test_every_history_comes_back_to_the_letter(root, results):
    packed = (root / "test/histories.csv.gz").read_bytes()
    assert packed[3] == 0, "a gzip file without a name"
    assert packed[4:8] == bytes(4), "and without a date"
    header, *lines = gzip.decompress(packed).decode().splitlines()
    assert header == "run,round,accuracy,test_loss,train_loss,images,clients,finite_clients"
    assert len(lines) == 41 * 2
    for run in pd.read_csv(root / "test/runs.csv").to_dict("records"):
        own = [line.partition(",")[2] for line in lines if line.startswith(f"{run['run']},")]
        text = "\n".join([header.partition(",")[2], *own]) + "\n"
        assert hashlib.sha256(text.encode()).hexdigest() == run["history_sha256"]


def test_tables_of_an_earlier_reference_go(results, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/gone.csv").touch()
    collect(results, tmp_path, of=slice(1))
    assert not (tmp_path / "tables/gone.csv").exists()
    assert (tmp_path / "tables/main.csv").exists()


def test_histories_of_two_forms_do_not_become_one_table(results, tmp_path):
    for number, folder in enumerate(folders(results)[:2]):
        shutil.copytree(folder, tmp_path / "runs" / folder.relative_to(results / "runs"))
        if number:
            change_history(tmp_path / "runs" / folder.relative_to(results / "runs"), "round,", "turn,")
    with pytest.raises(
        ValueError, match=r"history\.csv has the columns turn,accuracy,.*; those of other runs are round,"
    ):
        reference.write(tmp_path / "out", folders(tmp_path), results / "claims.csv", [])
    assert not (tmp_path / "out").exists()


def change_history(folder: Path, old: str, new: str) -> None:
    """Another history, which the run's summary knows."""
    text = (folder / "history.csv").read_text()
    assert old in text
    (folder / "history.csv").write_text(text.replace(old, new, 1))
    summarise(folder)


def summarise(folder: Path) -> None:
    """Make the summary anew, as if the run had written what is there."""
    ended, made = (json.loads((folder / name).read_text()) for name in ("summary.json", "settings.json"))
    ended = record._summarise(made, (folder / "history.csv").read_bytes(), ended)
    (folder / "summary.json").write_text(json.dumps(ended))


def test_without_runs_there_is_no_reference(tmp_path):
    with pytest.raises(ValueError, match="a reference needs training runs, got none"):
        describe([])


# How far seeds spread.


def grid(*runs: tuple[str, str, int, float], final: float = 90.0, diverged: bool = False) -> pd.DataFrame:
    """A reference of data set, arm, seed and best accuracy."""
    frame = pd.DataFrame(runs, columns=["dataset", "arm", "seed", "best"])
    return frame.assign(alpha="0.1", block_size="64", lr="0.001", final=final, classes=10, diverged=str(diverged))


def test_three_seeds_of_a_kind_say_themselves_how_far_they_spread():
    best = [60.0, 61.0, 64.0]
    frame = grid(*(("cifar10", "fp32", seed, value) for seed, value in enumerate(best)), ("cifar10", "other", 0, 1.0))
    low, high = stats.t.interval(0.95, 2, loc=statistics.mean(best), scale=statistics.stdev(best) * math.sqrt(4 / 3))
    for spread in spreads(frame)[:3]:
        assert spread[:2] == pytest.approx((low, high), rel=1e-12)
        assert spread[2:] == (pytest.approx(statistics.stdev(best)), 2, "own seeds")


def test_fewer_seeds_have_the_deviation_that_is_pooled_over_those_on_the_same_data():
    frame = grid(
        *(("cifar10", "a", seed, best) for seed, best in enumerate([60.0, 61.0, 64.0])),
        *(("cifar10", "b", seed, best) for seed, best in enumerate([50.0, 52.0])),
        ("cifar10", "c", 0, 70.0),
        *(("cifar100", "a", seed, best) for seed, best in enumerate([10.0, 30.0])),
    )
    found = spreads(frame)
    deviation = math.sqrt((2 * statistics.variance([60, 61, 64]) + statistics.variance([50, 52])) / 3)
    for place, mean, n in ((3, 51.0, 2), (4, 51.0, 2), (5, 70.0, 1)):
        low, high = stats.t.interval(0.95, 3, loc=mean, scale=deviation * math.sqrt(1 + 1 / n))
        assert found[place] == Spread(pytest.approx(low), pytest.approx(high), pytest.approx(deviation), 3, "pooled")
    assert found[6].freedom == 1, "cifar100 knows nothing of cifar10"
    assert found[6].deviation == pytest.approx(statistics.stdev([10, 30]))


@pytest.mark.parametrize("lost", [{"final": 19.9}, {"diverged": True}])
def test_seeds_that_collapsed_or_diverged_do_not_count_for_others(lost):
    one = grid(("cifar10", "c", 0, 70.0))
    pair = [("cifar10", "a", seed, best) for seed, best in enumerate([60.0, 62.0])]
    assert spreads(pd.concat([grid(*pair), one], ignore_index=True))[2].freedom == 1
    assert spreads(pd.concat([grid(*pair, **lost), one], ignore_index=True))[2].spread == "unknown"


def test_one_seed_of_everything_says_nothing_about_spread():
    found = spreads(grid(("cifar10", "a", 0, 60.0), ("cifar10", "b", 0, 61.0)))
    assert [(spread.spread, spread.freedom, math.isnan(spread.low)) for spread in found] == [("unknown", 0, True)] * 2


def test_seeds_that_all_agree_take_the_deviation_of_others():
    equal = [("cifar10", "a", seed, 10.0) for seed in range(3)]
    assert {spread.spread for spread in spreads(grid(*equal))} == {"unknown"}
    found = spreads(grid(*equal, ("cifar10", "b", 0, 60.0), ("cifar10", "b", 1, 62.0)))
    assert (found[0].spread, found[0].freedom) == ("pooled", 3), "where they count as seeds that do not differ"
    half = stats.t.ppf(0.975, 3) * math.sqrt(2 / 3) * math.sqrt(4 / 3)
    assert found[0][:2] == pytest.approx((10 - half, 10 + half))


# The comparison.


def test_results_are_identical_to_the_reference_made_of_them(finished, root, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(finished.folder)
    written = [f"--csv={tmp_path / 'verify.csv'}", f"--text={tmp_path / 'verify.txt'}"]
    assert main(["reference", "verify", "--scale=test", f"--reference={root}", *written]) == 0
    said = capsys.readouterr().out
    assert said == "41 runs of the reference, scale test:\n   41 identical: the same bytes\n"
    assert (tmp_path / "verify.txt").read_text() == said
    table = pd.read_csv(tmp_path / "verify.csv")
    assert table["verdict"].tolist() == [IDENTICAL] * 41
    assert table["difference"].tolist() == [0.0] * 41


def other_seeds(kept: pd.DataFrame, deviations: float, sign: int) -> tuple[pd.DataFrame, str]:
    """A reference of other bytes in which the first run of a kind is as far from what one more run may reach."""
    rows = kept[kind(kept, *SEEDS)]
    assert len(rows) == 3
    own = rows["best"].iloc[0]
    # Three seeds at m - 1, m and m + 1 have the deviation 1.
    half = stats.t.ppf(0.975, 2) * math.sqrt(4 / 3)
    mean = own - sign * (half + deviations)
    kept.loc[rows.index, "best"] = [mean - 1, mean, mean + 1]
    kept.loc[rows.index, "history_sha256"] = "0" * 64
    return kept, rows["run"].iloc[0]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("deviations", "verdict"), [(-1e-6, AGREES), (1e-6, DIFFERS)])
def test_the_seeds_spread_decides_between_agreement_and_difference(kept, results, sign, deviations, verdict):
    changed, run = other_seeds(kept, deviations, sign)
    row = verify(changed, results / "runs").set_index("run").loc[run]
    assert row["verdict"] == verdict
    assert (row["spread"], row["freedom"]) == ("own seeds", 2)
    assert row["deviation"] == pytest.approx(1)
    assert row["difference"] == row["best"] - row["reference_best"]


def test_a_difference_ends_the_command_with_one_line_after_all_is_written(
    finished, kept, tmp_path, monkeypatch, capsys
):
    changed, run = other_seeds(kept, 5.0, 1)
    changed = changed.assign(threads="7")
    (tmp_path / "test").mkdir()
    changed.to_csv(tmp_path / "test/runs.csv", index=False)
    monkeypatch.chdir(finished.folder)
    with pytest.raises(SystemExit) as stopped:
        main(["reference", "verify", "--scale=test", f"--reference={tmp_path}", f"--csv={tmp_path / 'verify.csv'}"])
    count = (pd.read_csv(tmp_path / "verify.csv")["verdict"] == DIFFERS).sum()
    assert count >= 1
    assert stopped.value.code == (
        f"qlocaladam: {count} of 41 runs differ from the reference by more than seeds do, first {run}"
    )
    said = capsys.readouterr().out
    assert f"{count} differs: best accuracy outside of the seeds' spread\n" in said
    assert f"  {run}: best " in said
    assert "(own seeds, 2 degrees of freedom); threads 1, not 7\n" in said
    assert "Chance alone may put one in twenty outside: 0.1 of the 3 judged by spread.\n" in said


def test_without_a_spread_bytes_alone_are_compared(kept, results):
    one = kept[kept["seed"] == "42"].reset_index(drop=True)
    one.loc[0, "history_sha256"] = "0" * 64
    found = verify(one, results / "runs")
    assert found["verdict"].tolist() == [UNDECIDED] + [IDENTICAL] * (len(one) - 1)
    assert set(found["spread"]) == {"unknown"}
    assert "undecided: other bytes, and no seeds of the reference on these data say" in summary(found, "test")


def test_another_setting_is_named_and_nothing_compared(kept, results):
    kept.loc[0, "rounds"] = "3"
    kept.loc[1, "options"] = "block_size=64 variance_floor=0"
    kept.loc[2, "partition_sha256"] = "0" * 64
    kept.loc[3, "torch"] = "1.0"
    found = verify(kept, results / "runs")
    assert found["verdict"].tolist() == [OTHER] * 3 + [IDENTICAL] * 38
    assert found["reason"].tolist()[:2] == [
        "rounds 2, not 3",
        "options block_size=64, not block_size=64 variance_floor=0",
    ]
    assert found["reason"][2].endswith(", not 00000000")
    assert f"other settings:\n  {kept['run'][0]}: rounds 2, not 3\n" in summary(found, "test")


def test_a_reference_of_an_earlier_arithmetic_is_not_compared(kept, results):
    kept["qlocaladam"] = "0.1.0"
    kept["history_sha256"] = "0" * 64
    found = verify(kept, results / "runs")
    assert set(found["verdict"]) == {EARLIER}
    assert "41 earlier arithmetic: one side is older than version 0.2.0" in summary(found, "test")


def test_runs_that_are_not_there_are_named_at_most_ten(kept, tmp_path):
    found = verify(kept, tmp_path)
    assert set(found["verdict"]) == {MISSING}
    said = summary(found, "test")
    assert said.startswith("41 runs of the reference, scale test:\n   41 missing: not trained here\nmissing:\n")
    assert said.endswith(f"  {kept['run'][9]}\n  and 31 more\n")


def test_a_run_that_is_not_finished_is_missing(kept, results, tmp_path):
    for folder in folders(results)[:2]:
        shutil.copytree(folder, tmp_path / folder.relative_to(results / "runs"))
    next(tmp_path.glob("**/summary.json")).unlink()
    assert verify(kept, tmp_path)["verdict"].value_counts().to_dict() == {MISSING: 40, IDENTICAL: 1}


def test_text_has_no_size_of_images_and_is_compared_all_the_same(results, tmp_path):
    """Empty cells stay empty on their way through a file."""
    folder = folders(results)[0]
    own = tmp_path / "runs" / folder.relative_to(results / "runs")
    shutil.copytree(folder, own)
    made = json.loads((own / "settings.json").read_text())
    made["settings"] |= {"image_size": None, "stem": None, "flip": None}
    (own / "settings.json").write_text(json.dumps(made))
    summarise(own)
    reference.write(tmp_path / "kept/text", [own], results / "claims.csv", [])
    kept = reference.read(tmp_path / "kept", "text")
    assert kept.loc[0, ["image_size", "stem", "flip"]].tolist() == [""] * 3
    assert verify(kept, tmp_path / "runs")["verdict"].tolist() == [IDENTICAL]
    assert verify(kept, results / "runs")["reason"].tolist() == [
        "stem 7x7, not none, image_size 40, not none, flip False, not none"
    ]


def test_a_scale_without_a_reference_names_those_that_have_one(root, tmp_path, capsys):
    for folder, found in ((root, "test"), (tmp_path, "none")):
        with pytest.raises(SystemExit) as stopped:
            main(["reference", "verify", "--scale=huge", f"--reference={folder}"])
        assert stopped.value.code == 2
        path = folder / "huge/runs.csv"
        wanted = f"qlocaladam: scale is 'huge', and {path} is not there; scales with a reference: {found}\n"
        assert capsys.readouterr().err == wanted


# The targets of the workflow.


def test_the_reference_is_made_when_asked_for_and_only_then(finished):
    assert "collect_reference" not in finished.planned(*TEST)
    assert finished.planned("verify", *TEST) == {"verify": 1}
    planned = finished.planned("reference", *TEST)
    assert planned.items() >= {"collect_reference": 1, "keep_paper": 1, "reference": 1}.items()
    assert "training_run" not in planned


def test_a_user_compares_own_results_with_the_reference(copy):
    said = copy.snakemake("verify", *TEST, ok=False)
    assert "paper/reference/test/runs.csv is not there; scales with a reference: none" in said

    copy.snakemake("paper/reference/test/runs.csv", *TEST)
    path = copy.folder / "paper/reference/test/runs.csv"
    before = path.read_bytes()
    for _ in range(2):
        assert "41 identical: the same bytes" in copy.snakemake("verify", *TEST), "each time that it is asked for"

    seeds = copy.folder / "results/test/runs/dataset~cifar10/alpha~0.5/arm~fp32/block_size~64/lr~0.001"
    change_history(seeds / "seed~42", "\n1,", "\n1,100")
    shutil.rmtree(seeds / "seed~123")
    assert copy.planned("verify", *TEST)["training_run"] == 1
    said = copy.snakemake("verify", *TEST, "train=false", ok=False)
    wanted = (
        "qlocaladam: 1 of 41 runs differ from the reference by more than seeds do, first cifar10/0.5/fp32/64/0.001/42"
    )
    assert wanted in said
    assert "  39 identical" in said
    assert "missing:\n  cifar10/0.5/fp32/64/0.001/123\n" in said
    kept = pd.read_csv(copy.folder / "results/test/verify.csv")
    assert kept["verdict"].value_counts().to_dict() == {IDENTICAL: 39, DIFFERS: 1, MISSING: 1}
    assert (copy.folder / "results/test/verify.txt").read_text() in said
    assert path.read_bytes() == before


def test_tables_and_figures_are_made_of_the_reference_alone(tmp_path):
    """Without a run of one's own, without training, with the numbers that are kept as CSV; a panel has its own runs."""
    project = Project.fresh(tmp_path / "project")
    shutil.copytree(ROOT / "paper/reference", project.folder / "paper/reference")
    kept = project.folder / "paper/reference/quick"
    tables = ("main", "c10-het", "multiseed")
    targets = [f"paper/generated/reference/quick/tables/{name}.tex" for name in tables]
    drawn = "figures/reference/quick/convergence_cifar10.png"
    asked = (*targets, drawn, "--config", "reference=true")
    assert not project.planned(*asked).keys() & {"training_run", "partition", "prepare"}
    assert "Cyclic" not in project.snakemake(*asked)
    assert (project.folder / drawn).exists()
    for name in tables:
        own, old = (
            pd.read_csv(path, dtype=str, keep_default_na=False).set_index(["dataset", "alpha", "arm"])["best"]
            for path in (project.folder / f"results/reference/quick/tables/{name}.csv", kept / f"tables/{name}.csv")
        )
        assert own.equals(old), name
    text = (project.folder / targets[0]).read_text()
    assert r"Scale \emph{quick, as kept in paper/reference}: Digits (1,437 training" in text

    rows = pd.read_csv(kept / "runs.csv", dtype=str, keep_default_na=False)
    rows.loc[rows["run"] == "cifar10/0.1/fp32/64/0.001/42", "best"] = "99.0"
    rows.to_csv(kept / "runs.csv", index=False)
    said = project.snakemake(*asked, ok=False)
    assert "runs.csv: cifar10/0.1/fp32/64/0.001/42: best and final are 99.0 and " in said
    said = project.snakemake("tables", "--config", "reference=true", "scale=paper", ok=False)
    assert "reference is True, and paper/reference/paper/runs.csv is not there" in said


@pytest.mark.parametrize("older", ["own", "kept"])
def test_who_comes_with_older_results_is_told_what_changed(older):
    versions = {"own": "0.2.0", "kept": "0.2.0", older: "0.1.0"}
    own, kept = ({**dict.fromkeys(reference.COLUMNS, ""), "qlocaladam": versions[side]} for side in ("own", "kept"))
    verdict, reason = reference._verdict(own, kept, reference.Spread())
    assert (verdict, reason) == (EARLIER, f"qlocaladam {versions['own']}, not {versions['kept']}")
    said = reference.summary(pd.DataFrame([{"run": "a", "verdict": verdict, "reason": reason}]), "quick")
    assert "What changed in version 0.2.0 (CHANGELOG.md):\n  the paper's arms compute what its released code" in said
    for verdict, reason in ((IDENTICAL, ""), (OTHER, "rounds 2, not 3")):
        said = reference.summary(pd.DataFrame([{"run": "a", "verdict": verdict, "reason": reason}]), "quick")
        assert "What changed" not in said


def test_runs_of_an_earlier_version_are_told_apart_by_that_alone(kept, results, tmp_path):
    """Their files have not what is read of a run now, as those of 0.1.0: no seal, no hash of the settings."""
    for folder in folders(results)[:2]:
        shutil.copytree(folder, tmp_path / folder.relative_to(results))
    old = folders(tmp_path)[0]
    made, summarised = (json.loads((old / name).read_text()) for name in ("settings.json", "summary.json"))
    made["versions"]["qlocaladam"] = "0.1.0"
    later = ("last_third_accuracy", "mean_accuracy", "settings_sha256", "sha256")
    (old / "settings.json").write_text(json.dumps(made))
    (old / "summary.json").write_text(json.dumps({k: v for k, v in summarised.items() if k not in later}))
    found = verify(kept, tmp_path / "runs")
    assert found["verdict"].value_counts().to_dict() == {MISSING: 39, EARLIER: 1, IDENTICAL: 1}
    assert found.loc[found["verdict"] == EARLIER, "reason"].tolist() == ["qlocaladam 0.1.0, not 0.2.0"]
    assert "What changed in version 0.2.0" in summary(found, "test")
