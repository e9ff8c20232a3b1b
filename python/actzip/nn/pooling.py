"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .._C import layers
from .binding import CompressedLayer, is_compiling


def _each(value: int | Sequence[int], rank: int) -> Sequence[int]:
    """Returns one number for each pooled dimension."""
    if isinstance(value, int):
        return (value,) * rank
    return value if len(value) == rank else tuple(value) * rank


class _MaxPool(CompressedLayer):
    """Keeps the position of each maximum in its window: 4 bits for a window of 3 x 3."""

    _rank: int

    def forward(self, input: Tensor) -> Tensor:
        if is_compiling() or self.return_indices:
            return super().forward(input)
        kernel, stride, padding, dilation = (
            _each(value, self._rank)
            for value in (self.kernel_size, self.stride or self.kernel_size, self.padding, self.dilation))
        result = layers.max_pool(self._layer(), input, kernel, stride, padding, dilation, self.ceil_mode)
        return super().forward(input) if result is None else result


class MaxPool1d(_MaxPool, nn.MaxPool1d):
    """:class:`torch.nn.MaxPool1d`."""

    _rank = 1


class MaxPool2d(_MaxPool, nn.MaxPool2d):
    """:class:`torch.nn.MaxPool2d`."""

    _rank = 2


class MaxPool3d(_MaxPool, nn.MaxPool3d):
    """:class:`torch.nn.MaxPool3d`."""

    _rank = 3


class _AvgPool(CompressedLayer):
    """Keeps only a shape."""

    _rank: int

    def forward(self, input: Tensor) -> Tensor:
        if is_compiling():
            return super().forward(input)
        kernel, stride, padding = (
            _each(value, self._rank) for value in (self.kernel_size, self.stride or self.kernel_size, self.padding))
        result = layers.avg_pool(self._layer(), input, kernel, stride, padding, self.ceil_mode, self.count_include_pad,
                                 getattr(self, "divisor_override", None))
        return super().forward(input) if result is None else result


class AvgPool1d(_AvgPool, nn.AvgPool1d):
    """:class:`torch.nn.AvgPool1d`."""

    _rank = 1


class AvgPool2d(_AvgPool, nn.AvgPool2d):
    """:class:`torch.nn.AvgPool2d`."""

    _rank = 2


class AvgPool3d(_AvgPool, nn.AvgPool3d):
    """:class:`torch.nn.AvgPool3d`."""

    _rank = 3
