"""The pages that people open: the ledger, the tables, RESULTS.md, and the report around them, in a real browser."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from analysis_files import CONTRASTS
from browser import Browser, browsed
from docutils.core import publish_parts
from jinja2 import Environment, StrictUndefined
from projects import ROOT, TEST
from registered_runs import LABELS as ALL_LABELS
from registered_runs import answered

from qlocaladam.ledger import presentation
from qlocaladam.ledger.claims import COLUMNS, NOT_COMPARABLE
from qlocaladam.project import VARIABLE
from qlocaladam.report import html as pages
from qlocaladam.report import markdown, page
from qlocaladam.results import kinds
from qlocaladam.results.layout import Layout

CONFIG = yaml.safe_load((ROOT / "config.yaml").read_text())
LABELS = {
    "dataset": {"cifar10": "Digits", "cifar100": "Digit pairs"},
    "arm": {"fp32": "FP32", "q-localadam": "Q-LocalAdam <8 bits>"},
}
NAMES = {"scale": "quick", "labels": LABELS, "stands_for": {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}}
MADE = {
    "rule": "table",
    "rulefile": "workflow/rules/tables.smk",
    "code": "src/qlocaladam/results/tables.py",
    "runs": ["results/quick/runs/one", "results/quick/runs/two"],
    "files": ["results/exact/memory.csv"],
}
TABLE = {**NAMES, "made": MADE}
ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
MAIN = {
    "kind": "runs",
    "section": "Main results",
    "experiments": ["main"],
    "rows": "arm",
    "columns": ["best"],
    "caption": "The main arms",
}
MAIN_CSV = """\
dataset,alpha,arm,block_size,lr,runs,seeds,best,final,best_std,final_std,diverged,collapsed,memory_bytes,difference
cifar10,0.1,fp32,64,0.001,2,1 2,65.83333,60.125,1.5,,0,False,50353616,0.0
cifar10,0.1,q-localadam,64,0.001,2,1 2,66.11111,19.0,0.25,,0,True,14950112,0.2777777
"""
CLAIMS = pd.DataFrame(
    [
        ["main/mem", "Table main", "exact", "MB", "14.95", "14.950112", "0.000112", "", "exact", "", "m.csv"],
        ["text/p", "Section 5", "derived", "", "0.78", "0.81639", "0.036", "", "contradicts itself", "p is a<b", ""],
        ["text/span", "Abstract", "derived", "orders", "7--8", "9.0", "1.0", "", "contradicts itself", "nine", "a, b"],
        ["main/acc", "Table main", "trained", "%", "81.67", "65.83", "-15.84", "Digits", NOT_COMPARABLE, "", ""],
        ["claim/naive", "Abstract", "claim", "", "--", "", "", "Digits", "fails here", "naive | survives", "n.json"],
    ],
    columns=list(COLUMNS),
)


@pytest.fixture
def main_csv(tmp_path):
    path = tmp_path / "main.csv"
    path.write_text(MAIN_CSV)
    return path


@pytest.fixture
def claims_csv(tmp_path):
    path = tmp_path / "claims.csv"
    CLAIMS.to_csv(path, index=False)
    return path


def cells(html: str) -> list[list[str]]:
    """The rows of a page's tables."""
    rows = re.findall(r"<tr.*?>(.*?)</tr>", html)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row)] for row in rows]


# Sections and titles.


def test_sections_are_in_the_order_they_are_read():
    names = [page.numbered(name) for name in kinds.SECTIONS]
    assert names == sorted(names)
    assert names[:2] == ["01. Claims", "02. Registered questions"]


def test_a_result_stands_in_the_section_that_it_names_or_in_that_of_its_group_or_kind():
    sections = {
        "main": "Main results",
        "beyond": "Beyond the paper",
        "controls": "Ablations",
        "multiseed": "Seeds",
        "scaling": "Precision and memory",
    }
    assert {name: kinds.section(CONFIG["tables"][name]) for name in sections} == sections


def test_every_figure_has_a_title_of_its_own():
    titles = {name: kinds.figure_title({**NAMES, **entry}) for name, entry in CONFIG["figures"].items()}
    assert len(set(titles.values())) == len(titles)
    said = "Test accuracy after each round, main and heterogeneity: Digits by arm; Digits, Q-LocalAdam <8 bits> by "
    assert titles["convergence_cifar10"] == said + ALPHA
    # Partitions are the paper's own at every scale, states are of what was trained on.
    assert titles["cifar10_heatmap"].endswith("CIFAR-10")
    assert titles["optimizer_dist_c10"].endswith("Digits")


