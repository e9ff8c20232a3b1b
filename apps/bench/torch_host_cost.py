#!/usr/bin/env python3
"""Measures what packing and unpacking one saved tensor costs on the host. Tensors are small, so nothing else counts.

Variants run in turn in one process; each figure is the median of the differences to a step without hooks. "as is" keeps
every tensor as it is, so nothing is allocated, encoded or launched, as it is in the other variants. With a model, the
second step, in which the session still watches modules, is shown separately. "converted" needs no scope and no hooks.
If torch_host_cost.cpp was built, its table follows.
"""

import copy
import pathlib
import platform
import statistics
import subprocess
import time

import actzip
import torch
from torch import nn

STEPS = 400
ROOT = pathlib.Path(__file__).resolve().parents[2]


def make_model(device):
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.ReLU(), nn.LayerNorm(32))]
    return nn.Sequential(*layers).to(device)


def step_seconds(model, x, scope):
    start = time.perf_counter()
    if scope is None:
        loss = model(x).sum()
    else:
        with scope:
            loss = model(x).sum()
    middle = time.perf_counter()
    loss.backward()
    end = time.perf_counter()
    model.zero_grad(set_to_none=True)
    if x.is_cuda:
        torch.cuda.synchronize()  # not measured, since only the host's time counts
    return middle - start, end - middle


class Watching:
    """A scope with a new session for each step, so that it never knows the sequence of saves."""

    def __init__(self, model, **options):
        self.model, self.options, self.session = model, options, None

    def __enter__(self):
        self.session.__enter__()

    def __exit__(self, *arguments):
        self.session.__exit__(*arguments)

    def prepare(self):
        """Makes a new session, before the clock starts. Its first step creates the sites, the second is measured."""
        self.session = actzip.Session(self.model, **self.options)


def machine():
    names = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return (f"{len(names)} x {names[0] if names else platform.machine()}, {device}, Python {platform.python_version()}, "
            f"torch {torch.__version__}, actzip {commit.strip() or actzip.__version__}")


def measure(device):
    model, x = make_model(device), torch.randn(8, 32, device=device)
    as_is = {"preset": "exact", "min_numel": 1 << 30}
    plain = actzip.Session(**as_is)
    watching = Watching(model, **as_is)
    scopes = {
        "no hooks": None,
        "Python lambdas": torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t),
        "as is": plain,
        "as is, with model": actzip.Session(model, **as_is),
        "as is, with model, 2nd step": watching,
        "exact": actzip.Session(preset="exact", min_numel=0),
        "default": actzip.Session(min_numel=0),
        "default, with model": actzip.Session(model, min_numel=0),
        "converted, as is": None,
        "converted, exact": None,
        "converted, default": None,
    }
    models = {
        "converted, as is": actzip.convert(copy.deepcopy(model), **as_is),
        "converted, exact": actzip.convert(copy.deepcopy(model), preset="exact", min_numel=0),
        "converted, default": actzip.convert(copy.deepcopy(model), min_numel=0),
    }
    for _ in range(10):  # warms up, and lets sessions learn
        for name, scope in scopes.items():
            watching.prepare()
            step_seconds(models.get(name, model), x, scope)
    seconds = {name: [] for name in scopes}
    for _ in range(STEPS):
        for name, scope in scopes.items():
            if scope is watching:
                watching.prepare()
                step_seconds(model, x, scope)
            seconds[name].append(step_seconds(models.get(name, model), x, scope))
    saves = len(plain.report().sites)
    print(f"{device}: {saves} saved tensors a step; us per saved tensor, Python")
    print(f"{'':28} {'pack':>7} {'unpack':>7} {'sum':>7}")
    for name, measured in seconds.items():
        pack, unpack = (
            statistics.median(a[i] - b[i] for a, b in zip(measured, seconds["no hooks"])) * 1e6 / saves for i in (0, 1))
        print(f"{name:28} {pack:7.2f} {unpack:7.2f} {pack + unpack:7.2f}")


def main():
    torch.set_num_threads(1)
    print(machine())
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        measure(device)
    program = ROOT / "build/bin/torch_host_cost"
    if program.exists():
        print(subprocess.run([program], capture_output=True, text=True, check=True).stdout, end="")


if __name__ == "__main__":
    main()
