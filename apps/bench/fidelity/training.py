"""One run: a task trained from one seed, plain or in a session. Equal seeds give bitwise equal runs."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from ... import Session
from .. import compiled_ways, presets
from ..errors import BenchError
from ..tasks import Task, learning_rate

PLAIN = "plain"  #: in place of a preset: without a session
FETCH_EVERY = 50  #: steps between fetches of losses, since each fetch waits for the device
CURVE_POINTS = 100


def make_repeatable() -> None:
    """Makes this process deterministic. Must be called before CUDA starts."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.set_num_threads(1)  # sums depend on the number of threads, and several runs share the machine
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would cost a kernel for each allocation
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def train(
    task: Task,
    data: dict[str, torch.Tensor],
    preset: str,
    seed: int,
    device: torch.device,
    progress: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> dict[str, Any]:
    """Trains and evaluates. Returns the record of the run, which contains only plain values.

    Plain and compressed runs of a seed have the same initial weights, order of examples and dropout, since actzip does
    not draw from torch's generators. Compiled runs draw their dropout as Inductor does.
    """
    torch.manual_seed(seed)
    trial = task.start(data, seed, device)
    session, scope = None, contextlib.nullcontext()
    way = compiled_ways.parse(preset)
    if way is not None:
        session = way.compile_in_place(trial.model, seed=seed)
    elif preset != PLAIN:
        session, scope = presets.begin(trial.model, preset, seed=seed)
    schedule = learning_rate(trial)
    losses: list[float] = []
    waiting: list[torch.Tensor] = []
    begin = time.perf_counter()
    for step, batch in zip(range(1, trial.steps + 1), trial.batches):
        with scope:
            loss = trial.loss(batch)
        trial.optimizer.zero_grad()
        loss.backward()
        if trial.clip < math.inf:
            torch.nn.utils.clip_grad_norm_(trial.model.parameters(), trial.clip)
        trial.optimizer.step()
        schedule.step()
        waiting.append(loss.detach())
        if len(waiting) == FETCH_EVERY or step == trial.steps:
            losses += torch.stack(waiting).tolist()
            waiting.clear()
            progress(step, trial.steps, losses[-1])
            if not all(map(math.isfinite, losses[-FETCH_EVERY:])):
                break
    seconds = time.perf_counter() - begin
    diverged = next((step for step, loss in enumerate(losses, 1) if not math.isfinite(loss)), None)
    metric = _evaluate(trial.model, trial.evaluate) if diverged is None else None
    if metric is not None and not math.isfinite(metric):  # it diverged in the last step
        metric, diverged = None, trial.steps
    report = session and session.report()
    if way is not None and report is not None and not report.sites:
        raise BenchError(f"preset {preset}: torch.compile has compiled nothing of this model")
    return {
        "task": task.name, "preset": preset, "seed": seed, "metric": metric, "diverged_at": diverged,
        "curve": _curve(losses if diverged is None else losses[:diverged - 1]), "seconds": seconds,
        "bytes_before": report and report.bytes_before, "bytes_after": report and report.bytes_after,
    }


def _evaluate(model: torch.nn.Module, evaluate: Callable[[], float]) -> float:
    model.eval()
    with torch.inference_mode():
        return evaluate()


def _curve(losses: list[float]) -> dict[str, Any]:
    """Returns at most CURVE_POINTS means over equal numbers of steps."""
    every = math.ceil(len(losses) / CURVE_POINTS) or 1
    parts = [losses[begin:begin + every] for begin in range(0, len(losses), every)]
    return {"every": every, "loss": [sum(part) / len(part) for part in parts]}