TEXTS = {
    "opening": "<p>opening</p>",
    "made": {part: defaultdict(lambda: "<p>made</p>") for part in ("table", "figure")},
}


def rendered(name: str, config: dict, **known: object) -> str:
    """A caption as the report makes it, but with every mistake an error."""
    shown = {part: CONFIG[part].items() for part in ("tables", "figures")}
    said = {part: {name: kinds.said({**NAMES, **entry}, part) for name, entry in shown[part]} for part in shown}
    known["config"] = {"report_texts": {**TEXTS, "said": said}, **config}
    template = (ROOT / "workflow/report" / name).read_text()
    environment = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    text = environment.from_string(template).render(snakemake=SimpleNamespace(**known))
    links = "\n\n.. _01. Claims: javascript:app.showCategory('01. Claims')\n"  # as the report adds them
    return publish_parts(text + links, writer="html", settings_overrides={"halt_level": 2})["html_body"]


@pytest.mark.parametrize("scale", CONFIG["scales"])
def test_captions_say_the_scale_and_what_stands_for_what(scale):
    config = {**CONFIG, "scale": scale}
    said = rendered("workflow.rst", config=config)
    assert f"rebuilt at scale {scale}" in said
    assert ("Digits stands in the place of CIFAR-10" in said) == (scale in ("test", "quick"))
    assert ("smaller than in the paper" in said) == (scale != "paper")
    assert "5 epochs stands" not in said, "data sets of a group that is off"
    beyond = rendered("workflow.rst", config={**config, "beyond": True})
    assert "5 epochs stands in the place of CIFAR-10" in beyond
    assert "Text is trained on as it is" in beyond
    assert '  fp32: {"arm": "fp32", "label": "FP32"}\n' in said.replace("&quot;", '"')
    files = SimpleNamespace(claims="results/claims.csv")
    assert ("never called reproduced" in rendered("claims.rst", config=config, input=files)) == (scale != "paper")


@pytest.mark.parametrize("name", CONFIG["figures"])
def test_every_figure_has_a_caption(name):
    output, words = SimpleNamespace(pdf=f"figures/{name}.pdf"), SimpleNamespace(figure=name)
    said = rendered("figure.rst", config={**CONFIG, "scale": "quick"}, wildcards=words, output=output)
    opening = {
        "convergence": "Accuracy on the test set",
        "contrasts": "How far each arm of the table",
        "registered": "Each registered question and its answer",
        "distributions": "What FP32 Adam holds",
        "precision": "How much of a value is lost",
        "heatmap": "What each client holds of CIFAR-10",
        "step_errors": "How far off one step of a client would be",
        "step_layers": "How far off the last step of a client would be",
        "variance": "Where the variance v of Adam lives",
        "client_memory": "All that a client holds in a training step",
        "model_size": "First steps of transformers of several widths",
        "trend": "Accuracy over the last third of the rounds",
        "microscope": "The first round of one client",
    }[CONFIG["figures"][name]["kind"]]
    assert opening in said
    assert f"figures/{name}.pdf" in said
    assert "<p>made</p>" in said


@pytest.mark.parametrize("name", CONFIG["tables"])
def test_every_table_has_a_caption(name):
    files, words = SimpleNamespace(table=f"tables/{name}.csv"), SimpleNamespace(table=name)
    said = rendered("table.rst", config={**CONFIG, "scale": "quick"}, wildcards=words, input=files)
    assert CONFIG["tables"][name]["caption"] in said
    assert "<p>made</p>" in said
    kind = CONFIG["tables"][name]["kind"]
    assert ("Trained at scale" in said) == ("experiments" in CONFIG["tables"][name])
    assert ("whatever the scale, for nothing is trained" in said) == (kinds.KINDS[kind].exact and kind != "released")
    assert ("Exploratory: intervals, and no verdicts" in said) == (kind == "contrasts")
    assert ("committed before any run" in said) == (kind == "registered")


# Tables.


