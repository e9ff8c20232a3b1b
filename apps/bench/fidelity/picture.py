"""Draws loss curves on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BenchError
from ..svg import check_path
from ..tasks import Task
from .processes import Job
from .training import PLAIN


def check(path: Path) -> None:
    """Raises BenchError if the picture could not be drawn. Called before hours of training."""
    check_path(path)
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise BenchError("--picture needs matplotlib (pip install matplotlib)") from None


def draw(path: Path, task: Task, presets: Sequence[str], seeds: int, runs: dict[Job, dict[str, Any]]) -> None:
    """Draws one curve for each preset: the mean over the seeds that did not diverge."""
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text, and equal runs give equal files.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "actzip"}):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.add_subplot(xlabel="step", ylabel="training loss",
                                  title=f"{task.name}, mean of {seeds} seed{'s' if seeds > 1 else ''}")
        for preset in (PLAIN, *presets):
            whole = [runs[job]["curve"] for seed in range(seeds)
                     if (job := Job(preset, seed)) in runs and runs[job]["metric"] is not None]
            if whole:
                mean = np.mean([curve["loss"] for curve in whole], axis=0)
                steps = (np.arange(len(mean)) + 0.5) * whole[0]["every"]
                # Plain is drawn broad and pale below the others, which would otherwise hide it.
                style = {"color": "0.75", "linewidth": 5} if preset == PLAIN else {"linewidth": 1.2}
                axes.plot(steps, mean, label=preset, **style)
        if axes.lines:
            axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, metadata={"Date": None})
