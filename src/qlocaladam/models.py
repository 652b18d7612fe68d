"""ResNet-18 of any width, from torchvision's blocks, and a small transformer for text, from torch's.

The paper's models have 6,294,202 parameters for CIFAR-10 and 11,227,812 for CIFAR-100. It has no transformer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qlocaladam.vision import torchvision

STEMS = ("7x7", "3x3")

PAPER_MODELS = {"cifar10": {"width": 48, "classes": 10}, "cifar100": {"width": 64, "classes": 100}}
"""Widths and classes of the paper's two models, both with the 7x7 stem."""


class ResNet18(torchvision.models.ResNet):  # type: ignore[misc]
    """torchvision's ResNet-18 with `width`, 2, 4 and 8 times `width` channels.

    The `7x7` stem is torchvision's: stride 2 and a pooling layer. The `3x3` stem keeps the resolution of small images.
    """

    def __init__(self, classes: int, width: int = 64, stem: str = "7x7") -> None:
        if classes < 1 or width < 1:
            raise ValueError(f"classes and width must be at least 1, got classes={classes!r}, width={width!r}")
        if stem not in STEMS:
            raise ValueError(f"stem must be one of {', '.join(STEMS)}, got {stem!r}")
        nn.Module.__init__(self)  # torchvision's own fixes the width
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = width, 1, 1, 64
        kernel, stride = (7, 2) if stem == "7x7" else (3, 1)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == "7x7" else nn.Identity()
        block = torchvision.models.resnet.BasicBlock
        self.layer1 = self._make_layer(block, width, 2)
        self.layer2 = self._make_layer(block, 2 * width, 2, stride=2)
        self.layer3 = self._make_layer(block, 4 * width, 2, stride=2)
        self.layer4 = self._make_layer(block, 8 * width, 2, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self._forward_impl(images)
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
