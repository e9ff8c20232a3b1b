"""Functions with which the port's benchmarks measure memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import paddle
from paddle.base import core

from ..recorder import GlobalExpRecorder, exp_recorder

__all__ = ["GlobalExpRecorder", "compute_tensor_bytes", "empty_cache", "exp_recorder", "get_memory_usage", "swap_to_cpu"]


def get_memory_usage(print_info: bool = False) -> int:
    """Returns the bytes that tensors hold, as Paddle's allocator counts them: on the GPU if any, otherwise the host."""
    if paddle.device.is_compiled_with_cuda() and paddle.device.cuda.device_count():
        allocated = paddle.device.cuda.memory_allocated()
    else:
        allocated = core.host_memory_stat_current_value("Allocated", 0)
    if print_info:
        print(f"allocated: {allocated / 2**20:.2f} MiB", flush=True)
    return allocated


def compute_tensor_bytes(tensors: paddle.Tensor | Iterable[Any]) -> int:
    """Returns the bytes of one tensor's elements, or of all tensors in a list. Anything else counts nothing.

    >>> compute_tensor_bytes([paddle.zeros([3], "float16"), paddle.zeros([5], "uint8"), None])
    11
    """
    if isinstance(tensors, paddle.Tensor):
        return tensors.size * tensors.element_size()
    if isinstance(tensors, (list, tuple)):
        return sum(compute_tensor_bytes(tensor) for tensor in tensors)
    return 0


def empty_cache(ratio: float | None) -> None:
    """Gives cached memory back to the GPU, if there is one. None or 0: never."""
    if ratio and paddle.device.is_compiled_with_cuda():
        paddle.device.cuda.empty_cache()


def swap_to_cpu(tensor: paddle.Tensor) -> paddle.Tensor:
    """Returns a copy in host memory."""
    return paddle.to_tensor(tensor, place=paddle.CPUPlace())
