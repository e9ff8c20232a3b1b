"""Modules of Hugging Face's transformers that compute the same as a layer of torch's. Imported if a model has one."""

from __future__ import annotations

import functools

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import activations

from .._C import layers
from .binding import CompressedLayer, is_compiling


class GELUActivation(CompressedLayer, activations.GELUActivation):
    """Exact GELU."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.gelu(self._layer(), input, "none")
        return super().forward(input) if result is None else result


class GELUTanh(CompressedLayer, activations.GELUTanh):
    """GELU by the tanh approximation."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.gelu(self._layer(), input, "tanh")
        return super().forward(input) if result is None else result


def replacement(module: nn.Module) -> type[nn.Module] | None:
    """Returns our class for a module of theirs, or None if it does not use torch's function."""
    act = getattr(module, "act", None)
    if type(module) is activations.GELUActivation and act is F.gelu:
        return GELUActivation
    is_approximate = isinstance(act, functools.partial) and act.func is F.gelu
    return GELUTanh if type(module) is activations.GELUTanh and is_approximate else None


#: Our classes, and those that they replace.
ORIGINALS = {GELUActivation: activations.GELUActivation, GELUTanh: activations.GELUTanh}
