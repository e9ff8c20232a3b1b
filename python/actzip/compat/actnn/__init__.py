"""ActNN's names on actzip: ``set_optimization_level``, ``QModule``, the layers, and whatever else scripts import.

>>> import torch
>>> from actzip.compat import actnn
>>> actnn.set_optimization_level("L2")
>>> model = actnn.QModule(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()))
>>> print(model)
QModule(
  (model): Sequential(
    (0): QLinear(in_features=64, out_features=64, bias=True)
    (1): QReLU()
  )
)
>>> actnn.set_optimization_level("L3")
"""

from ..roots import session_of
from . import dataloader, ops
from .conf import config, set_optimization_level
from .dataloader import DataLoader
from .layers import (
    QAvgPool2d,
    QBatchNorm1d,
    QBatchNorm2d,
    QBatchNorm3d,
    QConv1d,
    QConv2d,
    QConv3d,
    QConvTranspose1d,
    QConvTranspose2d,
    QConvTranspose3d,
    QDropout,
    QLinear,
    QMaxPool2d,
    QReLU,
    QSyncBatchNorm,
)
from .module import QModule
from .qbnscheme import QBNScheme
from .qscheme import QScheme
from .utils import compute_tensor_bytes, exp_recorder, get_memory_usage

__all__ = [
    "DataLoader", "QAvgPool2d", "QBNScheme", "QBatchNorm1d", "QBatchNorm2d", "QBatchNorm3d", "QConv1d", "QConv2d",
    "QConv3d", "QConvTranspose1d", "QConvTranspose2d", "QConvTranspose3d", "QDropout", "QLinear", "QMaxPool2d", "QModule",
    "QReLU", "QScheme", "QSyncBatchNorm", "compute_tensor_bytes", "config", "dataloader", "exp_recorder",
    "get_memory_usage", "ops", "session_of", "set_optimization_level",
]
