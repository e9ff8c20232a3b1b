"""Subclasses of torch's layers. If a subclass computes as its layer does, the compressed layer can do that instead."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

#: The methods with which torch's layers compute. A subclass that overrides one of them computes something else.
_COMPUTING = ("__call__", "forward", "_conv_forward", "_output_padding", "_check_input_dim")

#: Classes that with_layer() has made, and the user's classes that they were made from.
made_from: weakref.WeakKeyDictionary[type[nn.Module], type[nn.Module]] = weakref.WeakKeyDictionary()


def layer_of(cls: type[nn.Module], layers: Collection[type[nn.Module]]) -> type[nn.Module] | None:
    """Returns which of torch's `layers` a class is, or is derived from; None if it is none."""
    return next((base for base in cls.__mro__ if base in layers), None)


def why_not(module: nn.Module, layer: type[nn.Module]) -> str:
    """Returns why the compressed version of `layer` cannot replace it in a module derived from it; '' if it can."""
    cls = type(module)
    if issubclass(cls, LazyModuleMixin):
        return f"{cls.__name__} has no parameters yet: let it run once before"
    for name in _COMPUTING:
        if getattr(cls, name, None) is not getattr(layer, name, None) or name in vars(module):
            return f"{cls.__name__} has a {name} of its own"
    return ""


def with_layer(cls: type[nn.Module], compressed: type[nn.Module]) -> type[nn.Module]:
    """Returns a subclass of `cls` in which `compressed` computes what torch's layer would compute."""
    for made in cls.__subclasses__():
        if made in made_from and made.__bases__ == (cls, compressed):
            return made
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__,
             "__reduce_ex__": _reduce}
    made = type(cls)(cls.__name__, (cls, compressed), names)
    made_from[made] = cls
    return made


def _reduce(module: nn.Module, _: Any) -> tuple:
    """Lets pickle and copy make the class again. By name they would find the user's class."""
    get_state = getattr(module, "__getstate__", None)  # all objects have it from Python 3.11 on
    return _new, type(module).__bases__, get_state() if get_state else module.__dict__


def _new(cls: type[nn.Module], compressed: type[nn.Module]) -> nn.Module:
    made = with_layer(cls, compressed)
    return made.__new__(made)


def rest_of(model: nn.Module, converted: int, left: Mapping[str, str]) -> str:
    """Returns a warning if no layer, or no more than half of them, was converted; otherwise ''."""
    if converted > len(left):
        return ""
    if not left:
        return (f"no layer of this {type(model).__name__} was converted: it has none that is known, and what its "
                "functions save is kept as torch keeps it (a scope compresses that: actzip.compress(model))")
    some = "; ".join(f"{path or '(model)'}: {why}" for path, why in list(left.items())[:3])
    more = f"; and {len(left) - 3} more" if len(left) > 3 else ""
    return (f"{len(left)} of {converted + len(left)} layers of this {type(model).__name__} stay as they are "
            f"({some}{more})")
