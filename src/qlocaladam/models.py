"""ResNet-18 of any width, and a small transformer for text, from torch's layers.

The paper's models have 6,294,202 parameters for CIFAR-10 and 11,227,812 for CIFAR-100. It has no transformer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

STEMS = ("7x7", "3x3")

PAPER_MODELS = {"cifar10": {"width": 48, "classes": 10}, "cifar100": {"width": 64, "classes": 100}}
"""Widths and classes of the paper's two models, both with the 7x7 stem."""


class Shortcut(nn.Conv2d):
    """A 1x1 convolution that does by itself what oneDNN gets wrong.

    Where fewer channels than fit a register, 8 or 16, are stored channels last, oneDNN writes past the end of a buffer
    when it derives a strided 1x1 convolution (its issue 6035). Without a stride it does not.
    """

    def forward(self, values: Tensor) -> Tensor:
        if self.in_channels >= 16:
            return super().forward(values)
        rows, columns = self.stride
        return conv2d(values[:, :, ::rows, ::columns], self.weight)


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut: torchvision's BasicBlock, its names and its order of random draws."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        shortcut = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Sequential(Shortcut(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = shortcut

    def forward(self, values: Tensor) -> Tensor:
        changed = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(values)))))
        changed += values if self.downsample is None else self.downsample(values)
        result: Tensor = self.relu(changed)
        return result


class ResNet18(nn.Module):
    """torchvision's ResNet-18, bit for bit, with `width`, 2, 4 and 8 times `width` channels.

    The `7x7` stem is torchvision's: stride 2 and a pooling layer. The `3x3` stem keeps the resolution of small images.
    """

    def __init__(self, classes: int, width: int = 64, stem: str = "7x7") -> None:
        if classes < 1 or width < 1:
            raise ValueError(f"classes and width must be at least 1, got classes={classes!r}, width={width!r}")
        if stem not in STEMS:
            raise ValueError(f"stem must be one of {', '.join(STEMS)}, got {stem!r}")
        super().__init__()
        kernel, stride = (7, 2) if stem == "7x7" else (3, 1)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == "7x7" else nn.Identity()
        self.layer1 = nn.Sequential(Block(width, width, 1), Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width, 1))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2), Block(4 * width, 4 * width, 1))
        self.layer4 = nn.Sequential(Block(4 * width, 8 * width, 2), Block(8 * width, 8 * width, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        values = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        values = self.layer4(self.layer3(self.layer2(self.layer1(values))))
        logits: Tensor = self.fc(self.avgpool(values).flatten(1))
        return logits


class Transformer(nn.Module):
    """A causal language model: two pre-norm layers of `HEADS` heads over learned positions, without dropout."""

    HEADS, LAYERS = 4, 2

    def __init__(self, symbols: int, length: int, width: int = 64) -> None:
        """`length`: the longest window of symbols that it reads."""
        if symbols < 1 or length < 1:
            raise ValueError(f"symbols and length must be at least 1, got symbols={symbols!r}, length={length!r}")
        if width < 1 or width % self.HEADS:
            raise ValueError(f"width of a transformer must be a multiple of its {self.HEADS} heads, got {width!r}")
        super().__init__()
        self.symbols, self.positions = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, self.HEADS, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(self.LAYERS)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)
        for embedding in (self.symbols, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)  # torch's 1 would drown what the layers add

    def forward(self, symbols: Tensor) -> Tensor:
        """Logits of the next symbol at every place."""
        length = symbols.shape[1]
        later = nn.Transformer.generate_square_subsequent_mask(length, symbols.device)
        values = self.symbols(symbols) + self.positions(torch.arange(length, device=symbols.device))
        for layer in self.layers:
            values = layer(values, later, is_causal=True)
        logits: Tensor = self.head(self.norm(values))
        return logits
