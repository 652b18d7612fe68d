"""Every table of the paper, built from training runs and analyses as an entry of config.yaml says.

What is bold or marked follows from the numbers, never from an arm's name.
"""

from __future__ import annotations

import pandas as pd

from qlocaladam.results import kinds
from qlocaladam.results.kind import Files, Spec
from qlocaladam.results.latex import Table


def build(spec: Spec, runs: pd.DataFrame | None, files: Files) -> Table:
    """The table of this entry, from the runs that it selects (None where nothing is trained) and the analyses."""
    table: Table = kinds.as_table(spec).build(spec, runs, files)
    return table
