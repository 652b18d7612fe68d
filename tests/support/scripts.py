"""Scripts of the workflow, run as Snakemake runs them: in a process of their own, with inputs, outputs and a log."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from projects import ROOT
from snakemake.iocontainers import InputFiles, Log, OutputFiles, Params, ResourceList, Snakemake, Wildcards

RUN = "import pickle, runpy, sys; runpy.run_path(sys.argv[1], {'snakemake': pickle.load(open(sys.argv[2], 'rb'))})"


def run_script(name: str, folder: Path, output: dict[str, Path], ok: bool = True, **given: dict[str, Any]) -> str:
    """What a script of this name says in its log, which is in the folder."""
    folder.mkdir(exist_ok=True)
    files = [kind(fromdict=content) for kind, content in ((InputFiles, given.get("input", {})), (OutputFiles, output))]
    params, log = Params(fromdict=given.get("params", {})), Log(toclone=[str(folder / "log")])
    job = Snakemake(*files, params, Wildcards(), 1, ResourceList(), log, {}, name, None, None)
    (folder / "job").write_bytes(pickle.dumps(job))
    command = [sys.executable, "-c", RUN, str(ROOT / f"workflow/scripts/{name}.py"), str(folder / "job")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = (folder / "log").read_text()
    assert (done.returncode == 0) is ok, done.stderr + said
    assert done.stdout + done.stderr == "", "all of it goes to the log"
    return said
