#!/usr/bin/env python3
"""What one saved tensor costs on the host, pack and unpack together: small tensors, so that nothing else is measured.

Variants run in turn in one process; each figure is the median of the differences to a step without hooks.
"""

import statistics
import time

import actzip
import torch
from torch import nn

STEPS = 400


def make_model():
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.ReLU(), nn.LayerNorm(32))]
    return nn.Sequential(*layers)


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
    return middle - start, end - middle


def main():
    torch.set_num_threads(1)
    model, x = make_model(), torch.randn(8, 32)
    everything_as_is = {"preset": "exact", "min_elems": 1 << 30}
    as_is = actzip.Session(**everything_as_is)
    scopes = {
        "no hooks": None,
        "Python lambdas": torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t),
        "actzip, as is": as_is,
        "actzip, as is, with model": actzip.Session(model, **everything_as_is),
        "actzip, exact": actzip.Session(preset="exact", min_elems=0),
        "actzip, default": actzip.Session(min_elems=0),
    }
    seconds = {name: [] for name in scopes}
    for _ in range(STEPS):
        for name, scope in scopes.items():
            seconds[name].append(step_seconds(model, x, scope))
    saves = len(as_is.report().sites)
    print(f"{saves} saved tensors a step; us per saved tensor")
    print(f"{'':26}  {'pack':>6}  {'unpack':>6}  {'sum':>6}")
    for name, measured in seconds.items():
        pack, unpack = (
            statistics.median(a[i] - b[i] for a, b in zip(measured, seconds["no hooks"])) * 1e6 / saves for i in (0, 1))
        print(f"{name:26}  {pack:6.2f}  {unpack:6.2f}  {pack + unpack:6.2f}")


if __name__ == "__main__":
    main()
