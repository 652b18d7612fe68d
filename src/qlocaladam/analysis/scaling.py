"""How optimizer memory grows with the model."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from qlocaladam.analysis.memory import codecs_of, state_bytes
from qlocaladam.checks import whole_number

MIB = 2**20


def scaling(parameters: Sequence[int] = (10**7, 10**8, 10**9, 10**10), block_size: int = 64) -> pd.DataFrame:
    """Q-LocalAdam on models of these sizes, each one tensor. The paper's table is `held` in MiB, which it calls MB."""
    codecs = codecs_of({"q-localadam": {"arm": "q-localadam"}}, "q-localadam", block_size)
    frame = pd.DataFrame([state_bytes([whole_number("parameters", count, 1)], codecs) for count in parameters])
    for name in ("fp32", "held", "published"):
        frame[f"{name}_mib"] = frame[f"{name}_bytes"] / MIB
    return frame


def files() -> dict[str, pd.DataFrame]:
    """By the name of the file."""
    return {"scaling.csv": scaling()}