def test_a_table_is_rounded_named_and_says_once_what_its_rows_share(main_csv):
    html = pages.table_page({**TABLE, **MAIN}, main_csv)
    assert cells(html) == [
        ["Arm", "Best accuracy (%)", "Final accuracy (%)", "Difference (pp)", "Optimizer memory (MB)", "Collapsed"],
        ["FP32", "65.83 ± 1.50", "60.12", "+0.00", "50.35", "no"],
        ["Q-LocalAdam &lt;8 bits&gt;", "66.11 ± 0.25", "19.00", "+0.28", "14.95", "yes"],
    ]
    assert f"In every row: data set Digits; {ALPHA} 0.1; block size 64; learning rate 0.001; seeds 1 2;" in html
    assert "Trained at scale quick" in html


def test_contrasts_show_every_metric_and_what_was_not_tested(tmp_path):
    (tmp_path / "contrasts.csv").write_text(CONTRASTS)
    entry = {"kind": "contrasts", "caption": "Contrasts", "margin": 0.05, "experiments": ["beyond"]}
    html = pages.table_page({**TABLE, **entry}, tmp_path / "contrasts.csv")
    head, fp32, method, naive, *rest = cells(html)
    assert dict(zip(head, method, strict=True)) == {
        "Data set": "Digits",
        ALPHA: "0.1",
        "Arm": "Q-LocalAdam &lt;8 bits&gt;",
        "Seeds": "1-5",
        "Accuracy": "last_third",
        "Mean (%)": "80.25",
        "Mean of the baseline (%)": "80.00",
        "Difference (pp)": "+0.25",
        "95 % interval": "-0.37 to +0.87",
        "Simultaneous interval": "-0.60 to +1.10",
        "90 % interval": "-0.20 to +0.70",
        "Variance": "pooled",
        "p (difference)": "0.30",
        "p (equivalence)": "0.00040",
        "p (equivalence, wider margin)": "&lt;0.0001",
        "Seeds needed": "4",
        "Runs": "5",
        "Runs collapsed": "0",
        "Seeds left out": "",
        "Why nothing was tested": "",
    }
    assert fp32[head.index("Difference (pp)")] == ""
    assert (naive[head.index("p (difference)")], naive[head.index("Variance")]) == ("&lt;0.0001", "paired")
    named = [row[head.index("Accuracy")] for row in rest]
    assert named == ["last_third"] * 3 + ["best"] * 6 + ["final"] * 6 + ["mean"] * 6
    assert rest[2][-1] == "one seed: nothing to test"
    assert "a margin of 5 % of the baseline, and of twice that" in html
    assert "Exploratory: intervals, and no verdicts" in html


def test_answers_show_every_question_and_what_it_rests_on(tmp_path):
    path = answered(tmp_path / "answers.csv")
    entry = {"kind": "registered", "caption": "Answers", "experiments": ["registered"], "labels": ALL_LABELS}
    html = pages.table_page({**TABLE, **entry}, path)
    head, *rows = cells(html)
    assert len(rows) == 14
    first = dict(zip(head, rows[0], strict=True))
    assert first["Question"] == "Without its floor, is the method below FP32?"
    assert (first["Answer"], first["Status"], first["Seeds"]) == ("yes", "final", "8")
    assert [row[head.index("Answer")] for row in rows[::2]] == [
        *("yes", "yes", "no", "exploratory", "open", "exploratory", "exploratory"),
    ]
    missing = dict(zip(head, rows[8], strict=True))
    assert (missing["Status"], missing["Difference (pp)"], missing["p"]) == ("runs missing", "", "")
    assert missing["Why there is no test"] == "runs of either arm are missing"
    assert "committed before any run with its seeds existed" in html


def test_a_table_carries_its_csv_and_needs_no_other_file(main_csv):
    html = pages.table_page({**TABLE, **MAIN}, main_csv)
    content = re.search(r'download="main.csv" href="data:text/csv;base64,(.*?)"', html)[1]
    assert base64.b64decode(content) == main_csv.read_bytes()
    assert re.findall(r'<(?!a class="file")[^>]*(?:src|href)="(?!data:|#)', html) == []


