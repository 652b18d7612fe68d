"""The document: nothing typed by hand that a rule computes, and it compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import TEST

PAPER = Path(__file__).parents[2] / "paper"

PULLS = r"result|printed|verdict|ledger|label|ref|input|includegraphics|tablefile|gap|registeredgap|onboth|ifcsstring"
COMPUTED = rf"\\(?:{PULLS}|when[a-z]+|wide|narrow|asdrawn)(?:\[[^]]*\])?\{{[^}}]*\}}"
"""What pulls something in, and names of it."""
NAMES = r"Q-LocalAdam|CIFAR-100?|ResNet-18|FP32|INT8"
LAYOUT = (
    r"\\(?:documentclass|usepackage|(?:re)?newcommand|setcounter|emergencystretch)[^\n]*|\\begin\{algorithmic\}\[1\]"
)


def typed(text: str) -> list[str]:
    """Lines with digits that somebody wrote, and formulas with more than indices, squares and ones in them."""
    text = re.sub(rf"{COMPUTED}|#\d", "", re.sub(r"(?<!\\)%.*", "", text))
    text = re.sub(r"\\\[|\\\]", "$", text)
    formulas = [formula for formula in re.findall(r"\$[^$]*\$", text) if re.search(r"\d[\d.]|(?<![_^])[2-9]", formula)]
    left = re.sub(rf"\$[^$]*\$|{NAMES}|{LAYOUT}", "", text)
    return [line.strip() for line in left.splitlines() if re.search(r"\d", line)] + formulas


def test_no_result_is_typed_by_hand():
    assert typed((PAPER / "main.tex").read_text()) == []


@pytest.mark.parametrize("text", ["81.67 on CIFAR-10", "$p=0.78$", "$n = 30$", r"\result{a/0.1} or 3 seeds"])
def test_what_would_be_typed_by_hand_is_found(text):
    assert typed(text)


def test_the_document_compiles_without_a_missing_reference_or_an_overfull_box(copy):
    if not shutil.which("latexmk"):
        pytest.skip("latexmk is not installed")
    copy.snakemake("paper", *TEST)
    log = (copy.folder / "paper/generated/test/build/paper.log").read_text(errors="replace")
    assert not re.findall(r"undefined|multiply defined|Missing character", log)
    assert [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log) if float(points) > 5] == []
    pdf = copy.folder / "paper/generated/test/paper.pdf"
    assert pdf.read_bytes().startswith(b"%PDF")
    if shutil.which("pdftotext"):
        text = subprocess.run(["pdftotext", pdf, "-"], capture_output=True, text=True, check=True).stdout
        assert "What Makes Q-LocalAdam Work?" in text
        assert "??" not in text


def test_without_tex_everything_else_is_made_and_the_paper_says_what_it_needs(copy, tmp_path, monkeypatch):
    programs = tmp_path / "programs"
    programs.mkdir()
    for program in (path for folder in ("/usr/bin", "/bin") for path in Path(folder).iterdir()):
        if program.name != "latexmk" and not (programs / program.name).is_symlink():
            (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    (copy.folder / "paper/generated/test/paper.pdf").unlink(missing_ok=True)
    assert copy.planned(*TEST) == {}
    said = copy.snakemake("paper", *TEST, ok=False)
    assert "The paper needs TeX: apt-get install --no-install-recommends latexmk" in said
