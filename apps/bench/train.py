"""Time and memory of a training step: plain PyTorch, compressed, checkpointed, offloaded, compiled.

A step is forward and backward; the optimizer is left out, since it is the same for all. All ways are measured in one
process, taking turns, so that a change of clocks affects all of them. Matrix products have torch's default precision.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from . import compiled_ways, devices, machine, models, results, step_profile
from .compiled_ways import COMPILED, COMPRESSED
from .errors import BenchError
from .presets import LAYERS, LAYERS_IN_SCOPE, converts
from .presets import check as check_preset
from .results import Row
from .steps import (CHECKPOINTING, OFFLOADING, PLAIN, Bench, Variant, cosine, fits_host, free_memory, seconds_per_step,
                    unless_out_of_memory)
from .table import table

SLOW_S = 1.0  # steps that take longer are repeated only three times
BLOCK_S = 0.25  # steps are timed in blocks of about this length


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = " ".join(__doc__.split("\n\n", 1)[1].split())
    parser.add_argument("--model", action="append", metavar="NAME", required=True,
                        help=f"{', '.join(models.MODELS)}; may be given several times")
    parser.add_argument("--preset", action="append", metavar="PRESET",
                        help="of actzip.Session: default, exact, a codec, or options as in bits=2,adapt=layer; "
                             "may be given several times")
    parser.add_argument("--convert", action="store_true",
                        help="also each preset with converted layers (convert:P), and with a scope around them for the "
                             "rest (convert+scope:P); both may be given to --preset as well")
    parser.add_argument("--compile", action="store_true",
                        help="also torch.compile alone (compiled), with half of its memory (compiled,budget=0.5), and "
                             "each preset compiled (compile:P); the last two compare with the first. compile:P and "
                             "compiled may be given to --preset as well")
    parser.add_argument("--mode", default="default", metavar="MODE", choices=list(compiled_ways.MODES),
                        help="of torch.compile, for --compile: %(choices)s. reduce-overhead and max-autotune run CUDA "
                             "graphs: they need a GPU, and have no figures of memory, which graphs keep from step to step")
    parser.add_argument("--baselines", action="store_true", help="also checkpointing of each block, and save_on_cpu")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="times that each way takes its turn (7)")
    parser.add_argument("--batch", type=int, metavar="N", help="images, sequences or nodes instead of the model's own")
    parser.add_argument("--profile", action="store_true", help="also where the time of a step goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="adds the rows to FILE; those measured again replace")
    devices.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    device = devices.chosen(options.device)
    presets = list(dict.fromkeys(options.preset or ["default"]))
    if options.convert:
        presets += [kind + preset for preset in presets for kind in (LAYERS, LAYERS_IN_SCOPE) if is_scope(preset)]
    presets += compiled(options, presets)
    specs = {name: models.named(name) for name in options.model}
    check(options, presets, device)
    facts, run_id = machine.describe(device), results.new_run()
    print(machine.heading(facts))
    ways = [PLAIN, *presets] + [CHECKPOINTING, OFFLOADING] * options.baselines
    for name, spec in specs.items():
        comparison = Comparison(name, Bench(spec, device, options.batch), ways, facts["device"], run_id)
        comparison.measure(options.repeats)
        if options.profile:
            comparison.profile()
        rows = list(comparison.rows.values())
        del comparison
        torch.compiler.reset()
        free_memory()
        if options.json:
            results.train_file(options.json).merge(run_id, facts, rows)
        show(rows)
    return 0


def is_scope(preset: str) -> bool:
    return not converts(preset) and compiled_ways.parse(preset) is None


def compiled(options: argparse.Namespace, presets: Sequence[str]) -> list[str]:
    """Returns the ways that --compile and --mode add."""
    if not options.compile:
        if options.mode != "default":
            raise BenchError(f"--mode {options.mode} (allowed: with --compile)")
        return []
    ways = [COMPILED, f"{COMPILED},budget=0.5", *(COMPRESSED + preset for preset in presets if is_scope(preset))]
    ways = [compiled_ways.with_mode(way, options.mode) for way in ways]
    return [way for way in ways if way not in presets]


def show(rows: Sequence[Row]) -> None:
    """Prints the rows of one model, plain first."""
    print(f"\n{text(rows)}")
    for row in rows:
        if row.profile:
            reference = next(other for other in rows if other.preset == row.against)
            print(f"\n{step_profile.text(row, reference)}")
    sys.stdout.flush()  # the next model may fail


def check(options: argparse.Namespace, presets: Sequence[str], device: torch.device) -> None:
    """Refuses wrong options before anything takes time."""
    for name, value in (("--repeats", options.repeats), ("--batch", options.batch)):
        if value is not None and value < 1:
            raise BenchError(f"{name} {value} (allowed: 1 or more)")
    for preset in presets:
        if compiled_ways.parse(preset):
            compiled_ways.check(preset, device)
        else:
            check_preset(preset)
    if options.json:
        results.train_file(options.json).read()


class Comparison:
    """All ways to run a step of one model."""

    def __init__(self, name: str, bench: Bench, ways: Sequence[str], device: str, run_id: str) -> None:
        self.name, self.bench = name, bench
        self.variants = {way: Variant(way, bench) for way in ways}
        self.rows = {way: Row(name, way, bench.spec.dtype, bench.batch, device, run_id) for way in ways}

    def measure(self, repeats: int) -> None:
        exact: dict[str, list[torch.Tensor]] = {}
        seconds = {way: self._warm_up(way, exact) for way in self.variants}
        exact.clear()
        free_memory()
        times: dict[str, list[float]] = {way: [] for way in self.variants}
        for turn in range(repeats):
            for way in self._alive():
                if turn < 3 or seconds[way] <= SLOW_S:
                    self._take_turn(way, seconds[way], times[way])
            self._say(f"turn {turn + 1} of {repeats}")
        for way, row in self.rows.items():
            if not row.note:
                row.step_ms, row.repeats = 1e3 * statistics.median(times[way]), len(times[way])
        for way, row in self.rows.items():
            row.compare(self.rows[self._reference(way)])

    def _reference(self, way: str) -> str:
        """Returns what a way compares with. Compiled ways compare with torch.compile alone, in the same mode if that
        was measured."""
        found = compiled_ways.parse(way)
        if found is None:
            return PLAIN
        alone = (compiled_ways.with_mode(COMPILED, found.mode), COMPILED)
        return next((other for other in alone if other in self.rows and other != way), PLAIN)

    def profile(self) -> None:
        for way in self._alive():
            if way not in (CHECKPOINTING, OFFLOADING):
                self._say(f"profile of {way}")
                self.rows[way].profile = step_profile.measure(self.variants[way], self.rows[way].step_ms)

    def _warm_up(self, way: str, exact: dict[str, list[torch.Tensor]]) -> float:
        """Measures memory and gradient, and returns about how long a step takes. `exact` receives the gradients that
        others compare with."""
        variant, row = self.variants[way], self.rows[way]
        references = {self._reference(other) for other in self.rows}
        seconds = 0.0

        def steps() -> None:
            nonlocal seconds
            first = variant.settle()
            if first > 2:
                self._say(f"the guard of {way} has looked for {first} steps")
            memory = variant.memory()
            row.held_bytes, row.peak_bytes = memory.held, memory.peak
            gradients = variant.gradients()
            if way in references:
                exact[way] = [gradient.clone() for gradient in gradients]  # a CUDA graph overwrites its own
            row.cosine = cosine(gradients, exact[self._reference(way)]) if self._reference(way) in exact else None
            seconds = seconds_per_step(variant, 1)

        self._say(f"warm-up of {way}")
        if way == OFFLOADING and not fits_host(self.rows[PLAIN].held_bytes or 0):
            row.note = "the host has too little memory"
        else:
            self._unless_out_of_memory(way, steps)
        return seconds

    def _take_turn(self, way: str, seconds: float, times: list[float]) -> None:
        steps = max(1, min(20, round(BLOCK_S / seconds)))
        self._unless_out_of_memory(way, lambda: times.append(seconds_per_step(self.variants[way], steps)))

    def _unless_out_of_memory(self, way: str, work: Callable[[], object]) -> None:
        if unless_out_of_memory(work):
            return
        row = self.rows[way]
        row.note, row.held_bytes, row.peak_bytes, row.cosine = "out of memory", None, None, None
        self.bench.model.zero_grad(set_to_none=True)
        free_memory()

    def _alive(self) -> list[str]:
        return [way for way, row in self.rows.items() if not row.note]

    def _say(self, phase: str) -> None:
        print(f"{self.name}: {phase}", file=sys.stderr, flush=True)


def text(rows: Sequence[Row]) -> str:
    header = ("model", "preset", "dtype", "batch", "step ms", "speed", "held GiB", "smaller", "peak GiB", "smaller",
              "cosine", "against", "")
    return table(header, [(
        row.model, row.preset, row.dtype, row.batch, number(row.step_ms, ".2f"), number(row.speed_ratio, ".3f"),
        number(row.held_bytes, ".3f", 2**30), times(row.held_ratio), number(row.peak_bytes, ".3f", 2**30),
        times(row.peak_ratio), number(row.cosine, ".4f"), row.against, row.note)
        for row in rows])


def times(value: float | None) -> str:
    """Returns how many times smaller, as text. Offloading leaves next to nothing, so the quotient is meaningless
    then."""
    return ">999" if value is not None and value >= 1000 else number(value, ".2f")


def number(value: float | None, form: str, unit: float = 1) -> str:
    return "-" if value is None else format(value / unit, form)
