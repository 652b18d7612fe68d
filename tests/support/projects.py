"""Copies of the project in which tests run the workflow."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from processes import PROCESSES

ROOT = Path(__file__).parents[2]
PAPER = ("main.tex", "references.bib", "published.yaml", "registered.yaml", "released.yaml")
PARTS = ("Snakefile", "config.yaml", "workflow", "envs", *(f"paper/{name}" for name in PAPER))
RUN = "results/test/runs/dataset~cifar10/alpha~0.1/arm~{arm}/block_size~64/lr~0.001/seed~42/summary.json"


def begin(folder: Path, environment: dict[str, str], said: str) -> None:
    """In such a copy: be where the caller is, and say everything to a file."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_APPEND), stream)


def _snakemake(arguments: tuple[str, ...], plan: str, *caller: Any) -> None:
    """As `python -m snakemake`. In a dry run all that decides about a job goes to a file of its own."""
    from snakemake import cli
    from snakemake.jobs import Job

    begin(*caller)
    sys.path[0], sys.argv = "", ["snakemake", *arguments]
    show = Job.log_info

    def shown(job: Any, **given: Any) -> None:
        files = {"input": sorted(job.input), "output": sorted(job.output)}
        params = repr(sorted((name or "", repr(value)) for name, value in job.params._allitems()))
        does = {"command": job.shellcmd or "", "params": params}
        light = job.rule.name in job.rule.workflow._localrules
        with open(plan, "a") as file:
            print(json.dumps({"rule": job.rule.name, **files, **does, "light": light}), file=file)
        show(job, **given)

    Job.log_info = shown
    cli.main(list(arguments))


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
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.gz")
        shutil.copytree(ROOT / "src/qlocaladam", folder / "src/qlocaladam", ignore=ignored)
        return cls(folder)

    def snakemake(self, *arguments: str, ok: bool = True) -> str:
        return self._run(arguments, ok)[0]

    def _run(self, arguments: tuple[str, ...], ok: bool) -> tuple[str, list[dict[str, Any]]]:
        with tempfile.NamedTemporaryFile("r") as said, tempfile.NamedTemporaryFile("r") as plan:
            given = (arguments, plan.name, self.folder, dict(os.environ), said.name)
            process = PROCESSES.Process(target=_snakemake, args=given)
            process.start()
            process.join()
            text = said.read()
            assert (process.exitcode == 0) is ok, text
            return text, [json.loads(line) for line in plan]

    def jobs(self, *arguments: str) -> list[dict[str, Any]]:
        """Each job of a dry run: its rule, input, output, command and parameters, and whether it is `light`, which a
        cluster's submission host does itself."""
        return self._run(("--dry-run", *arguments), True)[1]

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
