"""ActNN's conversion of a whole model."""

from __future__ import annotations

from torch import nn

from ..layer import torchs
from ..module import ConvertedModel, convert_layers
from .conf import config
from .layers import LAYERS, NORMS


class QModule(ConvertedModel):
    """Wraps a model and gives it ActNN's layers. ``train()`` and ``eval()`` set ``config.training``."""

    @staticmethod
    def convert_layers(model: nn.Module) -> None:
        """Converts in place. Batch norms are converted only with ``config.enable_quantized_bn``."""
        layers = {torchs(layer): layer for layer in LAYERS if config.enable_quantized_bn or layer not in NORMS}
        convert_layers(model, layers, "actnn.QModule")
        for module in model.modules():
            getattr(module, "scheme", None)  # creates it, since QScheme.layers must list all layers from now on

    def train(self, mode: bool = True) -> QModule:
        config.training = mode
        return super().train(mode)
