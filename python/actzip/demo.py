"""Trains a small ResNet to recognise shapes, plain and compressed side by side: ``python -m actzip.demo``.

Each training has a process of its own, so that their memory peaks can be compared. They take turns, a step each, on the
same images and from the same weights.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .session import Session, compress

PIXELS, SHAPES = 32, ("disc", "square", "triangle", "ring", "cross", "stripes", "checks", "diamond")
SEED = 1


def draw_shapes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns noisy images of one shape each, in random sizes, places and colours, and the labels of the shapes."""
    random = torch.Generator().manual_seed(seed)

    def between(low: float, high: float, *sizes: int) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, *sizes, generator=random)

    labels = torch.randint(len(SHAPES), (count,), generator=random)
    axis = torch.arange(PIXELS, dtype=torch.float32)
    size = between(6, 12, 1, 1)
    x = axis.view(1, 1, -1) - between(11, 21, 1, 1)
    y = axis.view(1, -1, 1) - between(11, 21, 1, 1)
    radius, box, diamond = (x * x + y * y).sqrt(), torch.maximum(x.abs(), y.abs()), x.abs() + y.abs()
    inside = torch.stack([
        radius < size,
        box < 0.8 * size,
        (y < 0.7 * size) & (y > 2 * x.abs() - size),
        (radius < size) & (radius > 0.6 * size),
        (torch.minimum(x.abs(), y.abs()) < 0.25 * size) & (box < size),
        (box < size) & (((y + size) / 3).floor() % 2 == 0),
        (box < size) & (((x / 3).floor() + (y / 3).floor()) % 2 == 0),
        diamond < size,
    ])[labels, torch.arange(count)]
    image = torch.where(inside.unsqueeze(1), between(0.4, 1.0, 3, 1, 1), between(-1.0, 0.0, 3, 1, 1))
    return image + 0.3 * torch.randn(image.shape, generator=random), labels


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.layers(x))


