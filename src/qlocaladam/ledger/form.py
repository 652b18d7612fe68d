"""The form of the ledger: what an entry of paper/published.yaml is."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from qlocaladam.experiments.configuration import Mistake, refuse_by_schema
from qlocaladam.experiments.grid import as_list
from qlocaladam.files import read_yaml
from qlocaladam.ledger.intervals import DERIVED, TESTS, Entry, of_entry
from qlocaladam.project import project_file

SCHEMA = "workflow/schemas/published.schema.yaml"
KINDS = ("exact", "trained", "derived", "claim")
WAYS = ("from", "check", "rebuilt", "test", "untested")
"""How an entry is judged: what is printed elsewhere, as a number or as a claim; what was computed here, as either."""
OF_RUNS = (
    *("greater", "not_less", "monotone", "equivalent", "close"),
    *("steadier", "less_spread", "collapsed", "not_collapsed"),
)
"""Ways of `qlocaladam.ledger.verdicts`, by which claims about runs are judged over their seeds."""


def load(path: str | Path) -> list[dict[str, Any]]:
    """The published numbers. ValueError names the entry that is wrong, and what is accepted."""
    entries: list[dict[str, Any]] = read_yaml(Path(path).read_text())
    try:
        refuse_by_schema(entries, read_yaml(Path(project_file(SCHEMA)).read_text()))
    except Mistake as error:
        raise ValueError(f"{path}: {_with_ids(str(error), entries)}") from None
    known: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry["id"] in known:
            raise ValueError(f"{path}: two entries have the id {entry['id']!r}")
        known[entry["id"]] = entry
    for name, entry in known.items():
        try:
            _check_names(entry, known)
        except ValueError as error:
            raise ValueError(f"{path}: {name}: {error}") from None
    return entries


def _with_ids(mistake: str, entries: Any) -> str:
    """Entries by their ids, where the schema counts them."""
    number = re.match(r"\[(\d+)\]", mistake)
    name = entries[int(number[1])].get("id") if number and isinstance(entries[int(number[1])], dict) else None
    return mistake.replace(number[0], str(name), 1) if number and name else mistake


def _check_names(entry: Entry, known: Mapping[str, Entry]) -> None:
    """What a schema cannot: that what is printed can be read, and that what is named is there."""
    if entry["kind"] != "claim" and ("from" in entry or "rebuilt" in entry):
        of_entry(entry)
    if entry.get("claim", entry["id"]) not in known:
        raise ValueError(f"claim {entry['claim']!r} is no id")
    for way, hows in (("from", DERIVED), ("check", TESTS), ("test", {*TESTS, *OF_RUNS})):
        if way in entry:
            _check_way(way, entry[way], hows, known)


def _check_way(way: str, content: Any, hows: Collection[str], known: Mapping[str, Entry]) -> None:
    for how in as_list(content["how"]):
        if how not in hows:
            raise ValueError(f"{way} has how {how!r}; accepted: {', '.join(hows)}")
    for name in content["of"] if way != "test" else ():
        if name not in known:
            raise ValueError(f"{way} names {name!r}, which is no id")
        if content["how"] != "same":
            of_entry(known[name])
