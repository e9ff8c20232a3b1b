"""Operators that keep no values, but a bit or an index per element."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from .... import _C


def _layer() -> _C.Layer:
    """Returns a layer of the scope's session, or of the default session: they keep bits and indices alike."""
    return _C.Layer("", None, derive=False, pipeline_threshold=0)


def act_quantized_relu(input: torch.Tensor) -> torch.Tensor:
    result = _C.layers.relu(_layer(), input, False)
    return F.relu(input) if result is None else result


def act_quantized_dropout(input: torch.Tensor, p: float) -> torch.Tensor:
    result = _C.layers.dropout(_layer(), input, p, False)
    return F.dropout(input, p) if result is None else result


def act_quantized_max_pool2d(input: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int],
                             padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
                             return_indices: bool) -> torch.Tensor:
    if return_indices:
        raise ValueError("act_quantized_max_pool2d: return_indices=True (allowed: False)")
    result = _C.layers.max_pool(_layer(), input, kernel_size, stride, padding, dilation, ceil_mode)
    return F.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode) if result is None else result
