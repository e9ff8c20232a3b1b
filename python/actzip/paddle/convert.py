"""Converts models: their layers then compress what their own backward needs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import paddle
from paddle import nn

from ..report import Report
from . import hooks
from . import nn as compressed
from .session import Session, check_model

#: Paddle's classes, and ours that replace them.
LAYERS: dict[type[nn.Layer], type[nn.Layer]] = {
    getattr(nn, name): getattr(compressed, name) for name in compressed.__all__}


class StepHook:
    """Runs before the forward of the whole model, and begins a new step for its layers."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __deepcopy__(self, _: dict) -> StepHook:
        return self

    def __call__(self, *_: object) -> None:
        # Without gradients nothing is saved, and the report remains that of training.
        if paddle.is_grad_enabled() and not hooks.is_taken():
            self.session._begin_layers()


def change_classes(model: nn.Layer, classes: Mapping[type[nn.Layer], type[nn.Layer]]) -> dict[str, nn.Layer]:
    """Changes the classes of layers. Weights, hooks, flags and names of the state dict remain.

    Returns the changed layers by path. Subclasses of Paddle's layers are left alone, since they may compute something
    else.
    """
    changed = {path: layer for path, layer in model.named_sublayers(include_self=True) if type(layer) in classes}
    for layer in changed.values():
        layer.__class__ = classes[type(layer)]
    return changed


def convert(model: nn.Layer, session: Session | None = None, **options: Any) -> nn.Layer:
    """Replaces Paddle's layers in ``model`` by those of :mod:`actzip.paddle.nn`, in place, and returns ``model``.

    Converted layers compress what their own backward needs; no scope is necessary. Each layer gets another class, and
    nothing else changes: weights, buffers, hooks and training flags remain. Subclasses of Paddle's layers are left
    alone. Everything else, such as functional calls, is not compressed; to compress that too, enter the session around
    forward (``with session_of(model):``).

    Args:
        model: any layer. A converted model is converted again.
        session: the session of the layers; by default a new one, made with ``options``.
        options: of :class:`Session`; not allowed together with ``session``.

    >>> import paddle
    >>> import actzip.paddle as actzip
    >>> model = paddle.nn.Sequential(paddle.nn.Conv2D(3, 16, 3), paddle.nn.BatchNorm2D(16), paddle.nn.ReLU())
    >>> actzip.convert(model)[2]
    actzip.ReLU()
    >>> model(paddle.randn([8, 3, 32, 32])).sum().backward()
    >>> actzip.converted(model).report().bytes_after > 0
    True
    """
    check_model(model, "convert")
    if session is not None and options:
        raise ValueError(f"convert: a session and options for one ({', '.join(options)}) (allowed: either)")
    restore(model)
    session = session or Session(model, **options)
    changed = change_classes(model, LAYERS)
    if not changed:
        warnings.warn(f"actzip.paddle.convert: no layer of this {type(model).__name__} was converted: it has none that is "
                      "known, and what its functions save is kept as Paddle keeps it (a scope compresses that: "
                      "actzip.paddle.compress(model))", stacklevel=2)
    bind(model, session)
    return model


def bind(model: nn.Layer, session: Session) -> None:
    """Gives the compressed layers of a model a session. Each forward of the model begins a step of it."""
    for path, layer in model.named_sublayers(include_self=True):
        if isinstance(layer, compressed.CompressedLayer):
            layer.__dict__["_actzip"] = compressed.Binding(session, path)
    _remove_hook(model)
    model.register_forward_pre_hook(StepHook(session))


def restore(model: nn.Layer) -> nn.Layer:
    """Undoes :func:`convert` in place, and returns ``model``. Weights, buffers and pending backwards are unaffected."""
    change_classes(model, {ours: theirs for theirs, ours in LAYERS.items()})
    for layer in model.sublayers(include_self=True):
        layer.__dict__.pop("_actzip", None)
        _remove_hook(layer)
    return model


def _remove_hook(layer: nn.Layer) -> None:
    found = layer._forward_pre_hooks
    for key in [key for key, hook in found.items() if isinstance(hook, StepHook)]:
        del found[key]


class Converted:
    """A converted model's session, report and ``restore()``; made by :func:`converted`. Prints as a list of layers."""

    def __init__(self, model: nn.Layer, session: Session) -> None:
        self._model, self.session = model, session

    def report(self) -> Report:
        """Returns what the last forward kept, by site."""
        return self.session.report()

    def restore(self) -> nn.Layer:
        """Puts Paddle's own layers back: :func:`restore`."""
        return restore(self._model)

    def __str__(self) -> str:
        return "\n".join(f"{path or '(model)'}: {layer!r}" for path, layer in _bound(self._model))


def _bound(model: nn.Layer) -> Iterator[tuple[str, nn.Layer]]:
    return ((path, layer) for path, layer in model.named_sublayers(include_self=True) if "_actzip" in layer.__dict__)


def converted(model: nn.Layer) -> Converted:
    """Returns the session, the report and ``restore()`` of a converted model.

    Raises ValueError if nothing of the model is converted.
    """
    check_model(model, "converted")
    for _, layer in _bound(model):
        return Converted(model, layer.__dict__["_actzip"].session)
    raise ValueError(f"converted: no layer of this {type(model).__name__} is converted "
                     "(call actzip.paddle.convert(model) first)")


def session_of(model: nn.Layer) -> Session:
    """Returns the session of a converted model: ``converted(model).session``."""
    return converted(model).session
