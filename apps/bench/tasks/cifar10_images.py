"""The images of CIFAR-10, and how any network is trained on them."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import data as files
from .task import Task, Trial, order_generator, steps_of

MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
SIDE = files.IMAGE_SIDE


@dataclasses.dataclass(frozen=True)
class Cifar10Images(Task):
    """Trains in bf16 autocast and channels last. All images are on the device, which also makes crops and flips."""

    metric = "test accuracy, %"
    digits = 2
    files = ("cifar10-train.jpgs", "cifar10-test.jpgs")

    # Some recipes make these fields.
    smoothing: ClassVar[float] = 0  #: the part of a label that is spread over all classes
    clip: ClassVar[float] = math.inf  #: the greatest norm of all gradients together

    epochs: float
    batch: int
    padding: int
    warm_up: float

    @abc.abstractmethod
    def network(self) -> nn.Module:
        """Returns a network from images [n, 3, 32, 32] to logits."""

    @abc.abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns the optimizer, with the highest learning rate of the schedule."""

    def load(self, folder: Path) -> dict[str, np.ndarray]:
        train, train_labels = files.read_images(folder / self.files[0])
        test, test_labels = files.read_images(folder / self.files[1])
        border = (self.padding, self.padding)
        padded = np.pad(train, ((0, 0), border, border, (0, 0)), "reflect")
        return {"train": padded, "train_labels": train_labels, "test": test, "test_labels": test_labels}

    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        model = self.network().to(device, memory_format=torch.channels_last)
        mean, deviation = (torch.tensor(values, device=device) * 255 for values in (MEAN, DEVIATION))

        def logits(images: torch.Tensor) -> torch.Tensor:
            normalised = ((images.float() - mean) / deviation).permute(0, 3, 1, 2)  # stays channels last in memory
            with torch.autocast(device.type, torch.bfloat16):
                return model(normalised)

        def loss(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            images, labels = batch
            return F.cross_entropy(logits(images).float(), labels, label_smoothing=self.smoothing)

        def evaluate() -> float:
            found = torch.cat([logits(images).argmax(1) for images in data["test"].split(1000)])
            return 100 * (found == data["test_labels"]).double().mean().item()

        return Trial(model, self.optimizer(model), steps_of(self.epochs, self.batch, len(data["train"])), self.warm_up,
                     self._batches(data, seed, device), loss, evaluate, self.clip)

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
