"""Where the files of the project stand: in the working directory, or where the workflow is that works on it."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "QLOCALADAM_PROJECT"
"""Set by the Snakefile to its own folder, and inherited by the commands of its rules."""


def project_file(path: str) -> str:
    """A file of the project by its path in there. One in the working directory comes before that of the workflow."""
    beside_the_workflow = Path(os.environ.get(VARIABLE, ""), path)
    return str(beside_the_workflow) if not os.path.exists(path) and beside_the_workflow.exists() else path
