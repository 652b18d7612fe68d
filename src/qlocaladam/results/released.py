"""Printed, released, rebuilt: paper/released.yaml as a page of docs; the table of the document is made of it, too."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qlocaladam.files import read_yaml

SOURCE = Path("paper/released.yaml")
PARTS = ("method", "experiments")
NEEDED = ("part", "what", "printed", "place", "released", "here")
OPTIONAL = ("lines", "file", "commit", "arms")
LINES = re.compile(r"\d+(-\d+)?(, \d+(-\d+)?)*")

Row = dict[str, Any]


def load(path: Path) -> list[Row]:
    """A row for each line of the comparison, each with its repository, commit, file and arms."""
    content = read_yaml(path.read_text())
    common = {name: content[name] for name in ("repository", "commit", "file")}
    rows = [{**common, "lines": "", "arms": [], **entry} for entry in content["lines"]]
    for row, entry in zip(rows, content["lines"], strict=True):
        for name in NEEDED:
            if not isinstance(entry.get(name), str | int):
                raise ValueError(f"{path}: {entry.get('what')!r}: {name} is {entry.get(name)!r}; accepted: some text")
        if row["part"] not in PARTS:
            raise ValueError(f"{path}: {row['what']!r}: part is {row['part']!r}; accepted: {', '.join(PARTS)}")
        if unknown := entry.keys() - {*NEEDED, *OPTIONAL}:
            accepted = ", ".join((*NEEDED, *OPTIONAL))
            raise ValueError(f"{path}: {row['what']!r}: unknown key {min(unknown)!r}; accepted: {accepted}")
        if row["lines"] and not LINES.fullmatch(str(row["lines"])):
            raise ValueError(f"{path}: {row['what']!r}: lines is {row['lines']!r}; accepted: as in 136-138, 164-166")
    return rows


def place(row: Row) -> str:
    """Where the released side stands: of the script its lines, of anything else the file and the commit."""
    return f"{'line' if row['lines'].isdigit() else 'lines'} {row['lines']}" if row["lines"] else _file(row)


def _file(row: Row) -> str:
    return f"{row['file']}, commit {row['commit'][:7]}"


def address(row: Row) -> str:
    """A link to the first of the lines."""
    first, _, last = str(row["lines"]).partition(", ")[0].partition("-")
    lines = "".join([f"#L{first}" if first else "", f"-L{last}" if last else ""])
    return f"{row['repository']}/blob/{row['commit']}/{row['file']}{lines}"


def markdown(path: Path, arms: Mapping[str, str]) -> str:
    """docs/released.md. `arms` are the labels of config.yaml."""
    rows = load(path)
    first = rows[0]
    lines = [
        "# Printed, released, rebuilt",
        "",
        f"<!-- Made of {SOURCE.as_posix()} by `snakemake docs/released.md`: edit that file, not this one. -->",
        "",
        "The paper's equations, its released code and this package, line by line. Where the first two differ, the",
        "package does what the code does, for the published numbers come from there; arms run the other side.",
        "",
        f"Released: [{first['repository']}]({first['repository']}), `{first['file']}`, commit",
        f"`{first['commit'][:7]}`. The script for CIFAR-100 has the same lines as far as 526, each one further down.",
        "",
        "| | Printed | Released | Here | Arms that differ |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        released = f"{row['released']} ([{place(row)}]({address(row)}))"
        labels = "; ".join(arms[arm] for arm in row["arms"])
        cells = [row["what"], f"{row['printed']} ({row['place']})", released, row["here"], labels]
        lines.append(f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"
