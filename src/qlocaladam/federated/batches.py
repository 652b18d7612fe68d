"""Samples in memory as uint8, made into batches as they are needed. Images: picked, flipped, normalised, resized. Text:
characters, and for each of them the one that follows.

There are no loader processes: a batch is a handful of tensor operations on the device that trains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from qlocaladam.data.dataset import Dataset, Images, Labels, Windows


@dataclass(frozen=True)
class Normalisation:
    """Mean and deviation of each channel over the training images, in units of 0 to 255."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, images: Images) -> Normalisation:
        """From exact sums, so that it does not depend on how they are added up."""
        values = np.arange(256)
        counts = [np.bincount(images[..., channel].reshape(-1), minlength=256) for channel in range(images.shape[-1])]
        means = [float((values * c).sum() / c.sum()) for c in counts]
        deviations = [float(((values - m) ** 2 * c).sum() / c.sum()) ** 0.5 for m, c in zip(means, counts, strict=True)]
        return cls(tuple(means), tuple(max(deviation, 1.0) for deviation in deviations))


class ImageSet:
    """Images and labels on a device. A batch is float32, `size` x `size`, of mean 0 and deviation 1, channels last."""

    def __init__(
        self, images: Images, labels: Labels, normalisation: Normalisation, size: int, device: torch.device
    ) -> None:
        stored = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        self.images = stored.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else stored
        self.labels = torch.from_numpy(labels.copy()).to(device)
        self.mean, self.std = (
            torch.tensor(values, dtype=torch.float32, device=device).view(1, -1, 1, 1)
            for values in (normalisation.mean, normalisation.std)
        )
        self.size = size

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor, flips: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The images and labels at `indices`; those where `flips` is true are mirrored."""
        images = self.images[indices]
        if flips is not None:
            images = torch.where(flips.view(-1, 1, 1, 1), images.flip(3), images)
        values = images.to(torch.float32).sub_(self.mean).div_(self.std)
        if values.shape[-2:] != (self.size, self.size):
            values = interpolate(values, (self.size, self.size), mode="bilinear", antialias=False)
        return values.contiguous(memory_format=torch.channels_last), self.labels[indices]


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


Samples = ImageSet | TextSet


def sample_sets(dataset: Dataset, size: int, device: torch.device) -> tuple[Samples, Samples]:
    """Training and test samples; `size` is that of images."""
    if not dataset.is_text:
        return image_sets(dataset, size, device)
    return TextSet(dataset.x_train, dataset.y_train, device), TextSet(dataset.x_test, dataset.y_test, device)


def image_sets(dataset: Dataset, size: int, device: torch.device) -> tuple[ImageSet, ImageSet]:
    """Training and test images, both normalised by the training images."""
    if dataset.is_text:
        raise ValueError(f"{dataset.name} is text of shape {dataset.x_train.shape}; accepted are images (N, H, W, 3)")
    normalisation = Normalisation.of(dataset.x_train)
    return (
        ImageSet(dataset.x_train, dataset.y_train, normalisation, size, device),
        ImageSet(dataset.x_test, dataset.y_test, normalisation, size, device),
    )
