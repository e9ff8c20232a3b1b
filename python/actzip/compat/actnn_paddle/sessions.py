"""Sessions for the port's configuration."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from ...paddle import Session
from .conf import config
from .qscheme import QScheme

#: Fields that do not affect a session.
_READ_LATER = ("training", "cudnn_benchmark_conv2d", "empty_cache_threshold", "pipeline_threshold", "debug_memory_model",
               "debug_speed", "use_gradient")
#: For how many configurations sessions are kept. Programs switch between a few, to compare them.
_REMEMBERED = 4


class ConfiguredSession(Session):
    """A session whose rules come from the configuration, so it does not warn if they match nothing."""

    _looks_back = False


class SessionsByConfig:
    """One session for each configuration. Returning to a configuration returns to what its session has learned."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Session] = OrderedDict()

    def __deepcopy__(self, _: dict) -> SessionsByConfig:
        """A copied layer has its own sessions."""
        return SessionsByConfig()

    def now(self, make: Callable[..., Session], groups: Mapping[str, int]) -> Session:
        key = config.snapshot(without=_READ_LATER)
        if key not in self._known:
            self._known[key] = make(**_options(groups))
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return self._known[key]


def _options(groups: Mapping[str, int]) -> dict[str, Any]:
    options = config.session_options(groups, QScheme.num_samples)
    if options.pop("use_gradient", False):
        options.pop("num_samples")
        warnings.warn("actnn.config.use_gradient: gradients of samples are not known on Paddle; bits of samples go by "
                      "their size", stacklevel=4)
    return options
