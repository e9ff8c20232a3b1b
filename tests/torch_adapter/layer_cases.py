"""Every layer of actzip.nn, with the shapes and options that take different code paths."""

import copy

import actzip
import torch
from torch import nn

#: A layer of torch and the shape of its input; None for an embedding, whose input is indices.
CASES = {
    "conv1d groups": (lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), (2, 4, 9)),
    "conv2d stride dilation": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1, dilation=2), (2, 3, 9, 9)),
    "conv2d no bias": (lambda: nn.Conv2d(3, 4, 1, bias=False), (2, 3, 5, 5)),
    "conv2d same": (lambda: nn.Conv2d(3, 4, 3, padding="same", dilation=2), (2, 3, 9, 9)),
    "conv2d same, even kernel": (lambda: nn.Conv2d(3, 4, 4, padding="same"), (2, 3, 9, 9)),
    "conv2d valid": (lambda: nn.Conv2d(3, 4, 3, padding="valid"), (2, 3, 9, 9)),
    "conv2d reflect": (lambda: nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode="reflect"), (2, 3, 9, 9)),
    "conv2d replicate": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="replicate"), (2, 3, 9, 9)),
    "conv2d circular": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
    "transposed conv1d": (lambda: nn.ConvTranspose1d(4, 4, 3, stride=2, output_padding=1), (2, 4, 5)),
    "transposed conv2d": (lambda: nn.ConvTranspose2d(4, 4, 3, stride=2, groups=2), (2, 4, 5, 5)),
    "transposed conv3d": (lambda: nn.ConvTranspose3d(2, 2, 2), (2, 2, 3, 3, 3)),
    "linear": (lambda: nn.Linear(5, 7), (3, 5)),
    "linear 3-D, no bias": (lambda: nn.Linear(5, 7, bias=False), (2, 3, 5)),
    "linear of a vector": (lambda: nn.Linear(5, 7), (5,)),
    "embedding": (lambda: nn.Embedding(10, 4), None),
    "embedding with padding": (lambda: nn.Embedding(10, 4, padding_idx=3, scale_grad_by_freq=True), None),
    "batch norm 1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "batch norm 1d, rows": (lambda: nn.BatchNorm1d(4), (6, 4, 3)),
    "batch norm 2d, no affine": (lambda: nn.BatchNorm2d(4, affine=False), (3, 4, 3, 3)),
    "batch norm 2d, no statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 3, 3)),
    "batch norm 2d, evaluation": (lambda: nn.BatchNorm2d(4).eval(), (3, 4, 3, 3)),
    "batch norm 3d, cumulative": (lambda: nn.BatchNorm3d(2, momentum=None), (3, 2, 2, 3, 3)),
    "sync batch norm, alone": (lambda: nn.SyncBatchNorm(4), (3, 4, 3, 3)),
    "relu": (nn.ReLU, (4, 5)),
    "leaky relu": (lambda: nn.LeakyReLU(0.2), (4, 5)),
    "gelu": (nn.GELU, (4, 5)),
    "gelu tanh": (lambda: nn.GELU("tanh"), (4, 5)),
    "silu": (nn.SiLU, (4, 5)),
    "dropout": (lambda: nn.Dropout(0.3), (8, 9)),
    "max pool 1d": (lambda: nn.MaxPool1d(3, 2, 1), (2, 3, 9)),
    "max pool 2d": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 9, 9)),
    "max pool 2d, dilation": (lambda: nn.MaxPool2d((2, 3), ceil_mode=True, dilation=(1, 2)), (2, 3, 9, 9)),
    "max pool 2d, window larger than the image": (lambda: nn.MaxPool2d(3, 1, 1), (2, 2, 2, 2)),
    "max pool 2d, one image": (lambda: nn.MaxPool2d(2), (3, 6, 6)),
    "max pool 3d": (lambda: nn.MaxPool3d(2, 1, 1), (1, 2, 4, 4, 4)),
    "avg pool 1d": (lambda: nn.AvgPool1d(2), (2, 3, 8)),
    "avg pool 2d": (lambda: nn.AvgPool2d(2, padding=1, count_include_pad=False), (2, 3, 8, 8)),
    "avg pool 3d": (lambda: nn.AvgPool3d(2, divisor_override=3), (2, 3, 4, 4, 4)),
    "layer norm": (lambda: nn.LayerNorm(6), (3, 4, 6)),
    "layer norm of planes, no bias": (lambda: nn.LayerNorm((4, 6), bias=False), (3, 4, 6)),
    "layer norm, no affine": (lambda: nn.LayerNorm(6, elementwise_affine=False), (3, 6)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (3, 4, 5)),
    "group norm, no affine": (lambda: nn.GroupNorm(2, 4, affine=False), (3, 4, 5, 5)),
    "rms norm": (lambda: nn.RMSNorm(6), (3, 4, 6)),
    "rms norm of planes, no affine": (lambda: nn.RMSNorm((4, 6), elementwise_affine=False), (3, 4, 6)),
}


def pair(name, session=None, dtype=torch.float64, **options):
    """Returns torch's layer, ours with the same weights, and an input."""
    make, shape = CASES[name]
    theirs = make().to(dtype)
    ours = actzip.convert(copy.deepcopy(theirs), session, **options)
    if shape is None:
        return theirs, ours, torch.randint(10, (4, 6))
    return theirs, ours, torch.randn(shape, dtype=dtype, requires_grad=True)


def differentiable(layer, x):
    """The input and the parameters, as far as they require gradients."""
    return [t for t in (x, *layer.parameters()) if t.requires_grad]


def run(layer, x, seed=1):
    """Returns the result, and the gradients of a weighted sum of it."""
    torch.manual_seed(seed)
    result = layer(torch.cat([x]))  # a leaf that requires a gradient counts as a parameter, and is not compressed
    weights = torch.linspace(-1, 1, result.numel(), dtype=result.dtype, device=result.device).view(result.shape)
    return result, torch.autograd.grad(result, differentiable(layer, x), weights)
