"""Whole training runs: speed beside a bare loop, rounds a minute and memory beside Flower and pfl-research, start-up.

Rounds a minute count client training on two cores, however it is arranged there: two runs of ours side by side with a
thread each, one run of Flower over two client processes, one run of pfl-research over two processes, and two of its
runs side by side. All do the same number of rounds in all, on the same synthetic images, model and batch size, with
clients of equal size, so that it does not matter which are drawn. Nothing needs data or a network.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.frameworks import BATCH, CLIENTS, EPOCHS, LEARNING_RATE, PER_ROUND, SEED, SIZE, WIDTH, bare
from benchmarks.frameworks.processes import CannotRun, Command, Usage, run_together
from benchmarks.report import Progress, Table
from qlocaladam.data.dataset import Dataset, checked
from qlocaladam.data.sources import prepare
from qlocaladam.federated.partition import Partition, partition
from qlocaladam.federated.rounds import Federation
from qlocaladam.federated.sampling import sample_clients
from qlocaladam.federated.settings import RunSettings
from qlocaladam.streams import torch_stream

CLASSES, TEST_IMAGES = 10, 1000
ROUND_SIZE = 48
"""Of images, where arms are compared."""
ARMS_IN_TURN = ("fp32", "q-localadam", "normalised", "normalised-4bit")
MANY_CLIENTS = 1000
QUIET = {"OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""One thread a process, and no reports to anybody."""


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    images: int
    rounds: int
    """That take turns in one process, and are compared one by one."""
    total_rounds: int
    """Of each framework, over all its runs."""
    repeats: int
    starts: int


FULL = Plan(images=10_000, rounds=5, total_rounds=6, repeats=2, starts=5)
QUICK = Plan(images=1_000, rounds=1, total_rounds=4, repeats=1, starts=1)


@dataclass
class Findings:
    """Rows of the table, and what they say about what this package wants to reach."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def add(self, measurement: str, who: str, values: Sequence[float] | str, unit: str) -> float:
        """The median over the repeats; text in place of numbers says why there are none."""
        row: dict[str, Any] = {"measurement": measurement, "who": who, "unit": unit}
        if isinstance(values, str):
            self.rows.append({**row, "median": values})
            return float("nan")
        median = statistics.median(values)
        self.rows.append({**row, "median": median, "least": min(values), "most": max(values), "of": len(values)})
        return median

    def state(self, what: str, reach: str, reached: bool) -> None:
        self.statements.append(f"{what}. To reach: {reach}. {'Reached' if reached else 'Not reached'}.")


@dataclass(frozen=True)
class Workload:
    """The data, as files for whole processes and in memory."""

    folder: Path
    dataset: Dataset

    @property
    def data(self) -> Path:
        return self.folder / "data.npz"

    def partition(self, clients: int) -> Path:
        return self.folder / f"clients-{clients}.npz"

    def train(self, out: str, clients: int = CLIENTS, **options: int) -> list[str]:
        """Arguments of the command that is one run."""
        paths = ["--data", str(self.data), "--partition", str(self.partition(clients)), "--out", str(self.folder / out)]
        settings = {"width": WIDTH, "image-size": SIZE, "batch-size": BATCH, "epochs": EPOCHS, "threads": 1, **options}
        given = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
        return ["train", *paths, "--arm", "fp32", "--clients-per-round", str(PER_ROUND), *given]


def run(quick: bool) -> list[Table]:
    plan, findings = QUICK if quick else FULL, Findings()
    with tempfile.TemporaryDirectory(prefix="benchmark-federated-") as folder:
        workload = _workload(Path(folder), plan.images)
        for part in (_rounds, _frameworks, _many_clients, _start):
            part(workload, plan, findings)
    columns = {"measurement": str, "who": str, "median": _figure, "least": _figure, "most": _figure, "of": str}
    return [Table("Federated training", {**columns, "unit": str}, findings.rows, findings.statements)]


def _figure(value: float) -> str:
    return f"{value:,.{0 if value >= 100 or value == int(value) else 1 if value >= 10 else 3}f}"


def _noise(images: int, size: int) -> dict[str, np.ndarray]:
    """Of CIFAR's shape, classes in turn: how fast a model trains does not depend on what it sees."""
    draw = np.random.default_rng(SEED)
    arrays = {}
    for part, count in (("train", images), ("test", TEST_IMAGES)):
        arrays[f"x_{part}"] = draw.integers(0, 256, (count, size, size, 3), np.uint8)
        arrays[f"y_{part}"] = np.arange(count) % CLASSES
    return arrays


