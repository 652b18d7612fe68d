"""What training runs of tests begin from, the files of a finished one, and one that is cut off."""

from __future__ import annotations

import csv

import pytest

from qlocaladam.data.dataset import load, subset
from qlocaladam.federated import checkpoint
from qlocaladam.federated.partition import partition

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


def small_part(file, alpha):
    """Fixtures of a module: a small part of the file that this fixture makes, and its partition."""

    @pytest.fixture(scope="module")
    def small(request):
        return subset(load(request.getfixturevalue(file)), 200, 50)

    @pytest.fixture(scope="module")
    def parts(small):
        return partition(small.y_train, 10, alpha, 42)

    return small, parts
