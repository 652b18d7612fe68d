"""What the examples train: a small network on scikit-learn's 1,797 handwritten digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def dataset() -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels))


def loader(batch_size: int = 64) -> DataLoader:
    return DataLoader(dataset(), batch_size, shuffle=True, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    images, labels = dataset().tensors
    return 100 * (model(images).argmax(1) == labels).float().mean().item()
