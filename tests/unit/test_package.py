"""What a stranger meets first: the import, the version, the command line."""

import re
from importlib.metadata import version
from pathlib import Path

import pytest
from command_line import refused

import qlocaladam
from qlocaladam.cli import main


def test_version_is_that_of_the_distribution():
    assert qlocaladam.__version__ == version("qlocaladam")


def test_every_public_name_is_found_and_no_other():
    assert all(getattr(qlocaladam, name) is not None for name in qlocaladam.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Adam'"):
        _ = qlocaladam.Adam


def test_memory_command_prints_the_papers_figures(capsys):
    assert main(["memory"]) == 0
    printed = capsys.readouterr().out
    for figure in ("50.35", "14.95", "89.82", "26.67", "30.88", "24.56", "17.31", "13.77", "32.65", "58.24", "25.26"):
        assert figure in printed


def test_bad_values_end_in_one_line(capsys):
    said = "qlocaladam: block_size must be a whole number of at least 2, got 1"
    assert refused(capsys, ["memory", "--block-size", "1"]) == said


def test_help_teaches(capsys):
    with pytest.raises(SystemExit):
        main(["memory", "--help"])
    assert "example: python -m qlocaladam memory" in capsys.readouterr().out


def test_the_glossary_names_modules_that_are_there():
    page = Path(__file__).parents[2] / "docs/glossary.md"
    owners = re.findall(r"\| `([\w/]+\.py)` \|$", page.read_text(), re.MULTILINE)
    assert len(owners) > 40
    assert [owner for owner in owners if not (Path(qlocaladam.__file__).parent / owner).exists()] == []
