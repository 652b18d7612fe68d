"""Every kind of table and figure, a module of this package each, and what config.yaml may say of each."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from qlocaladam.experiments.configuration import SCHEMA, refuse_by_schema
from qlocaladam.experiments.consistency import shown_runs
from qlocaladam.experiments.grid import as_list, refuse_unknown
from qlocaladam.files import read_yaml
from qlocaladam.project import project_file
from qlocaladam.results.kind import Analysis, AsFigure, AsTable, Config, Kind, Shown, Spec, ref, words

KINDS: dict[str, Kind] = {
    module.name: import_module(f"{__name__}.{module.name}").KIND for module in pkgutil.iter_modules(__path__)
}
ANALYSES: dict[str, Analysis] = {kind.analysis.name: kind.analysis for kind in KINDS.values() if kind.analysis}
"""Those that train a little themselves."""
SECTIONS = (
    "Claims",
    "Registered questions",
    "Main results",
    "Heterogeneity",
    "Seeds",
    "Ablations",
    "Optimizer states",
    "Precision and memory",
    "Data",
    "Beyond the paper",
)
"""In the order they are read."""
REQUIRED: Mapping[str, Mapping[str, Any]] = {"tables": {"kind": {}, "caption": ref("text")}, "figures": {"kind": {}}}
"""Keys that all entries of config.yaml have."""
COMMON = {"group": ref("group"), "section": {"enum": list(SECTIONS)}}
"""Keys that all of them may have."""


def as_table(spec: Spec) -> AsTable:
    return cast(AsTable, _shown(spec, "tables"))


def as_figure(spec: Spec) -> AsFigure:
    return cast(AsFigure, _shown(spec, "figures"))


def _shown(spec: Spec, part: str) -> Shown:
    accepted = shown_as(part)
    refuse_unknown(f"{part}.{spec.get('name', 'NAME')}.kind", [spec["kind"]], accepted)
    return accepted[spec["kind"]]


def shown_as(part: str) -> dict[str, Shown]:
    """The kinds that `tables` or `figures` of config.yaml can have."""
    forms = {name: kind.table if part == "tables" else kind.figure for name, kind in KINDS.items()}
    return {name: shown for name, shown in forms.items() if shown}


def section(entry: Config) -> str:
    """Where a table or a figure of config.yaml stands in the report: as it says itself, or else as its kind does."""
    if entry.get("group") == "beyond":
        return "Beyond the paper"
    return str(entry.get("section", KINDS[entry["kind"]].section))


def figure_title(spec: Spec) -> str:
    """What a figure shows, in one line."""
    title = as_figure(spec).title
    return title.format(**words(spec)) if isinstance(title, str) else title(spec)


def said(spec: Spec, part: str) -> str:
    """What stands beside a table or a figure: what it is about, and how far it can be taken for the paper's."""
    return _shown(spec, part).said.format(**words(spec))


# What config.yaml may say: of each entry its keys, then whether their values go together with the rest.


def schema() -> dict[str, Any]:
    """Of `tables` and `figures`, and of how large analyses are at a scale, as JSON schema."""
    definitions = read_yaml(Path(project_file(SCHEMA)).read_text())["$defs"]
    sizes = {name: _object(analysis.size) for name, analysis in ANALYSES.items() if analysis.size}
    scale = {"properties": {"analyses": _object(sizes)}}
    parts = {part: {"additionalProperties": _entry(part)} for part in REQUIRED}
    return {"properties": {**parts, "scales": {"additionalProperties": scale}}, "$defs": definitions}


def _object(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": ", ".join(keys), "properties": keys, "additionalProperties": False}


def _entry(part: str) -> dict[str, Any]:
    kinds = shown_as(part)
    return {
        "type": "object",
        "description": f"an entry with {' and '.join(REQUIRED[part])}",
        "required": list(REQUIRED[part]),
        "properties": {"kind": {"enum": list(kinds)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": name}}}, "then": _keys(part, shown)}
            for name, shown in kinds.items()
        ],
    }


def _keys(part: str, shown: Shown) -> dict[str, Any]:
    keys = {**REQUIRED[part], **COMMON, **shown.keys, **shown.optional}
    return {"required": list(shown.keys), "properties": keys, "additionalProperties": False}


def check(config: Config) -> None:
    """Raise ValueError at the first mistake in `tables`, `figures` or `gallery`."""
    refuse_by_schema(config, schema())
    refuse_unknown("gallery", config["gallery"], config["figures"])
    for part in REQUIRED:
        for name, entry in config[part].items():
            check_selection(config, f"{part}, {name}", entry)
            shown_as(part)[entry["kind"]].check(config, f"{part}.{name}", entry)


def check_selection(config: Config, key: str, entry: Config) -> None:
    """Whether a table or a figure has something to show. One of a group is looked at as if that were on."""
    where = entry.get("where", {})
    for axis, part in (("dataset", "datasets"), ("arm", "arms")):
        refuse_unknown(f"{key}: where: {axis}", as_list(where.get(axis, [])), config[part])
    if "table" in entry:
        tested = [name for name, table in config["tables"].items() if _is_tested_with(table, entry)]
        refuse_unknown(f"{key}: table", [entry["table"]], tested)
    for place, selection in selections(entry):
        names = [experiment["name"] for experiment in config["experiments"]]
        refuse_unknown(f"{key}{place}: experiments", selection["experiments"], names)
        rows = shown_runs(config, entry, selection)
        if rows.empty:
            where = selection.get("where", {})
            raise ValueError(f"{key}{place}: where {where} selects none of the runs of its experiments that are on")
        if "baseline" in entry:
            refuse_unknown(f"{key}: baseline", [entry["baseline"]], rows["arm"].unique())


def _is_tested_with(table: Config, figure: Config) -> bool:
    """Whether a table has tests that a figure can draw: of its kind, and there whenever the figure is."""
    return bool(table["kind"] == figure["kind"] and table.get("group") in (None, figure.get("group")))


def selections(entry: Config) -> Iterator[tuple[str, Config]]:
    """What selects the runs of an entry, or of each panel of a figure; nothing where it shows none."""
    if "experiments" in entry:
        yield "", entry
    for number, panel in enumerate(entry.get("panels", []), 1):
        yield f", panel {number}", panel
