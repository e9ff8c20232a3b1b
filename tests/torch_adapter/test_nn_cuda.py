"""Layers on a GPU. Skipped without one, or failed if ACTZIP_REQUIRE_CUDA=1."""

import copy

import actzip
import pytest
import torch
import torch.nn.functional as F
from gpu import needs_gpu
from layer_cases import CASES, pair, run
from models import cosine, gradients, make
from test_convert import GPT, NETWORKS, ResNet
from torch import nn

pytestmark = needs_gpu

#: torch sums these in an order that differs from run to run.
UNSTABLE = ("embedding", "max pool 3d", "conv2d replicate", "conv2d reflect")


@pytest.fixture(autouse=True)
def reproducible():
    before = torch.backends.cudnn.deterministic
    torch.set_default_device("cuda")
    torch.backends.cudnn.deterministic = True
    yield
    torch.set_default_device(None)
    torch.backends.cudnn.deterministic = before


def assert_same(expected, actual, exactly):
    assert expected.dtype == actual.dtype and expected.stride() == actual.stride()
    if exactly:
        assert torch.equal(expected, actual)
    elif expected.dtype == torch.float16:
        torch.testing.assert_close(expected, actual, rtol=4e-3, atol=1e-3)  # sums may differ in the last places
    else:
        torch.testing.assert_close(expected, actual)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_exact_is_bitwise_torch(name, dtype):
    theirs, ours, x = pair(name, preset="exact", min_elems=0, dtype=dtype)
    expected, actual = run(theirs, x), run(ours, x)
    assert actual[0].grad_fn.name().startswith("Actzip")
    assert torch.equal(expected[0], actual[0])
    for a, b in zip(expected[1], actual[1], strict=True):
        assert_same(a, b, exactly=not name.startswith(UNSTABLE))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_autocast(name, dtype):
    theirs, ours, x = pair(name, preset="exact", min_elems=0, dtype=torch.float32)
    with torch.autocast("cuda", dtype):
        expected, actual = run(theirs, x), run(ours, x)
    assert expected[0].dtype == actual[0].dtype and torch.equal(expected[0], actual[0])
    for a, b in zip(expected[1], actual[1], strict=True):
        assert_same(a, b, exactly=not name.startswith(UNSTABLE))


@pytest.mark.parametrize("name", [name for name, (_, shape) in CASES.items() if shape and len(shape) == 4])
def test_channels_last(name):
    theirs, ours, x = pair(name, preset="exact", min_elems=0, dtype=torch.bfloat16)
    for layer in (theirs, ours):
        layer.to(memory_format=torch.channels_last)
    x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    expected, actual = run(theirs, x), run(ours, x)
    assert_same(expected[0], actual[0], exactly=True)
    for a, b in zip(expected[1], actual[1], strict=True):
        assert_same(a, b, exactly=not name.startswith(UNSTABLE))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("autocast", [False, True])
def test_default_is_close(network, autocast):
    model, batch = make(network)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        plain = gradients(copy.deepcopy(model), batch)
        actzip.convert(model)
        for _ in range(3):
            assert cosine(plain, gradients(model, batch)) > 0.9, actzip.session_of(model).report().text
    assert actzip.session_of(model).live_bytes == 0


def test_the_report_says_what_the_allocator_says():
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True))
              for _ in range(4)]
    model = actzip.convert(nn.Sequential(*layers).to(memory_format=torch.channels_last))
    x = torch.randn(32, 32, 64, 64).contiguous(memory_format=torch.channels_last)

    def requested():
        return torch.cuda.memory_stats()["requested_bytes.all.current"]

    for step in range(4):
        before = requested()
        result = model(x)
        kept = requested() - before - result.numel() * result.element_size()
        report = actzip.session_of(model).report()
        assert abs(kept - report.bytes_after) < 0.01 * report.bytes_after, (kept, report.text)
        result.mean().backward()
        model.zero_grad()
        del result
    derived = [site for site in report.sites if site.codec == "derived"]
    assert len(derived) == 3


def test_nothing_waits_for_the_device():
    model, batch = make(ResNet)
    actzip.convert(model)
    for _ in range(2):
        gradients(model, batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(batch).square().mean().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("network", [ResNet, GPT])
@pytest.mark.parametrize("preset", ["default", "exact"])
@pytest.mark.parametrize("in_scope", [False, True])
def test_cuda_graph(network, preset, in_scope):
    """Captures a whole step. A host synchronisation anywhere would end the capture."""
    model, batch = make(network)
    if network is GPT:
        for block in model.blocks:
            block.mlp[3].p = 0.0  # its masks would be drawn anew
    plain = copy.deepcopy(model)
    actzip.convert(model, preset=preset)
    session = actzip.session_of(model)

    def step(model, scope):
        model.zero_grad(set_to_none=True)
        with scope:
            loss = model(batch).square().mean()
        loss.backward()

    scope = session if in_scope else torch.enable_grad()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step(model, scope)
    torch.cuda.current_stream().wait_stream(side)
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model, scope)
    in_graph = {name: p.grad for name, p in model.named_parameters()}
    for _ in range(2):
        batch.copy_(torch.randn_like(batch) if batch.is_floating_point() else torch.randint_like(batch, 64))
        graph.replay()
        torch.cuda.synchronize()
        step(plain, torch.enable_grad())
        exact = {name: p.grad for name, p in plain.named_parameters()}
        assert cosine(in_graph, exact) > (0.9 if preset == "default" else 0.9999)
    assert session.live_bytes == 0


def test_side_streams():
    """Derived inputs, some of them for several layers, on side streams."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512), nn.Linear(512, 512), nn.GELU())
                            for _ in range(4)))
    actzip.convert(model, preset="exact")
    x = torch.randn(2048, 512)

    def step(stream):
        model.zero_grad()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = model(x).square().mean()
        torch.cuda.current_stream().wait_stream(stream)
        loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    expected = step(torch.cuda.current_stream())
    for _ in range(5):
        for a, b in zip(step(torch.cuda.Stream()), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_chunks_cap_the_peak_of_backward():
    layer = nn.Conv2d(64, 64, 3, padding=1)
    x = torch.randn(64, 64, 56, 56)
    bytes_of = 3 * x.numel() * 4
    peaks, found = [], []
    for threshold in (0, bytes_of // 8):
        actzip.convert(layer, preset="exact", pipeline_threshold=threshold)
        layer.zero_grad()
        result = layer(x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        result.sum().backward()
        peaks.append(torch.cuda.max_memory_allocated())
        found.append(layer.weight.grad.clone())
        del result
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-2)
    assert peaks[1] <= peaks[0]


def test_error_is_that_of_the_codec():
    torch.manual_seed(0)
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    x = torch.randn(16, 64, 28, 28)
    layer(x).square().sum().backward()
    exact = layer.weight.grad.clone()
    layer.zero_grad()
    actzip.convert(layer)(x).square().sum().backward()
    assert F.cosine_similarity(exact.flatten(), layer.weight.grad.flatten(), dim=0) > 0.9
