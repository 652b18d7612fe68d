"""Which results an edit of the package makes again: those of rules whose script imports what was edited."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from projects import ROOT, TEST

from qlocaladam import imports
from qlocaladam.results.layout import EXACT_FILES, TEST_FILES

SOURCE = Path("src/qlocaladam")
SCRIPTS = sorted(path.stem for path in (ROOT / "workflow/scripts").glob("*.py"))
RENAMED = {"judge": "claims", "check_results": "check", "collect_numbers": "numbers", "collect_reference": "reference"}
"""Rules whose script has another name."""
BY_NAME = {**dict.fromkeys(EXACT_FILES, "exact_analysis"), **dict.fromkeys(TEST_FILES, "test_over_seeds")}
"""Rules whose script imports the analysis of their name."""
RULES = {
    **{name: name for name in SCRIPTS if name not in (*RENAMED.values(), "client_analysis", *BY_NAME.values())},
    **RENAMED,
    **BY_NAME,
}
"""The script of each rule. What trains has no code among its inputs."""
PAGES = {"table_page", "ledger_page", "results_page", "kept_results_page", "reproducibility_page"}
LOADED = """
import json, os, sys
for program in json.loads(sys.argv[1]):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        continue
    exec(program)
    loaded = [module.__file__ for name, module in sys.modules.items() if name.startswith("qlocaladam")]
    print(json.dumps(loaded), flush=True)
    os._exit(0)
"""


def reached(rule, *kinds):
    """Files of the package that the script of a rule depends on, by their paths in there."""
    script = RULES[rule]
    by_name = [ROOT / SOURCE / f"analysis/{rule}.py"] if rule in BY_NAME else []
    files = imports.reached(ROOT / SOURCE, ROOT / f"workflow/scripts/{script}.py", *by_name, *kinds)
    assert files.pop() == ROOT / f"workflow/scripts/{script}.py"
    return {path.relative_to(ROOT / SOURCE).as_posix() for path in files}


@pytest.fixture(scope="module")
def code():
    """By rule, and without kinds of tables and figures, which are found by name."""
    return {rule: reached(rule) for rule in RULES}


def test_what_a_script_loads_is_among_its_code():
    """Its import statements alone, in a process each. All kinds are loaded where one is asked for."""
    programs = []
    for rule, script in RULES.items():
        tree = ast.parse((ROOT / f"workflow/scripts/{script}.py").read_text())
        statements = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        by_name = [f"import qlocaladam.analysis.{rule}"] if rule in BY_NAME else []
        programs.append("\n".join([*statements, *by_name]))
    command = [sys.executable, "-c", "import pandas, torch\n" + LOADED, json.dumps(programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kinds = list((ROOT / SOURCE).glob("results/kinds/*.py"))
    for rule, line in zip(RULES, done.stdout.splitlines(), strict=True):
        loaded = {Path(path).relative_to(ROOT / SOURCE).as_posix() for path in json.loads(line)}
        assert loaded <= reached(rule, *kinds), rule
        assert len(loaded) > 3


@pytest.mark.parametrize(
    ("module", "rules"),
    [
        ("results/latex.py", {"table", "figure", "collect_numbers", "judge", *PAGES}),
        (
            "results/style.py",
            {"figure", "table_page", "ledger_page"},
        ),  # the report shows figures as wide as they are printed
        ("report/page.py", PAGES),
        ("report/ledger.css", {*PAGES, "collect_reference"}),
        ("analysis/precision.py", {"precision"}),
        ("analysis/participation.py", {"participation"}),
        ("analysis/step_errors.py", set()),
        ("ledger/verdicts.py", {"judge", *PAGES}),
        ("report/reference.py", {"collect_reference", "kept_results_page", "reproducibility_page"}),
        ("report/progress.py", set()),
        ("federated/rounds.py", set()),
        ("cli/train.py", set()),
    ],
)
def test_an_edit_makes_again_what_imports_it(code, module, rules):
    """The check looks at everything, and so depends on nearly all."""
    assert {rule for rule, files in code.items() if module in files} - {"check_results"} == rules


def test_the_jobs_of_these_rules_are_planned(code, copy):
    latex = copy.folder / SOURCE / "results/latex.py"
    latex.write_text(latex.read_text() + "\n# Another look.\n")
    planned = {job["rule"] for job in copy.jobs(*TEST)}
    edited = {rule for rule, files in code.items() if "results/latex.py" in files} - {
        "collect_reference",
        "kept_results_page",
    }
    assert planned - {"all", "passed", "compile"} == edited


def test_imports_are_followed_as_python_does(tmp_path):
    files = {
        "__init__.py": "if TYPE_CHECKING:\n    from qlocaladam.home import handed\n",
        "home.py": "",
        "below/__init__.py": "",
        "below/page.css": "",
        "below/one.py": "def f():\n    from qlocaladam.below import two\n",
        "below/two.py": "if TYPE_CHECKING:\n    from qlocaladam import unused\nelse:\n    import qlocaladam.used\n",
        "unused.py": "",
        "used.py": "from qlocaladam.below.one import f\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "program").write_text("import numpy\nfrom qlocaladam import handed\nfrom qlocaladam.below import one\n")
    found = imports.reached(tmp_path, tmp_path / "program")
    assert {path.relative_to(tmp_path).as_posix() for path in found} == {*files, "program"} - {"unused.py"}
