"""One run: a task trained from one seed, plainly or in a session; the same seed gives the same bits again."""

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

PLAIN = "plain"  #: in place of a preset: no session at all
FETCH_EVERY = 50  #: steps; each fetch of losses waits for the device
CURVE_POINTS = 100


def make_repeatable() -> None:
    """For this process. Must come before CUDA starts."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.set_num_threads(1)  # sums of several threads depend on their number; and runs go side by side
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it costs a kernel for each allocation
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
    """Trains and evaluates. Gives the run as it is recorded: plain values alone.

    Plain and compressed runs of a seed have the same initial weights, order of examples and dropout: actzip draws from
    none of torch's generators. Compiled ones draw their dropout as Inductor does.
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
    if metric is not None and not math.isfinite(metric):  # the last step did it
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
    """Means over equal numbers of steps, few enough to keep and to draw."""
    every = math.ceil(len(losses) / CURVE_POINTS) or 1
    parts = [losses[begin:begin + every] for begin in range(0, len(losses), every)]
    return {"every": every, "loss": [sum(part) / len(part) for part in parts]}
