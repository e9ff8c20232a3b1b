"""What a task is, and what it makes for one run."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from ..errors import BenchError


@dataclasses.dataclass
class Trial:
    """One run, ready to begin: its loop is the same for all tasks."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    steps: int
    warm_up: float | None  #: part of the steps in which the learning rate rises, before it falls; None: it stays
    batches: Iterator[Any]  #: at least as many as steps
    loss: Callable[[Any], torch.Tensor]  #: of a batch
    evaluate: Callable[[], float]  #: the metric of the task, once at the end
    clip: float = math.inf  #: the greatest norm of all gradients together


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
    """A data set, a network and a recipe. The fields are the whole recipe: equal fields, equal runs."""

    name: ClassVar[str]
    metric: ClassVar[str]  #: what evaluate() gives, with its unit
    digits: ClassVar[int]  #: of the metric, after the point
    files: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def load(self, folder: Path) -> dict[str, np.ndarray]:
        """Reads the files, once for all runs."""

    @abc.abstractmethod
    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        """A run over what load() gave, as tensors on the device. Weights come from torch's generator, seeded before."""


def learning_rate(trial: Trial) -> torch.optim.lr_scheduler.LambdaLR:
    """A straight line up, then a cosine to zero; or the same throughout."""
    rising = round((trial.warm_up or 0) * trial.steps)

    def factor(step: int) -> float:
        if trial.warm_up is None:
            return 1
        if step < rising:
            return (step + 1) / rising
        return 0.5 + 0.5 * math.cos(math.pi * min(1, (step - rising) / (trial.steps - rising)))

    return torch.optim.lr_scheduler.LambdaLR(trial.optimizer, factor)


def steps_of(epochs: float, batch: int, examples: int) -> int:
    """Whole batches only; part of an epoch is allowed."""
    steps = round(epochs * (examples // batch))
    if steps < 1:
        raise BenchError(f"{epochs} epochs of {examples} examples in batches of {batch} (allowed: one batch or more)")
    return steps


def order_generator(seed: int) -> torch.Generator:
    """Of the order of the examples and their crops: on the CPU, so that every device sees the same."""
    return torch.Generator().manual_seed(seed)
