"""Where all results of a configuration stand, what each is made of, and which are missing or made with other settings.

The rules of the workflow and the check of its results read the same layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from qlocaladam.data import sources
from qlocaladam.data.dataset import CIFAR_SIZES
from qlocaladam.experiments import configuration, grid
from qlocaladam.experiments.grid import GRID, Config, as_list
from qlocaladam.federated.partition import IID
from qlocaladam.federated.progress import PlannedRun
from qlocaladam.federated.record import FILES, differences, read_json
from qlocaladam.files import table_rows
from qlocaladam.project import project_file
from qlocaladam.results import kinds
from qlocaladam.results.kind import Shown
from qlocaladam.results.kinds import ANALYSES, KINDS
from qlocaladam.results.labels import SAME_EVERYWHERE

EXACT = "results/exact"
"""What needs no training is made once for all scales."""
EXACT_FILES = {
    "memory": ("memory.csv",),
    "client_memory": ("client_memory.csv",),
    "scaling": ("scaling.csv",),
    "precision": ("precision.csv", "precision_summary.csv", "precision_by_decade.csv"),
    "data_distribution": ("clients.csv", "data_distribution.csv"),
    "participation": ("sampling.json", "steps.csv"),
}
"""By analysis."""
TEST_FILES = {
    "significance": ("significance.csv",),
    "contrasts": ("contrasts.csv", "differences.csv"),
    "registered": ("answers.csv",),
}
"""Of tests over the seeds of runs, by the kind of the tables that show them."""
CLIENT_FILES = {name: analysis.files for name, analysis in ANALYSES.items()}
"""Of the analyses that train a little themselves. The summary comes last, and says what made them."""
STEP_COST, START_COST = 64, 10_000
"""Samples that a step takes as long as, whatever its batch, and the start of a run: on a CPU at the default scale. At
larger ones all batches are of one size and no start counts."""
WITHOUT_PARTITION = tuple(name for name, analysis in ANALYSES.items() if not analysis.partition)

Row = Mapping[str, Any]


class Layout:
    """Paths are relative to the project's folder."""

    def __init__(self, config: Config) -> None:
        self.config, self.scale = config, str(config["scale"])
        self.size = config["scales"][self.scale]
        self.kept = project_file(f"paper/reference/{self.scale}/runs.csv") if config["reference"] else ""
        """The runs of a reference, where those are shown instead of one's own."""
        folder = f"reference/{self.scale}" if self.kept else self.scale
        self.results, self.figure_folder, self.latex = (
            f"{part}/{folder}" for part in ("results", "figures", "paper/generated")
        )
        groups = "-".join(group for group in grid.GROUPS if config[group])
        self.together, self.latex_together = (
            f"{path}/with-{groups}" if groups else path for path in (self.results, self.latex)
        )
        """Of what is made of all runs together: numbers, ledger, document. With groups these have a folder of
        their own, so that no file changes that is there without them."""
        self.grid = grid.expand(config)
        self.runs = grid.unique(self.grid)
        places = [] if config["train"] and not self.kept else table_rows(self.runs)
        known = set(kept_names(self.kept)) if self.kept else set()
        self.absent = {
            grid.run_name(place)
            for place in places
            if (grid.short_name(place) not in known if self.kept else self.run_lacks(place))
        }
        """Runs that are missing or outdated and will not be trained: tables have gaps in their place."""
        on = {part: {n: e for n, e in config[part].items() if grid.is_on(config, e)} for part in ("tables", "figures")}
        self.tables = {name: entry for name, entry in on["tables"].items() if self._has_runs(entry)}
        self.figures = {name: entry for name, entry in on["figures"].items() if self._has_runs(entry)}
        self.tested = {kind: self._tables_of(kind) for kind in TEST_FILES}

    @classmethod
    def load(cls, files: Sequence[str | Path], overrides: Sequence[str] = ()) -> Layout:
        """Of the configuration of files with KEY=VALUE on top; ValueError in one line where it is wrong."""
        return cls(configuration.load(files, overrides, kinds.check))

    def _has_runs(self, entry: Config) -> bool:
        """Whether there is a run for a table, and for each panel of a figure. A reference has nothing but runs."""
        kind = KINDS[entry["kind"]]
        if self.kept and kind.analysis:
            return False
        if kind.shown_without_runs:
            return True
        if "table" in entry:
            return entry["table"] in self.tables
        return all(len(self.available(self.selected(selection))) for _, selection in kinds.selections(entry))

    def _tables_of(self, kind: str) -> list[str]:
        return [name for name, entry in self.tables.items() if entry["kind"] == kind]

    # Data and partitions.

    def data_of(self, dataset: str) -> str:
        return str(self.size["datasets"][dataset]["data"])

    def data_file(self, dataset: str) -> str:
        return f"results/data/{self.data_of(dataset)}.npz"

    def partition_file(self, place: Row) -> str:
        """Its name has all that decides it, so that a partition that is there is the one that is asked for."""
        images = self.size["datasets"][place["dataset"]].get("train_images", "all")
        folder = f"{self.results}/partitions/{self.data_of(place['dataset'])}/images~{images}"
        return f"{folder}/clients~{place['clients']}/alpha~{place['alpha']}/seed~{place['seed']}.npz"

    def default_place(self, dataset: str) -> dict[str, str]:
        """Of the clients whose steps are looked at: that of an FP32 run at the defaults."""
        names = {"dataset": dataset, "arm": "fp32", **grid.usual(self.config, dataset)}
        return {name: grid.word(name, names[name]) for name in GRID}

    def prepared(self, data: str) -> sources.Prepared | None:
        """Of a prepared file; None where it has to be made, for the first time or again."""
        return sources.prepared(f"results/data/{data}.npz", self.config["sources"].get(data))

    def data_facts(self, dataset: str) -> dict[str, Any]:
        """What results must say of their data, as far as is known before they are made."""
        note, entry = self.prepared(self.data_of(dataset)), self.size["datasets"][dataset]
        if note is None:
            made = Path(self.data_file(dataset)).exists()
            return {"sha256": "that of the data when they are prepared again"} if made else {}
        counts = {"training_images": entry.get("train_images", note.training)}
        return {"sha256": note.sha256, **counts, "test_images": entry.get("test_images", note.test)}

    # Runs.

    def run_folder(self, place: Row) -> str:
        return f"{self.results}/runs/{grid.run_name(place)}"

    def folders(self, rows: pd.DataFrame) -> list[str]:
        return [self.kept] if self.kept else [self.run_folder(row) for row in table_rows(rows)]

    def available(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Those of the runs that are there or will be trained."""
        return rows[[grid.run_name(row) not in self.absent for row in table_rows(rows)]] if self.absent else rows

    def selected(self, entry: Config) -> pd.DataFrame:
        return grid.selected(self.grid, entry)

    def asked(self, rows: pd.DataFrame) -> dict[str, Any]:
        if self.kept:  # whatever made them: the places alone say which
            return {"places": table_rows(self.available(rows))}
        return grid.asked(self.config, rows["dataset"].unique(), rows["arm"].unique())

    def run_request(self, place: Row) -> dict[str, Any]:
        """What settings.json of a run must say, as far as the configuration and the prepared data decide it."""
        return self.with_data(grid.request(grid.asked(self.config, [place["dataset"]], [place["arm"]]), place), place)

    def with_data(self, request: dict[str, Any], place: Row) -> dict[str, Any]:
        return {**request, "dataset": {**request["dataset"], **self.data_facts(place["dataset"])}}

    def run_lacks(self, place: Row) -> str:
        """Why the run at a place is not the one that is asked for; nothing where it is."""
        folder = self.run_folder(place)
        return lacks([f"{folder}/{name}" for name in FILES], f"{folder}/settings.json", self.run_request(place))

    def described(self, place: Row) -> PlannedRun:
        """A run in words, for progress lines. Axes on which it is like most runs are left out."""
        dataset, arm = place["dataset"], place["arm"]
        usual = {**grid.usual(self.config, dataset), **self.config["arms"][arm]}
        named = ("dataset", "alpha", "arm", "seed")
        others = [n for n in GRID if n not in named and grid.word(n, usual[n]) != place[n]]
        words = [SAME_EVERYWHERE if place["alpha"] == IID else f"alpha {place['alpha']}", self.labels()["arm"][arm]]
        words += [f"{name.replace('_', ' ')} {place[name]}" for name in others] + [f"seed {place['seed']}"]
        return PlannedRun(", ".join([self.data_in_words(dataset), *words]), dataset, arm, self._work(place))

    def data_in_words(self, dataset: str) -> str:
        """What data are, and what they stand for where that is something else."""
        own, paper = self.labels()["dataset"][dataset], self.stands_for().get(dataset)
        return own if paper in (None, own) else f"{own} for {paper}"

    def _work(self, place: Row) -> float:
        """What a run costs, counted in samples, if every client has as many."""
        request = self.run_request(place)
        settings, data = request["settings"], request["dataset"]
        images = data.get("training_images")
        if images is None:
            images, _ = sources.counts(data["name"], self.config["sources"].get(data["name"])) or CIFAR_SIZES
        part = settings["clients_per_round"] / request["partition"]["clients"]
        samples = settings["rounds"] * settings["epochs"] * images * part
        return float(samples * (1 + STEP_COST / settings["batch_size"]) + START_COST)

    # Analyses of clients and models, which train a little themselves.

    def shown(self, analysis: str, axis: str = "dataset") -> list[str]:
        """The data sets of which tables and figures show such an analysis; or the arms, also those of groups that are
        off, so that the files of an analysis do not depend on groups."""
        parts = (self.tables, self.figures) if axis == "dataset" else (self.config["tables"], self.config["figures"])
        entries = [entry for part in parts for entry in part.values()]
        wheres = [entry["where"] for entry in entries if KINDS[entry["kind"]].analysis is ANALYSES[analysis]]
        return sorted({value for where in wheres for value in as_list(where.get(axis, []))})

    def analysis_files(self, analysis: str, dataset: str) -> list[str]:
        return [f"{self.results}/analysis/{analysis}/{dataset}/{name}" for name in CLIENT_FILES[analysis]]

    def analysed_arms(self, analysis: str) -> dict[str, Any]:
        size, arms = self.config["defaults"]["block_size"], self.config["arms"]
        options = {
            name: {"block_size": arm.get("block_size", size), **arm.get("options", {})} for name, arm in arms.items()
        }
        shown = self.shown(analysis, "arm")
        return {name: {"arm": arm["arm"], "options": options[name]} for name, arm in arms.items() if name in shown}

    def analysis_lacks(self, analysis: str, dataset: str) -> str:
        files = self.analysis_files(analysis, dataset)
        return lacks(files, files[-1], ANALYSES[analysis].request(self, dataset))

    # Tables, figures and numbers: the parameters of each, and the files that it is made of.

    def labels(self, scale: str = "") -> dict[str, dict[str, str]]:
        """At this scale, or at another."""
        parts = {"dataset": self.config["scales"][scale or self.scale]["datasets"], "arm": self.config["arms"]}
        return {part: {name: entry["label"] for name, entry in entries.items()} for part, entries in parts.items()}

    def stands_for(self) -> dict[str, str]:
        """The paper's data sets, in whose place a scale has others."""
        return {name: entry["label"] for name, entry in self.config["datasets"].items() if "label" in entry}

    def names(self) -> dict[str, Any]:
        """What things are called at this scale."""
        kept = ", as kept in paper/reference" if self.kept else ""
        return {"scale": self.scale + kept, "labels": self.labels(), "stands_for": self.stands_for()}

    def table_rows(self, name: str) -> pd.DataFrame:
        """The runs of a table; none where it has no experiments."""
        entry = self.tables[name]
        return self.selected(entry) if "experiments" in entry else self.runs[:0]

    def panel_rows(self, name: str) -> list[pd.DataFrame]:
        return [self.selected(selection) for _, selection in kinds.selections(self.figures[name])]

    def table_spec(self, name: str) -> dict[str, Any]:
        return {**self.tables[name], "name": name, **self.names(), **self._asked(self.table_rows(name))}

    def figure_spec(self, name: str) -> dict[str, Any]:
        return {**self.figures[name], "name": name, **self.names()}

    def _asked(self, rows: pd.DataFrame) -> dict[str, Any]:
        """What is asked of the runs, and where some are absent, which there would be."""
        gaps = {"places": table_rows(rows)} if len(self.available(rows)) < len(rows) else {}
        return {"asked": self.asked(rows), **gaps} if len(rows) else {}

    def page_spec(self, table: str) -> dict[str, Any]:
        return {**self.tables[table], "name": table, **self.names(), "made": self.made("table", table)}

    def made(self, rule: str, name: str) -> dict[str, Any]:
        """What a table or a figure comes from: the rule, its code, the runs and the files that it reads."""
        if rule == "table":
            files, rows = self.table_files(name), self.table_rows(name)
        else:
            files, rows = self.figure_files(name), pd.concat([self.runs[:0], *self.panel_rows(name)])
        return {
            "rule": rule,
            "rulefile": project_file(f"workflow/rules/{rule}s.smk"),
            "code": project_file(f"src/qlocaladam/results/kinds/{self.config[f'{rule}s'][name]['kind']}.py"),
            "runs": self.folders(self.available(rows)) if len(rows) else [],
            "files": list(files.values()),
        }

    def results_spec(self) -> dict[str, Any]:
        return {**self.names(), "tables": self.tables, "figures": self.figures, "results": self.results}

    def reproducibility_spec(self) -> dict[str, Any]:
        paths = {"template": "workflow/report/reproducibility.md", "registered": "paper/registered.yaml"}
        return {
            **{name: project_file(path) for name, path in paths.items()},
            "results": self.results,
            "scale": self.scale,
            "labels": self.labels(),
            "answers": "".join(self.tested["registered"][:1]),
        }

    def said(self) -> dict[str, dict[str, str]]:
        """What stands beside each table and figure in the report."""
        return {
            part: {name: kinds.said({**entry, **self.names()}, part) for name, entry in entries.items()}
            for part, entries in (("tables", self.tables), ("figures", self.figures))
        }

    def exact_options(self, analysis: str) -> dict[str, Any]:
        """The parameters of an analysis at the paper's own size: of the configuration only arms and their blocks."""
        keys = ("arm", "options", "block_size")
        arms = {name: {key: arm[key] for key in keys if key in arm} for name, arm in self.config["arms"].items()}
        if analysis == "memory":
            return {"arms": arms, "places": self._sized_places()}
        block_size = self.config["defaults"]["block_size"]
        return {"arms": arms, "block_size": block_size} if analysis == "client_memory" else {}

    def exact_inputs(self, analysis: str) -> dict[str, str]:
        return {"clients": f"{EXACT}/clients.csv"} if analysis == "participation" else {}

    def _sized_places(self) -> list[tuple[str, str, int]]:
        """Data set, arm and block size of all experiments, whatever groups are on."""
        places = grid.expand({**self.config, **dict.fromkeys(grid.GROUPS, True)})
        names = places[["dataset", "arm", "block_size"]].drop_duplicates().itertuples(index=False)
        return sorted((dataset, arm, int(size)) for dataset, arm, size in names)

    def numbers_spec(self) -> dict[str, Any]:
        return {**self.names(), "defaults": self.config["defaults"], "asked": self.asked(self.runs)}

    def test_files(self, kind: str, table: str) -> list[str]:
        return [f"{self.results}/analysis/{kind}/{table}/{file}" for file in TEST_FILES[kind]]

    def test_inputs(self, kind: str) -> dict[str, str]:
        return {"questions": project_file(configuration.REGISTERED)} if kind == "registered" else {}

    def test_options(self, kind: str, table: str) -> dict[str, Any]:
        entry = self.tables[table]
        if kind == "contrasts":
            return {"margin": float(entry["margin"]), "baseline": entry.get("baseline", "fp32")}
        return {"scale": self.scale} if kind == "registered" else {}

    def table_files(self, name: str) -> dict[str, str]:
        """What a table is made of besides runs, by the names it has for them."""
        return self._files(kinds.as_table(self.tables[name]), name, self.tables[name])

    def figure_files(self, name: str) -> dict[str, str]:
        return self._files(kinds.as_figure(self.figures[name]), name, self.figures[name])

    def _files(self, shown: Shown, name: str, entry: Config) -> dict[str, str]:
        datasets = as_list(entry.get("where", {}).get("dataset", []))
        files: dict[str, str] = {}
        for file, path in shown.reads.items():
            if "{dataset}" in path:
                files |= {f"{file}.{dataset}": self._path(path, dataset=dataset) for dataset in datasets}
            else:
                files[file] = self._path(path, table=entry.get("table", name))
        return files

    def _path(self, path: str, **parts: str) -> str:
        """What a kind reads. A path without a part to fill in is that of a file of the project."""
        filled = path.format(exact=EXACT, analysis=f"{self.results}/analysis", **parts)
        return project_file(path) if filled == path else filled

    def number_files(self) -> dict[str, str]:
        exact = {Path(file).stem: f"{EXACT}/{file}" for files in EXACT_FILES.values() for file in files}
        del exact["precision"]
        return {**exact, **dict(self._quoted())}

    def _quoted(self) -> Iterator[tuple[str, str]]:
        """What numbers are made of besides, in the order of config.yaml: what is by table, then what is by data set."""
        of_tables, of_figures = ([entry["kind"] for entry in part.values()] for part in (self.tables, self.figures))
        for kind in dict.fromkeys(of_tables):
            if "{table}" in KINDS[kind].quotes:
                for name in self._tables_of(kind):
                    yield f"{kind}.{name}", self._path(KINDS[kind].quotes, table=name)
        for kind in dict.fromkeys([*of_figures, *of_tables]):
            analysis = KINDS[kind].analysis
            if "{dataset}" in KINDS[kind].quotes and analysis:
                for dataset in self.shown(analysis.name):
                    yield f"{kind}.{dataset}", self._path(KINDS[kind].quotes, dataset=dataset)


def kept_names(path: str) -> list[str]:
    """Of the runs of a reference."""
    if not Path(path).exists():
        there = sorted(file.parent.name for file in Path(project_file("paper/reference")).glob("*/runs.csv"))
        scales = ", ".join(there) or "none"
        raise ValueError(f"reference is True, and {path} is not there; accepted: a scale that has one: {scales}")
    return [str(name) for name in pd.read_csv(path, dtype=str)["run"]]


def lacks(files: Iterable[str], record: str, request: Config) -> str:
    """Why results are not those that are asked for; nothing where they are.

    Whether their files are sound is for who reads them to find out: what was edited is refused, not trained again.
    """
    if not all(Path(file).exists() for file in files):
        return "not there"
    try:
        return ", ".join(differences(read_json(Path(record)), request))
    except ValueError:
        return ""
