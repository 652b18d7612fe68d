"""Scripts of the workflow, run as Snakemake runs them: in a process of their own, with inputs, outputs and a log."""

from __future__ import annotations

import os
import runpy
import tempfile
from pathlib import Path
from typing import Any

from processes import PROCESSES
from projects import ROOT, begin
from snakemake.iocontainers import InputFiles, Log, OutputFiles, Params, ResourceList, Snakemake, Wildcards


def _script(path: str, job: Snakemake, *caller: Any) -> None:
    begin(*caller)
    runpy.run_path(path, {"snakemake": job})


def run_script(name: str, folder: Path, output: dict[str, Path], ok: bool = True, **given: dict[str, Any]) -> str:
    """What a script of this name says in its log, which is in the folder."""
    folder.mkdir(exist_ok=True)
    files = [kind(fromdict=content) for kind, content in ((InputFiles, given.get("input", {})), (OutputFiles, output))]
    params, log = Params(fromdict=given.get("params", {})), Log(toclone=[str(folder / "log")])
    job = Snakemake(*files, params, Wildcards(), 1, ResourceList(), log, {}, name, None, None)
    with tempfile.NamedTemporaryFile("r") as streams:
        caller = (Path.cwd(), dict(os.environ), streams.name)
        process = PROCESSES.Process(target=_script, args=(str(ROOT / f"workflow/scripts/{name}.py"), job, *caller))
        process.start()
        process.join()
        said = (folder / "log").read_text()
        assert (process.exitcode == 0) is ok, streams.read() + said
        assert streams.read() == "", "all of it goes to the log"
    return said
