"""The files of a finished run, and a run that is cut off."""

from __future__ import annotations

import csv

from qlocaladam.federated import checkpoint

SAME = ("history.csv", "summary.json", "settings.json")
"""Whose bytes repeat."""


def results(folder):
    return {name: (folder / name).read_bytes() for name in SAME}


def rows(folder):
    with (folder / "history.csv").open() as file:
        return list(csv.DictReader(file))


def stop_after(rounds, monkeypatch):
    """Let a run be cut off once so many rounds are saved."""
    original, count = checkpoint.save, 0

    def save(path, content):
        nonlocal count
        original(path, content)
        count += 1
        if count == rounds:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", save)
