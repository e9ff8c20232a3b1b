"""The levels of ActNN and GACT, as the core lists them. Each is a preset of :class:`actzip.Session`."""

from __future__ import annotations

import dataclasses
import warnings

from . import _native


@dataclasses.dataclass(frozen=True)
class Level:
    """What a preset such as ``"actnn:L3"`` stands for."""

    name: str
    runs_as: str  #: the level itself, or the one that runs in its place if nothing is offloaded
    to_host: bool  #: what it keeps goes to host memory
    reach: int  #: 0: compresses no values; 1: inputs of convolutions and linear layers; 2: everything
    bits: float  #: fixed, or the average if it adapts; 0 if it compresses no values
    adapt: str
    autotune: bool  #: torch may try out which convolution is fastest
    empty_cache_below: float  #: torch gives memory back when less than this part of it is in use
    chunk_bytes: int  #: a convolution runs backward in parts if it needs more than this; 0: never
    strategy: str


#: By name. docs/levels.md explains them.
LEVELS = {fields["name"]: Level(**fields) for fields in _native.levels()}

_warned: set[str] = set()


def chunk_bytes_of(preset: str) -> int:
    """Returns from how many bytes on a convolution runs backward in parts; 0: never."""
    level = LEVELS.get(preset)
    return level.chunk_bytes if level else 0


def warn_of_level(preset: str, why_not: str) -> None:
    """Warns, once for each level, that a level which uses host memory moves nothing here. ``why_not`` is empty if it
    does."""
    level = LEVELS.get(preset)
    if level is None or not level.to_host or not why_not or preset in _warned:
        return
    _warned.add(preset)
    warnings.warn(f"actzip: level '{level.name}' moves what is kept on a GPU to host memory, and {why_not}: it runs as "
                  f"'{level.runs_as}'", stacklevel=4)
