"""Checkpoints: written whole, checked when read, two generations deep.

A file is one line with the SHA-256 of the rest, then what torch.save wrote. A damaged or missing one falls back to the
one before it, so damage costs one checkpoint interval and never a wrong result.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import torch

from qlocaladam.files import write_whole

MAGIC = b"qlocaladam-checkpoint-1 "


def previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def save(path: Path, content: dict[str, Any]) -> None:
    """Make `content` the checkpoint, and the checkpoint the previous one."""
    payload = io.BytesIO()
    torch.save(content, payload)
    data = payload.getvalue()
    line = MAGIC + hashlib.sha256(data).hexdigest().encode() + b"\n"
    if path.exists():
        os.replace(path, previous(path))
    write_whole(path, lambda file: file.writelines((line, data)))


def load(path: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest sound checkpoint, or None, and what was wrong with those that were passed over."""
    faults: list[str] = []
    for candidate in (path, previous(path)):
        try:
            return _read(candidate), faults
        except FileNotFoundError:
            continue
        except ValueError as error:
            faults.append(f"{candidate}: {error}; passed over")
    return None, faults


def _read(path: Path) -> dict[str, Any]:
    line, _, data = path.read_bytes().partition(b"\n")
    if not line.startswith(MAGIC):
        raise ValueError("not a checkpoint")
    if hashlib.sha256(data).hexdigest().encode() != line.removeprefix(MAGIC):
        raise ValueError("damaged: its SHA-256 is another one")
    content: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return content


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    previous(path).unlink(missing_ok=True)
