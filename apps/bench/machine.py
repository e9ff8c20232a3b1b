"""Describes the machine and the software on which a figure was measured."""

import datetime
import os
import platform
import subprocess
from pathlib import Path

import torch

from .. import __version__


def describe(device: torch.device) -> dict[str, str]:
    """Returns machine, versions, commit and date, for headings and JSON."""
    return {
        "actzip": f"{__version__}, commit {_commit()}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} x {_cpu_name()}",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def heading(facts: dict[str, str]) -> str:
    return (f"actzip {facts['actzip']}, {facts['date']}\n"
            f"{facts['device']}, torch {facts['torch']}, Python {facts['python']}")


def _commit() -> str:
    """Returns the commit of the sources that contain this package. ACTZIP_COMMIT overrides it, for copies without
    history."""
    given = os.environ.get("ACTZIP_COMMIT")
    if given:
        return given
    here = Path(__file__).resolve().parent
    asked = subprocess.run(["git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
                           capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
