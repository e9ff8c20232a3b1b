"""ActNN's layers: actzip's, with a ``group=`` that says which entry of ``activation_compression_bits`` is theirs."""

from __future__ import annotations

from typing import Any

from ... import nn as base
from ...nn.binding import CompressedLayer
from . import roots
from .conf import config


class _Plain:
    """A layer that keeps a bit, an index or a shape; its name is ActNN's."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        roots.watch()

    def forward(self, *args: Any, **options: Any) -> Any:
        torchs_own = super(CompressedLayer, self)
        return (super() if config.training else torchs_own).forward(*args, **options)

    def _get_name(self) -> str:
        return type(self).__name__


class _Grouped(_Plain):
    """A layer with values to keep."""

    group = 0

    def __init__(self, *args: Any, group: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self.group = group


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
    pass


class QBatchNorm1d(_Grouped, base.BatchNorm1d):
    pass


class QBatchNorm2d(_Grouped, base.BatchNorm2d):
    pass


class QBatchNorm3d(_Grouped, base.BatchNorm3d):
    pass


class QSyncBatchNorm(_Grouped, base.SyncBatchNorm):
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
