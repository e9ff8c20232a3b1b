"""ActNN's conversion of a whole model."""

from __future__ import annotations

from torch import nn

from ..layer import torchs
from ..module import ConvertedModel, convert_layers
from .conf import config
from .layers import LAYERS, NORMS


class QModule(ConvertedModel):
    """The same model, of ActNN's layers; ``train()`` and ``eval()`` set ``config.training``."""

    @staticmethod
    def convert_layers(model: nn.Module) -> None:
        """In place, by ``config``: batch norms stay torch's unless ``enable_quantized_bn``."""
        layers = {torchs(layer): layer for layer in LAYERS if config.enable_quantized_bn or layer not in NORMS}
        convert_layers(model, layers, "actnn.QModule")
        for module in model.modules():
            getattr(module, "scheme", None)  # ActNN lists the schemes of all layers from here on

    def train(self, mode: bool = True) -> QModule:
        config.training = mode
        return super().train(mode)
