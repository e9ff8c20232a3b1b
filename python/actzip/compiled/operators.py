"""What torch.compile has to know about actzip's operators: the shapes of their results."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _C
from .nodes import NAMES


_C.register_graph_operators()  # only here, since importing actzip must change nothing in torch


def _up(count: torch.types.IntLikeType, unit: int) -> torch.types.IntLikeType:
    return (count + unit - 1) // unit * unit


def encoded_bytes(codec: str, dtype: torch.dtype, elems: torch.types.IntLikeType,
                  segments: torch.types.IntLikeType) -> torch.types.IntLikeType:
    """Returns the bytes of an encoding. For symbolic sizes it repeats the core's formula (docs/format.md)."""
    if isinstance(elems, int) and isinstance(segments, int):
        return _C.encoded_bytes(codec, NAMES[dtype], elems, segments)
    name, *words = codec.split(":")
    if name == "mask":
        return _up(_up(elems, 32) // 8, 16)
    if name == "cast":
        return _up(_up(2 * elems, 4), 16)
    if name not in ("rotated", "affine"):
        raise ValueError(f"actzip: no formula for the size of {codec}")
    bits = int(words[0])
    group = next((int(word.removeprefix("group=")) for word in words if word.startswith("group=")), 256)
    length = elems // segments
    groups = _up(length, group) // group
    run = groups * group if name == "rotated" else length
    total = _up((8 if "stats=f32" in words else 4) * segments * groups, 16)
    total += _up(segments * (_up(run * bits, 32) // 32) * 4, 16)
    return total + _up(segments * (_up(length, 32) // 32) * 4, 16) if "mask" in words else total


@torch.library.register_fake("actzip::begin")
def _begin(options: str, sites: str, device: torch.device,
           sizes: Sequence[torch.types.IntLikeType] = ()) -> torch.Tensor:
    return torch.empty((max(1, len(sites.split("\n"))),), dtype=torch.int64, device=device)


@torch.library.register_fake("actzip::encode")
def _encode(tensor: torch.Tensor, codec: str, segments: torch.types.IntLikeType, seeds: torch.Tensor,
            line: int) -> torch.Tensor:
    size = encoded_bytes(codec, tensor.dtype, tensor.numel(), segments)
    return tensor.new_empty((size,), dtype=torch.uint8)


@torch.library.register_fake("actzip::activation_backward")
def _activation_backward(bytes: torch.Tensor, codec: str, seeds: torch.Tensor, line: int, gradient: torch.Tensor,
                         name: str, approximate: str) -> torch.Tensor:
    return torch.empty_strided(gradient.shape, gradient.stride(), dtype=gradient.dtype, device=gradient.device)


@torch.library.register_fake("actzip::batch_norm_backward")
def _batch_norm_backward(
    bytes: torch.Tensor, codec: str, seeds: torch.Tensor, line: int, relu_bytes: torch.Tensor | None, relu_codec: str,
    relu_line: int, gradient: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, inverse_deviation: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    for_input = torch.empty_strided(gradient.shape, gradient.stride(), dtype=gradient.dtype, device=gradient.device)
    return for_input, torch.empty_like(weight), torch.empty_like(weight)


@torch.library.register_fake("actzip::decode")
def _decode(bytes: torch.Tensor, codec: str, segments: torch.types.IntLikeType, seeds: torch.Tensor, line: int,
            size: list[torch.types.IntLikeType], stride: list[torch.types.IntLikeType],
            dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device=bytes.device)
