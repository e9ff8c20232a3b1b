"""Backward operators that read encoded tensors in a scope: their gradients are those of the decoded values.

Under a dispatch mode, torch's own operators compute a gradient from decoded values, and sessions of one seed make the
same bytes. So each case is compared with itself under a mode.
"""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from gpu import needs_gpu
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import actzip

pytestmark = needs_gpu

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def images(dtype, channels=64):
    torch.manual_seed(0)
    x = 2 * torch.randn(8, channels, 14, 14, device="cuda") + torch.arange(channels, device="cuda").view(-1, 1, 1) / 8
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def rows(dtype):
    torch.manual_seed(0)
    return torch.randn(512, 256, device="cuda", dtype=dtype)


def norm(module):
    """Makes a batch norm with random weights, in f32 as under autocast."""
    torch.manual_seed(1)
    module = module.cuda()
    if module.affine:
        nn.init.normal_(module.weight, 1.0, 0.3)
        nn.init.normal_(module.bias, 0.0, 0.3)
    return module


CASES = {
    "relu": (images, torch.relu, "masked_gradient"),
    "relu_": (images, F.relu_, "masked_gradient"),
    "relu before a convolution": (images, lambda x: F.conv2d(torch.relu(x), torch.ones_like(x)[:4, :, :1, :1]),
                                  "masked_gradient"),
    "dropout": (images, lambda x: F.dropout(x, 0.3), "masked_gradient"),
    "gelu": (rows, F.gelu, "GradientTarget"),
    "gelu, tanh": (rows, lambda x: F.gelu(x, approximate="tanh"), "GradientTarget"),
    "silu": (rows, F.silu, "GradientTarget"),
    "product": (rows, lambda x: x * torch.sin(x), "OtherFactor"),
    "square": (rows, lambda x: x.pow(2), "OtherFactor"),
    "root mean square": (rows, lambda x: x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x),
                         "OtherFactor"),
    "batch norm of images": (images, norm(nn.BatchNorm2d(64)) if torch.cuda.is_available() else None, "GradientSums"),
    "batch norm of rows": (rows, norm(nn.BatchNorm1d(256)) if torch.cuda.is_available() else None, "GradientSums"),
    "batch norm without weight": (rows, norm(nn.BatchNorm1d(256, affine=False)) if torch.cuda.is_available() else None,
                                  "GradientSums"),
}
BY_TORCH = {
    "threshold": (images, lambda x: F.threshold(x, 0.5, 0.0)),
    "product with a row": (rows, lambda x: x * torch.sin(x[:1])),
    "product with another type": (rows, lambda x: x * torch.sin(x.double())),
    "cube": (rows, lambda x: x.pow(3)),
    "square of another type": (rows, lambda x: x.double().pow(2)),
    "batch norm of planes": (lambda dtype: images(dtype).contiguous(), norm(nn.BatchNorm2d(64))
                             if torch.cuda.is_available() else None),
    "batch norm of 60 channels": (lambda dtype: images(dtype, 60), norm(nn.BatchNorm2d(60))
                                  if torch.cuda.is_available() else None),
}


class Passing(TorchDispatchMode):
    """A dispatch mode that changes nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def gradients(make, function, dtype, *, by_torch=False, retain=False):
    x = make(dtype).requires_grad_()
    inputs = [x, *(function.parameters() if isinstance(function, nn.Module) else ())]
    torch.manual_seed(5)
    with actzip.Session(seed=3, min_elems=0, guard=False):
        y = function(x + 0)  # a leaf would count as a parameter
    generator = torch.Generator("cuda").manual_seed(2)
    above = torch.empty_like(y).copy_(torch.randn(y.shape, device="cuda", generator=generator))
    with Passing() if by_torch else contextlib.nullcontext():
        found = torch.autograd.grad(y, inputs, above, retain_graph=retain)
    if retain:
        again = torch.autograd.grad(y, inputs, above)
        for a, b in zip(found, again, strict=True):
            assert torch.equal(a, b)
    return [gradient.detach() for gradient in found]


def kernels(run):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    return " ".join(event.key for event in profile.key_averages())


def expect_close(found, wanted, dtype):
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}[dtype]
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        scale = b.double().square().mean().sqrt().item()
        torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_decoded_values(case, dtype):
    make, function, kernel = CASES[case]
    gradients(make, function, dtype)
    assert kernel in kernels(lambda: gradients(make, function, dtype, retain=True))
    found, wanted = gradients(make, function, dtype), gradients(make, function, dtype, by_torch=True)
    expect_close(found, wanted, dtype)
    if case in ("relu", "relu_", "product", "square"):
        for a, b in zip(found, wanted, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("case", BY_TORCH)
def test_what_kernels_do_not_take_is_decoded(case):
    make, function = BY_TORCH[case]
    expect_close(gradients(make, function, torch.float32), gradients(make, function, torch.float32, by_torch=True),
                 torch.float32)


def test_a_gradient_of_another_layout_is_brought_into_order():
    x = images(torch.bfloat16).requires_grad_()
    with actzip.Session(min_elems=0):
        y = torch.relu(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones(1, device="cuda", dtype=y.dtype).expand(y.shape))
    assert torch.equal(gradient, (x > 0).to(x))


def test_an_infinite_gradient_goes_the_way_it_goes_in_torch():
    x = rows(torch.float16).requires_grad_()
    above = torch.full_like(x, torch.inf)
    for function in (torch.relu, lambda x: F.dropout(x, 0.5)):
        results = []
        for scope in (actzip.Session(min_elems=0), contextlib.nullcontext()):
            torch.manual_seed(0)
            with scope:
                y = function(x)
            results.append(torch.autograd.grad(y, x, above)[0])
        assert torch.equal(results[0].nan_to_num(-1.0), results[1].nan_to_num(-1.0))


def test_who_looks_at_what_was_saved_gets_values():
    x = rows(torch.float32).requires_grad_()
    with actzip.Session(min_elems=0):
        y = F.gelu(x + 0)
    assert y.grad_fn._saved_self.data_ptr() != 0
    seen = []
    y.register_hook(lambda gradient: seen.append(y.grad_fn._saved_self.square().sum().item()))
    y.sum().backward()
    assert seen and seen[0] > 0


def test_a_mode_sees_values():
    seen = []

    class Looking(Passing):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.extend((func.__name__, value.data_ptr() != 0) for value in args if isinstance(value, torch.Tensor))
            return super().__torch_dispatch__(func, types, args, kwargs)

    x = rows(torch.float32).requires_grad_()
    with actzip.Session(min_elems=0):
        y = F.gelu(x + 0).sum()
    with Looking():
        y.backward()
    assert any(name.startswith("gelu_backward") for name, _ in seen) and all(has_memory for _, has_memory in seen)


def test_a_modified_tensor_is_noticed():
    x = rows(torch.float32).requires_grad_()
    with actzip.Session(min_elems=0):
        y = torch.relu(x * 2)
    with torch.no_grad():
        y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_less_memory_is_needed_in_backward():
    """Neither a mask nor a norm's input is ever decoded."""
    model = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU()).cuda()
    x = torch.randn(64, 64, 56, 56, device="cuda").contiguous(memory_format=torch.channels_last).requires_grad_()
    with actzip.Session(model):
        y = model(x).sum()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y.backward()
    size = x.numel() * x.element_size()
    assert torch.cuda.max_memory_allocated() - before < 2.5 * size  # two gradients at a time, and what is small
