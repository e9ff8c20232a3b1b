"""GACT's quantisation as single calls: a tensor becomes bytes, and bytes become a tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from ...session import Session


@dataclasses.dataclass(frozen=True)
class Quantized:
    """A tensor in few bits."""

    shape: torch.Size
    dtype: torch.dtype
    bytes: int
    _restore: Callable[[], torch.Tensor] = dataclasses.field(repr=False)


def _quantized(tensor: torch.Tensor, preset: str, seed: int) -> Quantized:
    session = Session(preset=preset, min_numel=0, seed=seed)
    packed = session._pack(tensor.detach())
    return Quantized(tensor.shape, tensor.dtype, session.live_bytes, lambda: session._unpack(packed))


def op_quantize(input: torch.Tensor, q_bits: int, seed: int = 0) -> Quantized:
    """In groups of 256, rounded at random; the same seed rounds alike.

    >>> quantized = op_quantize(torch.randn(64, 64), 4)
    >>> quantized.bytes  # 4 bits an element, and two statistics for each group
    2112
    >>> op_dequantize(quantized, (64, 64)).shape
    torch.Size([64, 64])
    """
    return _quantized(input, f"affine:{q_bits}", seed)


def op_dequantize(input: Quantized, input_shape: Sequence[int]) -> torch.Tensor:
    return input._restore().reshape(tuple(input_shape))


def op_quantize_mask(input: torch.Tensor) -> Quantized:
    """One bit for each element: 0 or not.

    >>> mask = torch.tensor([0, 1, 1, 0], dtype=torch.uint8).repeat(256)
    >>> quantized = op_quantize_mask(mask)
    >>> quantized.bytes, torch.equal(op_dequantize_mask(quantized), mask)
    (128, True)
    """
    return dataclasses.replace(_quantized(input != 0, "exact", 0), dtype=input.dtype)


def op_dequantize_mask(input: Quantized) -> torch.Tensor:
    return input._restore().to(input.dtype)
