"""The levels of ActNN and GACT, as the core lists them; each is a preset of :class:`actzip.Session`."""

from __future__ import annotations

import dataclasses
import warnings

from . import _native


@dataclasses.dataclass(frozen=True)
class Level:
    """What a preset such as ``"actnn:L3"`` stands for."""

    name: str
    runs_as: str  #: itself, or what it is where nothing moves bytes
    to_host: bool  #: what it keeps goes to host memory, if ``offload`` says where
    reach: int  #: 0: values stay as they are; 1: inputs of convolutions and linear layers; 2: everything
    bits: float  #: fixed, or on average if it adapts; 0 where values stay as they are
    adapt: str
    autotune: bool  #: torch may try out which convolution is fastest
    empty_cache_below: float  #: torch gives memory back when less than this part of it is in use
    chunk_bytes: int  #: a convolution's backward is done in parts if it needs more; 0: never
    strategy: str


#: By name. docs/levels.md explains them.
LEVELS = {fields["name"]: Level(**fields) for fields in _native.levels()}

_warned: set[str] = set()


def chunk_bytes_of(preset: str) -> int:
    """From how many bytes on a convolution's backward is done in parts; 0: never."""
    level = LEVELS.get(preset)
    return level.chunk_bytes if level else 0


def warn_of_level(preset: str) -> None:
    """Without ``offload``: once for each level that runs without its host part."""
    level = LEVELS.get(preset)
    if level is None or not level.to_host or preset in _warned:
        return
    _warned.add(preset)
    warnings.warn(f"actzip: level '{level.name}' moves what is kept on a GPU to host memory, and here only if it is "
                  f"given offload='host', which was not run on a GPU yet: it runs as '{level.runs_as}'", stacklevel=4)