def small_resnet() -> nn.Module:
    """Returns a network like ResNet-20: three stages of three blocks, with images halved between stages."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1, stride=1 if channels == 3 else 2, bias=False),
                   nn.BatchNorm2d(width), nn.ReLU(), Residual(width), Residual(width), Residual(width)]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, len(SHAPES)))


@dataclasses.dataclass
class Outcome:
    accuracy: float  #: on images that were not trained on
    held_bytes: int  #: between forward and backward
    peak_bytes: int  #: memory peak of the process; on a GPU, of torch's allocator
    step_seconds: float  #: median


class Training:
    """One of the two trainings: runs steps, and records what they cost."""

    def __init__(self, is_compressed: bool, device: str, steps: int, batch: int) -> None:
        torch.manual_seed(SEED)
        self.is_compressed, self.device, self.batch = is_compressed, device, batch
        self.model = small_resnet().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), weight_decay=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 3e-3, total_steps=steps + 1)
        self.seconds: list[float] = []

    def loss(self, number: int) -> torch.Tensor:
        images, labels = (t.to(self.device) for t in draw_shapes(self.batch, SEED + number))
        return F.cross_entropy(self.model(images), labels)

    def step(self, number: int) -> float:
        began = time.perf_counter()
        if self.is_compressed:
            with compress(self.model):
                loss = self.loss(number)
        else:
            loss = self.loss(number)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        value = loss.item()
        self.seconds.append(time.perf_counter() - began)
        return value

    def outcome(self) -> Outcome:
        peak = self.peak_bytes()  # first, since what follows may raise it
        if self.is_compressed:
            held = compress(self.model).report().bytes_after
        else:
            counting = Session(self.model, dry_run=True)  # only counts bytes
            with counting:
                self.loss(0)
            held = counting.report().bytes_before
        return Outcome(self.accuracy(), held, peak, sorted(self.seconds)[len(self.seconds) // 2])

    def peak_bytes(self) -> int:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    @torch.no_grad()
    def accuracy(self) -> float:
        self.model.eval()
        images, labels = (t.to(self.device) for t in draw_shapes(2000, SEED - 1))
        guesses = torch.cat([self.model(part).argmax(1) for part in images.split(250)])
        return (guesses == labels).float().mean().item()


def serve(pipe: Connection, is_compressed: bool, device: str, steps: int, batch: int) -> None:
    """Runs in the process of a training: makes a step for each number received, then sends the outcome."""
    training = Training(is_compressed, device, steps, batch)
    while (number := pipe.recv()) is not None:
        pipe.send(training.step(number))
    pipe.send(training.outcome())


#: Makes glibc take large blocks from the system, in huge pages. Its heap keeps what torch frees, and before 2.38 cannot
#: reuse a block for a request of the same size and alignment, so both memory peaks would be those of the heap.
MALLOC = "glibc.malloc.mmap_threshold=1048576:glibc.malloc.hugetlb=1"


def train_both(steps: int, batch: int, device: str) -> tuple[Outcome, Outcome]:
    os.environ.setdefault("GLIBC_TUNABLES", MALLOC)
    context = multiprocessing.get_context("spawn")  # fresh processes, which inherit no memory
    pipes, processes = [], []
    for is_compressed in (False, True):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=serve, args=(theirs, is_compressed, device, steps, batch), daemon=True))
        processes[-1].start()
        theirs.close()  # otherwise ask() would wait forever for a process that has died
        pipes.append(ours)
    began = time.perf_counter()
    try:
        for number in range(1, steps + 1):
            losses = [ask(pipe, number) for pipe in pipes]
            show_progress(number, steps, losses, time.perf_counter() - began)
        plain, compressed = (ask(pipe, None) for pipe in pipes)
    except (EOFError, ConnectionError):
        raise SystemExit("demo: a training ended before its time; what it wrote above says why") from None
    for process in processes:
        process.join()
    return plain, compressed


def ask(pipe: Connection, number: int | None) -> Any:
    pipe.send(number)
    return pipe.recv()


def show_progress(number: int, steps: int, losses: list[float], seconds: float) -> None:
    line = f"  step {number:3d} of {steps}   loss {losses[0]:.3f} plain, {losses[1]:.3f} compressed   {seconds:4.0f} s"
    is_terminal = sys.stdout.isatty()
    if is_terminal or number % 5 == 0 or number in (1, steps):
        print(f"\r{line}" if is_terminal else line, end="" if is_terminal and number < steps else "\n", flush=True)


def table(plain: Outcome, compressed: Outcome, device: str) -> str:
    def mebibytes(count: int) -> str:
        return f"{count / 2**20:,.0f} MiB"

    peak = "peak memory of torch on the GPU" if device == "cuda" else "peak memory of the process"
    rows = [
        ("", "plain", "compressed"),
        ("held between forward and backward", mebibytes(plain.held_bytes), mebibytes(compressed.held_bytes)),
        (peak, mebibytes(plain.peak_bytes), mebibytes(compressed.peak_bytes)),
        ("accuracy on new images", f"{plain.accuracy:.1%}", f"{compressed.accuracy:.1%}"),
        ("time of a step", f"{plain.step_seconds * 1e3:,.0f} ms", f"{compressed.step_seconds * 1e3:,.0f} ms"),
    ]
    return "\n".join(f"  {name:36}{left:>14}{right:>14}" for name, left, right in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="actzip demo", description="Train a small ResNet on generated images, "
                                     "plain and with compressed activations, and compare.")
    parser.add_argument("--steps", type=int, default=40, help="of each training (default: 40)")
    parser.add_argument("--batch", type=int, default=256, help="images in a step (default: 256)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.batch < 2:
        parser.error(f"--steps {options.steps} --batch {options.batch}: allowed are at least 1 step and 2 images")
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"the CPU, {torch.get_num_threads()} threads"
    print(f"A small ResNet learns {len(SHAPES)} shapes on {where}: the same weights and images,\n"
          "once plain and once with actzip, a step each in turn.\n", flush=True)
    plain, compressed = train_both(options.steps, options.batch, options.device)
    print(f"\n{table(plain, compressed, options.device)}\n\n"
          f"Activations take {plain.held_bytes / max(compressed.held_bytes, 1):.1f} times less memory. In your own training:\n\n"
          "    with actzip.compress(model):\n"
          "        loss = loss_fn(model(x), y)\n"
          "    loss.backward()\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
