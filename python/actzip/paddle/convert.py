"""A model whose layers keep compressed what their backward needs."""

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

#: Paddle's class and ours.
LAYERS: dict[type[nn.Layer], type[nn.Layer]] = {
    getattr(nn, name): getattr(compressed, name) for name in compressed.__all__}


class StepHook:
    """Before the forward of a whole model: what its layers keep from here on belongs to a new step."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __deepcopy__(self, _: dict) -> StepHook:
        return self

    def __call__(self, *_: object) -> None:
        # Evaluation keeps nothing, and the report stays that of training.
        if paddle.is_grad_enabled() and not hooks.is_taken():
            self.session._begin_layers()


def change_classes(model: nn.Layer, classes: Mapping[type[nn.Layer], type[nn.Layer]]) -> dict[str, nn.Layer]:
    """Layers get another class and stay the objects that they are: weights, hooks, flags, names of the state dict.

    Gives those that were changed, by path. What is derived from Paddle's layers computes something else, perhaps: it is
    left alone.
    """
    changed = {path: layer for path, layer in model.named_sublayers(include_self=True) if type(layer) in classes}
    for layer in changed.values():
        layer.__class__ = classes[type(layer)]
    return changed


def convert(model: nn.Layer, session: Session | None = None, **options: Any) -> nn.Layer:
    """Puts layers of :mod:`actzip.paddle.nn` in the place of Paddle's, in ``model`` itself, and gives it back.

    Weights, buffers, hooks and training flags stay where they are: each layer gets another class, and nothing else.
    Layers of classes that are derived from Paddle's are left alone. What is not a layer, a functional call for instance,
    is kept as Paddle keeps it; enter the session around forward (``with session_of(model):``) to compress that as well.

    Args:
        model: any layer. A model that is converted already is converted anew.
        session: what keeps for the layers, and reports; made with ``options`` if not given.
        options: of :class:`Session`.

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
    """The compressed layers of a model keep with a session, whose step begins with the model's forward."""
    for path, layer in model.named_sublayers(include_self=True):
        if isinstance(layer, compressed.CompressedLayer):
            layer.__dict__["_actzip"] = compressed.Binding(session, path)
    _remove_hook(model)
    model.register_forward_pre_hook(StepHook(session))


def restore(model: nn.Layer) -> nn.Layer:
    """Undoes :func:`convert`: the layers are Paddle's again. Weights, buffers and pending backwards stay."""
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
    """A converted model's session and report, and the way back; made by :func:`converted`. Prints as a list."""

    def __init__(self, model: nn.Layer, session: Session) -> None:
        self._model, self.session = model, session

    def report(self) -> Report:
        """What the last forward kept, by site."""
        return self.session.report()

    def restore(self) -> nn.Layer:
        """The model with Paddle's own layers again: :func:`restore`."""
        return restore(self._model)

    def __str__(self) -> str:
        return "\n".join(f"{path or '(model)'}: {layer!r}" for path, layer in _bound(self._model))


def _bound(model: nn.Layer) -> Iterator[tuple[str, nn.Layer]]:
    return ((path, layer) for path, layer in model.named_sublayers(include_self=True) if "_actzip" in layer.__dict__)


def converted(model: nn.Layer) -> Converted:
    """What belongs to a converted model: its session, its report, and ``restore()``."""
    check_model(model, "converted")
    for _, layer in _bound(model):
        return Converted(model, layer.__dict__["_actzip"].session)
    raise ValueError(f"converted: no layer of this {type(model).__name__} is converted "
                     "(call actzip.paddle.convert(model) first)")


def session_of(model: nn.Layer) -> Session:
    """The session of a converted model: ``converted(model).session``."""
    return converted(model).session
