"""What a command that is refused says."""

from __future__ import annotations

import pytest

from qlocaladam.cli import main


def refused(capsys, arguments: list[str]) -> str:
    """What a command ends with: one line, below the usage where the command line itself is wrong."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    *usage, said = capsys.readouterr().err.splitlines()
    assert not usage or usage[0].startswith("usage: ")
    return said
