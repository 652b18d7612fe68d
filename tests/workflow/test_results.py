"""RESULTS.md and the reproducibility summary: written by rules from templates in which no number is typed."""

import re
import shutil

import pytest
import yaml
from projects import ROOT
from registered_runs import answered

from qlocaladam.report import template
from qlocaladam.results.layout import Layout

CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
LABELS = {scale: Layout({**CONFIG, "scale": scale}).labels() for scale in CONFIG["scales"]}
TEMPLATES = ["paper/RESULTS.template.md", "workflow/report/reproducibility.md"]
NAMES = (
    *("CIFAR-10", "CIFAR-100", "cifar10", "cifar100", "FP32", "fp32", "Adam8bit", "Adam4bit", "8bit", "4bit"),
    *("8 bits", "4 bits", "90 % interval", "95 % interval"),
)
"""What may have digits in a template: names."""


def kept_results(reference=ROOT / "paper/reference"):
    paths = (ROOT / path for path in ("paper/RESULTS.template.md", "paper/registered.yaml"))
    return template.kept_results(*paths, reference, LABELS)


def test_results_are_what_the_rule_writes(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert (ROOT / "RESULTS.md").read_text() == kept_results(), "`snakemake RESULTS.md` writes it again"


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_number_is_typed_in_a_template(name):
    text = re.sub(r"\{[a-z_]*:[^}]*\}", "", (ROOT / name).read_text())  # forms of cells: {difference:+.1f}
    for known in NAMES:
        text = re.sub(rf"(?<![0-9]){re.escape(known)}(?![0-9])", "", text)
    assert re.findall(r".*\d.*", text) == []


def test_sentences_follow_from_the_answers(tmp_path, monkeypatch):
    """Of the seven questions the first two are answered yes, the third no, so that nothing after it is decided."""
    monkeypatch.chdir(ROOT)
    shutil.copytree(ROOT / "paper/reference", tmp_path / "reference")
    answered(tmp_path / "reference/registered/tables/registered.csv")
    said = kept_results(tmp_path / "reference")
    assert "| Without its floor, is the method below FP32? | yes | " in said
    assert "it the method falls below FP32 (CIFAR-10 " in said
    assert "- **What the paper got right**: the released method trains like FP32 Adam with the same " in said
    assert "`Adam8bit`, which stores m / sqrt(v), is not shown to be equivalent to FP32 (CIFAR-10 " in said
    assert "For `Adam4bit` this is not tested, because an earlier question was not answered yes; observed: " in said


def test_a_cell_that_is_not_one_is_an_error():
    results = template.Results(ROOT / "paper/reference/small", LABELS["small"])
    with pytest.raises(ValueError, match=r"controls.csv has \d+ rows at \{'arm': 'fp32'\}; needed is one"):
        results.cell("controls", "{best:.1f}", arm="fp32")


def test_the_reproducibility_summary_says_what_was_run_and_what_came_out(finished):
    said = (finished.folder / "results/test/REPRODUCIBILITY.md").read_text()
    heads = re.findall("^## (.*)", said, re.MULTILINE)
    assert heads == [
        *("Scope of reproducibility", "Methodology", "Results", "What was easy", "What was difficult"),
        "Communication with the original authors",
    ]
    assert "41 runs were trained at this scale, which is smaller than the paper's" in said
    assert "- Digits: 300 training and 100 test samples" in said
    assert "Without its floor, is the method below FP32? Open: runs missing." in said
    assert said.endswith("None.\n")


@pytest.mark.parametrize("page", ["README.md", "RESULTS.md"])
def test_pictures_and_links_are_there(page):
    text = (ROOT / page).read_text()
    linked = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in link]
    assert linked
    assert [link for link in linked if not (ROOT / link).exists()] == []