def test_partitions_are_the_papers_own_whatever_stands_in_its_place(tmp_path):
    path = tmp_path / "clients.csv"
    path.write_text(
        "dataset,alpha,client,samples,dominant,dominant_name,dominant_percent,classes\n"
        "cifar10,0.1,0,9348,3,Cat,37.2807,6\ncifar10,iid,0,5000,2,Bird,10.5,10\n"
    )
    html = pages.table_page({**TABLE, "kind": "clients", "caption": "Clients"}, path)
    assert cells(html)[1:] == [["0.1", "0", "9,348", "Cat", "37.28", "6"], ["IID", "0", "5,000", "Bird", "10.50", "10"]]
    assert "In every row: data set CIFAR-10." in html
    assert "own size" in html
    assert "Trained" not in html


# The ledger.


def test_the_ledger_counts_and_shows_every_claim():
    html = pages.ledger_page(CLAIMS, "quick", Path("results/quick"))
    counts, rows = cells(html)[:6], cells(html)[6:]
    assert counts == [
        ["", "exact", "trained", "derived", "claim", "all"],
        ["exact", "1", "", "", "", "1"],
        ["contradicts itself", "", "", "2", "", "2"],
        ["fails here", "", "", "", "1", "1"],
        ["not comparable at this scale", "", "1", "", "", "1"],
        ["all", "1", "1", "2", "1", "5"],
    ]
    assert rows[0] == ["Verdict", "Kind", "Claim", "Printed", "Rebuilt", "Difference", "Reason"]
    assert rows[1][3:6] == ["14.95MB", "14.95", "0.000112"]
    assert rows[3][3:6] == ["7--8orders", "9", "1"]
    assert rows[4][3:6] == ["81.67%", "65.83on Digits", "-15.84"], "no number without what it was measured on"
    assert rows[5] == ["fails here", "claim", "Abstractclaim/naive", "", "", "", "naive | survivesn.json"]
    assert "p is a&lt;b" in html
    assert re.findall(r'<a class="file" href="(.*?)"', html)[:3] == ["../../m.csv", "../../a", "../../b"]


