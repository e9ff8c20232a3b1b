"""What the layers of all libraries have in common."""

from __future__ import annotations

import inspect
from typing import Any

from ..nn.binding import CompressedLayer
from . import roots


def torchs(layer: type) -> type:
    """The layer of torch's that one of a library's stands for."""
    return next(cls for cls in layer.__mro__ if cls.__module__.startswith("torch.nn."))


def _positional(layer: type) -> int:
    """How many arguments torch's layer takes before device and dtype, which came after these libraries."""
    names = list(inspect.signature(torchs(layer)).parameters)
    return names.index("device") if "device" in names else len(names)


class Layer:
    """Stands before actzip's layer among the bases. Its last argument is ``group``, after those of torch's layer."""

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
        """The library's, and that of a class of the user's which is derived from such a layer."""
        own = type(self).__name__
        librarys = next(cls.__name__ for cls in type(self).__mro__ if cls.__module__.startswith(f"{__package__}."))
        return own if own == librarys else f"{librarys}[{own}]"
