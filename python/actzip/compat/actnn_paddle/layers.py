"""The port's layers: those of actzip, with a ``group=`` that selects an entry of ``activation_compression_bits``."""

from __future__ import annotations

import inspect
from typing import Any

import paddle

from ...paddle import nn as base
from .conf import config
from .sessions import ConfiguredSession, SessionsByConfig

#: torch's names of arguments, which the port's documentation promises to accept.
_TORCHS = {"bias": "bias_attr", "eps": "epsilon", "input_features": "in_features", "output_features": "out_features"}


def paddles(layer: type) -> type:
    """Returns Paddle's layer that one of these replaces."""
    return next(cls for cls in layer.__mro__ if cls.__module__.startswith("paddle.nn."))


class _Layer:
    """The base of these layers, before actzip's layer. Its last argument is ``group``, after those of Paddle's."""

    group = 0

    def __init__(self, *args: Any, group: int = 0, inplace: bool = False, **options: Any) -> None:
        count = len(inspect.signature(paddles(type(self))).parameters)
        if len(args) == count + 1:
            *args, group = args
        if not isinstance(group, int) or group < 0:
            raise TypeError(f"{type(self).__name__}: group {group!r} (allowed: 0 or more)")
        super().__init__(*args, **{_TORCHS.get(name, name): value for name, value in options.items()})
        self.group = group

    def forward(self, *inputs: Any, **named: Any) -> Any:
        paddles_own = super(base.CompressedLayer, self)
        return (super() if config.training else paddles_own).forward(*inputs, **named)

    def _binding(self) -> base.Binding:
        """Returns the binding. Outside a QModule, the layer has a session of its own for the current configuration."""
        bound = self.__dict__.get("_actzip")
        if bound is not None:
            return bound
        sessions = self.__dict__.setdefault("_actzip_sessions", SessionsByConfig())
        name = self.full_name()
        return base.Binding(sessions.now(ConfiguredSession, {name: self.group}), name, is_alone=True)

    def __repr__(self) -> str:
        return paddle.nn.Layer.__repr__(self)


class QConv1d(_Layer, base.Conv1D):
    pass


class QConv2d(_Layer, base.Conv2D):
    pass


class QConv3d(_Layer, base.Conv3D):
    pass


class QConvTranspose1d(_Layer, base.Conv1DTranspose):
    pass


class QConvTranspose2d(_Layer, base.Conv2DTranspose):
    pass


class QConvTranspose3d(_Layer, base.Conv3DTranspose):
    pass


class QLinear(_Layer, base.Linear):
    pass


class QBatchNorm1d(_Layer, base.BatchNorm1D):
    pass


class QBatchNorm2d(_Layer, base.BatchNorm2D):
    pass


class QBatchNorm3d(_Layer, base.BatchNorm3D):
    pass


class QSyncBatchNorm(_Layer, base.SyncBatchNorm):
    pass


class QReLU(_Layer, base.ReLU):
    pass


class QDropout(_Layer, base.Dropout):
    pass


class QMaxPool2d(_Layer, base.MaxPool2D):
    pass


class QAvgPool2d(_Layer, base.AvgPool2D):
    pass


LAYERS = (QConv1d, QConv2d, QConv3d, QConvTranspose1d, QConvTranspose2d, QConvTranspose3d, QLinear, QBatchNorm1d,
          QBatchNorm2d, QBatchNorm3d, QSyncBatchNorm, QReLU, QDropout, QMaxPool2d, QAvgPool2d)
NORMS = (QBatchNorm1d, QBatchNorm2d, QBatchNorm3d, QSyncBatchNorm)