def test_the_answer_says_what_holds_what_fails_and_what_is_open():
    assert presentation.answer(CLAIMS) == {
        "Holds": "1 of 5 numbers and claims: exact 1",
        "Fails": "3 of 5 numbers and claims: contradicts itself 2, fails here 1; what was rebuilt disagrees with "
        "Abstract",
        "Open": "1 of 5 numbers and claims: not comparable at this scale 1",
    }
    many = CLAIMS.assign(verdict="differs", where=["A", "B", "C", "D", "E"])
    assert presentation.answer(many) == {
        "Holds": "0 of 5 numbers and claims",
        "Fails": "5 of 5 numbers and claims: differs 5; what was rebuilt disagrees with A; B; C; D and 1 more",
        "Open": "0 of 5 numbers and claims",
    }


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """Of a folder where nothing is made yet."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv(VARIABLE, str(ROOT))
    return Layout({**copy.deepcopy(CONFIG), "scale": "small", "registered": True})


def test_the_report_opens_with_answers_figures_and_the_ledger(layout):
    bare = pages.report_texts(Layout({**layout.config, "registered": False}))["opening"]
    assert "None of the 7 questions of paper/registered.yaml is answered here" in bare
    assert "<code>snakemake --config scale=small registered=true</code>" in bare
    assert "The ledger of claims has not been made." in bare
    assert "<img" not in bare
    tables, figures = Path("results/small/tables"), Path("figures/small")
    for folder in (tables, figures, Path(layout.together)):
        folder.mkdir(parents=True)
    answered(tables / "registered.csv")
    (figures / "convergence_cifar100.png").write_bytes(b"a picture")
    CLAIMS.assign(reason="a<b").to_csv(Path(layout.together, "claims.csv"), index=False)
    opening = pages.report_texts(layout)["opening"]
    assert "\n\n" not in opening, "a directive ends there"
    assert cells(opening)[0] == ["Question", "Data set", "Answer", "Status", "Difference (pp)", "90 % interval"]
    assert cells(opening)[1][:4] == ["Without its floor, is the method below FP32?", "CIFAR-10", "yes", "final"]
    assert base64.b64encode(b"a picture").decode() in opening
    assert "app.showResultInfo(&#x27;figures/small/convergence_cifar100.png&#x27;)" in opening
    assert "<b>Holds</b>: 1 of 5 numbers and claims: exact 1.</li>" in opening
    assert "<summary>1 claims: fails here</summary><ul><li>a&lt;b</li></ul>" in opening
    assert "holds here" not in opening, "no list of nothing"
    assert opening.index("Registered") < opening.index("<img") < opening.index("The ledger")


def test_the_opening_stands_above_all_and_is_no_part_of_the_configuration():
    said = rendered("workflow.rst", config={**CONFIG, "scale": "quick"})
    assert said.index("<p>opening</p>") < said.index("Each has an eye") < said.index("Digits stands in")
    assert said.count("opening") == 1


def test_every_table_and_figure_says_what_made_it(layout, main_csv):
    html = pages.table_page({**TABLE, **MAIN}, main_csv)
    assert "Made by the rule <b>table</b>" in html
    assert "<summary>2 runs</summary>" in html
    links = re.findall(r'<a class="file" href=".*?">(.*?)</a>', html)
    assert links == [MADE["rulefile"], MADE["code"], *MADE["runs"], *MADE["files"]]
    made = pages.report_texts(layout)["made"]
    assert {part: set(of) for part, of in made.items()} == {"table": set(layout.tables), "figure": set(layout.figures)}
    shown = made["figure"]["convergence_cifar10"]
    assert "navbarMode: &#x27;ruleinfo&#x27;, ruleinfo: &#x27;figure&#x27;" in shown
    runs = {run for rows in layout.panel_rows("convergence_cifar10") for run in layout.folders(rows)}
    assert set(re.findall("<li>(.*?)</li>", shown)) == runs


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [("exact", "good"), ("contradicts itself", "bad"), ("fails here", "bad"), ("not comparable at this scale", "open")],
)
def test_a_verdict_has_its_colour(verdict, tone):
    assert f'<td class="verdict {tone}">{verdict}</td>' in pages.ledger_page(CLAIMS, "quick", Path("results/quick"))


def test_claims_are_read_as_they_were_written(claims_csv):
    assert presentation.read(claims_csv).equals(CLAIMS)
    claims_csv.write_text("id,where,kind\n1,2,3\n")
    with pytest.raises(ValueError, match=r"claims.csv lacks unit, printed, .*; needed are id, where"):
        presentation.read(claims_csv)


# RESULTS.md.

SETTING = {
    "classes": "10",
    "training_images": "1,437",
    "test_images": "360",
    "width": "8",
    "parameters": "177,362",
    "image_size": "32",
    "clients_per_round": "5",
    "clients": "10",
    "rounds": "15",
    "epochs": "2",
    "batch_size": "16",
}


@pytest.fixture
def results(tmp_path, main_csv, claims_csv):
    """RESULTS.md of a scale, with other words put in the place of what is there."""
    said = {"runs/all": "41", "runs/collapsed": "6", "runs/diverged": "0"}
    numbers = tmp_path / "numbers.json"
    figure = {"kind": "precision"}
    spec = {
        **NAMES,
        "results": tmp_path / "results/quick",
        "tables": {"main": MAIN},
        "figures": {"quant_error": figure},
    }

    def make(claims=claims_csv, **other):
        figures = {"quant_error": tmp_path / "figures/quick/quant_error.png"}
        folder = tmp_path / "results/quick"
        texts = said | {f"setting/cifar10/{name}": text for name, text in SETTING.items()}
        numbers.write_text(json.dumps({name: {"text": text} for name, text in texts.items()}))
        return markdown.results_page({**spec, **other}, {"main": main_csv}, figures, numbers, claims, folder)

    return make


def test_results_say_what_was_trained_and_what_it_stands_for(results):
    said = results()
    assert said.startswith(
        "# Results at scale quick\n\n- **Holds**: 1 of 5 numbers and claims: exact 1.\n- **Fails**: 3 of 5"
    )
    assert "\n\nDigits stands in the place of CIFAR-10.\n" in said
    size = "32\N{MULTIPLICATION SIGN}32"
    model = "ResNet-18, width 8, 177,362 parameters"
    assert f"| Digits | 10 | 1,437 | 360 | {model} | {size} | 5 of 10 | 15 | 2 | 16 |" in said
    assert "41 runs were trained; 6 of them collapsed" in said
    assert "not the paper's" in said
    paper = results(scale="paper", stands_for={"cifar10": "Digits"})
    assert "Digits is the paper's own data set." in paper
    assert "Digits is not in the paper." in results(stands_for={})
    assert "not the paper's" not in paper


def test_results_tell_text_from_images(results, monkeypatch):
    monkeypatch.setitem(SETTING, "image_size", "--")
    said = results()
    assert "| Digits | 10 | 1,437 | 360 | transformer, width 8, 177,362 parameters | text | 5 of 10 |" in said


def test_results_have_the_main_table_the_pictures_and_what_does_not_hold(results):
    said = results()
    for part in (
        "| Arm | Best accuracy (%) | Final accuracy (%) |",
        "| Q-LocalAdam &lt;8 bits&gt; | 66.11 ± 0.25 | 19.00 | +0.28 | 14.95 | yes |",
        "![quant_error](../../figures/quick/quant_error.png)",
        "- [main.csv](../../main.csv): The main arms\n",
        "| contradicts itself | 0 | 0 | 2 | 0 | 2 |",
        "### Contradicts itself\n\n- Section 5: 0.78, rebuilt 0.81639; p is a&lt;b\n",
        "- Abstract: 7--8, rebuilt 9; nine\n",
        "### Fails here\n\n- Abstract: naive &#124; survives\n",
    ):
        assert part in said
    assert "main/acc" not in said


def test_results_without_a_ledger_or_without_disagreements_say_so(results, tmp_path):
    assert "The ledger has not been made" in results(claims=None)
    path = tmp_path / "good.csv"
    CLAIMS[:1].to_csv(path, index=False)
    assert "Nothing contradicts itself, differs or fails here." in results(claims=path)


# In a browser.


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "browser")
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def report(finished, once):
    """The report of the whole DAG at the test scale."""
    return once("report.html", lambda path: finished.snakemake("--report", str(path), *TEST))[0]


@browsed
def test_it_shows_the_ledger_and_its_filters_without_an_error(finished, report, browser):
    ledger = presentation.read(finished.folder / "results/test/claims.csv")
    verdicts = Counter(ledger["verdict"])
    verdict, count = verdicts.most_common()[-1]
    browser.open(report.as_uri())
    browser.click("01. Claims")
    browser.click("Ledger of claims")
    shown = "[...document.querySelectorAll('#claims tbody tr')].filter(row => !row.hidden).length"
    browser.wait("document.readyState === 'complete' && document.forms.length", inside=True)
    assert browser.run(shown, **browser.frame()) == len(ledger)
    choose = f"form.verdict.value = {json.dumps(verdict)}; form.dispatchEvent(new Event('input')); {shown}"
    assert browser.wait(choose, inside=True) == count
    # A count is a link to what it counts.
    kind = ledger["kind"].iloc[0]
    link = f"document.querySelector('table a[href=\"#kind={kind}\"]').click(); form.verdict.value === '' && {shown}"
    assert browser.wait(link, inside=True) == (ledger["kind"] == kind).sum()
    assert browser.complaints() == []


@browsed
def test_it_shows_the_answer_figures_tables_times_and_the_configuration_without_an_error(finished, report, browser):
    browser.open(report.as_uri())
    assert browser.wait("document.querySelector('h1.title').textContent") == "Q-LocalAdam, rebuilt at scale test"
    opening = browser.run("document.querySelector('h1.title').parentNode.innerText").splitlines()
    answers = presentation.answer(presentation.read(finished.folder / "results/test/claims.csv"))
    assert {f"{head}: {said}." for head, said in answers.items()} <= set(opening)
    assert '"rounds": 2' in browser.run("document.querySelector('details pre').textContent")
    browser.click("03. Main results")
    browser.click("Figure convergence_cifar100")
    assert browser.wait("document.querySelector('#app > div > div img')?.naturalWidth") == 666
    browser.click("Table main")
    cells = "[...document.querySelectorAll('tbody td')].map(cell => cell.textContent)"
    title = CONFIG["tables"]["main"]["caption"]
    browser.wait(f"document.readyState === 'complete' && document.title === {title!r}", inside=True)
    assert browser.wait(cells, inside=True)[:2] == ["Digits", "FP32"]
    browser.run("app.setView({navbarMode: 'menu'})")
    browser.click("Statistics")
    browser.wait("document.querySelectorAll('#runtimes canvas, #runtimes svg').length")
    assert browser.complaints() == []


@browsed
def test_the_ledger_alone_takes_its_selection_from_its_address_and_leads_to_the_evidence(finished, browser):
    ledger = presentation.read(finished.folder / "results/test/claims.csv")
    path = finished.folder / "results/test/claims.html"
    browser.open(f"{path.as_uri()}#verdict=exact&search=memory.csv")
    wanted = ledger[(ledger["verdict"] == "exact") & ledger["file"].str.contains("memory.csv")]
    assert browser.run("form.shown.value") == f"{len(wanted)} of {len(ledger)} shown"
    links = browser.run("[...document.querySelectorAll('tr:not([hidden]) a.file')].map(link => link.href)")
    assert set(links) == {(finished.folder / "results/exact/memory.csv").as_uri()}
    # Sorted by a head, once up and once down.
    values = "[...document.querySelectorAll('#claims tbody td:nth-child(6)')].map(cell => Number(cell.textContent))"
    browser.run("document.querySelector('#claims th:nth-child(6)').click()")
    assert browser.run(values)[0] == min(browser.run(values))
    browser.run("document.querySelector('#claims th:nth-child(6)').click()")
    assert browser.run(values)[0] == max(browser.run(values))
    assert browser.complaints() == []


NARROW = (390, 800)
OVERFLOW = "document.scrollingElement.scrollWidth - innerWidth"


@browsed
@pytest.mark.parametrize("name", ["claims.html", "tables/main.html", "tables/released_method.html", "check.html"])
def test_in_a_narrow_window_tables_scroll_in_their_box_by_keys_too(finished, browser, name):
    browser.resize(*NARROW)
    browser.open((finished.folder / "results/test" / name).as_uri())
    assert browser.run(OVERFLOW) <= 0
    box = "document.querySelector('.box')"
    assert browser.run(f"{box}.scrollWidth > {box}.clientWidth")
    browser.run(f"{box}.focus()")
    browser.press("ArrowRight")
    assert browser.wait(f"{box}.scrollLeft") > 0
    assert browser.complaints() == []


@browsed
def test_the_ledger_is_sorted_and_the_report_read_by_keys(finished, report, browser):
    browser.open((finished.folder / "results/test/claims.html").as_uri())
    browser.run("document.querySelector('#claims th:nth-child(6) button').focus()")
    browser.press("Enter")
    assert browser.wait("document.querySelector('#claims th:nth-child(6)').ariaSort") == "ascending"
    browser.open(report.as_uri())
    browser.wait("!!document.querySelector('figure a')")
    browser.run("document.querySelector('figure a').focus()")
    browser.press("Enter")
    assert browser.wait("document.querySelector('#app > div > div img')?.naturalWidth") == 666
    assert browser.complaints() == []


@browsed
def test_the_report_opens_with_a_summary_that_leads_to_rules_runs_and_code(report, browser):
    for window in ((1400, 900), NARROW):
        browser.resize(*window)
        browser.open(report.as_uri())
        heads = browser.wait("[...document.querySelectorAll('h2')].map(head => head.textContent)")
        assert heads == ["Registered questions", "The ledger"]
        assert browser.run(OVERFLOW) <= 0
        assert browser.run("document.querySelector('h1.title').getBoundingClientRect().left >= 0")
        images = "[...document.querySelectorAll('figure img')]"
        assert browser.run(f"{images}.every(image => image.getBoundingClientRect().right <= innerWidth)")
        browser.run("document.querySelector('figcaption a').click()")
        made = browser.wait("document.querySelector('nav .prose details')?.parentNode.textContent")
        assert "Made by the rule figure of workflow/rules/figures.smk" in made
        assert "results/test/runs/dataset~cifar10" in made
        browser.run("document.querySelector('nav .prose a').click()")
        assert "figures.draw(spec, panels" in browser.wait("document.querySelector('nav .source')?.textContent")
        assert browser.run(OVERFLOW) <= 0
    assert browser.complaints() == []


def test_every_link_of_results_leads_somewhere(finished):
    said = (finished.folder / "results/test/RESULTS.md").read_text()
    links = re.findall(r"\]\((.*?)\)", said)
    assert {"../../figures/test/quant_error.png", "tables/main.csv", "claims.html", "runs", "../exact"} <= set(links)
    assert [link for link in links if not (finished.folder / "results/test" / link).exists()] == []
