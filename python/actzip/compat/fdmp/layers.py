"""DIVISION's layers: those of actzip, which keep maps in two parts: averages of blocks, and few bits for the rest."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch

from ... import nn as base
from .. import roots
from ..backward import AutotuneInBackward
from ..layer import Layer
from ..memory import empty_cache
from .conf import config, session_options

#: Fields that do not affect a session.
_READ_LATER = ("train", "cudnn_benchmark_conv2d", "empty_cache_threshold", "debug_memory_model", "debug_speed",
               "half_precision", "num_classes")


class _Division(roots.Library):
    def __init__(self) -> None:
        self._autotune = AutotuneInBackward(lambda: config.cudnn_benchmark_conv2d)

    def is_training(self) -> bool:
        return config.train

    def key(self) -> Hashable:
        return config.snapshot(without=_READ_LATER)

    def session_options(self, layers: Mapping[str, torch.nn.Module]) -> dict[str, Any]:
        return session_options()

    def pipeline_threshold(self) -> int:
        return int(config.pipeline_threshold or 0)

    def end(self, output: Any) -> None:
        self._autotune.watch(output)
        empty_cache(config.empty_cache_threshold)


class _Layer(Layer):
    library = _Division()


class FDMP_Conv1d(_Layer, base.Conv1d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_Conv2d(_Layer, base.Conv2d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_Conv3d(_Layer, base.Conv3d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_ConvTranspose1d(_Layer, base.ConvTranspose1d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_ConvTranspose2d(_Layer, base.ConvTranspose2d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_ConvTranspose3d(_Layer, base.ConvTranspose3d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_BatchNorm1d(_Layer, base.BatchNorm1d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_BatchNorm2d(_Layer, base.BatchNorm2d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_BatchNorm3d(_Layer, base.BatchNorm3d):  # noqa: N801  (DIVISION's name)
    pass


class FDMP_Linear(_Layer, base.Linear):  # noqa: N801  (DIVISION's name)
    pass


class QReLU(_Layer, base.ReLU):
    pass


class QDropout(_Layer, base.Dropout):
    pass


class QMaxPool2d(_Layer, base.MaxPool2d):
    pass


class QAvgPool2d(_Layer, base.AvgPool2d):
    pass


#: The layers that a model gets in place of torch's. Linear layers and average pools remain torch's, as in DIVISION.
CONVERTED = {
    torch.nn.Conv1d: FDMP_Conv1d, torch.nn.Conv2d: FDMP_Conv2d, torch.nn.Conv3d: FDMP_Conv3d,
    torch.nn.ConvTranspose1d: FDMP_ConvTranspose1d, torch.nn.ConvTranspose2d: FDMP_ConvTranspose2d,
    torch.nn.ConvTranspose3d: FDMP_ConvTranspose3d, torch.nn.ReLU: QReLU, torch.nn.Dropout: QDropout,
    torch.nn.MaxPool2d: QMaxPool2d,
}
NORMS = {torch.nn.BatchNorm1d: FDMP_BatchNorm1d, torch.nn.BatchNorm2d: FDMP_BatchNorm2d,
         torch.nn.BatchNorm3d: FDMP_BatchNorm3d}
