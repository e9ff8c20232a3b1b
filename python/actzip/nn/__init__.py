"""torch's layers, with what backward needs kept compressed by the layers themselves.

Each class is a subclass of torch's: same arguments, parameters, state dict. :func:`actzip.convert` puts them into a model;
they work alone as well, in a scope or with the default session. docs/layers.md says what each keeps.

>>> import torch, actzip
>>> layer = actzip.nn.Linear(256, 64)
>>> isinstance(layer, torch.nn.Linear)
True
>>> layer(torch.randn(128, 256)).sum().backward()
>>> layer.weight.grad.shape
torch.Size([64, 256])
"""

from .binding import Binding, CompressedLayer
from .elementwise import GELU, Dropout, LeakyReLU, ReLU, SiLU
from .norms import (BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RMSNorm, SyncBatchNorm)
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d
from .products import (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Embedding, Linear)

__all__ = [
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding", "GELU", "GroupNorm", "LayerNorm",
    "LeakyReLU", "Linear", "MaxPool1d", "MaxPool2d", "MaxPool3d", "RMSNorm", "ReLU", "SiLU", "SyncBatchNorm",
]
