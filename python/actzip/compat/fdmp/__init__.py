"""DIVISION's names on actzip: its conversion, its layers, and what trainers import from its folder ``fdmp``.

>>> import torch
>>> from actzip.compat import fdmp
>>> model = fdmp.FDMP_Module(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten()))
Sequential(
  (0): FDMP_Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
  (1): QReLU()
  (2): Flatten(start_dim=1, end_dim=-1)
)
"""

from ..roots import session_of
from . import utils
from .conf import QuantizationConfig, config, config_init
from .layers import (
    FDMP_BatchNorm1d,
    FDMP_BatchNorm2d,
    FDMP_BatchNorm3d,
    FDMP_Conv1d,
    FDMP_Conv2d,
    FDMP_Conv3d,
    FDMP_ConvTranspose1d,
    FDMP_ConvTranspose2d,
    FDMP_ConvTranspose3d,
    FDMP_Linear,
    QAvgPool2d,
    QDropout,
    QMaxPool2d,
    QReLU,
)
from .module import FDMP_Module

__all__ = [
    "FDMP_BatchNorm1d", "FDMP_BatchNorm2d", "FDMP_BatchNorm3d", "FDMP_Conv1d", "FDMP_Conv2d", "FDMP_Conv3d",
    "FDMP_ConvTranspose1d", "FDMP_ConvTranspose2d", "FDMP_ConvTranspose3d", "FDMP_Linear", "FDMP_Module", "QAvgPool2d",
    "QDropout", "QMaxPool2d", "QReLU", "QuantizationConfig", "config", "config_init", "session_of", "utils",
]
