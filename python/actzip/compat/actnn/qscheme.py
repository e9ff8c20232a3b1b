"""The class on which ActNN's programs set samples, and whose objects tell the bits of layers."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .conf import bits_of, config


class _Kind(type):
    """Provides ActNN's class attributes, without keeping layers alive."""

    def __init__(cls, *arguments: Any) -> None:
        super().__init__(*arguments)
        cls._made = 0
        cls._living: list[weakref.ref[QScheme]] = []
        cls._previous: weakref.ref[QScheme] | None = None

    @property
    def layers(cls) -> list[QScheme]:
        """The schemes of all layers that still exist, in the order of their creation."""
        return [scheme for scheme in (reference() for reference in cls._living) if scheme is not None]

    @property
    def num_layers(cls) -> int:
        return len(cls.layers)

    @property
    def prev_layer(cls) -> QScheme | None:
        """The scheme of the layer whose forward ran last."""
        return cls._previous and cls._previous()


class QScheme(metaclass=_Kind):
    """Programs set attributes of the class, for all layers, and read those of an object, ``layer.scheme``.

    With ``config.use_gradient``, samples get bits according to their gradients when they were last seen.
    ``num_samples`` is the size of the training set, and ``batch`` holds the indices of the samples in the coming step.
    """

    num_samples = 1
    batch: Any = None
    update_scale = True  #: whether each step updates the statistics of its samples

    def __init__(self, layer: torch.nn.Module | None = None, group: int = 0, num_locations: int = 1,
                 depthwise_groups: int = 1) -> None:
        self._layer = None if layer is None else weakref.ref(layer)
        self.group, self.initial_bits = group, config.initial_bits
        self.num_locations, self.depthwise_groups = num_locations, depthwise_groups
        kind = type(self)
        self.name = f"layer_{kind._made}"
        kind._made += 1
        kind._living = [weakref.ref(scheme) for scheme in (*kind.layers, self)]

    @property
    def layer(self) -> torch.nn.Module | None:
        return self._layer and self._layer()

    @property
    def bits(self) -> float:
        """The average bits of the layer in its last step; before that, the bits that ``config`` gives it."""
        found = _bits_in_report(self.layer)
        return bits_of(self.group) if found is None else found

    @property
    def scales(self) -> torch.Tensor:
        """What is known of the gradients of samples, by index; 0 for those that are unknown.

        In actzip it is the same for all layers. Steps in which nothing is compressed contribute nothing.
        """
        from ..roots import roots  # here, because the import would be circular

        sessions = [session for root in roots() if self.layer is None or root.has(self.layer)
                    for session in reversed(root.sessions())]
        known = (session._core.sample_factors() for session in sessions)
        factors = next((found for found in known if found is not None), None)
        if factors is None:
            return torch.zeros(QScheme.num_samples if config.use_gradient else 1)
        return factors.clamp(min=0).cpu()

    def _runs(self) -> None:
        """Runs when the layer's forward begins."""
        type(self)._previous = weakref.ref(self)

    def __deepcopy__(self, _: dict) -> None:
        return None  # a copy of the layer creates its own

    def __reduce__(self) -> tuple:
        return type(None), ()

    @staticmethod
    def allocate_perlayer() -> None:
        """Makes a new plan for all layers from what is known. Steps also do that by themselves."""
        from ..roots import roots  # here, because the import would be circular

        for session in (root.session for root in roots()):
            if session._core.adapts():
                session._core.learn([])


def _bits_in_report(layer: torch.nn.Module | None) -> float | None:
    binding = getattr(layer, "_actzip", None)
    if binding is None or binding.conversion is None:
        return None
    sites = {site.site: site for site in binding.conversion.session.report().sites}
    own = next((site for site in sites.values() if site.module == binding.name and site.slot == "input"), None)
    if own is not None and own.kept_by:
        own = sites.get(own.kept_by)
    if own is None:
        return None
    if own.sample_bits is not None:
        return own.sample_bits.mean
    family, _, rest = own.codec.partition(":")
    return float(rest.split(":")[0]) if family in ("rotated", "affine", "dual") else 32.0
