"""Summarises the runs of a comparison in a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..table import table
from ..tasks import Task
from .processes import Job
from .training import PLAIN

HEADER = ("preset", "seeds", "mean", "deviation", "difference to plain", "times smaller", "s a run", "")


def summary(task: Task, presets: Sequence[str], seeds: int, runs: dict[Job, dict[str, Any]]) -> str:
    """Returns a table with a row for each preset. Differences are means over the seeds, with their standard errors."""
    rows = [_row(task, preset, range(seeds), runs) for preset in (PLAIN, *presets)]
    return f"{task.name}: {task.metric}\n{table(HEADER, rows)}"


def _row(task: Task, preset: str, seeds: range, runs: dict[Job, dict[str, Any]]) -> list[str]:
    own = {seed: runs[Job(preset, seed)] for seed in seeds if Job(preset, seed) in runs}
    metrics = {seed: run["metric"] for seed, run in own.items() if run["metric"] is not None}
    notes = [f"seed {seed} diverged at step {run['diverged_at']}" for seed, run in own.items() if run["diverged_at"]]
    notes += [f"seed {seed} crashed" for seed in seeds if seed not in own]
    times_smaller = [run["bytes_before"] / run["bytes_after"] for run in own.values() if run["bytes_after"]]
    values = list(metrics.values())
    return [
        preset, str(len(values)), _mean(values, task.digits), _deviation(values, task.digits),
        "-" if preset == PLAIN else _difference(task, metrics, runs),
        _mean(times_smaller, 2),
        _mean([run["seconds"] for run in own.values()], 1), ", ".join(notes),
    ]


def _difference(task: Task, metrics: dict[int, float], runs: dict[Job, dict[str, Any]]) -> str:
    plain = {seed: runs.get(Job(PLAIN, seed), {}).get("metric") for seed in metrics}
    differences = [metrics[seed] - plain[seed] for seed in metrics if plain[seed] is not None]
    if not differences:
        return "-"
    mean = round(statistics.mean(differences), task.digits) + 0.0  # no -0
    if len(differences) == 1:
        return f"{mean:+.{task.digits}f}"
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return f"{mean:+.{task.digits}f} ± {error:.{task.digits}f}"


def _mean(values: Sequence[float], digits: int) -> str:
    return f"{statistics.mean(values):.{digits}f}" if values else "-"


def _deviation(values: Sequence[float], digits: int) -> str:
    return f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else "-"
