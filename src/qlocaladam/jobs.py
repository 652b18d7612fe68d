"""Around the work of a command or of a script of the workflow: its log, mistakes in one line, files written whole."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from qlocaladam.extras import EXTRA_OF, how_to_install
from qlocaladam.files import json_text, table_text, write_text


@contextmanager
def logged(log: str | os.PathLike[str]) -> Iterator[None]:
    """For a script: all that it and what it starts say goes to a file, also why it failed."""
    with open(log, "wb") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())
    with mistakes_in_one_line():
        yield


@contextmanager
def mistakes_in_one_line(more: Callable[[], str] = str) -> Iterator[None]:
    """End with one line where input is wrong, a package is not installed or a disk does not do its work. `more` says
    what else helps in the last case."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_OF:
            raise
        _end(1, how_to_install(error.name or ""))
    except (ValueError, FileNotFoundError) as error:
        _end(2, str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _end(1, f"{where}{error.strerror or error}{more()}")
    except RuntimeError as error:
        from qlocaladam.data.dataset import DataUnavailable

        if not isinstance(error, DataUnavailable):
            raise
        _end(1, str(error))


def _end(code: int, text: str) -> NoReturn:
    print(f"qlocaladam: {text}", file=sys.stderr, flush=True)
    raise SystemExit(code)


def write(path: str | os.PathLike[str], content: Any) -> str:
    """A text as it is, a table as CSV. Returns the SHA-256 of the file."""
    return write_text(path, content if isinstance(content, str) else table_text(content))


def write_analysis(folder: Path, made: Mapping[str, Any]) -> None:
    """A summary comes last and knows the other files by their hashes, so that who reads them can tell an edited one."""
    hashes = {name: write(folder / name, content) for name, content in made.items() if name != "summary.json"}
    if "summary.json" in made:
        from qlocaladam.federated.record import sealed

        write_text(folder / "summary.json", json_text(sealed({**made["summary.json"], "files": hashes})))


def named(files: Any) -> dict[str, Path]:
    """Inputs of a job by their names, but for training runs and code."""
    return {name: Path(path) for name, path in files.items() if name not in ("runs", "code")}
