"""ActNN-PaddlePaddle's names on actzip: ``set_optimization_level``, ``QModule``, layers, and whatever scripts import.

>>> import paddle
>>> from actzip.compat import actnn_paddle as actnn
>>> actnn.set_optimization_level("L2")
>>> model = actnn.QModule(paddle.nn.Sequential(paddle.nn.Linear(64, 64), paddle.nn.ReLU()))
>>> print(model)
QModule(
  (model): Sequential(
    (0): QLinear(in_features=64, out_features=64, dtype=float32)
    (1): QReLU()
  )
)
>>> actnn.set_optimization_level("L3")
"""

from . import dataloader, utils
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
from .module import QModule, session_of
from .qscheme import QBNScheme, QScheme
from .utils import compute_tensor_bytes, exp_recorder, get_memory_usage

# Names from the library's documentation.
qconv1d, qconv2d, qconv3d = QConv1d, QConv2d, QConv3d
qconv_transpose1d, qconv_transpose2d, qconv_transpose3d = QConvTranspose1d, QConvTranspose2d, QConvTranspose3d
qbatch_norm1d, qbatch_norm2d, qbatch_norm3d, qsync_batch_norm = QBatchNorm1d, QBatchNorm2d, QBatchNorm3d, QSyncBatchNorm
qlinear, qrelu, qdropout, qmax_pool2d, qavg_pool2d = QLinear, QReLU, QDropout, QMaxPool2d, QAvgPool2d

__all__ = [
    "DataLoader", "QAvgPool2d", "QBNScheme", "QBatchNorm1d", "QBatchNorm2d", "QBatchNorm3d", "QConv1d", "QConv2d",
    "QConv3d", "QConvTranspose1d", "QConvTranspose2d", "QConvTranspose3d", "QDropout", "QLinear", "QMaxPool2d", "QModule",
    "QReLU", "QScheme", "QSyncBatchNorm", "compute_tensor_bytes", "config", "dataloader", "exp_recorder",
    "get_memory_usage", "qavg_pool2d", "qbatch_norm1d", "qbatch_norm2d", "qbatch_norm3d", "qconv1d", "qconv2d", "qconv3d",
    "qconv_transpose1d", "qconv_transpose2d", "qconv_transpose3d", "qdropout", "qlinear", "qmax_pool2d", "qrelu",
    "qsync_batch_norm", "session_of", "set_optimization_level", "utils",
]
