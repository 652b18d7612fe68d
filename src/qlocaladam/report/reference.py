"""Results that are kept in git, and whether one's own agree with them.

A reference is one row a run, every round of every run, the ledger and the tables. Collected again from the same results
it has the same bytes. Trained again, `seconds` differs: it is a measurement, and the only one.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pandas as pd
import scipy  # its parts are loaded when they are used: who only shows results needs none

from qlocaladam import ARITHMETIC_SINCE
from qlocaladam.experiments.grid import AS_IN_THE_PAPER, GRID, run_name, short_name
from qlocaladam.experiments.runs import collapsed, read_runs
from qlocaladam.federated.record import read_json
from qlocaladam.files import table_rows, table_text, write_whole

SETTINGS = (
    *("data", "training_images", "test_images", "classes", "partition_sha256", "optimizer", "options"),
    *("rounds", "epochs", "batch_size", "width", "stem", "image_size", "flip", "precision"),
)
"""What has to be equal before results are compared."""
RESULTS = (
    *("parameters", "best", "best_round", "final", "last_third", "mean", "diverged", "held_bytes", "published_bytes"),
    "history_sha256",
)
MADE_WITH = (
    *("dataset_sha256", "device", "qlocaladam", "torch", "numpy", "python", "cpu_capability", "threads", "kernel"),
)
"""What may differ, and bytes with it."""
COLUMNS = ("run", *GRID, *SETTINGS, *RESULTS, *MADE_WITH, "seconds")

IDENTICAL = "identical"
AGREES = "agrees"
DIFFERS = "differs"
UNDECIDED = "undecided"
OTHER = "other settings"
EARLIER = "earlier arithmetic"
MISSING = "missing"
MEANINGS = {
    IDENTICAL: "the same bytes",
    AGREES: "best accuracy within the seeds' spread",
    DIFFERS: "best accuracy outside of the seeds' spread",
    UNDECIDED: "other bytes, and no seeds of the reference on these data say how far they spread",
    OTHER: "trained otherwise, so there is nothing to compare",
    EARLIER: f"one side is older than version {ARITHMETIC_SINCE}, since which the arms compute otherwise",
    MISSING: "not trained here",
}
CHANGED = (
    "the paper's arms compute what its released code computes: no floor in a client's first step, padded last blocks",
    "normalised arms have an exact zero and round stochastically",
    "scales are larger, so that every weight has a gradient: quick at 40x40, small at 48x48 with 30 rounds",
    "arms are judged over the last third of the rounds by one model of arm and seed, with margins relative to FP32",
    "the ledger judges over all seeds by two tests that must agree, a claim with a margin only by what is beyond it",
)
"""What those should know who come with older results; CHANGELOG.md has all of it."""
CONFIDENCE = 0.95
SHOWN = 10
"""Runs of a verdict that are listed; verify.csv has them all."""

Row = Mapping[str, Any]


# What is kept.


def describe(folders: Iterable[Path], asked: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """One row a run: its name, what it was, what came out, what it was made with, and the folder."""
    runs = read_runs(folders, asked)
    if runs.empty:
        raise ValueError("runs: a reference needs training runs, got none")
    names = [short_name(run) for run in table_rows(runs)]
    made = pd.DataFrame([_made(Path(path)) for path in runs["folder"]])
    return pd.concat([runs.assign(run=names), made], axis=1)


def _made(folder: Path) -> dict[str, Any]:
    made = json.loads((folder / "settings.json").read_text())
    settings, options = made["settings"], made["settings"]["optimizer"]
    return {
        **{name: settings[name] for name in ("stem", "flip", "precision", "device")},
        "optimizer": settings["arm"],
        "options": " ".join(f"{name}={options[name]}" for name in sorted(options)),
        **{f"{name}_sha256": made[name]["sha256"] for name in ("dataset", "partition")},
        **made["versions"],
    }


def write(
    out: Path,
    folders: Iterable[Path],
    claims: Path,
    tables: Iterable[Path],
    asked: Mapping[str, Any] | None = None,
) -> None:
    """Write runs.csv, histories.csv.gz, claims.csv and tables/. Tables of an earlier reference that are no more go."""
    runs = describe(folders, asked)
    runs["seconds"] = [round(pd.read_csv(Path(path, "timings.csv"))["seconds"].sum(), 1) for path in runs["folder"]]
    rounds = _histories(runs)
    kept = {"runs.csv": table_text(runs[list(COLUMNS)]).encode(), "claims.csv": claims.read_bytes()}
    kept |= {f"tables/{table.name}": table.read_bytes() for table in tables}
    for old in set(out.glob("tables/*.csv")) - {out / name for name in kept}:
        old.unlink()
    write_whole(out / "histories.csv.gz", lambda file: _compress(rounds, file))
    for name, content in kept.items():
        write_whole(out / name, methodcaller("write", content))


def _histories(runs: pd.DataFrame) -> str:
    """Every round of every run: the run's name, then a line of its history.csv to the letter, so that hashes hold."""
    header, lines = "", []
    for name, folder in zip(runs["run"], runs["folder"], strict=True):
        first, *rounds = Path(folder, "history.csv").read_text().splitlines()
        header = header or first
        if first != header:
            raise ValueError(f"{folder}/history.csv has the columns {first}; those of other runs are {header}")
        lines += [f"{name},{line}" for line in rounds]
    return "\n".join([f"run,{header}", *lines]) + "\n"


