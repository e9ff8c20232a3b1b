"""How fast bytes move between a GPU and pinned memory, and how close to that the copies of a session come.

Measures large copies in one direction, in the other, and in both at once. With --model, also the copies of a step whose
session offloads to the host, by a profiler: their bytes divided by the time from the start of the first to the end of
the last, and by the time in which any of them runs. --trace writes the profiler's trace, and beside it a picture of
copies and kernels.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch

from . import copies_picture, devices, machine, models, step_profile
from .errors import BenchError
from .presets import check as check_preset
from .steps import Bench, Variant, free_memory
from .table import table

OUT, IN = "to the host", "to the GPU"
#: How a profiler names the copies of each direction.
NAMES = {OUT: "Memcpy DtoH", IN: "Memcpy HtoD"}
LEAST_BYTES = 16384  # smaller copies belong to the program, as sessions do not offload such tensors
WARM_UP = 4  # steps in which sessions learn and allocate pinned memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = " ".join(__doc__.split("\n\n", 1)[1].split())
    parser.add_argument("--mib", type=int, default=256, metavar="N", help="of each large copy (256)")
    parser.add_argument("--repeats", type=int, default=20, metavar="N", help="large copies in each direction (20)")
    parser.add_argument("--model", metavar="NAME", help=f"also the copies of a step: {', '.join(models.MODELS)}")
    parser.add_argument("--preset", default="default,offload=host", metavar="PRESET",
                        help="of that step: as for train, with offload=host (%(default)s)")
    parser.add_argument("--batch", type=int, metavar="N", help="images, sequences or nodes instead of the model's own")
    parser.add_argument("--trace", type=Path, metavar="FILE.json",
                        help="with --model: a Chrome trace of the step, and FILE.svg with its copies beside its kernels")
    devices.add_argument(parser)


@dataclasses.dataclass(frozen=True)
class Copies:
    """The copies of one step in one direction."""

    count: int
    bytes: int
    span_us: float  #: from the start of the first to the end of the last
    busy_us: float  #: time in which at least one runs

    def rate(self, microseconds: float) -> float:
        """Returns GB/s."""
        return self.bytes / microseconds / 1e3 if microseconds else 0.0


def run(options: argparse.Namespace) -> int:
    device = devices.chosen(options.device)
    check(options, device)
    print(machine.heading(machine.describe(device)), flush=True)
    rates = link_rates(device, options.mib << 20, options.repeats)
    print("\n" + table(("pinned memory", "alone GB/s", "both at once GB/s"),
                       [(name, f"{alone:.1f}", f"{both:.1f}") for name, (alone, both) in rates.items()]), flush=True)
    if options.model:
        of_model(options, device, rates)
    return 0


def check(options: argparse.Namespace, device: torch.device) -> None:
    """Refuses wrong options before anything takes time."""
    if device.type != "cuda":
        raise BenchError(f"link on {device} (allowed: --device cuda)")
    for name, value in (("--mib", options.mib), ("--repeats", options.repeats), ("--batch", options.batch)):
        if value is not None and value < 1:
            raise BenchError(f"{name} {value} (allowed: 1 or more)")
    if options.trace and (not options.model or options.trace.suffix != ".json" or not options.trace.parent.is_dir()):
        raise BenchError(f"--trace {options.trace} (allowed: with --model, a name that ends with .json, in a folder that "
                         "exists)")
    if options.model:
        models.named(options.model)
        check_preset(options.preset)


def link_rates(device: torch.device, size: int, repeats: int) -> dict[str, tuple[float, float]]:
    """Returns GB/s for each direction, alone and while the other one runs."""
    lines = {OUT: Line(device, size, to_host=True), IN: Line(device, size, to_host=False)}
    for line in lines.values():
        line.start(2)
    torch.cuda.synchronize(device)
    alone = {}
    for name, line in lines.items():
        line.start(repeats)
        torch.cuda.synchronize(device)
        alone[name] = line.rate(repeats)
    for line in lines.values():
        line.start(repeats)
    torch.cuda.synchronize(device)
    return {name: (alone[name], line.rate(repeats)) for name, line in lines.items()}


class Line:
    """Copies in one direction, on their own stream."""

    def __init__(self, device: torch.device, size: int, to_host: bool) -> None:
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        on_device = torch.empty(size, dtype=torch.uint8, device=device)
        self.target, self.source = (host, on_device) if to_host else (on_device, host)
        self.stream = torch.cuda.Stream(device)
        self.began, self.ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def start(self, repeats: int) -> None:
        with torch.cuda.stream(self.stream):
            self.began.record()
            for _ in range(repeats):
                self.target.copy_(self.source, non_blocking=True)
            self.ended.record()

    def rate(self, repeats: int) -> float:
        return repeats * self.source.nbytes / self.began.elapsed_time(self.ended) / 1e6


def of_model(options: argparse.Namespace, device: torch.device, rates: dict[str, tuple[float, float]]) -> None:
    variant = Variant(options.preset, Bench(models.named(options.model), device, options.batch))
    for _ in range(WARM_UP):
        variant.step()
    step_profile.trace(variant)  # warms up the profiler
    events = step_profile.trace(variant, options.trace)
    copies = copies_of(events)
    print(f"\n{options.model}, {options.preset}, batch {variant.bench.batch}\n{text(copies, rates)}")
    offload = variant.session.report().offload if variant.session else None
    if offload:
        print(f"since its first step: {offload.waits} of {offload.fetches} fetches had not been asked for before, forward "
              f"waited for the GPU {offload.host_waits} times, {offload.passed_over / 2**20:.1f} MiB stayed because "
              f"copies were behind; {offload.pinned_bytes / 2**20:.0f} MiB of pinned memory")
    if options.trace:
        picture = options.trace.with_suffix(".svg")
        picture.write_text(copies_picture.draw(f"{options.model}, {options.preset}", rows_of(events)))
        print(f"wrote {options.trace} and {picture}")
    del variant
    free_memory()


def copies_of(events: list[step_profile.Event]) -> dict[str, Copies]:
    found = {}
    for direction in NAMES:
        of_direction = copies_in(events, direction)
        ends = [(event["ts"], event["ts"] + event["dur"]) for event in of_direction]
        span = max(end for _, end in ends) - min(start for start, _ in ends) if ends else 0.0
        found[direction] = Copies(len(ends), sum(event["args"]["bytes"] for event in of_direction), span,
                                  step_profile.union_us(of_direction))
    return found


def copies_in(events: list[step_profile.Event], direction: str) -> list[step_profile.Event]:
    return [event for event in events if event.get("cat") == "gpu_memcpy" and event["name"].startswith(NAMES[direction])
            and event.get("args", {}).get("bytes", 0) >= LEAST_BYTES]


def rows_of(events: list[step_profile.Event]) -> dict[str, list[tuple[float, float]]]:
    """Returns the rows of the picture: when kernels and copies ran, in microseconds."""
    kernels = [event for event in events if event.get("cat") == "kernel"]
    rows = {"kernels": kernels, **{direction: copies_in(events, direction) for direction in NAMES}}
    return {name: [(event["ts"], event["ts"] + event["dur"]) for event in row] for name, row in rows.items()}


def text(copies: dict[str, Copies], rates: dict[str, tuple[float, float]]) -> str:
    header = ("copies", "number", "MiB", "first to last ms", "GB/s", "of the link", "copying ms", "GB/s", "of the link")
    rows = []
    for direction, found in copies.items():
        row = [direction, found.count, f"{found.bytes / 2**20:.1f}"]
        for microseconds in (found.span_us, found.busy_us):
            rate = found.rate(microseconds)
            row += [f"{microseconds / 1e3:.2f}", f"{rate:.1f}", f"{rate / rates[direction][0]:.2f}"]
        rows.append(row)
    return table(header, rows)
