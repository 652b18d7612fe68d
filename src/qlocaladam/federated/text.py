"""Text in memory as uint8 windows of symbols; a batch is characters, and for each of them the one that follows."""

from __future__ import annotations

import torch
from torch import Tensor

from qlocaladam.datasets import Dataset, Labels, Windows


class TextSet:
    """Windows and the sections they stand in, on a device. To the rest of the engine it is what an ImageSet is."""

    def __init__(self, windows: Windows, labels: Labels, device: torch.device) -> None:
        self.windows = torch.from_numpy(windows.copy()).to(device)
        self.labels = torch.from_numpy(labels.copy()).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, flips: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The symbols at `indices`, and their successors. Text is never mirrored: `flips` says nothing."""
        symbols = self.windows[indices].long()
        return symbols[:, :-1], symbols[:, 1:]


def text_sets(dataset: Dataset, device: torch.device) -> tuple[TextSet, TextSet]:
    """Training and test windows."""
    return TextSet(dataset.x_train, dataset.y_train, device), TextSet(dataset.x_test, dataset.y_test, device)
