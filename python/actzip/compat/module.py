"""Wrappers that convert a whole model, as in the libraries."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from ..convert import rebased
from ..nn.binding import CompressedLayer
from ..subclasses import layer_of, rest_of, why_not, with_layer
from . import roots


def convert_layers(model: nn.Module, layers: Mapping[type[nn.Module], type[nn.Module]], caller: str) -> None:
    """Turns torch's layers into those of a library, in place: weights, hooks and flags remain.

    Subclasses are converted too, unless they compute something else. A warning says so if many layers are left.
    """
    count, left = 0, {}
    for path, module in model.named_modules():
        layer = layer_of(type(module), layers)
        if isinstance(module, CompressedLayer):
            count += 1
        elif layer is not None:
            why = why_not(module, layer)
            if why:
                left[path] = why
                continue
            module.__class__ = _replacement(module, layer, layers[layer])
            count += 1
    roots.forget(model)
    roots.watch()
    rest = rest_of(model, count, left)
    if rest:
        warnings.warn(f"{caller}: {rest}", stacklevel=4)


def _replacement(module: nn.Module, layer: type[nn.Module], own: type[nn.Module]) -> type[nn.Module]:
    cls = type(module)
    if cls is layer:
        return own
    return rebased(cls, own) if parametrize.is_parametrized(module) else with_layer(cls, own)


class ConvertedModel(nn.Module):
    """Wraps a model and converts its layers. ``state_dict()`` has the names of the model without the wrapper."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.convert_layers(model)
        self.register_load_state_dict_pre_hook(_add_prefix)

    @staticmethod
    def convert_layers(model: nn.Module) -> None:
        raise NotImplementedError

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.model(*args, **options)

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        return self.model.state_dict(*args, **options)


def _add_prefix(_: nn.Module, state: dict[str, torch.Tensor], prefix: str, *__: Any) -> None:
    """Turns names of the model into names of the model in its wrapper."""
    names = [name for name in state if name.startswith(prefix)]
    state.update({f"{prefix}model.{name.removeprefix(prefix)}": state.pop(name) for name in names})
