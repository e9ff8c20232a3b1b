"""Shows how the codec ``dual`` divides activations: into a low part and a high part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from . import _C
from .session import Session
from .unchanged import unchanged
from .verify import forward_of


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a tensor."""

    low: torch.Tensor  #: for each element the average of its block, as it is kept
    high: torch.Tensor  #: the tensor minus the low part, before it is encoded
    restored: torch.Tensor  #: what backward gets, in the tensor's type
    low_bytes: int  #: bytes of the averages
    high_bytes: int  #: bytes of the codes and their statistics


@dataclasses.dataclass(frozen=True)
class SiteParts:
    """Energies and sizes of the parts of what one site keeps."""

    site: str
    codec: str
    shape: tuple[int, ...]
    dtype: str
    energy: float  #: sum of squares of the tensor
    low_energy: float
    high_energy: float
    low_bytes: int
    high_bytes: int
    squared_error: float  #: sum of squared errors of what backward gets


def parts(tensor: torch.Tensor, codec: str = "dual:2", *, seed: int = 0) -> Parts:
    """Encodes a tensor by ``dual``, with the size of its maps, and returns the parts.

    Args:
        tensor: a feature map.
        codec: a spec of ``dual``, without the size.
        seed: seed of the rounding.

    >>> import torch, actzip
    >>> image = torch.linspace(0, 1, 16).expand(1, 3, 16, 16).contiguous()
    >>> halves = actzip.parts(image, "dual:4")
    >>> bool(halves.low.square().sum() > 10 * halves.high.square().sum())
    True
    >>> torch.allclose(halves.low + halves.high, image)
    True
    """
    return Parts(*_C.take_apart(tensor, codec, seed))


def site_parts(
    model: torch.nn.Module, batch: Any, *, preset: str = "division", seed: int = 0,
    look: Callable[[str, torch.Tensor, Parts], None] | None = None, **options: Any,
) -> tuple[SiteParts, ...]:
    """Returns the parts of everything that a forward of ``model`` keeps by ``dual``, in the order in which it is saved.

    Runs forward twice; the first run finds out which sites keep bytes themselves, rather than share them. Afterwards,
    gradients, buffers, training flags and random states are what they were before.

    Args:
        model: the model to run.
        batch: as for :func:`actzip.verify`.
        preset: a preset that uses ``dual``.
        seed: seed of the session, and of the parts.
        look: called for each site with its name, its tensor and the parts. These are not kept afterwards.
        options: other options of :class:`actzip.Session`.

    >>> import torch, actzip
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    >>> [site.site for site in actzip.site_parts(model, torch.randn(4, 3, 16, 16))]
    ['0: convolution.input', '1: native_batch_norm.input']
    """
    forward = batch if callable(batch) else forward_of(model, batch)
    session = Session(model, preset=preset, seed=seed, **options)
    found: dict[str, SiteParts] = {}
    keepers: set[str] = set()  # sites that keep bytes themselves

    def pack(tensor: torch.Tensor) -> Any:
        packed = session._pack(tensor)
        site, codec = _C.kept_as(packed)
        if site in keepers and codec.startswith("dual:"):
            with torch.no_grad():
                halves = parts(tensor, codec, seed=seed)
                found[site] = _figures(site, codec, tensor, halves)
                if look is not None:
                    look(site, tensor, halves)
        return packed

    with unchanged(model), torch.enable_grad():
        with session:
            forward()
        keepers.update(site.site for site in session.report().sites if site.codec.startswith("dual:"))
        with session, saved_tensors_hooks(pack, session._unpack):
            forward()
    return tuple(found.values())


def _figures(site: str, codec: str, tensor: torch.Tensor, halves: Parts) -> SiteParts:
    return SiteParts(site, codec, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), _energy(tensor),
                     _energy(halves.low), _energy(halves.high), halves.low_bytes, halves.high_bytes,
                     _energy(halves.restored.double() - tensor.double()))


def _energy(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().sum())
