"""What analyses write: the memory of arms and contrasts by hand, what needs no training as rules make it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from qlocaladam.jobs import write_analysis

MEMORY, CONTRASTS = (Path(__file__).with_name(f"{name}.csv").read_text() for name in ("memory", "contrasts"))


def write_exact(name: str, folder: Path, arms: dict[str, Any], places: list[tuple[str, str, int]]) -> None:
    """One of the analyses that need no training, as its rule makes it."""
    given: dict[str, Any] = {
        "memory": {"arms": arms, "places": places},
        "client_memory": {"arms": arms, "block_size": 64},
        "participation": {"clients": folder / "clients.csv"},
    }
    write_analysis(folder, import_module(f"qlocaladam.analysis.{name}").files(**given.get(name, {})))


def made_by(command: Callable[..., Any]) -> Any:
    """A fixture of a module: the folder that this command fills from some digits. Not to be changed."""

    @pytest.fixture(scope="module")
    def made(dealt_digits: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
        out = tmp_path_factory.mktemp("made")
        command(dealt_digits, out)
        return out

    return made


def row(table: Any, **where: Any) -> Any:
    """The one row of a table with these values."""
    for name, value in where.items():
        table = table[table[name] == value]
    assert len(table) == 1
    return table.iloc[0]
