"""Paddle: the same training with and without compression: losses, and seconds of a step.

Images are generated, or those of CIFAR-10 (--data). All presets start from the same weights and see the same batches.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle

import actzip.paddle as actzip

from . import data as files
from .errors import BenchError
from .table import table

MODELS = ("resnet18", "resnet34", "resnet50", "mobilenet_v2", "vgg11")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=MODELS, default="resnet18", help="of paddle.vision.models")
    parser.add_argument("--presets", nargs="+", default=["default", "actnn:L3"], help="beside full precision")
    parser.add_argument("--data", type=Path, help="a folder with cifar10-train.jpgs; generated images without it")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=30, help="steps in which the rate rises")
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each preset")


def generated(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns noisy images of waves, and labels, which determine direction and frequency of the wave."""
    random = np.random.default_rng(seed)
    labels = random.integers(10, size=count)
    y, x = np.mgrid[0:files.IMAGE_SIDE, 0:files.IMAGE_SIDE].astype("float32")
    angle, frequency = np.pi * labels / 10, 0.25 + 0.05 * (labels % 5)
    phase = random.uniform(0, 2 * np.pi, count)
    wave = np.sin(frequency[:, None, None] * (x * np.cos(angle)[:, None, None] + y * np.sin(angle)[:, None, None])
                  + phase[:, None, None])
    images = wave[:, None] * random.uniform(0.2, 1, (count, 3, 1, 1)) + random.normal(0, 4, (count, 3, *x.shape))
    return images.astype("float32"), labels.astype("int64")


def images_of(folder: Path | None, seed: int) -> tuple[np.ndarray, np.ndarray]:
    if folder is None:
        return generated(4096, seed)
    images, labels = files.read_images(folder / "cifar10-train.jpgs")
    normal = (images.astype("float32") / 255 - 0.47) / 0.25
    return np.ascontiguousarray(normal.transpose(0, 3, 1, 2)), labels.astype("int64")


def batches(images: np.ndarray, labels: np.ndarray, size: int, seed: int) -> Iterator[tuple[paddle.Tensor, paddle.Tensor]]:
    random = np.random.default_rng(seed)
    while True:
        chosen = random.integers(len(images), size=size)
        yield paddle.to_tensor(images[chosen]), paddle.to_tensor(labels[chosen])


class Training:
    """The training with one preset from one seed. A preset of None is full precision."""

    def __init__(self, options: argparse.Namespace, preset: str | None, seed: int) -> None:
        paddle.seed(seed)
        self.model = getattr(paddle.vision.models, options.model)(num_classes=10)
        self.session = preset and actzip.compress(self.model, preset=preset)
        self._rate = paddle.optimizer.lr.LinearWarmup(options.rate, options.warm_up, 0.0, options.rate)
        self._optimizer = paddle.optimizer.Momentum(self._rate, 0.9, parameters=self.model.parameters())

    def step(self, batch: tuple[paddle.Tensor, paddle.Tensor]) -> float:
        if self.session:
            with self.session:
                loss = self._loss(batch)
        else:
            loss = self._loss(batch)
        loss.backward()
        self._optimizer.step()
        self._optimizer.clear_grad()
        self._rate.step()
        return float(loss)

    def _loss(self, batch: tuple[paddle.Tensor, paddle.Tensor]) -> paddle.Tensor:
        return paddle.nn.functional.cross_entropy(self.model(batch[0]), batch[1])


def train(options: argparse.Namespace, preset: str | None, seed: int) -> tuple[list[float], float]:
    """Returns the losses, and the median time of a step in seconds."""
    images, labels = images_of(options.data, seed)
    training, losses, seconds = Training(options, preset, seed), [], []
    for _, batch in zip(range(options.steps), batches(images, labels, options.batch, seed)):
        begin = time.perf_counter()
        losses.append(training.step(batch))
        seconds.append(time.perf_counter() - begin)
    return losses, statistics.median(seconds)


def run(options: argparse.Namespace) -> int:
    if options.steps < 1 or options.seeds < 1:
        raise BenchError(f"{options.steps} steps, {options.seeds} seeds (allowed: 1 or more of both)")
    last = min(50, options.steps)
    rows, full = [], {}
    for preset in (None, *options.presets):
        means, ends, times = [], [], []
        for seed in range(options.seeds):
            losses, seconds = train(options, preset, seed)
            means.append(statistics.fmean(losses))
            ends.append(statistics.fmean(losses[-last:]))
            times.append(seconds)
            full.setdefault(seed, losses)
        if preset is None:
            plain = statistics.fmean(means), statistics.fmean(ends)
        mean, end = statistics.fmean(means), statistics.fmean(ends)
        rows.append([preset or "full precision", f"{mean:.4f}", f"{100 * (mean / plain[0] - 1):+.2f} %", f"{end:.4f}",
                     f"{100 * (end / plain[1] - 1):+.2f} %", f"{statistics.median(times):.3f}",
                     "yes" if preset and options.seeds == 1 and losses == full[0] else ""])
        print(table(["preset", "mean loss", "", f"of the last {last}", "", "s a step", "bit-equal"], rows[-1:]), flush=True)
    print(f"\n{options.model}, {options.steps} steps of {options.batch}, {options.seeds} seeds, rate {options.rate}, "
          f"Paddle {paddle.__version__}, actzip {actzip.__version__}")
    print(table(["preset", "mean loss", "", f"of the last {last}", "", "s a step", "bit-equal"], rows))
    return 0
