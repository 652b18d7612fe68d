"""The yardstick: federated averaging of FP32 Adam in plain PyTorch, and nothing around it.

It is what somebody would write who needs no arms, no checks, no records: the same model, memory layout and batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.frameworks import BATCH, EPOCHS, EVALUATION_BATCH, LEARNING_RATE, SEED, WIDTH
from qlocaladam.data.dataset import Dataset
from qlocaladam.federated import rounds
from qlocaladam.federated.settings import RunSettings


@dataclass(frozen=True)
class Images:
    """uint8 images (N, 3, H, W) in memory, and what normalises them."""

    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor

    def prepare(self, images: Tensor, flips: Tensor | None = None) -> Tensor:
        """float32, mirrored where `flips` is true, of mean 0 and deviation 1, channels last."""
        if flips is not None:
            images = torch.where(flips[:, None, None, None], images.flip(3), images)
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def load(dataset: Dataset) -> tuple[Images, Images]:
    """Training and test images, both normalised by the training images."""
    train, test = (torch.from_numpy(x).permute(0, 3, 1, 2).contiguous() for x in (dataset.x_train, dataset.x_test))
    mean, std = (
        torch.tensor(values, dtype=torch.float32).view(1, 3, 1, 1)
        for values in (dataset.x_train.mean((0, 1, 2)), dataset.x_train.std((0, 1, 2)))
    )
    return (
        Images(train, torch.from_numpy(dataset.y_train), mean, std),
        Images(test, torch.from_numpy(dataset.y_test), mean, std),
    )


def make_model(classes: int) -> nn.Module:
    """The model of a run of ours, laid out in memory as there."""
    return rounds.make_model(RunSettings(width=WIDTH, seed=SEED), classes, torch.device("cpu"))


def train(model: nn.Module, data: Images, indices: Tensor, draw: torch.Generator) -> None:
    """A client's part of a round, in place."""
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    model.train()
    for _ in range(EPOCHS):
        order = indices[torch.randperm(len(indices), generator=draw)]
        flips = torch.rand(len(indices), generator=draw) < 0.5
        for chosen, flip in zip(order.split(BATCH), flips.split(BATCH), strict=True):
            loss = cross_entropy(model(data.prepare(data.images[chosen], flip)), data.labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def average(states: Sequence[dict[str, Tensor]], samples: Sequence[int]) -> dict[str, Tensor]:
    """The mean of the clients' models, weighted by their samples."""
    shares = [count / sum(samples) for count in samples]
    return {
        name: sum(share * state[name] for share, state in zip(shares, states, strict=True)).to(value.dtype)
        for name, value in states[0].items()
    }


@torch.no_grad()
def evaluate(model: nn.Module, data: Images) -> float:
    """Accuracy in percent."""
    model.eval()
    batches = zip(data.images.split(EVALUATION_BATCH), data.labels.split(EVALUATION_BATCH), strict=True)
    correct = sum((model(data.prepare(images)).argmax(1) == labels).sum().item() for images, labels in batches)
    return 100 * correct / len(data.labels)
