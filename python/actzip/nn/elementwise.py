"""Layers that work element by element."""

from __future__ import annotations

from torch import Tensor, nn

from .._C import layers
from .binding import CompressedLayer, is_compiling


class ReLU(CompressedLayer, nn.ReLU):
    """:class:`torch.nn.ReLU`; keeps one bit per element."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.relu(self._layer(), input, self.inplace)
        return super().forward(input) if result is None else result


class LeakyReLU(CompressedLayer, nn.LeakyReLU):
    """:class:`torch.nn.LeakyReLU`; keeps one bit per element."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.leaky_relu(
            self._layer(), input, self.negative_slope, self.inplace)
        return super().forward(input) if result is None else result


class GELU(CompressedLayer, nn.GELU):
    """:class:`torch.nn.GELU`; keeps its input in few bits."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.gelu(self._layer(), input, self.approximate)
        return super().forward(input) if result is None else result


class SiLU(CompressedLayer, nn.SiLU):
    """:class:`torch.nn.SiLU`; keeps its input in few bits."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.silu(self._layer(), input, self.inplace)
        return super().forward(input) if result is None else result


class Dropout(CompressedLayer, nn.Dropout):
    """:class:`torch.nn.Dropout`; keeps one bit per element, and draws the same mask as torch's."""

    def forward(self, input: Tensor) -> Tensor:
        result = None
        if self.training and not is_compiling():
            result = layers.dropout(self._layer(), input, self.p, self.inplace)
        return super().forward(input) if result is None else result
