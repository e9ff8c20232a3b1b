"""Convolutions, linear layers and embeddings."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .._C import layers
from .binding import CompressedLayer, is_compiling


class Linear(CompressedLayer, nn.Linear):
    """:class:`torch.nn.Linear`; keeps its input in few bits, or nothing after a norm of :mod:`actzip.nn`."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.linear(self._layer(), input, self.weight, self.bias)
        return super().forward(input) if result is None else result


class Embedding(CompressedLayer, nn.Embedding):
    """:class:`torch.nn.Embedding`; keeps its indices in as few bits as its rows need."""

    def forward(self, input: Tensor) -> Tensor:
        if is_compiling() or self.max_norm is not None:  # max_norm changes the weight before it is read
            return super().forward(input)
        padding = -1 if self.padding_idx is None else self.padding_idx
        result = layers.embedding(self._layer(), self.weight, input, padding, self.scale_grad_by_freq, self.sparse)
        return super().forward(input) if result is None else result


class _Convolution(CompressedLayer):
    """Keeps its input in few bits; nothing if it follows a norm of :mod:`actzip.nn`, with or without a ReLU between."""

    def forward(self, input: Tensor) -> Tensor:
        if is_compiling():
            return super().forward(input)
        padded, padding = input, self.padding
        if self.padding_mode != "zeros" or isinstance(padding, str):
            padded, padding = self._padded(input)
        result = layers.convolution(self._layer(), padded, self.weight, self.bias, self.stride, padding, self.dilation,
                                    False, self.output_padding, self.groups)
        return super().forward(input) if result is None else result

    def _padded(self, input: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """Pads as torch's layers do before they convolve, unless the operator can do it: equal zeros on both sides.
        Returns the input and the padding that is left to the operator."""
        both = self._reversed_padding_repeated_twice
        before, after = tuple(both[-2::-2]), tuple(both[::-2])
        if self.padding_mode == "zeros" and before == after:
            return input, before
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return F.pad(input, both, mode=mode), (0,) * len(self.kernel_size)


class Conv1d(_Convolution, nn.Conv1d):
    """:class:`torch.nn.Conv1d`."""


class Conv2d(_Convolution, nn.Conv2d):
    """:class:`torch.nn.Conv2d`."""


class Conv3d(_Convolution, nn.Conv3d):
    """:class:`torch.nn.Conv3d`."""


class _TransposedConvolution(CompressedLayer):
    """Keeps its input as a convolution does."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if is_compiling() or self.padding_mode != "zeros":
            return super().forward(input, output_size)
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size,
                                                  len(self.kernel_size), self.dilation)
        result = layers.convolution(self._layer(), input, self.weight, self.bias, self.stride, self.padding,
                                    self.dilation, True, output_padding, self.groups)
        return super().forward(input, output_size) if result is None else result


class ConvTranspose1d(_TransposedConvolution, nn.ConvTranspose1d):
    """:class:`torch.nn.ConvTranspose1d`."""


class ConvTranspose2d(_TransposedConvolution, nn.ConvTranspose2d):
    """:class:`torch.nn.ConvTranspose2d`."""


class ConvTranspose3d(_TransposedConvolution, nn.ConvTranspose3d):
    """:class:`torch.nn.ConvTranspose3d`."""
