"""Functions with which the benchmark scripts of the libraries measure memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from .recorder import GlobalExpRecorder, exp_recorder

__all__ = ["GlobalExpRecorder", "compute_tensor_bytes", "disable_cache_allocator", "empty_cache",
           "enable_cache_allocator", "exp_recorder", "get_memory_usage", "swap_to_cpu"]


def get_memory_usage(print_info: bool = False, gpu: int | None = None) -> int:
    """Returns the bytes that tensors hold on a GPU, by default the current one; 0 without a GPU."""
    if not torch.cuda.is_available():
        return 0
    allocated, reserved = torch.cuda.memory_allocated(gpu), torch.cuda.memory_reserved(gpu)
    if print_info:
        print(f"allocated: {allocated / 2**20:.2f} MiB, reserved: {reserved / 2**20:.2f} MiB", flush=True)
    return allocated


def compute_tensor_bytes(tensors: torch.Tensor | Iterable[Any]) -> int:
    """Returns the bytes of one tensor's elements, or of all tensors in a list. Anything else counts nothing.

    >>> compute_tensor_bytes([torch.zeros(3, dtype=torch.float16), torch.zeros(5, dtype=torch.uint8), None])
    11
    """
    if isinstance(tensors, torch.Tensor):
        return tensors.numel() * tensors.element_size()
    if isinstance(tensors, (list, tuple)):
        return sum(compute_tensor_bytes(tensor) for tensor in tensors)
    return 0


def empty_cache(ratio: float | None) -> None:
    """Gives torch's memory back to the GPU if less than this part of it is in use. None: never."""
    if not ratio or not torch.cuda.is_available():
        return
    reserved = torch.cuda.memory_reserved()
    if reserved and torch.cuda.memory_allocated() < ratio * reserved:
        torch.cuda.empty_cache()


def swap_to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy in host memory. With a GPU the copy is pinned, and may not be complete yet."""
    pinned = torch.cuda.is_available()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    return copy.copy_(tensor, non_blocking=pinned)


_NO_CACHE = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def disable_cache_allocator() -> None:
    """Disables torch's caching allocator in processes that have not allocated yet: torch reads the variable then."""
    os.environ[_NO_CACHE] = "1"


def enable_cache_allocator() -> None:
    os.environ.pop(_NO_CACHE, None)
