"""Batch norms and activations that encode, compute and differentiate in passes of their own. On CUDA only."""

import copy

import pytest
import torch
from gpu import needs_gpu
from torch import nn

import actzip

pytestmark = needs_gpu


def images(channels=64, dtype=torch.bfloat16, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(16, channels, 12, 12, device="cuda", dtype=dtype) + 0.5
    return x.contiguous(memory_format=torch.channels_last)


def names_below(tensor):
    """The names of all nodes behind a result."""
    found, waiting = [], [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        found.append(node.name())
        waiting += [next_node for next_node, _ in node.next_functions]
    return found


def block(channels=64, inplace=True):
    return nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(inplace=inplace),
        nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels),
    ).cuda().to(memory_format=torch.channels_last)


def gradients(model, x, steps=1):
    for _ in range(steps):
        model.zero_grad()
        given = x.clone().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=x.dtype != torch.float32):
            result = model(given)
        (result.float() * target(result)).mean().backward()
    return result.detach(), [given.grad, *(parameter.grad for parameter in model.parameters())]


def target(result):
    generator = torch.Generator("cuda").manual_seed(3)
    return torch.randn(result.shape, device="cuda", generator=generator)


def cosine(a, b):
    return torch.nn.functional.cosine_similarity(a.flatten().double(), b.flatten().double(), 0).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inplace", [True, False])
def test_gradients_are_torchs_but_for_the_noise(dtype, inplace):
    plain = block(inplace=inplace)
    ours = actzip.convert(copy.deepcopy(plain), bits=4)
    x = images(dtype=dtype)
    for _ in range(3):  # the second batch norm learns that a ReLU follows the first
        expected, wanted = gradients(plain, x)
        result, found = gradients(ours, x)
        torch.testing.assert_close(result, expected, rtol=2e-2, atol=5e-2)
        for a, b in zip(found, wanted, strict=True):
            assert cosine(a, b) > 0.97
    for a, b in zip(ours.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_errors_average_out():
    plain = block()
    ours = actzip.convert(copy.deepcopy(plain), bits=2)
    x = images()
    _, wanted = gradients(plain, x)
    sums = [torch.zeros_like(gradient, dtype=torch.float64) for gradient in wanted]
    single = 0.0
    for _ in range(64):
        found = gradients(ours, x)[1]
        single = cosine(found[1], wanted[1])
        for total, gradient in zip(sums, found, strict=True):
            total += gradient
    assert cosine(sums[1], wanted[1]) > max(0.995, single)


def test_a_relu_in_place_and_its_batch_norm_are_one_node():
    model = actzip.convert(block())
    with torch.autocast("cuda", torch.bfloat16):
        assert "ActzipBatchNormRelu" in names_below(model(images()))
    model = actzip.convert(block(inplace=False))
    with torch.autocast("cuda", torch.bfloat16):
        found = names_below(model(images()))
    assert "ActzipBatchNormRelu" not in found and "ActzipRelu" in found


def test_who_used_the_norm_before_gets_its_gradient_too():
    norm, relu = nn.BatchNorm2d(64).cuda(), nn.ReLU(inplace=True)
    x = images(dtype=torch.float32)

    def run(norm, relu):
        norm.zero_grad()
        given = x.clone().requires_grad_()
        y = norm(given)
        doubled = y * 2.0
        z = relu(y)
        (z * target(z) + doubled * target(z).flip(0)).sum().backward()
        return [given.grad, norm.weight.grad, norm.bias.grad]

    wanted = run(norm, relu)
    ours = actzip.convert(nn.ModuleList([copy.deepcopy(norm), copy.deepcopy(relu)]), bits=4)
    for a, b in zip(run(*ours), wanted, strict=True):
        assert cosine(a, b) > 0.97


def test_a_hook_between_the_two_is_heeded():
    norm, relu = actzip.convert(nn.ModuleList([nn.BatchNorm2d(64).cuda(), nn.ReLU(inplace=True)]), bits=4)
    y = norm(images(dtype=torch.float32).requires_grad_())
    seen = []
    y.register_hook(lambda gradient: seen.append(gradient.shape))
    relu(y).sum().backward()
    assert len(seen) == 1


def test_bytes_are_those_of_the_norms_and_the_masks():
    model = actzip.convert(block())
    x = images()
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x.requires_grad_()).sum()
        loss.backward()
    sites = {site.site: site for site in actzip.session_of(model).report().sites}
    elems = x.numel()
    assert sites["1: batch_norm.input"].bytes_after == pytest.approx(elems * 0.3906, rel=0.05)  # 3 bits: a convolution derives its input
    assert sites["2: relu.result"].bytes_after == pytest.approx(elems / 8, rel=0.05)
    assert sites["3: convolution.input"].bytes_after == 0


def test_a_whole_step_is_captured():
    model = actzip.convert(block())
    x = images().requires_grad_()

    def step():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = model(x).float().square().mean()
        loss.backward()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.synchronize()
    x.grad = None
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    first = x.grad.clone()
    with torch.no_grad():
        x.mul_(-1.0)
        x.grad.zero_()
    graph.replay()
    assert first.isfinite().all() and not torch.equal(first, x.grad)


ACTIVATIONS = [nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU()]


def kernels_of(step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    return [event.key for event in profile.key_averages()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_activations_encode_and_differentiate_in_one_pass(activation, dtype):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(256, 512), copy.deepcopy(activation)).cuda().to(dtype)
    ours = actzip.convert(copy.deepcopy(plain))
    x = torch.randn(512, 256, device="cuda", dtype=dtype)
    (expected, theirs), (result, own) = gradients_of(plain, x), gradients_of(ours, x)
    torch.testing.assert_close(expected, result)
    for a, b in zip(theirs, own, strict=True):
        assert cosine(a, b) > 0.97
        assert not torch.equal(a, b), "nothing was compressed"
    names = " ".join(kernels_of(lambda: gradients_of(ours, x)))
    assert "rotated_encode_kernel" in names and "rotated_decode_kernel" in names
    assert "GeluCUDAKernel" not in names and "silu" not in names.lower() and "GeluBackward" not in names


def gradients_of(model, x):
    model.zero_grad()
    result = model(x)
    (result.float() * target(result)).mean().mul(1e3).backward()
    return result.detach(), [parameter.grad for parameter in model.parameters()]


def test_an_input_that_is_modified_raises_where_the_gradient_is_fused():
    gelu = actzip.convert(nn.Sequential(nn.Linear(256, 256), nn.GELU())).cuda()
    hidden = gelu[0](torch.randn(64, 256, device="cuda"))
    result = gelu[1](hidden)
    hidden.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_gradients_that_lie_otherwise_in_memory_are_the_same(activation):
    layer = actzip.convert(nn.Sequential(nn.Identity(), copy.deepcopy(activation)))[1]
    x = torch.randn(128, 64, device="cuda", requires_grad=True)
    above = torch.randn(64, 128, device="cuda")
    session = actzip.Session(seed=1)
    with session:
        result = layer(x * 1.0)
    (by_strides,) = torch.autograd.grad(result, x, above.t(), retain_graph=True)
    (dense,) = torch.autograd.grad(result, x, above.t().contiguous())
    assert torch.equal(by_strides, dense)
