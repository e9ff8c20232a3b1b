"""ResNet-18 on CIFAR-10."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from ..data import CLASSES
from .cifar10_images import Cifar10Images


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """A ResNet-18 with a stem for small images: a 3 x 3 convolution without pooling."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nn.Sequential(*(
            Block(widths[stage if second else stage - 1], widths[stage], 1 if second or stage == 1 else 2)
            for stage in range(1, 5) for second in (False, True)))
        self.head = nn.Linear(widths[-1], CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


@dataclasses.dataclass(frozen=True)
class Cifar10(Cifar10Images):
    name = "cifar10"

    epochs: float = 15
    batch: int = 256
    width: int = 64
    padding: int = 4
    rate: float = 0.2
    warm_up: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def network(self) -> nn.Module:
        return ResNet18(self.width)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), self.rate, self.momentum, weight_decay=self.weight_decay,
                               nesterov=True)
