"""The document: nothing typed by hand that a rule computes, and it compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import TEST

PAPER = Path(__file__).parents[1] / "paper"

ALLOWED = r"""
    Q-LocalAdam | CIFAR-100? | ResNet-18 | FP32 | INT8          # names
    | \\(?:documentclass|usepackage|renewcommand|setcounter|emergencystretch)[^\n]*  # layout
    | \\(?:result|printed|verdict|ledger|label|ref|input|includegraphics|tablefile)(?:\[[^]]*\])?\{[^}]*\}
    | (?<=\#)1 | \$[^$]*\$ | \\begin\{algorithmic\}\[1\]         # arguments, formulas
"""


def test_no_result_is_typed_by_hand():
    text = re.sub(r"(?<!\\)%.*", "", (PAPER / "main.tex").read_text())
    formulas = re.findall(r"\$[^$]*\$", text)
    left = re.sub(ALLOWED, "", text, flags=re.VERBOSE)
    typed = [line.strip() for line in left.splitlines() if re.search(r"\d", line)]
    assert typed == []
    assert [formula for formula in formulas if re.search(r"(?<![_^{])\d{2,}|\d\.\d", formula)] == []


def test_what_would_be_typed_by_hand_is_found():
    left = re.sub(ALLOWED, "", r"is \result{best/cifar10/0.1/fp32} and 81.67 on CIFAR-10", flags=re.VERBOSE)
    assert re.findall(r"\d+", left) == ["81", "67"]


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
