"""What the layers of all libraries have in common."""

from __future__ import annotations

import inspect
from typing import Any

from ..nn.binding import CompressedLayer
from . import roots


def torchs(layer: type) -> type:
    """Returns torch's layer that a layer of a library replaces."""
    return next(cls for cls in layer.__mro__ if cls.__module__.startswith("torch.nn."))


def _positional(layer: type) -> int:
    """Returns how many arguments torch's layer has before device and dtype, which did not exist in these libraries."""
    names = list(inspect.signature(torchs(layer)).parameters)
    return names.index("device") if "device" in names else len(names)


class Layer:
    """The base of a library's layers, before actzip's layer. Its last argument is ``group``, after those of torch's."""

    library: roots.Library
    group = 0

    def __init__(self, *args: Any, group: int = 0, **options: Any) -> None:
        count, name = _positional(type(self)), type(self).__name__
        if len(args) == count + 1:
            *args, group = args
        elif len(args) > count + 1:
            raise TypeError(f"{name}: {len(args)} arguments by position (allowed: {count + 1} at most, the last of "
                            "them group; device and dtype by name)")
        if not isinstance(group, int) or group < 0:
            raise TypeError(f"{name}: group {group!r} (allowed: 0 or more)")
        super().__init__(*args, **options)
        self.group = group
        roots.watch()

    def forward(self, *args: Any, **options: Any) -> Any:
        torchs_own = super(CompressedLayer, self)
        return (super() if self.library.is_training() else torchs_own).forward(*args, **options)

    def _get_name(self) -> str:
        """Returns the library's name of the layer, with the user's class in brackets if that is derived from it."""
        own = type(self).__name__
        librarys = next(cls.__name__ for cls in type(self).__mro__ if cls.__module__.startswith(f"{__package__}."))
        return own if own == librarys else f"{librarys}[{own}]"
