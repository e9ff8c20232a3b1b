"""ActNN's conversion of a whole model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from . import roots
from .conf import config
from .layers import LAYERS, NORMS

#: By the layer of torch that each stands for.
_CONVERTED = {getattr(nn, layer.__name__.removeprefix("Q")): layer for layer in LAYERS}


def _convert(model: nn.Module) -> None:
    """Layers of torch's own become ActNN's, and stay the objects that they are: weights, hooks and flags."""
    for module in model.modules():
        layer = _CONVERTED.get(type(module))
        if layer is not None and (config.enable_quantized_bn or layer not in NORMS):
            module.__class__ = layer
    roots.forget(model)
    roots.watch()


class QModule(nn.Module):
    """The same model, of ActNN's layers.

    ``state_dict()`` has the names of the model alone, and ``train()`` and ``eval()`` set ``config.training``.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        _convert(model)
        self.register_load_state_dict_pre_hook(_add_prefix)

    def forward(self, *args: Any, **options: Any) -> Any:
        return self.model(*args, **options)

    def train(self, mode: bool = True) -> QModule:
        config.training = mode
        return super().train(mode)

    def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        return self.model.state_dict(*args, **options)


def _add_prefix(_: nn.Module, state: dict[str, torch.Tensor], prefix: str, *__: Any) -> None:
    """Names of the model alone become those of the model in its wrapper."""
    names = [name for name in state if name.startswith(prefix)]
    state.update({f"{prefix}model.{name.removeprefix(prefix)}": state.pop(name) for name in names})
