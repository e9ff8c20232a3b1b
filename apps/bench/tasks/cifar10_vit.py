"""A small vision transformer on CIFAR-10, trained from scratch."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from ..data import CLASSES, IMAGE_SIDE
from .cifar10_images import Cifar10Images
from .transformer import Block, initialise


class ViT(nn.Module):
    """A vision transformer whose head reads a class token."""

    def __init__(self, patch: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn((IMAGE_SIDE // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(Block(width, heads, dropout=0.0, causal=False) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CLASSES)
        initialise(self)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


@dataclasses.dataclass(frozen=True)
class Cifar10Vit(Cifar10Images):
    """ViT-tiny with patches of 4 x 4 pixels; a shorter version of the recipe vit-cifar10 of `actzip train`."""

    name = "cifar10-vit"

    epochs: float = 8
    batch: int = 256
    patch: int = 4
    layers: int = 12
    width: int = 192
    heads: int = 3
    padding: int = 4
    rate: float = 1e-3
    warm_up: float = 0.1
    weight_decay: float = 0.05  #: only for matrices and filters
    smoothing: float = 0.1
    clip: float = 1.0

    def network(self) -> nn.Module:
        return ViT(self.patch, self.layers, self.width, self.heads)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        parameters = list(model.parameters())
        return torch.optim.AdamW(
            [{"params": [one for one in parameters if one.dim() > 1], "weight_decay": self.weight_decay},
             {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0}], self.rate, fused=True)
