"""What the benchmark scripts of the libraries measure memory with."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch

from .recorder import GlobalExpRecorder, exp_recorder

__all__ = ["GlobalExpRecorder", "compute_tensor_bytes", "disable_cache_allocator", "empty_cache",
           "enable_cache_allocator", "exp_recorder", "get_memory_usage", "swap_to_cpu"]


def get_memory_usage(print_info: bool = False, gpu: int | None = None) -> int:
    """Bytes that tensors hold on a GPU, the current one unless told; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    allocated, reserved = torch.cuda.memory_allocated(gpu), torch.cuda.memory_reserved(gpu)
    if print_info:
        print(f"allocated: {allocated / 2**20:.2f} MiB, reserved: {reserved / 2**20:.2f} MiB", flush=True)
    return allocated


def compute_tensor_bytes(tensors: torch.Tensor | Iterable[Any]) -> int:
    """Of the elements of one tensor, or of all tensors in a list; what is no tensor counts nothing.

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
    """A copy in host memory; pinned where there is a GPU, and then on its way there."""
    pinned = torch.cuda.is_available()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=pinned)
    return copy.copy_(tensor, non_blocking=pinned)


_NO_CACHE = "PYTORCH_NO_CUDA_MEMORY_CACHING"


def disable_cache_allocator() -> None:
    """For processes that begin after this: torch reads it when it first allocates."""
    os.environ[_NO_CACHE] = "1"


def enable_cache_allocator() -> None:
    os.environ.pop(_NO_CACHE, None)
