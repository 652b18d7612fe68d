"""Whether the parts of a configuration go together: what would otherwise end a job, or all jobs, hours later.

The schema has looked at each key alone, and `grid.check` at names. Each mistake is one line that begins with its key.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.data import sources
from qlocaladam.data.made import EMBEDDED
from qlocaladam.experiments import grid
from qlocaladam.experiments.grid import DEFAULTS, GRID, Config, as_list
from qlocaladam.federated.settings import PEERS, RunSettings
from qlocaladam.files import table_rows

PAPER_DATA = ("cifar10", "cifar100")
"""Whose partitions are analysed at full size at every scale."""
LEDGER_TABLES = ("claims", "disagreements")
"""Files that the ledger writes beside the tables."""


def check(config: Config) -> None:
    """Raise ValueError at the first mistake."""
    for one in (_sources, _datasets, _clients, _labels, _arms, _tables):
        one(config)


def _refuse(key: str, value: object, accepted: str) -> None:
    raise ValueError(f"{key} is {value!r}; accepted: {accepted}")


def _sources(config: Config) -> None:
    for name, source in config["sources"].items():
        if name in EMBEDDED:
            _refuse(f"sources.{name}", source, f"none: {name} is made from what is installed; give yours another name")
        if not Path(source).expanduser().exists():
            _refuse(f"sources.{name}", source, "a file or folder that is there")


def _used(config: Config) -> list[str]:
    return list(grid.expand(config)["dataset"].unique())


def _datasets(config: Config) -> None:
    scale = config["scale"]
    for name in _used(config):
        entry, key = config["scales"][scale]["datasets"][name], f"scales.{scale}.datasets.{name}"
        data, source = entry["data"], config["sources"].get(entry["data"])
        if data not in sources.NAMES and source is None and sources.source_variable(data) not in os.environ:
            _refuse(f"{key}.data", data, f"{', '.join(sources.NAMES)}, or a name under sources")
        wanted = {part: entry[f"{part}_images"] for part in ("train", "test") if f"{part}_images" in entry}
        there = sources.counts(data, source) if wanted else None
        for part, most in zip(("train", "test"), there or (), strict=False):
            if wanted.get(part, 0) > most:
                _refuse(f"{key}.{part}_images", wanted[part], f"1 to {most:,}, as many as {data} has")


def _clients(config: Config) -> None:
    """Whether there are as many clients as take part in a round."""
    for run in table_rows(grid.expand(config)[["experiment", "dataset", "clients", "clients_per_round"]]):
        if int(run["clients_per_round"]) > int(run["clients"]):
            at_least = f"at least clients_per_round, which is {run['clients_per_round']} for {run['dataset']}"
            named = next(one for one in config["experiments"] if one["name"] == run["experiment"])
            key = f"experiments, {run['experiment']}: clients" if "clients" in named else "clients"
            _refuse(key, int(run["clients"]), at_least)


def _labels(config: Config) -> None:
    scale = config["scale"]
    for key, entries in (("arms", config["arms"]), (f"scales.{scale}.datasets", config["scales"][scale]["datasets"])):
        seen: dict[str, str] = {}
        for name, entry in entries.items():
            other = seen.setdefault(entry["label"], name)
            if other != name:
                _refuse(f"{key}.{name}.label", entry["label"], f"a label of its own, which is not that of {other}")


def _arms(config: Config) -> None:
    """Make the optimizer of each arm in use whose options or blocks are not as the package has them."""
    used = grid.unique(grid.expand(config))[["arm", "block_size"]].drop_duplicates()
    for name, size in used.itertuples(index=False):
        arm, options = config["arms"][name]["arm"], config["arms"][name].get("options", {})
        if not options and int(size) % 2 == 0:
            continue  # and torch need not be imported, which takes longer than all the rest
        given = {"block_size": int(size), **options}
        try:
            settings = RunSettings(arm=arm, optimizer=given)
        except ValueError as error:
            raise ValueError(f"arms.{name} is {arm} with {given}; {error}") from None
        made = settings.local_training().optimizer
        if "bits" in options and made.get("momentum") == made.get("variance") == "fp32":
            _refuse(f"arms.{name}.options.bits", options["bits"], "none: both of its states are FP32")


def _tables(config: Config) -> None:
    for name in config["tables"]:
        if name in LEDGER_TABLES:
            _refuse("tables has a table that", name, f"any name but {', '.join(LEDGER_TABLES)}, which the ledger has")


# What kinds of tables and figures ask of their entries.


def shown_runs(config: Config, entry: Config, selection: Config | None = None) -> pd.DataFrame:
    """The runs that an entry or a panel of it shows; of one of a group, as if that were on."""
    groups = {entry["group"]: True} if "group" in entry else {}
    selection = selection or entry
    shown = [experiment for experiment in config["experiments"] if experiment["name"] in selection["experiments"]]
    return grid.selected(grid.expand({**config, **groups, "experiments": shown}), selection)


def one_run_but_for_seeds(what: str, rows: pd.DataFrame, axes: tuple[str, ...], by: str) -> None:
    for place, same in rows.groupby(list(axes), sort=False):
        for name in (name for name in GRID if name not in (*axes, "seed")):
            if same[name].nunique() > 1:
                values = ", ".join(same[name].unique())
                shown = ", ".join(map(str, place))
                raise ValueError(
                    f"{what} for {shown} mixes {name} {values}; accepted: runs that differ in their seed only: "
                    f"choose one {name} with `where`, or {by}: {name}"
                )


def compared_over_seeds(config: Config, key: str, entry: Config) -> None:
    """Arms of a data set and an alpha with a baseline, each with several seeds."""
    rows = shown_runs(config, entry)
    one_run_but_for_seeds(f"{key}: a row", rows, ("dataset", "alpha", "arm"), "rows")
    for place, same in rows.groupby(["dataset", "alpha", "arm"], sort=False):
        if same["seed"].nunique() < 2:
            shown = ", ".join(map(str, place))
            raise ValueError(f"{key} has seed {same['seed'].iloc[0]} alone for {shown}; accepted: at least two seeds")
    baseline = entry.get("baseline", "fp32")
    if baseline not in set(rows["arm"]):
        _refuse(f"{key}.baseline", baseline, ", ".join(rows["arm"].unique()))


def of_the_paper(key: str, where: Config, axes: Iterable[str]) -> None:
    for name, value in where.items():
        if name not in axes:
            _refuse(f"{key}.where", dict(where), f"{' and '.join(axes)}, by which it is told apart")
        for one in as_list(value) if name == "dataset" else ():
            if one not in PAPER_DATA:
                _refuse(f"{key}.where.dataset", one, f"{', '.join(PAPER_DATA)}, which the paper has")


def of_the_papers_partitions(config: Config, key: str, entry: Config) -> None:
    of_the_paper(key, entry.get("where", {}), ("dataset", "alpha"))


def of_text(config: Config, key: str, entry: Config, wanted: bool) -> None:
    """Data of text, or else none of it."""
    of_scale = config["scales"][config["scale"]]["datasets"]
    for dataset in as_list(entry["where"]["dataset"]):
        if (of_scale.get(dataset, {}).get("data") == "text") != wanted:
            _refuse(f"{key}.where.dataset", dataset, "data of text" if wanted else "data of images")


def arms_of_this_package(config: Config, key: str, entry: Config) -> None:
    for arm in as_list(entry["where"]["arm"]):
        if config["arms"][arm]["arm"] in PEERS:
            _refuse(f"{key}.where.arm", arm, "arms of this package")


def device_lacks(device: str) -> str:
    """Why a device cannot be trained on here; nothing where it can."""
    if device == "cpu":
        return ""
    import torch

    gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    if device in (*gpus, *(["cuda"] if gpus else [])):
        return ""
    return f"device is {device!r}; accepted: {', '.join(['cpu', *gpus])}, which is all that torch sees here"


def devices(config: Config) -> dict[str, Any]:
    """The device that each data set in use is trained on."""
    return {name: {**DEFAULTS, **grid.training(config, name)}["device"] for name in _used(config)}
