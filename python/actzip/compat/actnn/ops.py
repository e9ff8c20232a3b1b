"""ActNN's operators as functions, which compress according to ``config``."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.modules.utils import _ntuple

from ... import _C
from ...session import Session
from ..roots import is_in_step
from .cpp_extension import minimax as ext_minimax
from .cpp_extension import quantization as ext_quantization
from .library import LIBRARY

__all__ = ["adaptive_avg_pool2d", "batch_norm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
           "conv_transpose3d", "ext_minimax", "ext_quantization", "linear"]

_layers: dict[Hashable, _C.Layer] = {}


def _layer() -> _C.Layer:
    """Returns a layer that belongs to the current step, or outside of one to a session of the current configuration."""
    if is_in_step():
        return _C.Layer("", None, derive=False, pipeline_threshold=LIBRARY.pipeline_threshold())
    key = LIBRARY.key()
    if key not in _layers:
        _layers.clear()
        session = Session(**LIBRARY.session_options({}))
        _layers[key] = _C.Layer("", session._core, derive=False, pipeline_threshold=LIBRARY.pipeline_threshold())
    return _layers[key]


class _Operator:
    """Is called by ``apply``, like an autograd function."""

    def __init__(self, run: Callable[..., torch.Tensor]) -> None:
        self.apply = run


def _convolution(dims: int) -> _Operator:
    each, plain = _ntuple(dims), getattr(F, f"conv{dims}d")

    def run(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Any = 1,
            padding: Any = 0, dilation: Any = 1, groups: int = 1, scheme: Any = None) -> torch.Tensor:
        result = _C.layers.convolution(_layer(), input, weight, bias, each(stride), each(padding), each(dilation),
                                       False, each(0), groups)
        return plain(input, weight, bias, stride, padding, dilation, groups) if result is None else result

    return _Operator(run)


def _transposed(dims: int) -> _Operator:
    each, plain = _ntuple(dims), getattr(F, f"conv_transpose{dims}d")

    def run(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: Any = 1,
            padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
            scheme: Any = None) -> torch.Tensor:
        result = _C.layers.convolution(_layer(), input, weight, bias, each(stride), each(padding), each(dilation), True,
                                       each(output_padding), groups)
        if result is None:
            return plain(input, weight, bias, stride, padding, output_padding, groups, dilation)
        return result

    return _Operator(run)


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
            scheme: Any = None) -> torch.Tensor:
    result = _C.layers.linear(_layer(), input, weight, bias)
    return F.linear(input, weight, bias) if result is None else result


def _batch_norm(input: torch.Tensor, running_mean: torch.Tensor | None, running_var: torch.Tensor | None,
                weight: torch.Tensor | None, bias: torch.Tensor | None, training: bool,
                exponential_average_factor: float, eps: float, scheme: Any = None) -> torch.Tensor:
    result = _C.layers.batch_norm(_layer(), input, weight, bias, running_mean, running_var, exponential_average_factor,
                                  training, eps)
    if result is None:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, exponential_average_factor, eps)
    return result


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))
linear, batch_norm = _Operator(_linear), _Operator(_batch_norm)
adaptive_avg_pool2d = _Operator(F.adaptive_avg_pool2d)  # torch's own keeps only a shape
