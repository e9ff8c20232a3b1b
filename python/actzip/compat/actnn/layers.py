"""ActNN's layers: those of actzip, with a ``group=`` that selects an entry of ``activation_compression_bits``."""

from __future__ import annotations

import math
from typing import Any

from ... import nn as base
from ...nn.binding import is_compiling
from ..layer import Layer
from .conf import config
from .library import LIBRARY
from .qbnscheme import QBNScheme
from .qscheme import QScheme


class _Plain(Layer):
    """A layer that keeps no values, but bits, indices or a shape."""

    library = LIBRARY


class _Grouped(_Plain):
    """A layer that keeps values."""

    _scheme: QScheme | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._scheme = self.scheme

    @property
    def scheme(self) -> QScheme | None:
        """Tells ActNN's programs the bits of the layer; None while the configuration fixes them."""
        if not self._adapts():
            return None
        if self._scheme is None:
            self._scheme = self._make_scheme()
        return self._scheme

    def _adapts(self) -> bool:
        return config.adaptive_conv_scheme

    def _make_scheme(self) -> QScheme:
        locations = math.prod(getattr(self, "kernel_size", (1,)))
        return QScheme(self, self.group, locations, getattr(self, "groups", 1))

    def forward(self, *args: Any, **options: Any) -> Any:
        if not is_compiling() and config.training and self.scheme is not None:
            self.scheme._runs()
        return super().forward(*args, **options)


class _Norm(_Grouped):
    def _adapts(self) -> bool:
        return config.adaptive_bn_scheme

    def _make_scheme(self) -> QBNScheme:
        return QBNScheme(self.group, self)


class QConv1d(_Grouped, base.Conv1d):
    pass


class QConv2d(_Grouped, base.Conv2d):
    pass


class QConv3d(_Grouped, base.Conv3d):
    pass


class QConvTranspose1d(_Grouped, base.ConvTranspose1d):
    pass


class QConvTranspose2d(_Grouped, base.ConvTranspose2d):
    pass


class QConvTranspose3d(_Grouped, base.ConvTranspose3d):
    pass


class QLinear(_Grouped, base.Linear):
    """Its sizes may also be given as ``input_features`` and ``output_features``, as in ActNN."""

    def __init__(self, *args: Any, **options: Any) -> None:
        names = {"input_features": "in_features", "output_features": "out_features"}
        super().__init__(*args, **{names.get(name, name): value for name, value in options.items()})


class QBatchNorm1d(_Norm, base.BatchNorm1d):
    pass


class QBatchNorm2d(_Norm, base.BatchNorm2d):
    pass


class QBatchNorm3d(_Norm, base.BatchNorm3d):
    pass


class QSyncBatchNorm(_Norm, base.SyncBatchNorm):
    pass


class QReLU(_Plain, base.ReLU):
    pass


class QDropout(_Plain, base.Dropout):
    pass


class QMaxPool2d(_Plain, base.MaxPool2d):
    pass


class QAvgPool2d(_Plain, base.AvgPool2d):
    pass


LAYERS = (QConv1d, QConv2d, QConv3d, QConvTranspose1d, QConvTranspose2d, QConvTranspose3d, QLinear, QBatchNorm1d,
          QBatchNorm2d, QBatchNorm3d, QSyncBatchNorm, QReLU, QDropout, QMaxPool2d, QAvgPool2d)
NORMS = (QBatchNorm1d, QBatchNorm2d, QBatchNorm3d, QSyncBatchNorm)
