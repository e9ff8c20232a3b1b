"""Train a task with plain PyTorch and with presets, from several seeds, and compare the results."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .. import compiled_ways, devices, machine
from ..data import find_folder, fingerprint
from ..errors import BenchError
from ..presets import check as check_preset
from ..presets import with_rules
from ..tasks import TASKS, Task
from . import picture
from .processes import Job, run_all
from .record import Record
from .summary import summary
from .training import PLAIN

JOBS_ON_CUDA = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--preset", action="append", metavar="P",
                        help="of actzip.Session, or options of it as in bits=1.5,adapt=layer, with rules as in "
                             "default,gelu.*=rotated:2 after it; compiled and compile:PRESET for torch.compile, without and with "
                             "it; may be given several times (default: default)")
    parser.add_argument("--rule", action="append", default=[], metavar="PATTERN=CODEC",
                        help="what every preset does at some sites instead, as Session(rules=...) has it; may be given "
                             "several times")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keeps the runs; those it has are not run again")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="the loss curves")
    devices.add_argument(parser)
    parser.add_argument("--jobs", type=int, metavar="N",
                        help=f"runs at a time (default: {JOBS_ON_CUDA} on CUDA, one a core on the CPU)")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets (default: ACTZIP_DATA)")
    parser.add_argument("--epochs", type=float, metavar="N", help="instead of the recipe's, for a quick look")
    parser.add_argument("--steps", type=int, metavar="N", help="the same for a recipe that counts steps")


def run(options: argparse.Namespace) -> int:
    task, presets = _task(options), _presets(options.preset, options.rule, options.device)
    for name, value in (("--seeds", options.seeds), ("--jobs", options.jobs)):
        if value is not None and value < 1:
            raise BenchError(f"{name} {value} (allowed: 1 or more)")
    if options.picture:
        picture.check(options.picture)
    record = Record(options.json, task)
    # All presets of a seed come before the next seed, so that an interrupted comparison has pairs.
    wanted = [Job(preset, seed) for seed in range(options.seeds) for preset in (PLAIN, *presets)]
    missing = [job for job in wanted if job not in record.runs]
    crashed = _train(task, missing, record, options) if missing else {}
    print(f"{machine.heading(record.facts)}\n")
    print(summary(task, presets, options.seeds, record.runs))
    if options.picture:
        picture.draw(options.picture, task, presets, options.seeds, record.runs)
    return 1 if crashed else 0


def _task(options: argparse.Namespace) -> Task:
    """Returns the recipe, with the requested length."""
    kind = TASKS[options.task]
    lengths = {name: value for name in ("epochs", "steps") if (value := getattr(options, name)) is not None}
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, value in lengths.items():
        if name not in fields:
            other = "steps" if name == "epochs" else "epochs"
            raise BenchError(f"--{name} {value}: {options.task} is trained for a number of {other} "
                             f"(allowed: --{other})")
        if not value > 0 or (fields[name] == "int" and value != int(value)):
            raise BenchError(f"--{name} {value} (allowed: more than 0"
                             f"{', without a fraction' if fields[name] == 'int' else ''})")
        lengths[name] = int(value) if value == int(value) else value
    return kind(**lengths)


def _presets(given: list[str] | None, rules: list[str], device: str | None) -> list[str]:
    presets = list(dict.fromkeys(with_rules(preset, rules) for preset in given or ["default"]))
    for preset in presets:
        if compiled_ways.parse(preset):
            compiled_ways.check(preset, devices.chosen(device))
        else:
            check_preset(preset)
    return presets


def _train(task: Task, jobs: list[Job], record: Record, options: argparse.Namespace) -> dict[Job, str]:
    """Runs the missing jobs. Returns those that crashed."""
    device = devices.chosen(options.device)
    folder = find_folder(options.data, task.files)
    record.begin({**machine.describe(device), "data": fingerprint(folder, task.files)})
    at_once = options.jobs or (JOBS_ON_CUDA if device.type == "cuda" else len(os.sched_getaffinity(0)))
    at_once = min(at_once, len(jobs))

    def finished(result: dict[str, Any]) -> None:
        record.add({**result, "jobs": at_once})
        metric, job = result["metric"], Job(result["preset"], result["seed"])
        outcome = "diverged" if metric is None else f"{task.metric} {metric:.{task.digits}f}"
        print(f"{job}: {outcome}, {result['seconds']:.1f} s", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory(prefix="actzip-") as arrays:
        for name, array in task.load(folder).items():
            np.save(Path(arrays) / f"{name}.npy", array)
        return run_all(task, Path(arrays), str(device), jobs, at_once, finished)
