"""The workflow used from another folder, and as a module of somebody else's workflow; what is handed on to others."""

import re
import shutil
import subprocess
import sys
import zipfile

import yaml
from projects import ROOT, TEST, Project

from qlocaladam.results.layout import Layout

TABLE = "results/test/tables/scaling.csv"
LAYOUT = Layout.load([ROOT / "config.yaml"], ["scale=test"])
OTHER_WORKFLOW = """
configfile: "config.yaml"


module rebuilt:
    snakefile:
        config["snakefile"]
    config:
        config["rebuilt"]


use rule * from rebuilt as rebuilt_*


rule largest_model:
    default_target: True
    input:
        "results/test/tables/scaling.csv",
    output:
        "largest.csv",
    shell:
        "tail -n 1 {input} > {output}"
"""


def test_in_another_folder_all_is_made_there(tmp_path, project):
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    before = sorted(project.folder.rglob("*"))
    where = ("--snakefile", str(project.folder / "Snakefile"), "--directory", str(elsewhere.folder))
    assert elsewhere.planned(*where, *TEST)["training_run"] == len(LAYOUT.runs)
    elsewhere.snakemake(*where, *TEST, "--", TABLE)
    assert (elsewhere.folder / TABLE).read_text().startswith("parameters,")
    added = [path for path in sorted(project.folder.rglob("*")) if path not in before]
    assert not [path for path in added if ".snakemake" not in path.parts], "nothing is written where the workflow is"
    shutil.copy(project.folder / "config.yaml", elsewhere.folder)  # a configuration of its own is used
    elsewhere.configure(lambda config: config.update(scale="no such"))
    assert "config.yaml: scale is 'no such'" in elsewhere.snakemake(*where, "--dry-run", ok=False)


def test_as_a_module_of_another_workflow(tmp_path, project):
    other = Project(tmp_path / "other")
    other.folder.mkdir()
    (other.folder / "Snakefile").write_text(OTHER_WORKFLOW)
    given = {"snakefile": str(project.folder / "Snakefile"), "rebuilt": {"scale": "test"}}
    (other.folder / "config.yaml").write_text(yaml.safe_dump(given))
    # A key of the other workflow on the command line is none of ours.
    other.snakemake("--cores", "1", "--config", "theirs=1")
    assert (other.folder / "largest.csv").read_text().startswith("10000000000,")
    said = other.snakemake("--dry-run", "rebuilt_all")
    assert "data: Digits for CIFAR-10 and Digit pairs for CIFAR-100\n" in said
    planned = re.findall(r"^rebuilt_training_run +(\d+)$", said, re.MULTILINE)  # in Snakemake's own words, said twice
    assert set(planned) == {str(len(LAYOUT.runs))}
    given["rebuilt"]["scael"] = "test"
    (other.folder / "config.yaml").write_text(yaml.safe_dump(given))
    assert "the configuration: the file has an unknown key 'scael'; accepted: " in other.snakemake(
        "--dry-run", ok=False
    )


def test_the_report_as_an_archive(finished, tmp_path):
    """Beside report.html: a page and its files, for reports too large for one file."""
    archive = tmp_path / "report.zip"
    finished.snakemake(*TEST, "--report", str(archive))
    with zipfile.ZipFile(archive) as report:
        names = report.namelist()
    assert "report/report.html" in names
    assert any(name.endswith("claims.html") for name in names)
    assert sum(name.endswith(".png") for name in names) == len(LAYOUT.figures)


def test_the_manifest_for_a_codecheck_is_what_the_default_scale_makes():
    layout = Layout.load([ROOT / "config.yaml"])
    listed = yaml.safe_load((ROOT / "codecheck.yml").read_text())["manifest"]
    assert all(entry["comment"] for entry in listed)
    made = [f"{layout.results}/{name}" for name in ("claims.csv", "RESULTS.md", "numbers.json")]
    made += [f"{layout.results}/tables/{table}.csv" for table in layout.tables]
    made += [f"{layout.figure_folder}/{figure}.pdf" for figure in layout.figures]
    assert [entry["file"] for entry in listed] == made


def test_what_conda_deploys_gets_the_package_by_a_link(project):
    """Seen from a Python without site-packages. Without conda Snakemake stops, but later."""
    ok = shutil.which("conda") is not None
    project.snakemake(*TEST, "--software-deployment-method", "conda", "--dry-run", TABLE, ok=ok)
    link = project.folder / ".snakemake/package"
    assert [path.name for path in link.iterdir()] == ["qlocaladam"]
    command = [sys.executable, "-S", "-c", "import qlocaladam; print(qlocaladam.__file__)"]
    done = subprocess.run(command, env={"PYTHONPATH": str(link)}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{link}/qlocaladam/__init__.py\n"
