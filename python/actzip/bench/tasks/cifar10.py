"""ResNet-18 on CIFAR-10."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import data as files
from .task import Task, Trial, order_generator, steps_of

MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
SIDE = files.IMAGE_SIDE


class Block(nn.Module):
    """Two convolutions and a way around them."""

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
    """With a stem for small images: a 3 x 3 convolution, and no pooling after it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        self.blocks = nn.Sequential(*(
            Block(widths[stage if second else stage - 1], widths[stage], 1 if second or stage == 1 else 2)
            for stage in range(1, 5) for second in (False, True)))
        self.head = nn.Linear(widths[-1], files.CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


@dataclasses.dataclass(frozen=True)
class Cifar10(Task):
    """bf16 autocast, channels last; crops and flips made on the device, where all images lie."""

    name = "cifar10"
    metric = "test accuracy, %"
    digits = 2
    files = ("cifar10-train.jpgs", "cifar10-test.jpgs")

    epochs: float = 15
    batch: int = 256
    width: int = 64
    padding: int = 4
    rate: float = 0.2
    warm_up: float = 0.2
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def load(self, folder: Path) -> dict[str, np.ndarray]:
        train, train_labels = files.read_images(folder / self.files[0])
        test, test_labels = files.read_images(folder / self.files[1])
        border = (self.padding, self.padding)
        padded = np.pad(train, ((0, 0), border, border, (0, 0)), "reflect")
        return {"train": padded, "train_labels": train_labels, "test": test, "test_labels": test_labels}

    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        model = ResNet18(self.width).to(device, memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), self.rate, self.momentum, weight_decay=self.weight_decay,
                                    nesterov=True)
        mean, deviation = (torch.tensor(values, device=device) * 255 for values in (MEAN, DEVIATION))

        def logits(images: torch.Tensor) -> torch.Tensor:
            normalised = ((images.float() - mean) / deviation).permute(0, 3, 1, 2)  # channels last as it lies
            with torch.autocast(device.type, torch.bfloat16):
                return model(normalised)

        def loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            images, labels = batch
            return F.cross_entropy(logits(images).float(), labels)

        def evaluate() -> float:
            found = torch.cat([logits(images).argmax(1) for images in data["test"].split(1000)])
            return 100 * (found == data["test_labels"]).double().mean().item()

        return Trial(model, optimizer, steps_of(self.epochs, self.batch, len(data["train"])), self.warm_up,
                     self._batches(data, seed, device), loss, evaluate)

    def _batches(
        self, data: dict[str, torch.Tensor], seed: int, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator, count = order_generator(seed), len(data["train"])
        pixels = torch.arange(SIDE, device=device)
        while True:
            order = torch.randperm(count, generator=generator).to(device)
            shifts = torch.randint(2 * self.padding + 1, (2, count, 1), generator=generator).to(device)
            flips = torch.randint(2, (count, 1), generator=generator).bool().to(device)
            rows = shifts[0] + pixels
            columns = shifts[1] + torch.where(flips, SIDE - 1 - pixels, pixels)
            for begin in range(0, count - self.batch + 1, self.batch):
                part = slice(begin, begin + self.batch)
                which = order[part]
                images = data["train"][which[:, None, None], rows[part, :, None], columns[part, None, :]]
                yield images, data["train_labels"][which]
