"""What only a GPU can show. Skipped without one; with ACTZIP_REQUIRE_CUDA=1 that is a failure."""

import os

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import MODELS, CNN, LlamaBlock, cosine, gradients, make
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() and os.environ.get("ACTZIP_REQUIRE_CUDA") != "1", reason="no GPU")


@pytest.fixture(autouse=True)
def reproducible():
    before = torch.backends.cudnn.deterministic
    torch.set_default_device("cuda")
    torch.backends.cudnn.deterministic = True
    yield
    torch.set_default_device(None)
    torch.backends.cudnn.deterministic = before


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("autocast", [False, True])
def test_exact_is_bitwise(model_class, autocast):
    model, batch = make(model_class)
    session = actzip.Session(model, preset="exact", min_elems=0)
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast), sdpa_kernel(SDPBackend.MATH):
        plain, again = gradients(model, batch), gradients(model, batch)
        actual = gradients(model, batch, session)
    stable = [name for name in plain if torch.equal(plain[name], again[name])]  # atomic sums differ from themselves
    assert stable
    for name in stable:
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


def step_on(stream, model, x):
    """Gradients of a fresh session with a fixed seed, forward on `stream`, backward from the current one."""
    model.zero_grad()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), actzip.Session(model, seed=1):
        loss = model(x).square().mean()
    torch.cuda.current_stream().wait_stream(stream)
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def test_side_streams():
    """A blob that is read before it is written, or memory that is used again too early, is far away from these."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512)) for _ in range(4)))
    x = torch.randn(2048, 512)
    expected = step_on(torch.cuda.current_stream(), model, x)
    for _ in range(10):
        for actual, reference in zip(step_on(torch.cuda.Stream(), model, x), expected, strict=True):
            torch.testing.assert_close(actual, reference, rtol=1e-3, atol=1e-5)


def test_backward_called_on_another_stream():
    model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512))
    x = torch.randn(2048, 512)
    expected = step_on(torch.cuda.current_stream(), model, x)
    side = torch.cuda.Stream()
    model.zero_grad()
    with actzip.Session(model, seed=1):
        loss = model(x).square().mean()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss.backward()
    torch.cuda.current_stream().wait_stream(side)
    for parameter, reference in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, reference, rtol=1e-3, atol=1e-5)


def test_blob_read_on_another_stream():
    """Without a word to the streams: the blob itself waits for the encode. The big product keeps its stream busy."""
    x = torch.randn(4096, 4096, requires_grad=True)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with actzip.Session():
        h = x @ x.detach() / 64
        y = F.gelu(h)
    with torch.cuda.stream(side):
        saved = y.grad_fn._saved_self.clone()
        again = y.grad_fn._saved_self.clone()
    torch.cuda.synchronize()
    assert torch.equal(saved, again) and cosine({"": saved}, {"": h}) > 0.9


def llama_block():
    block = LlamaBlock(256)
    block.rotate = lambda x: x  # its positions are made on the host
    return block, torch.randn(4, 128, 256)


def cnn():
    return make(CNN)  # masks, indices with their overflow word, shapes, two bits


def dropout():
    return nn.Sequential(nn.Linear(256, 256), nn.Dropout(0.1), nn.Tanh(), nn.Linear(256, 256)), torch.randn(64, 256)


@pytest.mark.parametrize("make_model", [llama_block, cnn, dropout])
@pytest.mark.parametrize("preset", ["default", "exact"])
def test_cuda_graph(make_model, preset):
    """A whole step, forward and backward, captured: a host synchronisation anywhere would end the capture."""
    model, x = make_model()
    session = actzip.Session(model, preset=preset)

    def step(scope):
        for parameter in model.parameters():
            parameter.grad = None
        with scope:
            loss = model(x).square().mean()
        loss.backward()

    def grads():
        torch.cuda.synchronize()
        return {name: p.grad.clone() for name, p in model.named_parameters()}

    side = torch.cuda.Stream()  # torch asks for a few steps on a side stream before a capture
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(session)
    torch.cuda.current_stream().wait_stream(side)
    for parameter in model.parameters():
        parameter.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(session)
    in_graph = {name: p.grad for name, p in model.named_parameters()}
    for _ in range(2):  # new data each time: what was encoded is not a remnant of the capture
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        captured = {name: gradient.clone() for name, gradient in in_graph.items()}
        step(torch.enable_grad())
        if make_model is not dropout:  # whose masks are drawn anew
            assert cosine(captured, grads()) > (0.9 if preset == "default" else 0.9999)
        assert all(gradient.isfinite().all() for gradient in captured.values())
    assert session.live_bytes == 0
