"""How a module finds its layer in the extension, and with it its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import _C

if TYPE_CHECKING:
    from ..convert import Conversion


class Binding:
    """A layer's name and session. Copies of a module share it. Unpickling makes a new session with the same options."""

    __slots__ = ("conversion", "layer", "name")

    def __init__(self, conversion: Conversion | None, name: str) -> None:
        self.conversion, self.name = conversion, name
        if conversion is None:
            self.layer = _C.Layer(name, None, derive=True, pipeline_threshold=0)
        else:
            self.layer = conversion.make_layer(name)

    def __copy__(self) -> Binding:
        return self

    def __deepcopy__(self, _: dict) -> Binding:
        return self

    def __reduce__(self) -> tuple:
        return Binding, (self.conversion, self.name)


class CompressedLayer:
    """What all layers of :mod:`actzip.nn` have in common. It must come before torch's class among the bases."""

    _actzip: Binding | None = None

    def _layer(self) -> _C.Layer:
        """Returns the layer. One without a session, made here if need be, uses that of the scope or the default one."""
        binding = self._actzip
        if binding is None:
            binding = self._actzip = Binding(None, "")
        return binding.layer

    def _get_name(self) -> str:
        return f"actzip.{type(self).__name__}"


#: While torch.compile traces, layers call torch's own operators.
is_compiling = torch.compiler.is_compiling
