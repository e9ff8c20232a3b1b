"""Runs each training in a process of its own, several at a time. A failing one affects no other."""

from __future__ import annotations

import dataclasses
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..errors import BenchError
from ..tasks import Task
from .training import make_repeatable, train

PROGRESS_SECONDS = 10


class Job(NamedTuple):
    preset: str
    seed: int

    def __str__(self) -> str:
        return f"{self.preset}, seed {self.seed}"


@dataclasses.dataclass
class _Running:
    job: Job
    process: multiprocessing.process.BaseProcess
    state: str = "starting"


def run_all(
    task: Task,
    folder: Path,
    device: str,
    jobs: Sequence[Job],
    at_once: int,
    finished: Callable[[dict[str, Any]], None],
) -> dict[Job, str]:
    """Runs the jobs, `at_once` at a time, and calls `finished` with each run as it ends.

    Returns the jobs that crashed, with their reasons.

    Args:
        folder: has the task's data, one .npy file per array, so that all processes map the same memory.
    """
    waiting, running, crashed = list(jobs), {}, {}
    told = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                job = waiting.pop(0)
                connection, process = _start(task, folder, device, job)
                running[connection] = _Running(job, process)
            for connection in wait(list(running), timeout=PROGRESS_SECONDS):
                run = running[connection]
                kind, content = _receive(connection, run)
                if kind == "progress":
                    run.state = content
                    continue
                del running[connection]
                run.process.join()
                if kind == "finished":
                    finished(content)
                else:
                    again = content in crashed.values()
                    print(f"{run.job} crashed{' likewise' if again else f': {content}'}", file=sys.stderr, flush=True)
                    crashed[run.job] = content
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                _tell(task, len(jobs) - len(waiting) - len(running), len(jobs), running.values())
    finally:
        for run in running.values():
            run.process.terminate()
    return crashed


def _start(task: Task, folder: Path, device: str, job: Job) -> tuple[Connection, multiprocessing.process.BaseProcess]:
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, folder, device, job, theirs), daemon=True)
    process.start()
    theirs.close()  # so that the pipe ends when the process does
    return ours, process


def _receive(connection: Connection, run: _Running) -> tuple[str, Any]:
    try:
        return connection.recv()
    except EOFError:
        run.process.join()
        return "crashed", f"the process ended with exit code {run.process.exitcode}"


def _work(task: Task, folder: Path, device: str, job: Job, connection: Connection) -> None:
    def progress(step: int, steps: int, loss: float) -> None:
        connection.send(("progress", f"step {step} of {steps}, loss {loss:.4g}"))

    try:
        make_repeatable()
        where = torch.device(device)
        # Copy on write, since torch requires writable memory.
        data = {file.stem: torch.from_numpy(np.load(file, mmap_mode="c")).to(where) for file in folder.glob("*.npy")}
        connection.send(("finished", train(task, data, job.preset, job.seed, where, progress)))
    except BenchError as error:
        connection.send(("crashed", str(error)))
    except Exception:
        connection.send(("crashed", traceback.format_exc()))


def _tell(task: Task, done: int, total: int, running: Sequence[_Running]) -> None:
    first = next(iter(running), None)
    example = f"; {first.job}: {first.state}" if first else ""
    print(f"{task.name}: {done} of {total} runs done, {len(running)} running{example}", file=sys.stderr, flush=True)
