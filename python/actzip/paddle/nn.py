"""Paddle's layers, which compress by themselves what their backward needs.

Each class is a subclass of Paddle's, with the same arguments, parameters and state dict. :func:`actzip.paddle.convert`
puts them into a model. A layer used by itself has a session of its own.

>>> import paddle
>>> import actzip.paddle as actzip
>>> layer = actzip.nn.Linear(256, 64)
>>> isinstance(layer, paddle.nn.Linear)
True
>>> layer(paddle.randn([128, 256])).sum().backward()
>>> layer.weight.grad.shape
paddle.Size([256, 64])
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

from . import hooks
from .session import Session

__all__ = [
    "AvgPool2D", "BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "Conv1D", "Conv1DTranspose", "Conv2D", "Conv2DTranspose",
    "Conv3D", "Conv3DTranspose", "Dropout", "Linear", "MaxPool2D", "ReLU", "SyncBatchNorm",
]


class Binding:
    """A layer's session and path. Copies of a layer share it."""

    def __init__(self, session: Session, path: str, *, is_alone: bool = False) -> None:
        self.session, self.path = session, path
        self._is_alone = is_alone
        self._enter, self._leave = session._core.module_hooks(path)

    def __deepcopy__(self, _: dict) -> Binding:
        return self

    def __reduce__(self) -> tuple:
        return _rebound, (self.session.options, self.path)

    def __enter__(self) -> None:
        if self._is_alone:
            self.session._begin_layers()
        hooks.enter(self.session._pack, self.session._unpack)
        self._enter()

    def __exit__(self, *_: object) -> None:
        self._leave()
        hooks.leave()


def _rebound(options: dict[str, Any], path: str) -> Binding:
    """Unpickles a layer, which then has a session of its own."""
    return Binding(Session(**options), path, is_alone=True)


class CompressedLayer:
    """What all these layers have in common. It must come before Paddle's class among the bases."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Runs forward in a scope, unless hooks are entered already, of a session or of others."""
        if hooks.is_taken() or not paddle.is_grad_enabled() or not paddle.in_dynamic_mode():
            return super().forward(*inputs, **named)
        with self._binding():
            return super().forward(*inputs, **named)

    def _binding(self) -> Binding:
        binding = self.__dict__.get("_actzip")
        if binding is None:
            binding = self.__dict__["_actzip"] = Binding(Session(), "", is_alone=True)
        return binding

    def __repr__(self) -> str:
        return f"actzip.{super().__repr__()}"


class Conv1D(CompressedLayer, nn.Conv1D):
    """:class:`paddle.nn.Conv1D`; keeps its input in few bits, as all convolutions do."""


class Conv2D(CompressedLayer, nn.Conv2D):
    """:class:`paddle.nn.Conv2D`."""


class Conv3D(CompressedLayer, nn.Conv3D):
    """:class:`paddle.nn.Conv3D`."""


class Conv1DTranspose(CompressedLayer, nn.Conv1DTranspose):
    """:class:`paddle.nn.Conv1DTranspose`."""


class Conv2DTranspose(CompressedLayer, nn.Conv2DTranspose):
    """:class:`paddle.nn.Conv2DTranspose`."""


class Conv3DTranspose(CompressedLayer, nn.Conv3DTranspose):
    """:class:`paddle.nn.Conv3DTranspose`."""


class BatchNorm1D(CompressedLayer, nn.BatchNorm1D):
    """:class:`paddle.nn.BatchNorm1D`; keeps its input in few bits, and statistics exactly, as all batch norms do."""


class BatchNorm2D(CompressedLayer, nn.BatchNorm2D):
    """:class:`paddle.nn.BatchNorm2D`."""


class BatchNorm3D(CompressedLayer, nn.BatchNorm3D):
    """:class:`paddle.nn.BatchNorm3D`."""


class SyncBatchNorm(CompressedLayer, nn.SyncBatchNorm):
    """:class:`paddle.nn.SyncBatchNorm`, which Paddle runs only on GPUs."""


class Linear(CompressedLayer, nn.Linear):
    """:class:`paddle.nn.Linear`; keeps its input in few bits."""


class ReLU(CompressedLayer, nn.ReLU):
    """:class:`paddle.nn.ReLU`; keeps one bit per element."""


class Dropout(CompressedLayer, nn.Dropout):
    """:class:`paddle.nn.Dropout`; keeps one bit per element."""


class MaxPool2D(CompressedLayer, nn.MaxPool2D):
    """:class:`paddle.nn.MaxPool2D`; keeps the position of each maximum, in as few bits as its input's plane needs."""


class AvgPool2D(CompressedLayer, nn.AvgPool2D):
    """:class:`paddle.nn.AvgPool2D`; keeps only shapes."""