def _compress(text: str, file: BinaryIO) -> None:
    """Without a date and a name, which would make other bytes every time."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(text.encode())


# What it is compared with.


def read(root: Path, scale: str) -> pd.DataFrame:
    """The runs of a scale's reference."""
    path = root / scale / "runs.csv"
    if not path.exists():
        scales = ", ".join(sorted(path.parent.name for path in root.glob("*/runs.csv")))
        raise ValueError(f"scale is {scale!r}, and {path} is not there; scales with a reference: {scales or 'none'}")
    return _parse(path)


def _parse(source: Path | io.StringIO) -> pd.DataFrame:
    """Words as they are written, so that settings are compared to the letter; nothing where a reference is older than
    a column."""
    words = pd.read_csv(source, dtype=str, keep_default_na=False)
    words = words.reindex(columns=[*words, *(name for name in COLUMNS if name not in words)], fill_value="")
    for name, usual in AS_IN_THE_PAPER.items():
        words[name] = words[name].replace("", usual)
    return words.astype({"best": float, "final": float, "classes": int})


class Spread(NamedTuple):
    """Where one more run would come out, with a confidence of 95 %, and what says so."""

    low: float = math.nan
    high: float = math.nan
    deviation: float = math.nan
    freedom: int = 0
    spread: str = "unknown"


def spreads(reference: pd.DataFrame) -> list[Spread]:
    """For each run, the prediction interval of best accuracy for one more of its kind: the same but for the seed.

    Three seeds or more of a kind say themselves how far they spread, unless all came out the same. For the others the
    deviation is pooled over all kinds on the same data that have several seeds, none of which collapsed.
    """
    by_run: dict[int, Spread] = {}
    for _, on_data in reference.groupby("dataset"):
        kinds = [kind for _, kind in on_data.groupby([name for name in GRID[:-1] if name in on_data])]
        pooled = _pooled(kinds)
        for kind in kinds:
            by_run |= dict.fromkeys(kind.index, _spread(kind["best"].tolist(), pooled))
    return [by_run[place] for place in reference.index]


def _spread(best: Sequence[float], pooled: tuple[float, int]) -> Spread:
    """Where seeds do not differ, their deviation of 0 would let nothing else pass."""
    own = len(best) > 2 and len(set(best)) > 1
    deviation, freedom = (statistics.stdev(best), len(best) - 1) if own else pooled
    if not freedom:
        return Spread()
    mean = statistics.mean(best)
    half = float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * deviation * math.sqrt(1 + 1 / len(best))
    return Spread(mean - half, mean + half, deviation, freedom, "own seeds" if own else "pooled")


def _pooled(kinds: Iterable[pd.DataFrame]) -> tuple[float, int]:
    """The deviation and its degrees of freedom; 0 of them where no seeds differ."""
    sound = [
        kind["best"].tolist()
        for kind in kinds
        if len(kind) > 1 and not (collapsed(kind) | (kind["diverged"] == "True")).any()
    ]
    squares = sum((len(best) - 1) * statistics.variance(best) for best in sound)
    freedom = sum(len(best) - 1 for best in sound)
    return (math.sqrt(squares / freedom), freedom) if squares else (math.nan, 0)


# The comparison.


