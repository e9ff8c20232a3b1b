"""Profiles one step: how much time encoding, decoding, other kernels and the host take, and how long the GPU idles."""

from __future__ import annotations

import bisect
import json
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from .results import Row
from .steps import Variant
from .table import table

Event = dict[str, Any]  # an event of a Chrome trace, whose format is the same in all versions of torch
ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")
SHOWN_KERNELS = 12
NAME_LENGTH = 200


def measure(variant: Variant, step_ms: float) -> dict[str, Any]:
    """Profiles a variant. `step_ms` is the time of a step without the profiler, which slows the host down."""
    forward_ms, backward_ms = enqueue_ms(variant)
    trace(variant)  # warms up the profiler
    events = trace(variant)
    return {**summary(events, step_ms), "enqueue_forward_ms": forward_ms, "enqueue_backward_ms": backward_ms}


def enqueue_ms(variant: Variant, steps: int = 5) -> tuple[float, float]:
    """Returns for how long the host is busy with forward and with backward, as medians. The GPU may finish later.

    If the driver's queue is full, this includes waiting for the GPU.
    """
    times = []
    for _ in range(steps):
        variant.bench.model.zero_grad(set_to_none=True)
        variant.bench.synchronize()
        start = time.perf_counter()
        loss = variant.bench.forward(variant.scope(), variant.model)
        middle = time.perf_counter()
        loss.backward()
        times.append((middle - start, time.perf_counter() - middle))
        variant.bench.synchronize()
    return tuple(1e3 * statistics.median(column) for column in zip(*times))


def trace(variant: Variant, keep: Path | None = None) -> list[Event]:
    """Returns the trace of one step. If `keep` is given, the whole trace is written there, too."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if variant.bench.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    variant.bench.synchronize()
    with torch.profiler.profile(activities=activities) as profile:
        variant.step()
        variant.bench.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = keep or Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(errors="replace"))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def summary(events: list[Event], step_ms: float) -> dict[str, Any]:
    ranges = [event for event in events
              if event.get("cat") == "user_annotation" and event["name"].startswith("actzip ")]
    on_gpu = [event for event in events if event.get("cat") in ON_GPU]
    kind_of = KindOfKernel(events, ranges)
    by_kind = {"encode": 0.0, "decode": 0.0, "other": 0.0}
    by_name: Counter[str] = Counter()
    for event in on_gpu:
        by_kind[kind_of(event)] += event["dur"] / 1e3
        by_name[event["name"][:NAME_LENGTH]] += event["dur"] / 1e3
    busy_ms = union_us(on_gpu) / 1e3
    return {
        "encode_ms": by_kind["encode"], "decode_ms": by_kind["decode"], "other_ms": by_kind["other"],
        "gpu_busy_ms": busy_ms, "gpu_idle_ms": max(0.0, step_ms - busy_ms) if on_gpu else None,
        "encode_ranges": count(ranges, "encode"), "encode_host_ms": host_ms(ranges, "encode"),
        "decode_ranges": count(ranges, "decode"), "decode_host_ms": host_ms(ranges, "decode"),
        "kernels": len(on_gpu),
        "cuda_mallocs": sum(e["name"] == "cudaMalloc" for e in events if e.get("cat") in LAUNCHES),
        "gpu_ms_by_kernel": dict(by_name.most_common()),
    }


class KindOfKernel:
    """Tells whether a kernel encodes, decodes or does something else: by its name, or by the profiler range of actzip
    in which it was launched."""

    def __init__(self, events: Iterable[Event], ranges: Iterable[Event]) -> None:
        self._launches = {event["args"]["correlation"]: event for event in events
                          if event.get("cat") in LAUNCHES and "correlation" in event.get("args", {})}
        self._ranges: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
        for event in ranges:
            kind = event["name"].split()[1]
            self._ranges[event["tid"]].append((event["ts"], event["ts"] + event["dur"], kind))
        for found in self._ranges.values():
            found.sort()

    def __call__(self, kernel: Event) -> str:
        if "actzip" in kernel["name"]:
            for kind in ("encode", "decode"):
                if f"{kind}_kernel" in kernel["name"]:
                    return kind
        launch = self._launches.get(kernel.get("args", {}).get("correlation"))
        return "other" if launch is None else self._around(launch)

    def _around(self, launch: Event) -> str:
        ranges = self._ranges.get(launch["tid"], [])
        place = bisect.bisect(ranges, (launch["ts"], float("inf"), "")) - 1
        return ranges[place][2] if place >= 0 and launch["ts"] <= ranges[place][1] else "other"


def count(ranges: Iterable[Event], kind: str) -> int:
    return sum(event["name"].startswith(f"actzip {kind} ") for event in ranges)


def host_ms(ranges: Iterable[Event], kind: str) -> float:
    return sum(event["dur"] for event in ranges if event["name"].startswith(f"actzip {kind} ")) / 1e3


def union_us(events: Iterable[Event]) -> float:
    """Returns the time in which at least one of the events runs."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def text(row: Row, plain: Row) -> str:
    """Returns a row's profile as text, beside that of the row it compares with."""
    mine, other = row.profile, plain.profile or {}
    figures = [(name, shown(other.get(name)), shown(mine[name])) for name in mine if name != "gpu_ms_by_kernel"]
    figures.insert(0, ("step_ms", shown(plain.step_ms), shown(row.step_ms)))
    if row is plain:
        return f"{row.model}, profile of {row.preset}\n" + table(("", row.preset), [(a, c) for a, _, c in figures])
    kernels = differences(mine["gpu_ms_by_kernel"], other.get("gpu_ms_by_kernel", {}))
    parts = [f"{row.model}, profile of {row.preset}", table(("", plain.preset, row.preset), figures)]
    if kernels:
        parts.append(table(("difference ms", plain.preset, row.preset, "kernel"), kernels))
    return "\n".join(parts)


def differences(mine: dict[str, float], plain: dict[str, float]) -> list[tuple[str, str, str, str]]:
    """Returns the kernels whose times differ most."""
    by_size = sorted({*mine, *plain}, key=lambda name: -abs(mine.get(name, 0) - plain.get(name, 0)))
    return [(f"{mine.get(name, 0) - plain.get(name, 0):+.3f}", f"{plain.get(name, 0):.3f}", f"{mine.get(name, 0):.3f}",
             name[:90]) for name in by_size[:SHOWN_KERNELS]]


def shown(value: float | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
