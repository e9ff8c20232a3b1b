"""What only a GPU can show. Skipped without one; with ACTZIP_REQUIRE_CUDA=1 that is a failure."""

import os

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import MODELS, CNN, LlamaBlock, cosine, gradients, make
from torch import nn

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("ACTZIP_REQUIRE_CUDA") != "1", reason="no GPU")


@pytest.fixture(autouse=True)
def reproducible():
    torch.set_default_device("cuda")
    torch.backends.cudnn.deterministic = True
    yield
    torch.set_default_device(None)


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("autocast", [False, True])
def test_exact_is_bitwise(model_class, autocast):
    model, batch = make(model_class)
    session = actzip.Session(model, preset="exact", min_elems=0)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast), torch.nn.attention.sdpa_kernel(
            torch.nn.attention.SDPBackend.MATH):
        plain, again = gradients(model, batch), gradients(model, batch)
        actual = gradients(model, batch, session)
    for name in plain:
        if torch.equal(plain[name], again[name]):  # an operator with atomic sums differs from itself
            assert torch.equal(plain[name], actual[name]), name
    assert session.live_bytes == 0 and not session.report().index_overflow


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("autocast", [False, True])
def test_default_is_close(model_class, autocast):
    model, batch = make(model_class)
    session = actzip.Session(model)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        plain = gradients(model, batch)
        for _ in range(2):
            assert cosine(plain, gradients(model, batch, session)) > 0.9, str(session.report())
    assert not [s for s in session.report().sites if "not know" in s.reason], str(session.report())


def requested():
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def test_the_report_says_what_the_allocator_says():
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(4)))
    x = torch.randn(32, 32, 64, 64)
    session = actzip.Session(model)
    for _ in range(3):
        before = requested()
        with session:
            loss = model(x).mean()
        kept = requested() - before - loss.element_size()
        report = session.report()
        assert abs(kept - report.bytes_after) < 0.01 * report.bytes_after, (kept, report.bytes_after, str(report))
        loss.backward()
        model.zero_grad()
        del loss


def test_nothing_waits_for_the_device():
    model, batch = make(CNN)
    session = actzip.Session(model)
    gradients(model, batch, session)  # overflow words are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        with session:
            loss = model(batch).square().mean()
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_side_streams():
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512))
    x = torch.randn(512, 512)
    session = actzip.Session(model, seed=1)
    model.zero_grad()
    with session:
        model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for _ in range(5):
        model.zero_grad()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        fresh = actzip.Session(model, seed=1)
        with torch.cuda.stream(side), fresh:
            loss = model(x).sum()
        torch.cuda.current_stream().wait_stream(side)
        loss.backward()
        torch.cuda.synchronize()
        assert all(torch.equal(a, p.grad) for a, p in zip(expected, model.parameters()))


def test_blob_read_on_another_stream():
    x = torch.randn(256, 256, requires_grad=True)
    side = torch.cuda.Stream()
    with actzip.Session():
        y = F.gelu(x * 2)
    with torch.cuda.stream(side):
        saved = y.grad_fn._saved_self
        again = y.grad_fn._saved_self
    torch.cuda.synchronize()
    assert torch.equal(saved, again) and cosine({"": saved}, {"": (x * 2).detach()}) > 0.9


def test_cuda_graph():
    block = LlamaBlock(256)
    block.rotate = lambda x: x  # its positions are made on the host
    x = torch.randn(4, 128, 256)
    session = actzip.Session(block)

    def step():
        for parameter in block.parameters():
            parameter.grad = None
        with session:
            loss = block(x).square().mean()
        loss.backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    captured = {name: p.grad.clone() for name, p in block.named_parameters()}
    for parameter in block.parameters():
        parameter.grad = None
    block(x).square().mean().backward()
    assert cosine(captured, {name: p.grad for name, p in block.named_parameters()}) > 0.9
