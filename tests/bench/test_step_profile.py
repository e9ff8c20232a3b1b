"""The profile of a step: how events are classified and added up, in an invented trace and in a real one of the CPU."""

import pytest
import torch
from actzip.bench import models, step_profile, steps
from actzip.bench.results import Row


def event(category, name, start, duration, thread=1, **arguments):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "tid": thread, "args": arguments}


TRACE = [
    event("user_annotation", "actzip encode gelu.self", 0, 100),
    event("user_annotation", "actzip decode gelu.self", 1000, 50, thread=2),
    event("gpu_user_annotation", "actzip encode gelu.self", 500, 900),
    event("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=1),
    event("cuda_runtime", "cudaLaunchKernel", 200, 5, correlation=2),
    event("cuda_driver", "cuLaunchKernelEx", 1010, 5, thread=2, correlation=3),
    event("cuda_runtime", "cudaLaunchKernel", 1010, 5, correlation=4),
    event("cuda_runtime", "cudaMalloc", 30, 5),
    event("kernel", "void actzip::cuda::rotated_encode_kernel<2>", 300, 1000, correlation=9),
    event("kernel", "void actzip::cuda::map_kernel<cast>", 2000, 3000, correlation=3),
    event("kernel", "gemm", 4000, 2000, correlation=2),
    event("gpu_memcpy", "Memcpy DtoD", 10000, 500, correlation=1),
    event("kernel", "gemm", 20000, 1000, correlation=4),
]


def test_kernels_by_kind():
    figures = step_profile.summary(TRACE, step_ms=10.0)
    assert figures["encode_ms"] == pytest.approx(1.5)  # a kernel by its name, and a copy launched inside the range
    assert figures["decode_ms"] == pytest.approx(3.0)  # map_kernel serves both directions: the range decides
    assert figures["other_ms"] == pytest.approx(3.0)  # one was launched during the decode range, but by another thread
    assert figures["gpu_busy_ms"] == pytest.approx(6.5)  # two kernels overlap by 1 ms
    assert figures["gpu_idle_ms"] == pytest.approx(3.5)
    assert (figures["encode_ranges"], figures["decode_ranges"]) == (1, 1)
    assert (figures["encode_host_ms"], figures["decode_host_ms"]) == (0.1, 0.05)
    assert (figures["cuda_mallocs"], figures["kernels"]) == (1, 5)
    assert figures["gpu_ms_by_kernel"]["gemm"] == pytest.approx(3.0)


def test_the_greatest_differences_come_first():
    found = step_profile.differences({"a": 1.0, "b": 5.0}, {"a": 4.0, "b": 4.5, "c": 9.0})
    assert [(name, change) for change, _, _, name in found] == [("c", "-9.000"), ("a", "-3.000"), ("b", "+0.500")]


def test_a_real_step():
    bench = steps.Bench(models.gcn(width=32, features=16, classes=5, nodes=600), torch.device("cpu"))
    rows = []
    for way in (steps.PLAIN, "default"):
        row = Row("gcn", way, "fp32", 600, "cpu", step_ms=1.0)
        row.profile = step_profile.measure(steps.Variant(way, bench), 1.0)
        rows.append(row)
    plain, default = (row.profile for row in rows)
    assert plain["encode_ranges"] == 0 and default["encode_ranges"] >= default["decode_ranges"] > 5
    assert default["encode_host_ms"] > 0 and default["enqueue_forward_ms"] > 0 and default["enqueue_backward_ms"] > 0
    assert default["gpu_idle_ms"] is None and default["kernels"] == 0
    text = step_profile.text(rows[1], plain=rows[0])
    assert "gcn, profile of default" in text and "decode_host_ms" in text
