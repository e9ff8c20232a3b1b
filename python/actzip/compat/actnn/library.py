"""Steps according to ActNN's configuration."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from ...session import Session
from ..backward import AutotuneInBackward
from ..memory import empty_cache
from ..roots import Library
from .conf import config, session_options
from .qscheme import QScheme

#: Fields that do not affect a session.
_READ_LATER = ("training", "cudnn_benchmark_conv2d", "empty_cache_threshold", "debug_memory_model", "debug_speed")


class ActNN(Library):
    def __init__(self) -> None:
        self._autotune = AutotuneInBackward(lambda: config.cudnn_benchmark_conv2d)

    def is_training(self) -> bool:
        return config.training

    def key(self) -> Hashable:
        return config.snapshot(without=_READ_LATER), QScheme.num_samples

    def session_options(self, layers: Mapping[str, torch.nn.Module]) -> dict[str, Any]:
        groups = {name: layer.group for name, layer in layers.items() if getattr(layer, "group", 0)}
        return session_options(groups, QScheme.num_samples)

    def pipeline_threshold(self) -> int:
        return int(config.pipeline_threshold or 0)

    def begin(self, session: Session) -> None:
        uses_samples = config.use_gradient and session.options["use_gradient"]
        if uses_samples and QScheme.batch is not None:
            session.samples(torch.as_tensor(QScheme.batch).cpu(), learn=QScheme.update_scale)

    def end(self, output: Any) -> None:
        self._autotune.watch(output)
        empty_cache(config.empty_cache_threshold)


LIBRARY = ActNN()