def _workload(folder: Path, images: int) -> Workload:
    source = folder / "source.npz"
    np.savez(source, **_noise(images, SIZE))
    workload = Workload(folder, prepare("synthetic", folder / "data.npz", source))
    for clients in (CLIENTS, MANY_CLIENTS):
        partition(workload.dataset.y_train, clients, "iid", SEED).save(workload.partition(clients))
    return workload


# Rounds in one process: the bare loop, and arms of ours.


class BareRounds:
    """Federated averaging with nothing around it."""

    def __init__(self, dataset: Dataset, held: Partition) -> None:
        self.data, self.model = bare.load(dataset)[0], bare.make_model(dataset.classes)
        self.state = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.held = held

    def train_round(self, number: int, clients: Sequence[int]) -> Iterator[None]:
        """As a round of ours: a step a client, then the average."""
        models = []
        for client in clients:
            self.model.load_state_dict(self.state)
            indices = torch.tensor(self.held.indices[client])
            bare.train(self.model, self.data, indices, torch_stream(SEED, "batches", number, client))
            models.append(({name: value.clone() for name, value in self.model.state_dict().items()}, len(indices)))
            yield
        self.state = bare.average(*zip(*models, strict=True))


class OurRounds:
    """What a run of ours does in a round, besides evaluating."""

    def __init__(self, dataset: Dataset, held: Partition, arm: str, rounds: int) -> None:
        training = {"lr": LEARNING_RATE, "epochs": EPOCHS, "batch_size": BATCH, "clients_per_round": PER_ROUND}
        settings = RunSettings(arm, seed=SEED, rounds=rounds, width=WIDTH, image_size=ROUND_SIZE, **training)
        self.federation = Federation(settings, dataset, held)

    def train_round(self, number: int, clients: Sequence[int]) -> Iterator[object]:
        return self.federation.train_round(number)


def _rounds(workload: Workload, plan: Plan, findings: Findings) -> None:
    """Clients train in turns, one competitor after the other; times are added up by round."""
    dataset = checked("synthetic", _noise(plan.images, ROUND_SIZE), "noise", workload.folder)
    held = partition(dataset.y_train, CLIENTS, 0.1, SEED)
    # A bare loop cannot train on a single image, which batch normalisation refuses: no client has one over.
    held = replace(held, indices=[part[: len(part) - (len(part) % BATCH == 1)] for part in held.indices])
    competitors: dict[str, BareRounds | OurRounds] = {"bare PyTorch loop": BareRounds(dataset, held)}
    competitors |= {f"ours, {arm}": OurRounds(dataset, held, arm, plan.rounds) for arm in ARMS_IN_TURN}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds, images = _take_turns(competitors, held, plan.rounds)
    finally:
        torch.set_num_threads(threads)
    what = f"rounds at {ROUND_SIZE}x{ROUND_SIZE}, 1 thread"
    for name, times in seconds.items():
        findings.add(what, name, [n / s for n, s in zip(images, times, strict=True)], "images/s")
    loop, fp32, *quantized = (np.array(times) for times in seconds.values())
    speed = findings.add("speed to bare loop's, by round", "ours, fp32", list(loop / fp32), "ratio")
    findings.state(f"FP32 rounds run at {speed:.3f} of the bare loop's speed", "at least 0.95", speed >= 0.95)
    for arm, times in zip(ARMS_IN_TURN[1:], quantized, strict=True):
        slower = findings.add("time to our fp32's, by round", f"ours, {arm}", list(times / fp32), "ratio")
        findings.state(f"Rounds of {arm} take {slower:.3f} of FP32's time", "at most 1.02", slower <= 1.02)


def _take_turns(
    competitors: dict[str, BareRounds | OurRounds], held: Partition, rounds: int
) -> tuple[dict[str, list[float]], list[int]]:
    """Seconds of each competitor and images, by round."""
    drawn = sample_clients(SEED, rounds, CLIENTS, PER_ROUND).tolist()
    drawn = [[client for client in clients if held.sizes[client]] for clients in drawn]
    for one in competitors.values():  # memory is allocated, code is loaded; a round that is left is forgotten
        next(one.train_round(1, drawn[0]))
    sizes = [int(held.sizes[clients].sum()) for clients in drawn]
    work = sum(sizes) * len(competitors)
    progress = Progress("rounds in one process", work, work * EPOCHS / 1000)
    seconds = {name: [0.0] * rounds for name in competitors}
    names = list(competitors)
    for number, clients in enumerate(drawn):
        under_way = {name: one.train_round(number + 1, clients) for name, one in competitors.items()}
        for client in [*clients, None]:  # in the end they average
            names.append(names.pop(0))  # nobody is always first
            for name in names:
                begin = time.perf_counter()
                next(under_way[name], None)
                seconds[name][number] += time.perf_counter() - begin
                progress.advance(0 if client is None else int(held.sizes[client]))
    return seconds, [EPOCHS * size for size in sizes]


