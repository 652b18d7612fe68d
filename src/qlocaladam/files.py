"""Files are written whole or not at all: a half-written result never looks finished. CSV, JSON and YAML as text."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pandas as pd


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> str:
    """Write a file under another name, bring it to the disk, give it its name. Returns its SHA-256."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        os.replace(part, path)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        advice = "free some space and run snakemake again, nothing that was saved is lost"
        raise OSError(error.errno, f"{error.strerror}: {advice}", str(path)) from None
    finally:
        part.unlink(missing_ok=True)
    return sha256


def write_text(path: str | os.PathLike[str], text: str) -> str:
    """Write a text whole. Returns the SHA-256 of the file."""
    return write_whole(path, lambda file: file.write(text.encode()))


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def table_text(table: pd.DataFrame) -> str:
    """A table of pandas, without its index."""
    return table.to_csv(index=False, lineterminator="\n")


def table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table of pandas, by the names of its columns."""
    return [{str(name): cell for name, cell in row.items()} for row in table.to_dict("records")]


def json_text(content: Any) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def remove_parts(folder: Path) -> None:
    """Remove what a process left that was killed while it wrote. No other may be writing there."""
    for part in folder.glob(".*.part"):
        part.unlink(missing_ok=True)


def yaml_loader() -> Any:
    """Safe, and libyaml's where it is there: a configuration takes that a tenth of the time that it takes Python."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str) -> Any:
    import yaml

    return yaml.load(text, yaml_loader())
