"""Converts models: their layers then compress what their own backward needs."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from . import _C
from . import nn as compressed
from .compiled.api import CompiledSession, session_of_compiled
from .compiled.hand_over import warn_of_converted
from .nn.binding import Binding, CompressedLayer
from .levels import chunk_bytes_of
from .report import Report
from .session import Session
from .subclasses import layer_of, made_from, rest_of, why_not, with_layer
from .torch_models import check_model

#: torch's classes, and ours that replace them.
LAYERS: dict[type[nn.Module], type[nn.Module]] = {
    getattr(nn, name): getattr(compressed, name) for name in compressed.__all__}


class Conversion:
    """What :func:`convert` did with a model. Prints as a list. Copies of the model share it."""

    def __init__(self, session: Session, derive: bool, pipeline_threshold: int) -> None:
        self.session = session
        self.derive, self.pipeline_threshold = derive, pipeline_threshold
        self.converted: dict[str, str] = {}  #: by path: the class that a module has now
        self.left: dict[str, str] = {}  #: by path: why a module that is a layer of torch's was not converted

    def make_layer(self, name: str) -> _C.Layer:
        return _C.Layer(name, self.session._core, derive=self.derive, pipeline_threshold=self.pipeline_threshold)

    def __str__(self) -> str:
        lines = [f"{path or '(model)'}: {what}" for path, what in self.converted.items()]
        lines += [f"{path or '(model)'}: left as it is, {why}" for path, why in self.left.items()]
        return "\n".join(lines)

    def __copy__(self) -> Conversion:
        return self

    def __deepcopy__(self, _: dict) -> Conversion:
        return self

    def __reduce__(self) -> tuple:
        return _unpickle, (self.session.options, self.derive, self.pipeline_threshold, self.converted, self.left)


def _unpickle(options: dict[str, Any], derive: bool, pipeline_threshold: int, converted: dict[str, str],
              left: dict[str, str]) -> Conversion:
    conversion = Conversion(Session(**options), derive, pipeline_threshold)
    conversion.converted, conversion.left = converted, left
    return conversion


class StepHook:
    """Runs before the forward of the whole model, and begins a new step for its layers."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion

    def __call__(self, *_: object) -> None:
        # Without gradients nothing is saved, and the report remains that of training.
        if not torch.is_grad_enabled():
            return
        if torch.compiler.is_compiling():
            warn_of_converted()
        else:
            self.conversion.session._begin_layers()