# Whole processes on two cores: ours, Flower and pfl-research.


@dataclass(frozen=True)
class Framework:
    """How a framework is started, and where it says how long its rounds took."""

    name: str
    package: str | None
    commands: Callable[[Workload, int], list[Command]]
    """Of the workload and of the rounds in all."""
    seconds: Callable[[Workload], list[list[float]]]
    """Of each run, how long its rounds after the first took."""


OURS = "ours, two runs side by side"
FLOWER = "Flower, one run"
PFL, PFL_TWICE = "pfl-research, one run", "pfl-research, two runs"


def _our_runs(workload: Workload, rounds: int) -> list[Command]:
    runs = [workload.train(f"run-{number}", rounds=rounds // 2, seed=SEED + number) for number in range(2)]
    return [Command(["-m", "qlocaladam", *arguments], QUIET) for arguments in runs]


def _our_seconds(workload: Workload) -> list[list[float]]:
    """As the runs themselves wrote them down."""
    tables = [(workload.folder / f"run-{number}" / "timings.csv").read_text().splitlines() for number in range(2)]
    return [[float(line.split(",")[1]) for line in lines[2:]] for lines in tables]


def _peer(name: str, workload: Workload, number: int, rounds: int, **environment: str) -> Command:
    paths = [workload.data, workload.partition(CLIENTS), workload.folder / f"ends-{number}.json"]
    return Command(["-m", "benchmarks.frameworks", name, *map(str, paths), str(rounds)], {**QUIET, **environment})


def _peer_seconds(runs: int) -> Callable[[Workload], list[list[float]]]:
    def seconds(workload: Workload) -> list[list[float]]:
        ends = [json.loads((workload.folder / f"ends-{number}.json").read_text()) for number in range(runs)]
        return [np.diff(times).tolist() for times in ends]

    return seconds


def _flower_run(workload: Workload, rounds: int) -> list[Command]:
    return [_peer("flower", workload, 0, rounds)]


def _pfl_run(workload: Workload, rounds: int) -> list[Command]:
    """Two processes share the clients of every round, found by each other at a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    meeting = {"PFL_WORKER_ADDRESSES": f"localhost:{port},localhost:{port + 1}"}
    return [_peer("pfl", workload, rank, rounds, **meeting, PFL_WORKER_RANK=str(rank)) for rank in range(2)]


def _pfl_runs(workload: Workload, rounds: int) -> list[Command]:
    return [_peer("pfl", workload, number, rounds // 2) for number in range(2)]


FRAMEWORKS = (
    Framework(OURS, None, _our_runs, _our_seconds),
    Framework(FLOWER, "flwr", _flower_run, _peer_seconds(1)),
    Framework(PFL, "pfl", _pfl_run, _peer_seconds(1)),
    Framework(PFL_TWICE, "pfl", _pfl_runs, _peer_seconds(2)),
)


def _absent(framework: Framework) -> str | None:
    try:
        for package in (framework.package, "ray" if framework.package == "flwr" else None):
            if package:
                version(package)
    except PackageNotFoundError as error:
        return f"absent: {error.name} is not installed"
    return None


def _frameworks(workload: Workload, plan: Plan, findings: Findings) -> None:
    faults = {one.name: fault for one in FRAMEWORKS if (fault := _absent(one))}
    usages: dict[str, list[Usage]] = {one.name: [] for one in FRAMEWORKS}
    rates: dict[str, list[float]] = {one.name: [] for one in FRAMEWORKS}
    present = [one for one in FRAMEWORKS if one.name not in faults]
    work = plan.repeats * len(present)
    progress = Progress("whole runs of frameworks", work, work * 25)
    failures: dict[str, str] = {}
    for _ in range(plan.repeats):
        for one in present:
            try:
                # So that nobody is credited with another's rounds, nor with those of an earlier repeat.
                for old in workload.folder.glob("ends-*.json"):
                    old.unlink()
                for old in workload.folder.glob("run-*"):
                    shutil.rmtree(old)
                commands = one.commands(workload, plan.total_rounds)
                usage = run_together(commands, sys.executable, workload.folder)
                rates[one.name].append(sum(60 / statistics.mean(seconds) for seconds in one.seconds(workload)))
                usages[one.name].append(usage)
            except CannotRun as error:  # pfl-research sometimes dies while it shuts down
                failures[one.name] = str(error)
            progress.advance(1)
    for name, failure in failures.items():
        findings.statements.append(f"{name}: {plan.repeats - len(usages[name])} of {plan.repeats} failed: {failure}.")
        if not usages[name]:
            faults[name] = f"failed: {failure}"
    _report_frameworks(plan, findings, faults, usages, rates)


def _report_frameworks(
    plan: Plan,
    findings: Findings,
    faults: dict[str, str],
    usages: dict[str, list[Usage]],
    rates: dict[str, list[float]],
) -> None:
    def row(measurement: str, unit: str, values: Callable[[str], list[float]]) -> dict[str, float]:
        return {
            one.name: findings.add(measurement, _title(one), faults.get(one.name) or values(one.name), unit)
            for one in FRAMEWORKS
        }

    whole = row(
        f"{plan.total_rounds} rounds, start included",
        "rounds/min",
        lambda name: [60 * plan.total_rounds / usage.seconds for usage in usages[name]],
    )
    after = row("after the first round", "rounds/min", lambda name: rates[name])
    pss = row("peak memory, shared counted once", "MB", lambda name: [usage.pss / 1e6 for usage in usages[name]])
    rss = row("peak memory, sum of RSS", "MB", lambda name: [usage.rss / 1e6 for usage in usages[name]])
    row("processes at most", "-", lambda name: [float(usage.processes) for usage in usages[name]])
    for one in FRAMEWORKS[1:]:
        _compare(one.name, whole, after, findings)
    if FLOWER not in faults:
        share, of_rss = pss[OURS] / pss[FLOWER], rss[OURS] / rss[FLOWER]
        what = f"Two runs of ours take {share:.2f} of Flower's memory ({of_rss:.2f} by the sum of RSS)"
        findings.state(what, "less than 0.5", share < 0.5)


def _compare(peer: str, whole: dict[str, float], after: dict[str, float], findings: Findings) -> None:
    if np.isnan(whole[peer]):
        findings.statements.append(f"{peer}: not compared.")
        return
    ratio, later = whole[OURS] / whole[peer], after[OURS] / after[peer]
    what = f"Ours make {ratio:.2f} times the rounds a minute of {peer} ({later:.2f} times after the first round)"
    findings.state(what, "more than 1", ratio > 1)


def _title(one: Framework) -> str:
    try:
        return f"{one.name} ({version(one.package)})" if one.package else one.name
    except PackageNotFoundError:
        return one.name


# One run of ours: its memory by the number of clients, and how soon it trains.


def _our_run(workload: Workload, until: str, arguments: list[str]) -> dict[str, Any]:
    out = workload.folder / "stopwatch.json"
    command = ["-m", "benchmarks.frameworks.ours", repr(time.time()), str(out), until, *arguments]
    run_together([Command(command, QUIET)], sys.executable, workload.folder)
    answer: dict[str, Any] = json.loads(out.read_text())
    return answer


def _many_clients(workload: Workload, plan: Plan, findings: Findings) -> None:
    """The same images, dealt out to few and to many; peak of the whole process."""
    peaks: dict[int, list[float]] = {CLIENTS: [], MANY_CLIENTS: []}
    progress = Progress("memory by clients", len(peaks) * plan.repeats, 8 * plan.repeats)
    for number in range(plan.repeats):
        for clients, sizes in peaks.items():
            arguments = workload.train(f"of-{clients}-{number}", clients, rounds=2, epochs=1)
            sizes.append(_our_run(workload, "end", arguments)["peak"] / 1e6)
            progress.advance(1)
    few, many = (
        findings.add("peak memory of a run", f"ours, {clients:,} clients", sizes, "MB")
        for clients, sizes in peaks.items()
    )
    what = f"A run with {MANY_CLIENTS:,} clients takes {many / few:.3f} of the memory of one with {CLIENTS}"
    findings.state(what, "0.95 to 1.05", 0.95 <= many / few <= 1.05)


def _start(workload: Workload, plan: Plan, findings: Findings) -> None:
    progress = Progress("start-up", plan.starts, 4 * plan.starts)
    laps: list[dict[str, float]] = []
    for number in range(plan.starts):
        laps.append(_our_run(workload, "batch", workload.train(f"start-{number}", rounds=1))["steps"])
        progress.advance(1)
    for step in laps[0]:
        findings.add(f"start-up: {step}", "ours", [steps[step] for steps in laps], "s")
    total = findings.add("start-up: all, to the first batch trained", "ours", [sum(s.values()) for s in laps], "s")
    findings.state(f"The first batch is trained {total:.2f} s after the process starts", "under 3 s", total < 3)
