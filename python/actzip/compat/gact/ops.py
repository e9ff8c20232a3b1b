"""GACT's quantisation of single tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .conf import config

_BITS = (1, 2, 3, 4, 5, 6, 7, 8, 16, 32)


def _pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Packs codes: code i occupies bits i * `bits` to (i + 1) * `bits` of the bytes. Eight codes take `bits` bytes.

    >>> _pack(torch.tensor([1, 2, 3, 0, 0, 0, 0, 1]), 2).tolist()
    [57, 64]
    """
    eights = F.pad(codes.reshape(-1), (0, -codes.numel() % 8)).reshape(-1, 8)
    halves = [sum(eights[:, i + j].long() << (bits * j) for j in range(4)) for i in (0, 4)]  # at most 64 bits each
    if bits % 2:  # then the second half begins inside a byte
        word = halves[0] | halves[1] << (4 * bits)
        parts = [word >> (8 * i) for i in range(bits)]
    else:
        parts = [half >> (8 * i) for half in halves for i in range(bits // 2)]
    return (torch.stack(parts, 1) & 255).to(torch.uint8).reshape(-1)


def _unpack(data: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """Unpacks `count` codes.

    >>> _unpack(_pack(torch.arange(20) % 8, 3), 3, 20).tolist() == (torch.arange(20) % 8).tolist()
    True
    """
    rows = data.reshape(-1, bits)
    codes = []
    for i in range(8):
        first, offset = divmod(i * bits, 8)
        last = (i * bits + bits - 1) // 8
        word = sum(rows[:, byte].int() << (8 * (byte - first)) for byte in range(first, last + 1))
        codes.append((word >> offset) & (2**bits - 1))
    return torch.stack(codes, 1).reshape(-1)[:count]


def op_quantize(input: torch.Tensor, q_bit: int, seed: int = 0) -> list:
    """Returns codes, their bits, and step and least value of each group of ``config.group_size``.

    Rounds stochastically, with the given seed; torch's generators are not affected. With 32 bits, the elements
    themselves are kept, and the step is the range of the group.

    >>> codes, bits, step, least = op_quantize(torch.randn(64, 64), 4)
    >>> codes.numel(), step.shape
    (2048, torch.Size([16, 1]))
    >>> op_dequantize([codes, bits, step, least], (64, 64)).shape
    torch.Size([64, 64])
    """
    if q_bit not in _BITS:
        raise ValueError(f"op_quantize: {q_bit} bits (allowed: {', '.join(map(str, _BITS))})")
    flat = input.detach().reshape(-1)
    groups = F.pad(flat, (0, -flat.numel() % config.group_size)).reshape(-1, config.group_size)
    least, most = torch.aminmax(groups, dim=1, keepdim=True)
    if q_bit == 32:
        return [groups.clone(), q_bit, most - least, least]
    highest = 2**q_bit - 1
    step = ((most - least).float() / highest).clamp(min=torch.finfo(torch.float32).tiny)
    noise = torch.rand(groups.shape, device=groups.device, generator=torch.Generator(groups.device).manual_seed(seed))
    codes = ((groups.float() - least.float()) / step + noise).floor_().clamp_(0, highest).int()
    return [_pack(codes, q_bit), q_bit, step.to(input.dtype), least]


def op_dequantize(input: Sequence, input_shape: Sequence[int]) -> torch.Tensor:
    """Restores the tensor that `op_quantize` was given, up to its rounding."""
    codes, q_bit, step, least = input
    if q_bit != 32:
        values = _unpack(codes, q_bit, least.numel() * config.group_size).reshape(least.numel(), -1)
        codes = values.to(least.dtype) * step + least
    return codes.reshape(-1)[:math.prod(input_shape)].reshape(tuple(input_shape))


def op_quantize_mask(input: torch.Tensor) -> list:
    """Returns one bit per element, which says whether it is not 0, and the shape.

    >>> mask = torch.tensor([0, 1, 1, 0], dtype=torch.uint8).repeat(256)
    >>> quantized = op_quantize_mask(mask)
    >>> quantized[0].numel(), torch.equal(op_dequantize_mask(quantized), mask)
    (128, True)
    """
    return [_pack((input != 0).int(), 1), input.shape]


def op_dequantize_mask(input: Sequence) -> torch.Tensor:
    codes, shape = input
    return _unpack(codes, 1, math.prod(shape)).to(torch.uint8).reshape(shape)


def self_atten(dropout_p: float, query_layer: torch.Tensor, key_layer: torch.Tensor, value_layer: torch.Tensor,
               q_chunk_size: int, k_chunk_size: int, use_checkpoint: bool = True) -> torch.Tensor:
    """Attention that never holds all weights at once. It is torch's own, which chooses the chunks itself."""
    return F.scaled_dot_product_attention(query_layer, key_layer, value_layer, dropout_p=dropout_p)