class StepEndHook:
    """Runs after that forward: a session with ``use_gradient`` takes its statistics at the last layers."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion

    def __call__(self, *_: object) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            _C.end_step(self.conversion.session._core)


def convert(model: nn.Module, session: Session | None = None, *, derive: bool = True,
            pipeline_threshold: int | None = None, **options: Any) -> nn.Module:
    """Replaces torch's layers in ``model`` by those of :mod:`actzip.nn`, in place, and returns ``model``.

    Converted layers compress what their own backward needs; no scope is necessary. Each module gets another class, and
    nothing else changes: weights, buffers, hooks, parametrisations and training flags remain. Subclasses of torch's
    layers are converted too, unless they compute differently, with a ``forward`` of their own for example.
    ``print(converted(model))`` lists what was converted and what was not, and a warning says so if many layers were
    not. Everything else, such as functional calls, is not compressed; to compress that too, enter the session around
    forward (``with actzip.converted(model).session:``).

    Args:
        model: any module. A converted model is converted again.
        session: the session of the layers; by default a new one, made with ``options``.
        derive: do not keep the input of a convolution or linear layer that follows a norm (with or without a ReLU
            between them), but compute it from what the norm keeps.
        pipeline_threshold: a convolution runs backward in chunks of the batch, with a smaller workspace, if its
            gradient and twice its input take more bytes than this. 0: never. None: as the level of ActNN or GACT in
            ``preset`` says; never for other presets.
        options: of :class:`actzip.Session`; not allowed together with ``session``.

    >>> import torch, actzip
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU())
    >>> actzip.convert(model)[0]
    actzip.Conv2d(3, 16, kernel_size=(3, 3), stride=(1, 1))
    >>> model(torch.randn(8, 3, 32, 32)).sum().backward()
    >>> actzip.converted(model).report().bytes_after > 0
    True
    """
    check_model(model, "convert")
    if getattr(model, "is_gradient_checkpointing", False):
        warnings.warn("actzip: convert() of a model with gradient checkpointing on: its layers run again in backward and "
                      "keep little between; turn one of the two off", stacklevel=2)
    if session is not None and options:
        raise ValueError(f"convert: a session and options for one ({', '.join(options)}) (allowed: either)")
    if pipeline_threshold is not None and pipeline_threshold < 0:
        raise ValueError(f"convert: pipeline_threshold {pipeline_threshold} (allowed: 0 or more bytes)")
    restore(model)
    session = session or Session(model, **options)
    if pipeline_threshold is None:
        pipeline_threshold = chunk_bytes_of(session.options["preset"])
    conversion = Conversion(session, derive, pipeline_threshold)
    for path, module in model.named_modules():
        _convert_module(module, path, conversion)
    rest = rest_of(model, len(conversion.converted), conversion.left)
    if rest:
        warnings.warn(f"actzip.convert: {rest}", stacklevel=2)
    model.register_forward_pre_hook(StepHook(conversion), prepend=True)
    if conversion.session.options["use_gradient"]:
        model.register_forward_hook(StepEndHook(conversion), always_call=True)
    return model


def _convert_module(module: nn.Module, path: str, conversion: Conversion) -> None:
    cls, why = type(module), ""
    replacement, layer = _replacement(cls, module), layer_of(cls, LAYERS)
    if replacement is None and layer is not None:
        why = why_not(module, layer)
        replacement = None if why else with_layer(cls, LAYERS[layer])
    if replacement is None:
        if why:
            conversion.left[path] = why
        return
    module.__class__ = replacement
    module._actzip = Binding(conversion, path)
    conversion.converted[path] = module._get_name()


def _replacement(cls: type[nn.Module], module: nn.Module) -> type[nn.Module] | None:
    if cls in LAYERS:
        return LAYERS[cls]
    if issubclass(cls, CompressedLayer):
        return cls  # created as a layer of actzip.nn; it only gets its binding
    if parametrize.is_parametrized(module) and cls.__bases__[0] in LAYERS:
        return rebased(cls, LAYERS[cls.__bases__[0]])
    if cls.__module__ == "transformers.activations":
        from .nn import transformers
        return transformers.replacement(module)
    return None


#: Classes of parametrized modules that rebased() has made, with the classes that they were made from.
_made_from: weakref.WeakKeyDictionary[type[nn.Module], type[nn.Module]] = weakref.WeakKeyDictionary()


def rebased(cls: type[nn.Module], base: type[nn.Module]) -> type[nn.Module]:
    """Returns ``cls``, the class that torch made for one parametrized module, with another base class."""
    before = _made_from.get(cls)
    if before is not None and before.__bases__ == (base,) and vars(before).keys() == vars(cls).keys():
        return before  # the same parametrizations as then
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    made = type(cls)(cls.__name__, (base,), own)
    _made_from[made] = cls
    return made


def restore(model: nn.Module) -> nn.Module:
    """Undoes :func:`convert` in place, and returns ``model``. Weights, buffers and pending backwards are unaffected."""
    originals = {ours: theirs for theirs, ours in LAYERS.items()}
    if "actzip.nn.transformers" in sys.modules:
        originals |= sys.modules["actzip.nn.transformers"].ORIGINALS
    for module in model.modules():
        _remove_hooks(module)
        if not isinstance(module, CompressedLayer):
            continue
        module.__dict__.pop("_actzip", None)
        cls = type(module)
        if cls in originals:
            module.__class__ = originals[cls]
        elif cls in made_from and not parametrize.is_parametrized(module):
            module.__class__ = made_from[cls]
        elif parametrize.is_parametrized(module) and cls.__bases__[0] in originals:
            module.__class__ = rebased(cls, originals[cls.__bases__[0]])
    return model


def _remove_hooks(module: nn.Module) -> None:
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key in [key for key, hook in hooks.items() if isinstance(hook, (StepHook, StepEndHook))]:
            del hooks[key]
            module._forward_hooks_always_called.pop(key, None)


def _bindings(model: nn.Module) -> Iterator[Binding]:
    for module in model.modules():
        binding = module.__dict__.get("_actzip")
        if binding is not None and binding.conversion is not None:
            yield binding


class Converted:
    """A converted model's session, report and ``restore()``; made by :func:`converted`. Prints as a list of layers."""

    def __init__(self, model: nn.Module, conversion: Conversion) -> None:
        self._model, self.conversion = model, conversion

    @property
    def session(self) -> Session:
        """The session of the layers. Enter it around forward to compress also what is not a layer."""
        return self.conversion.session

    def report(self) -> Report:
        """Returns what the last forward kept, by site."""
        return self.session.report()

    def restore(self) -> nn.Module:
        """Puts torch's own layers back: :func:`restore`."""
        return restore(self._model)

    def __str__(self) -> str:
        return str(self.conversion)

    def __repr__(self) -> str:
        parts = ", ".join([type(self._model).__name__, *self.session._unusual_options()])
        return (f"<actzip.converted({parts}): {len(self.conversion.converted)} layers converted, "
                f"{len(self.conversion.left)} left; {self.session._last_step()}>")


def converted(model: nn.Module) -> Converted:
    """Returns the session, the report and ``restore()`` of a converted model.

    For a part of a converted model, session and report are those of the whole model; ``restore()`` restores only the
    part. Raises ValueError if nothing of the model is converted.

    >>> import torch, actzip
    >>> model = actzip.convert(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), bits=4)
    >>> actzip.converted(model)
    <actzip.converted(Sequential, bits=4): 2 layers converted, 0 left; nothing kept yet>
    >>> actzip.converted(model).restore()[0]
    Linear(in_features=64, out_features=64, bias=True)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"converted: a {type(model).__name__} was given (allowed: a model that actzip.convert(model) "
                        "has converted)")
    for binding in _bindings(model):
        return Converted(model, binding.conversion)
    for hook in model._forward_pre_hooks.values():
        if isinstance(hook, StepHook):  # there was no layer to convert
            return Converted(model, hook.conversion)
    raise ValueError(f"converted: no layer of this {type(model).__name__} is converted "
                     "(call actzip.convert(model) first)")


def conversion_of(model: nn.Module) -> Conversion:
    """Returns what :func:`convert` did with ``model``: ``converted(model).conversion``."""
    return converted(model).conversion


def session_of(model: nn.Module) -> Session | CompiledSession:
    """Returns the session of a converted model, or of a model returned by ``actzip.compile``."""
    return session_of_compiled(model) or converted(model).session
