"""DIVISION's conversion of a whole model."""

from __future__ import annotations

from torch import nn

from ..module import ConvertedModel, convert_layers
from .conf import config
from .layers import CONVERTED, NORMS


class FDMP_Module(ConvertedModel):  # noqa: N801  (DIVISION's name)
    """Wraps a model, gives it DIVISION's layers and prints it. ``train()`` and ``eval()`` set ``config.train``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        print(model)

    @staticmethod
    def convert_layers(model: nn.Module) -> None:
        """Converts in place. Batch norms are converted only with ``config.compress_bn_input``."""
        convert_layers(model, CONVERTED | (NORMS if config.compress_bn_input else {}), "FDMP_Module")

    def train(self, mode: bool = True) -> FDMP_Module:
        config.train = mode
        return super().train(mode)
