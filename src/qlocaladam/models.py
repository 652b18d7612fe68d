"""ResNet-18 of any width, from torchvision's blocks.

The paper's models have 6,294,202 parameters for CIFAR-10 and 11,227,812 for CIFAR-100.
"""

from __future__ import annotations

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
