"""What the benchmark scripts of both libraries measure memory with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import torch


def get_memory_usage(print_info: bool = False) -> int:
    """Bytes that tensors hold on the current GPU; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
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


class ExpRecorder:
    """Values of one experiment; each ``dump`` adds a line of JSON to a file."""

    def __init__(self) -> None:
        self.val_dict: dict[str, Any] = {}

    def record(self, key: str, value: Any, float_round: int = 6) -> None:
        self.val_dict[key] = round(value, float_round) if isinstance(value, float) else value

    def dump(self, filename: str) -> None:
        with open(filename, "a") as file:
            file.write(json.dumps(self.val_dict) + "\n")
        print(f"Save exp results to {filename}")


exp_recorder = ExpRecorder()
