"""What `division` does: the energy in the low and the high part of each site, and a picture of one map.

Trains a model for some steps, on CIFAR-10 if there is a data folder, otherwise on generated images. Then runs one
forward, and shows for everything that it keeps by `dual` the share of the energy (sum of squares) in the block averages
and in the rest, the bytes of both, and the relative squared error of what backward gets. docs/division.md explains the
figures.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch

from ..parts import Parts, SiteParts, site_parts
from . import data as files
from . import devices, machine, map_picture, models, presets, svg
from .errors import BenchError
from .models import ModelSpec
from .results import ResultFile, new_run
from .small_models import CLASSES, SMALL_MODELS, classified, trained
from .steps import Bench
from .table import table
from .tasks.cifar10 import Cifar10, ResNet18
from .tasks.cifar10_images import DEVIATION, MEAN

Data = Callable[[int], tuple[torch.Tensor, torch.Tensor]]

#: Models, with the side of generated images. CIFAR-10's have 32 for all models.
MODELS: dict[str, tuple[ModelSpec, int]] = {
    "resnet18": (classified(lambda: ResNet18(Cifar10.width)), 32),
    "resnet50": (models.residual("resnet50", classes=CLASSES), 224),
    "cnn": (SMALL_MODELS["cnn"], 32),
    "efficientnet": (SMALL_MODELS["efficientnet"], 32),
}
MADE_UP, CIFAR10 = "made up", "cifar10"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = " ".join(__doc__.split("\n\n", 1)[1].split())
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--preset", default="division", metavar="PRESET",
                        help="division[:BITS][:block=N]..., or another of actzip.Session that uses dual")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="of training before (20)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="images in a step (32)")
    parser.add_argument("--data", metavar="DIR", help="folder with cifar10-train.jpgs (default: ACTZIP_DATA, or none)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="adds the rows to FILE; a model's old ones go")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="draws one map with its parts")
    parser.add_argument("--site", metavar="NAME", help="that is drawn, as the table names it (the first)")
    parser.add_argument("--sample", type=int, default=0, metavar="I", help="of the batch, that is drawn (0)")
    parser.add_argument("--channel", type=int, default=0, metavar="C", help="that is drawn (0)")
    devices.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    device = devices.chosen(options.device)
    check(options)
    file = options.json and ResultFile(options.json, "actzip.bench division, version 1",
                                       ("model", "preset", "data", "device"))
    if file:
        file.read()
    origin, data = images(options.data, MODELS[options.model][1])
    facts, run_id = machine.describe(device), new_run()
    print(machine.heading(facts), flush=True)
    print(f"{options.model}: training", file=sys.stderr, flush=True)
    spec = dataclasses.replace(MODELS[options.model][0], batch=options.batch, data=data)
    view = View(trained(spec, device, options.steps), options.preset, options.site)
    print(f"\n{options.model}, {origin} images, batch {options.batch}, after {options.steps} steps, {options.preset}\n"
          f"{text(view.sites)}", flush=True)
    if options.picture:
        draw(options, view)
    if file:
        about = {"model": options.model, "preset": options.preset, "data": origin, "batch": options.batch,
                 "steps": options.steps, "device": facts["device"], "run": run_id}
        file.merge(run_id, facts, [Line(**dataclasses.asdict(site), **about) for site in view.sites])
    return 0


def check(options: argparse.Namespace) -> None:
    """Refuses wrong options before anything takes time."""
    for name, value, least in (("--steps", options.steps, 0), ("--batch", options.batch, 1),
                               ("--sample", options.sample, 0), ("--channel", options.channel, 0)):
        if value < least:
            raise BenchError(f"{name} {value} (allowed: {least} or more)")
    if presets.converts(options.preset):
        raise BenchError(f"--preset {options.preset}: converted layers are not looked into (allowed: without convert)")
    presets.check(options.preset)
    models.check_package(options.model, MODELS[options.model][0])
    if options.picture:
        svg.check_path(options.picture)


@dataclasses.dataclass(frozen=True)
class Line(SiteParts):
    """One site in one run."""

    model: str
    preset: str
    data: str
    batch: int
    steps: int
    device: str
    run: str


class View:
    """The parts of everything that one forward of a model keeps, and for one site also the tensor itself."""

    def __init__(self, bench: Bench, preset: str, drawn: str | None) -> None:
        self.drawn, self.tensor, self.parts = drawn, torch.empty(0), None
        self.sites = site_parts(bench.model, lambda: bench.forward(nullcontext()), look=self._look,
                                **presets.options_of(preset))
        if not self.sites:
            raise BenchError(f"--preset {preset}: nothing is kept by dual (allowed: division, or a codec dual)")
        if self.parts is None:
            raise BenchError(f"--site '{drawn}' (allowed: {', '.join(site.site for site in self.sites)})")

    def _look(self, site: str, tensor: torch.Tensor, parts: Parts) -> None:
        if self.drawn in (None, site):
            self.drawn, self.parts = site, parts
            self.tensor = tensor.clone()  # an in-place ReLU may follow


def shown_map(tensor: torch.Tensor, parts: Parts, sample: int, channel: int) -> map_picture.Map:
    for name, value, count in zip(("--sample", "--channel"), (sample, channel), tensor.shape):
        if value >= count:
            raise BenchError(f"{name} {value} (allowed: 0 to {count - 1} at this site)")

    def rows(values: torch.Tensor) -> np.ndarray:
        return values[sample, channel].float().cpu().numpy().reshape(-1, values.shape[-1])

    return map_picture.Map(*map(rows, (tensor, parts.low, parts.high, parts.restored)))


def draw(options: argparse.Namespace, view: View) -> None:
    codec = next(site.codec for site in view.sites if site.site == view.drawn)
    title = f"{options.model}, {view.drawn}, sample {options.sample}, channel {options.channel}, {codec}"
    shown = shown_map(view.tensor, view.parts, options.sample, options.channel)
    options.picture.write_text(map_picture.draw(title, shown))


def images(folder: str | None, side: int) -> tuple[str, Data]:
    """Returns the origin of the images, and a function that returns a batch of them."""
    if not folder and not os.environ.get("ACTZIP_DATA"):
        return MADE_UP, lambda batch: scenes(batch, side)
    name = Cifar10.files[0]
    pixels, labels = map(torch.from_numpy, files.read_images(files.find_folder(folder, [name]) / name))

    def data(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        device = torch.get_default_device()
        which = torch.randint(len(labels), (batch,), device="cpu")
        chosen = pixels[which].to(device).float() / 255
        normalised = (chosen - torch.tensor(MEAN)) / torch.tensor(DEVIATION)
        return normalised.permute(0, 3, 1, 2).contiguous(), labels[which].to(device)

    return CIFAR10, data


def scenes(batch: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns noisy images of a striped disc before a sloping background. The direction of the stripes is the class."""
    y = torch.randint(CLASSES, (batch,))
    across = torch.linspace(-1, 1, side)
    down = across[:, None]
    angle = (y * (torch.pi / CLASSES)).view(-1, 1, 1)
    stripes = torch.sin(20 * (down * angle.cos() + across * angle.sin()))
    x, z = 0.8 * torch.rand(2, batch, 1, 1) - 0.4
    is_disc = (across - x).square() + (down - z).square() < 0.3
    slope = torch.randn(2, batch, 1, 1)
    scene = torch.where(is_disc, stripes, slope[0] * across + slope[1] * down)
    colour = 1 + 0.5 * torch.randn(batch, 3, 1, 1)
    return colour * scene[:, None] + 0.1 * torch.randn(batch, 3, side, side), y


def text(sites: Sequence[SiteParts]) -> str:
    """Returns a table with a row for each site, and one for all of them."""
    def row(name: str, shape: str, chosen: Sequence[SiteParts]) -> tuple[str, ...]:
        def total(field: str) -> float:
            return sum(getattr(site, field) for site in chosen)

        energy = total("energy") or 1.0  # if it is 0, so are the parts
        low, high = total("low_energy") / energy, total("high_energy") / energy
        return (name, shape, f"{100 * low:.2f}", f"{100 * high:.2f}", f"{100 * (low + high):.2f}",
                f"{total('low_bytes') / 1024:.1f}", f"{total('high_bytes') / 1024:.1f}",
                f"{total('squared_error') / energy:.4f}")

    rows = [row(site.site, "x".join(map(str, site.shape)), [site]) for site in sites]
    return table(("site", "shape", "low %", "high %", "sum %", "low KiB", "high KiB", "error"),
                 [*rows, row("all", "", sites)])
