"""Printed, released, rebuilt: the page of docs and the table of the document come from one file."""

from pathlib import Path

import pytest
import yaml

from qlocaladam.results import released, tables
from qlocaladam.results.latex import escape

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / released.SOURCE
CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
LABELS = {name: entry["label"] for name, entry in CONFIG["arms"].items()}
ROWS = released.load(SOURCE)


def test_the_page_of_docs_is_what_the_file_makes():
    made = released.markdown(SOURCE, LABELS)
    assert (ROOT / "docs/released.md").read_text() == made, "snakemake docs/released.md brings it up to date"


def test_the_document_and_the_page_say_the_same():
    spec = {"kind": "released", "name": "released", "caption": "Words", "labels": {"arm": LABELS}, "stands_for": {}}
    made = [tables.build({**spec, "part": part}, None, {"released": SOURCE}) for part in released.PARTS]
    written = [row for table in made for group in table.groups for row in group.rows]
    page = [line for line in released.markdown(SOURCE, LABELS).splitlines() if line.startswith("| ")][2:]
    assert len(page) == len(written) == len(ROWS)
    for line, cells, row in zip(page, written, ROWS, strict=True):
        for name in ("what", "printed", "place", "released", "here"):
            assert str(row[name]) in line
            assert escape(row[name]) in " ".join(cells)
        for arm in row["arms"]:
            assert LABELS[arm] in line
            assert escape(LABELS[arm]) in cells[-1]
        assert released.place(row) in line
        assert escape(released.place(row)) in cells[2]
    assert all("27d709d" in table.caption for table in made)
    assert [lines for table in made for lines in table.data["lines"]] == [row["lines"] for row in ROWS]


def test_links_lead_to_lines_of_a_commit():
    floor = next(row for row in ROWS if row["what"] == "Floor under the variance")
    start = "https://github.com/ved2201/Q-LocalAdam/blob/27d709d2bc36ea75ed20fb2898e400f1dca99c33/qlocaladam_cifar10.py"
    assert released.address(floor) == f"{start}#L180"
    assert released.address(ROWS[0]) == f"{start}#L136-L138"
    assert released.place(ROWS[0]) == "lines 136-138, 164-166"
    assert released.place(ROWS[-1]) == "dynamic_tree.ipynb, commit dd0268b"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"part": "other"}, "'Step': part is 'other'; accepted: method, experiments"),
        ({"here": None}, "'Step': here is None; accepted: some text"),
        ({"line": "3"}, "'Step': unknown key 'line'; accepted: part, what, printed, place, released, here, lines, "),
        ({"lines": "3 to 4"}, "'Step': lines is '3 to 4'; accepted: as in 136-138, 164-166"),
    ],
)
def test_a_mistake_is_named(tmp_path, change, said):
    entry = {**dict.fromkeys(released.NEEDED, "words"), "what": "Step", "part": "method", **change}
    content = {"repository": "r", "commit": "c", "file": "f", "lines": [entry]}
    (tmp_path / "released.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match=said):
        released.load(tmp_path / "released.yaml")