def verify(reference: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """One row for each run of the reference: the verdict on the same run below `folder`, and what it rests on."""
    kept = table_rows(reference)
    own = _own({run["run"]: folder / run_name(run) for run in kept})
    rows = [_compared(own.get(run["run"]), run, spread) for run, spread in zip(kept, spreads(reference), strict=True)]
    return pd.concat([reference[["run", *GRID]], pd.DataFrame(rows, index=reference.index)], axis=1)


def _own(places: Mapping[str, Path]) -> dict[str, Row]:
    """The runs that are there, by their names; of earlier arithmetic only the version, for their files say less."""
    own: dict[str, Row] = {}
    trained = []
    for name, place in places.items():
        if (place / "summary.json").exists():
            made_with = read_json(place / "settings.json").get("versions", {}).get("qlocaladam", ARITHMETIC_SINCE)
            if earlier(made_with):
                own[name] = {"qlocaladam": made_with, "best": math.nan}
            else:
                trained.append(place)
    table = _parse(io.StringIO(table_text(describe(trained)))) if trained else pd.DataFrame()
    return own | {run["run"]: run for run in table_rows(table)}


def _compared(own: Row | None, kept: Row, spread: Spread) -> dict[str, Any]:
    verdict, reason = _verdict(own, kept, spread)
    best = own["best"] if own else math.nan
    result = {"best": best, "reference_best": kept["best"], "difference": best - kept["best"]}
    return {"verdict": verdict, **result, **spread._asdict(), "reason": reason}


def _verdict(own: Row | None, kept: Row, spread: Spread) -> tuple[str, str]:
    if own is None:
        return MISSING, ""
    if earlier(own["qlocaladam"]) or earlier(kept["qlocaladam"]):
        return EARLIER, _changes(own, kept, ["qlocaladam"])
    if changes := _changes(own, kept, SETTINGS):
        return OTHER, changes
    if own["history_sha256"] == kept["history_sha256"]:
        return IDENTICAL, ""
    verdict = UNDECIDED
    if spread.freedom:
        verdict = AGREES if spread.low <= own["best"] <= spread.high else DIFFERS
    return verdict, _changes(own, kept, ("diverged", *MADE_WITH))


def earlier(made_with: object) -> bool:
    """Whether a version is one whose arms computed something else."""
    own, since = (tuple(map(int, str(text).split(".")[:3])) for text in (made_with, ARITHMETIC_SINCE))
    return own < since


def _changes(own: Row, kept: Row, names: Iterable[str]) -> str:
    changed = [name for name in names if own.get(name, "") != kept.get(name, "")]
    return ", ".join(f"{name} {_word(own[name])}, not {_word(kept[name])}" for name in changed)


def _word(value: object) -> str:
    """Of a hash, as much as tells it from others."""
    text = str(value) or "none"
    return text if len(text) < 64 else text[:8]


def summary(verdicts: pd.DataFrame, scale: str, others: int = 0) -> str:
    """For the terminal: how many runs have each verdict, and those that are not as the reference has them.

    `others` are runs of the reference that the configuration does not ask for.
    """
    off = f" ({others} more are of groups that are off)" if others else ""
    lines = [f"{len(verdicts)} runs of the reference, scale {scale}{off}:"]
    groups = {name: verdicts[verdicts["verdict"] == name] for name in MEANINGS}
    lines += [f"{len(rows):>5} {name}: {MEANINGS[name]}" for name, rows in groups.items() if len(rows)]
    for name in (OTHER, UNDECIDED, MISSING, DIFFERS):
        if listed := [_line(row) for row in table_rows(groups[name])]:
            more = [f"and {len(listed) - SHOWN} more"] if len(listed) > SHOWN else []
            lines += [f"{name}:", *(f"  {line}" for line in [*listed[:SHOWN], *more])]
    if len(groups[EARLIER]):
        lines += [f"What changed in version {ARITHMETIC_SINCE} (CHANGELOG.md):", *(f"  {change}" for change in CHANGED)]
    if len(groups[DIFFERS]):
        judged = len(groups[DIFFERS]) + len(groups[AGREES])
        lines.append(f"Chance alone may put one in twenty outside: {judged / 20:.1f} of the {judged} judged by spread.")
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    parts = [row["reason"]] if row["reason"] else []
    if row["verdict"] == DIFFERS:
        expected = f"expected {row['low']:.2f} to {row['high']:.2f} ({_source(row)})"
        parts = [f"best {row['best']:.2f}, reference {row['reference_best']:.2f}, {expected}", *parts]
    return ": ".join([row["run"], "; ".join(parts)] if parts else [row["run"]])


def _source(row: Row) -> str:
    return f"{row['spread']}, {row['freedom']} degrees of freedom"
