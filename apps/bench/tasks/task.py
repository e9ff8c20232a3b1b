"""Tasks, and what they create for one run."""

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
    """One run, ready to begin. All tasks share one training loop."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    steps: int
    warm_up: float | None  #: fraction of the steps in which the learning rate rises; None: it is constant
    batches: Iterator[Any]  #: at least as many as steps
    loss: Callable[[Any], torch.Tensor]  #: of a batch
    evaluate: Callable[[], float]  #: the metric of the task, once at the end
    clip: float = math.inf  #: the greatest norm of all gradients together


@dataclasses.dataclass(frozen=True)
class Task(abc.ABC):
    """A data set, a network and a recipe. The fields are the whole recipe, so equal fields give equal runs."""

    name: ClassVar[str]
    metric: ClassVar[str]  #: what evaluate() returns, with its unit
    digits: ClassVar[int]  #: of the metric, after the point
    files: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def load(self, folder: Path) -> dict[str, np.ndarray]:
        """Reads the files, once for all runs."""

    @abc.abstractmethod
    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        """Returns a run over the data of load(), as tensors on the device. Weights come from torch's generator, which
        the caller has seeded."""


def learning_rate(trial: Trial) -> torch.optim.lr_scheduler.LambdaLR:
    """Returns a schedule: a linear rise, then a cosine down to zero; or a constant rate."""
    rising = round((trial.warm_up or 0) * trial.steps)

    def factor(step: int) -> float:
        if trial.warm_up is None:
            return 1
        if step < rising:
            return (step + 1) / rising
        return 0.5 + 0.5 * math.cos(math.pi * min(1, (step - rising) / (trial.steps - rising)))

    return torch.optim.lr_scheduler.LambdaLR(trial.optimizer, factor)


def steps_of(epochs: float, batch: int, examples: int) -> int:
    """Returns the number of whole batches. ``epochs`` may be a fraction."""
    steps = round(epochs * (examples // batch))
    if steps < 1:
        raise BenchError(f"{epochs} epochs of {examples} examples in batches of {batch} (allowed: one batch or more)")
    return steps


def order_generator(seed: int) -> torch.Generator:
    """Returns the generator for the order of examples and their crops. It is on the CPU, so that all devices see the
    same."""
    return torch.Generator().manual_seed(seed)
