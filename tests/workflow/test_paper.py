"""The document: nothing typed by hand that a rule computes, and it compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import TEST

from qlocaladam.results.number import Number
from qlocaladam.results.numbers import as_latex

PAPER = Path(__file__).parents[2] / "paper"

PULLS = r"result|printed|verdict|ledger|label|ref|input|includegraphics|tablefile|gap|registeredgap|onboth|ifcsstring"
COMPUTED = rf"\\(?:{PULLS}|when[a-z]+|wide|narrow|pair\{{[^}}]*\}})(?:\[[^]]*\])?\{{[^}}]*\}}"
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


def test_the_document_compiles_without_a_missing_reference_or_an_overfull_box(finished):
    if not shutil.which("latexmk"):
        pytest.skip("latexmk is not installed")
    folder = finished.folder / "paper/generated/test"
    log = (folder / "build/paper.log").read_text(errors="replace")
    assert not re.findall(r"undefined|multiply defined|Missing character", log)
    assert [float(points) for points in re.findall(r"Overfull \\hbox \(([\d.]+)pt", log) if float(points) > 5] == []
    pdf = folder / "paper.pdf"
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


WRITTEN = {
    "-4.96": "\N{MINUS SIGN}4.96",
    "+5.74": "+5.74",
    "6.79e-13": "6.79 \N{MULTIPLICATION SIGN} 10\N{MINUS SIGN}13",
    "1.49e+10": "1.49 \N{MULTIPLICATION SIGN} 1010",
    "-1e-05": "\N{MINUS SIGN}1 \N{MULTIPLICATION SIGN} 10\N{MINUS SIGN}5",
    "<0.0001": "<0.0001",
    "11,227,812": "11,227,812",
    "--": "\N{EN DASH}",
    "42, 123, 456": "42, 123, 456",
    "node-2": "node-2",
    "100 % & #1": "100 % & #1",
}
"""What a number's text looks like on paper. `node-2` is no power of ten."""


def compiled(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    numbers = [Number(f"a_b/0.1/lr={i}", None, text, "") for i, text in enumerate(WRITTEN)]
    (folder / "numbers.tex").write_text(as_latex(numbers))
    (folder / "text.tex").write_text(
        r"\documentclass{article}\pagestyle{empty}\setlength{\parindent}{0pt}\input{numbers}"
        rf"\begin{{document}}{body}\end{{document}}"
    )
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "text.tex"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")


@pytest.mark.skipif(not (shutil.which("latexmk") and shutil.which("pdftotext")), reason="needs latexmk and pdftotext")
def test_latex_writes_numbers_in_sentences_and_in_formulas(tmp_path):
    names = [rf"\result{{a_b/0.1/lr={i}}}" for i in range(len(WRITTEN))]
    numeric = range(list(WRITTEN).index("--"))
    done = compiled(tmp_path, "\n\n".join([*names, *(f"${names[i]}$" for i in numeric)]))
    assert done.returncode == 0, done.stdout[-3000:]
    command = ["pdftotext", "-layout", "-enc", "UTF-8", "text.pdf", "-"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    lines = [line.strip() for line in shown.replace("\f", "").splitlines() if line.strip()]
    written = list(WRITTEN.values())
    assert lines[: len(names)] == written
    spaced = [line.replace("< ", "<") for line in lines[len(names) :]]  # as formulas have it
    assert spaced == [written[i] for i in numeric]


@pytest.mark.skipif(shutil.which("latexmk") is None, reason="latexmk is not installed")
def test_a_name_that_does_not_exist_stops_the_compilation(tmp_path):
    done = compiled(tmp_path, r"\result{a_b/0.1/lr=none}")
    assert done.returncode != 0
    assert "! There is no number named a_b/0.1/lr=none." in done.stdout
