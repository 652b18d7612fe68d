"""Copies of the project in which tests run the workflow."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PAPER = ("main.tex", "references.bib", "published.yaml", "registered.yaml", "released.yaml")
PARTS = ("Snakefile", "config.yaml", "workflow", "envs", *(f"paper/{name}" for name in PAPER))
RUN = "results/test/runs/dataset~cifar10/alpha~0.1/arm~{arm}/block_size~64/lr~0.001/seed~42/summary.json"


class Project:
    """A copy of what the workflow needs, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def fresh(cls, folder: Path) -> Project:
        folder.mkdir(exist_ok=True)
        for part in PARTS:
            (folder / part).parent.mkdir(exist_ok=True)
            (shutil.copytree if (ROOT / part).is_dir() else shutil.copy2)(ROOT / part, folder / part)
        (folder / "profiles").symlink_to("workflow/profiles")
        for part in ("analysis", "experiments", "ledger", "report", "results"):
            shutil.copytree(ROOT / "src/qlocaladam" / part, folder / "src/qlocaladam" / part)
        for part in ("codecs.py", "memory.py", "optim.py"):
            shutil.copy2(ROOT / "src/qlocaladam" / part, folder / "src/qlocaladam" / part)
        return cls(folder)

    def snakemake(self, *arguments: str, ok: bool = True) -> str:
        command = [sys.executable, "-m", "snakemake", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert (done.returncode == 0) is ok, said
        return said

    def planned(self, *arguments: str) -> dict[str, int]:
        """What a dry run would do: jobs by rule."""
        said = self.snakemake("--dry-run", *arguments)
        line = re.search(r"to do: (.*)", said)
        if line is None:
            assert "Nothing to be done" in said, said
            return {}
        return {rule: int(count) for count, rule in (pair.split() for pair in line[1].split(", "))}

    def configure(self, change) -> None:
        config = yaml.safe_load((self.folder / "config.yaml").read_text())
        change(config)
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


TEST = ("--config", "scale=test")


def mistake(*path, value):
    """A change of a configuration: this value at this path."""

    def change(config):
        for key in path[:-1]:
            config = config[key]
        config[path[-1]] = value

    return change


def training_process(folder: Path) -> int:
    """The process that trains below a folder, or 0."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            here = os.readlink(process / "cwd") == str(folder)
        except OSError:
            continue
        if here and b"qlocaladam\0train\0" in command:
            return int(process.name)
    return 0
