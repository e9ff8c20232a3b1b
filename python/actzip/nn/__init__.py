"""torch's layers, which compress by themselves what their backward needs.

Each class is a subclass of torch's, with the same arguments, parameters and state dict. :func:`actzip.convert` puts
them into a model. They also work by themselves, with the session of a scope or the default session. docs/layers.md says
what each keeps.

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
