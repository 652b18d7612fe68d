"""The guides in docs/, followed to the letter: every block is put where its text says, or run, as it is printed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import ROOT, RUN, TEST, Project

BLOCK = re.compile(r"^([^\n]*)\n\n```(\w+)\n(.*?)^```$(?=(?:\n\nIt says `([^`]+)`)?)", re.MULTILINE | re.DOTALL)
"""The line before a block, its language, its text, and what a command says according to the line after it."""
PROMISED = re.compile(r"`((?:results|paper/generated|figures)/(?:test|data)/[^`]+)`")


class Reader:
    """Does what a guide says, in a copy of the project whose own package is the one that runs."""

    def __init__(self, project: Project, guide: str) -> None:
        self.project, self.folder, self.guide = project, project.folder, guide
        shutil.copytree(ROOT / "src", self.folder / "src", dirs_exist_ok=True)
        path = os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()])
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(self.folder / "src")}

    def follow(self) -> None:
        blocks = BLOCK.findall(self.guide)
        assert len(blocks) == self.guide.count("\n```") / 2, "each block has a line of text above it"
        for before, language, text, says in blocks:
            if language == "yaml":
                self._add(re.search(r"At the end of `([\w.]+)` in `config.yaml`:$", before)[1], text)
            elif language == "diff":
                self._change(self.folder / re.search(r"In `([\w./]+)`[^`]*:$", before)[1], text)
            else:
                said = self._run({"python": [sys.executable, "-c"], "bash": ["bash", "-ec"]}[language], text)
                assert re.search(rf"{re.escape(says)}(?!\w)", said), f"{says!r} is not in:\n{said}"
                assert says or language == "python" or "--dry-run" in text, f"the guide does not say what {text} says"

    def _add(self, key: str, text: str) -> None:
        path = self.folder / "config.yaml"
        node = yaml.compose(path.read_text())
        for part in key.split("."):
            node = {name.value: value for name, value in node.value}[part]
        lines = path.read_text().splitlines(keepends=True)
        lines.insert(_last_line(node) + 1, text)
        path.write_text("".join(lines))

    def _change(self, path: Path, text: str) -> None:
        lines = text.splitlines(keepends=True)
        if not path.exists():
            path.write_text("")
        old, new = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        assert path.read_text().count(old) == 1 or not old, f"{path} has not once:\n{old}"
        path.write_text(path.read_text().replace(old, new) if old else new)

    def _run(self, command: list[str], text: str) -> str:
        done = subprocess.run(
            [*command, text], cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def trained(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("results/test/runs/**/summary.json"))

    def table(self, name: str) -> str:
        return (self.folder / f"paper/generated/test/tables/{name}.tex").read_text()


def _last_line(node: yaml.Node) -> int:
    """Where the last entry of a block ends; the block itself ends only where the next begins."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style:
        return node.end_mark.line
    last = node.value[-1]
    return _last_line(last[1] if isinstance(last, tuple) else last)


def _read_json(path: Path) -> dict:
    return json.loads(path.read_text())


@pytest.fixture
def follow(tmp_path):
    def start(name: str) -> Reader:
        reader = Reader(Project.fresh(tmp_path / "project"), (ROOT / f"docs/{name}.md").read_text())
        reader.follow()
        promised = PROMISED.findall(reader.guide)
        assert promised
        assert [path for path in promised if not (reader.folder / path).exists()] == []
        return reader

    return start


def test_an_arm_is_added_as_the_guide_says(follow):
    reader = follow("add-an-arm")
    made = {
        arm: _read_json((reader.folder / RUN.format(arm=arm)).with_name("settings.json"))["settings"]
        for arm in ("momentum-only", "momentum-only-stochastic", "adamw")
    }
    assert len(reader.trained()) == len(made)
    assert [settings["arm"] for settings in made.values()] == ["momentum-only", "momentum-only", "adamw"]
    assert made["momentum-only-stochastic"]["optimizer"]["rounding"] == "stochastic"
    rows = re.findall(r"& (Momentum-only|Momentum-only stochastic|AdamW) &", reader.table("stochastic"))
    assert rows == ["Momentum-only", "Momentum-only stochastic", "AdamW"]
    assert r"\dagger" not in reader.table("stochastic"), "the paper's models have a size with any arm"


def test_a_new_arm_at_the_end_leaves_the_look_of_the_others():
    from qlocaladam.results.style import arm_colours

    arms = list(yaml.safe_load((ROOT / "config.yaml").read_text())["arms"])
    before, after = arm_colours(arms), arm_colours([*arms, "momentum-only-stochastic"])
    assert after.pop("momentum-only-stochastic") not in before.values()
    assert after == before


def test_a_data_set_is_added_as_the_guide_says(follow):
    reader = follow("add-a-data-set")
    (run,) = reader.trained()
    assert re.search(r"Stripes.* & Q-LocalAdam & .*\\dagger", reader.table("stripes"))
    assert "Stripes (400 training and 100 test images)" in reader.table("stripes")

    source, note = reader.folder / "downloads/stripes.npz", _read_json(reader.folder / "results/data/stripes.npz.json")
    assert note["origin"] == f"stripes.npz, SHA-256 {hashlib.sha256(source.read_bytes()).hexdigest()}"
    assert _read_json(run / "settings.json")["dataset"]["sha256"] == note["sha256"]

    target = ("paper/generated/test/tables/stripes.tex", *TEST)
    assert reader.project.planned(*target) == {}
    source.write_bytes(source.read_bytes() + b"\0")
    assert reader.project.planned(*target) == {"prepare": 1, "partition": 1, "training_run": 1, "table": 1}


def test_an_experiment_is_added_as_the_guide_says(follow):
    reader = follow("add-an-experiment")
    assert [run.parts[-5] for run in reader.trained()] == ["alpha~0.1", "alpha~0.3"]
    assert re.findall(r"& (0\.[13]) &", reader.table("between")) == ["0.1", "0.3"]
    assert (reader.folder / "figures/test/between.pdf").read_bytes().startswith(b"%PDF")
    assert re.findall(r"(0\.[13]) & (\d+)", reader.table("best_round")), "of the new kind"
    page = (reader.folder / "results/test/tables/best_round.html").read_text()
    assert "Trained at scale test: the round with the highest test accuracy." in page


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("add-*.md")), ids=lambda path: path.stem)
def test_a_guide_changes_one_file_of_the_package_at_most_and_its_links_lead_somewhere(path):
    guide = path.read_text()
    assert sum(language == "diff" and "`src/" in before for before, language, _, _ in BLOCK.findall(guide)) <= 1
    for link in re.findall(r"\]\(([^)#]+)\)", guide):
        assert (path.parent / link).exists(), link
