"""RESULTS.md: its tables are those of the reference in git, cell by cell, and its pictures and links are there.

A table that comes from the reference has a comment above it: the file, and how a cell is written. Its rows are arms,
its columns data sets, with an alpha where the file has several. Of steps the last is meant, of accuracies the best.
"""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "RESULTS.md").read_text()
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
TABLE = re.compile(r"<!-- (?P<file>\S+\.csv): (?P<cell>.+?) -->\n\n?(?P<lines>(?:\|.*\n)+)")
ARMS = {entry["label"]: name for name, entry in CONFIG["arms"].items()}


def split(line):
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def expected(rows, cell, **where):
    rows = rows[rows["dataset"] == where["dataset"]]
    last = {"statistic": "best", "step": rows["step"].max() if "step" in rows else None}
    where |= {name: value for name, value in last.items() if name in rows}
    for name, value in where.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1, f"{len(rows)} rows with {where}"
    return cell.format_map(rows.iloc[0].to_dict())


@pytest.mark.parametrize("match", list(TABLE.finditer(TEXT)), ids=lambda match: match["file"])
def test_a_table_is_what_the_reference_has(match):
    rows = pd.read_csv(ROOT / match["file"], dtype={"alpha": str, "seeds": str})
    scale = Path(match["file"]).parts[2]
    datasets = {entry["label"]: name for name, entry in CONFIG["scales"][scale]["datasets"].items()}
    head, _, *lines = match["lines"].splitlines()
    places = [re.fullmatch(r"(.+?)(?:, alpha = (\S+))?", column).groups() for column in split(head)[1:]]
    for line in lines:
        arm, *cells = split(line)
        assert cells == [
            expected(rows, match["cell"], dataset=datasets[label], arm=ARMS[arm], **({"alpha": alpha} if alpha else {}))
            for label, alpha in places
        ], arm


def test_the_tables_were_found():
    assert len(list(TABLE.finditer(TEXT))) == TEXT.count(".csv: {") > 0


@pytest.mark.parametrize("page", ["README.md", "RESULTS.md"])
def test_pictures_and_links_are_there(page):
    text = (ROOT / page).read_text()
    linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert linked
    assert [link for link in linked if not (ROOT / link).exists()] == []
