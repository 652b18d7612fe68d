"""Table: how unlike each other clients are, with the ratio of the dominant class to a uniform distribution."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from qlocaladam.results.kinds import data_distribution

KIND = replace(
    data_distribution.KIND,
    table=replace(data_distribution.AS_TABLE, build=partial(data_distribution.table, with_ratio=True)),
)
