"""Tests that need a GPU. Skipped without one, or failed if ACTZIP_REQUIRE_CUDA=1."""

import contextlib

import actzip
import pytest
import torch
import torch.nn.functional as F
from gpu import needs_gpu
from models import MODELS, CNN, LlamaBlock, cosine, gradients, make
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

pytestmark = needs_gpu


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
    stable = [name for name in plain if torch.equal(plain[name], again[name])]  # atomic sums differ between runs
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
    session = actzip.Session(model, guard=False)  # the guard would keep tensors for a while
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
    session = actzip.Session(model, guard=False)  # the guard waits for its results between the first steps
    gradients(model, batch, session)  # overflow words are made once
    torch.cuda.set_sync_debug_mode("error")
    try:
        with session:
            loss = model(batch).square().mean()
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def step_on(stream, model, x):
    """Gradients of a new session with a fixed seed: forward on `stream`, backward called from the current stream."""
    model.zero_grad()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), actzip.Session(model, seed=1):
        loss = model(x).square().mean()
    torch.cuda.current_stream().wait_stream(stream)
    loss.backward()
    return [p.grad.clone() for p in model.parameters()]


def test_side_streams():
    """Reading a blob before it is written, or reusing memory too early, would give very different gradients."""
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
    """The test does not synchronise the streams: the blob itself waits for its encode, which the big product delays."""
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
    block.rotate = lambda x: x  # rotary positions are made on the host
    return block, torch.randn(4, 128, 256)


def cnn():
    return make(CNN)  # masks, indices with their overflow word, shapes, two bits


def dropout():
    return nn.Sequential(nn.Linear(256, 256), nn.Dropout(0.1), nn.Tanh(), nn.Linear(256, 256)), torch.randn(64, 256)


@pytest.mark.parametrize("make_model", [llama_block, cnn, dropout])
@pytest.mark.parametrize("preset", ["default", "exact"])
def test_cuda_graph(make_model, preset):
    """Captures a whole step, forward and backward. A host synchronisation anywhere would end the capture."""
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

    side = torch.cuda.Stream()  # torch requires a few steps on a side stream before a capture
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
    for _ in range(2):  # new data each time, so that replays must encode again
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        captured = {name: gradient.clone() for name, gradient in in_graph.items()}
        step(torch.enable_grad())
        if make_model is not dropout:  # whose masks are drawn anew
            assert cosine(captured, grads()) > (0.9 if preset == "default" else 0.9999)
        assert all(gradient.isfinite().all() for gradient in captured.values())
    assert session.live_bytes == 0


def train_steps(model, session, count):
    x, y = torch.randn(512, 256), torch.randint(8, (512,))
    for _ in range(count):
        model.zero_grad()
        with session:
            loss = F.cross_entropy(model(x), y)
        loss.backward()


def deep_network():
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(256, 8))


@pytest.mark.filterwarnings("ignore:actzip. compression adds")
def test_bits_are_planned_without_waiting_and_without_drawing():
    torch.manual_seed(0)
    model = deep_network()
    states = []
    for adapt in ("", "layer"):
        torch.manual_seed(1)
        session = actzip.Session(model, adapt=adapt)
        train_steps(model, session, 2)  # the second is observed
        states.append(torch.cuda.get_rng_state())
    assert torch.equal(*states)
    train_steps(model, session, 2)
    assert session.report().plan.plans == 0  # read two steps after its copy began, however fast the device is
    train_steps(model, session, 1)
    report = session.report()
    assert report.plan.plans >= 1 and len({site.codec for site in report.sites if site.sensitivity}) > 1


@pytest.mark.filterwarnings("ignore:actzip. compression adds")
def test_measuring_needs_no_more_memory_than_an_uncompressed_step():
    torch.manual_seed(0)
    model = deep_network()
    x, y = torch.randn(16384, 256), torch.randint(8, (16384,))
    session = actzip.Session(model, adapt="measured")

    def step(scope):
        with scope:
            loss = F.cross_entropy(model(x), y)
        loss.backward()

    def peak_of(work):
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    before = torch.cuda.get_rng_state()
    plain = peak_of(lambda: step(contextlib.nullcontext()))
    torch.cuda.set_rng_state(before)
    assert peak_of(lambda: session.measure(lambda: step(session))) < plain
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert session.report().plan.measured_variance > 0


def conv_network():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(32, 8, 3, padding=1))


def by_sample_session(model, **options):
    return actzip.Session(model, use_gradient=True, num_samples=1000, **options)


@pytest.mark.filterwarnings("ignore:actzip. compression adds")
def test_samples_are_planned_without_waiting():
    torch.manual_seed(0)
    model, x = conv_network().to(memory_format=torch.channels_last), torch.randn(64, 3, 32, 32)
    x = (x * torch.logspace(-1, 1, 64)[:, None, None, None]).contiguous(memory_format=torch.channels_last)
    session = by_sample_session(model, adapt="sample+layer")

    def step(number):
        session.samples(torch.arange(64, device="cpu") + 64 * (number % 2))
        with session:
            loss = model(x).square().mean()
        loss.backward()

    for number in range(6):  # loads kernels and makes one plan
        step(number)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for number in range(3):
            step(number)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    report = session.report()
    rows = [site.sample_bits for site in report.sites if site.sample_bits]
    assert rows and any(row.fewest < row.most for row in rows), str(report)
    factors = session._core.sample_factors()
    assert (factors[:128] >= 0).all() and (factors[128:] == -1).all()


def test_a_captured_step_learns_of_the_samples_of_its_replays():
    torch.manual_seed(0)
    model, x = conv_network(), torch.randn(64, 3, 32, 32)
    session = by_sample_session(model, adapt="sample")
    weight = torch.ones(64)

    def step():
        model.zero_grad(set_to_none=False)
        with session:
            loss = (model(x).square().mean((1, 2, 3)) * weight).sum()
        loss.backward()

    session.samples(torch.arange(64, device="cpu"))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            session.samples(torch.arange(64, device="cpu"))
            step()
    torch.cuda.current_stream().wait_stream(stream)
    session.samples(torch.arange(64, device="cpu"))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    session.samples(torch.arange(64, device="cpu") + 500)
    weight[3] = 100.0
    graph.replay()
    torch.cuda.synchronize()
    factors = session._core.sample_factors()
    assert (factors[500:564] >= 0).all() and factors[500:564].argmax() == 3
    assert (factors[64:500] == -1).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_captured_step_is_not_observed():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8)), torch.randn(512, 256)
    session = actzip.Session(model, adapt="layer")

    def step():
        model.zero_grad(set_to_none=False)
        with session:
            loss = model(x).square().mean()
        loss.backward()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()  # the second, which would be observed
    graph.replay()
    torch.cuda.synchronize()
    assert session.report().plan.plans == 0


BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]


def attention_gradients(session, backend, **way):
    generator = torch.Generator("cuda").manual_seed(0)
    tensors = [torch.randn(4, 8, 128, 64, generator=generator, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    torch.manual_seed(1)
    with session or contextlib.nullcontext(), sdpa_kernel(backend):
        result = F.scaled_dot_product_attention(*(2 * t for t in tensors), **way)
    return torch.autograd.grad(result, tensors, torch.sin(torch.arange(result.numel())).view_as(result).bfloat16())


def kept_by_attention(session):
    return {site.slot: site.codec for site in session.report().sites if site.op.startswith("_scaled_dot_product")}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", [{}, {"is_causal": True}, {"scale": 0.1}])
def test_attention_runs_again_as_it_ran(backend, way):
    session = actzip.Session(rules={f"_scaled_dot_product*.{name}": "as is" for name in ("query", "key", "value")})
    found = attention_gradients(session, backend, **way)
    for actual, exact in zip(found, attention_gradients(None, backend, **way), strict=True):
        torch.testing.assert_close(actual, exact, rtol=0, atol=2e-2 * float(exact.abs().max()))  # atomic sums differ
    assert kept_by_attention(session)["result"] == "recomputed"


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_with_noise(backend):
    exact = attention_gradients(None, backend)
    errors = []
    for rules in ({}, {"_scaled_dot_product*.result": "rotated:3"}):
        session = actzip.Session(seed=1, rules=rules, guard=False)  # the guard would notice
        errors.append(sum(float((attention_gradients(session, backend)[0] - exact[0]).float().square().sum())
                          for _ in range(4)))
    assert errors[0] < 0.6 * errors[1], errors


@pytest.mark.parametrize("backend", BACKENDS)
def test_attention_draws_the_same_dropout_again(backend):
    session = actzip.Session(rules={f"_scaled_dot_product*.{name}": "as is" for name in ("query", "key", "value")})
    exact = attention_gradients(None, backend, dropout_p=0.3)
    state = torch.cuda.get_rng_state()
    for actual, wanted in zip(attention_gradients(session, backend, dropout_p=0.3), exact, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=2e-2 * float(wanted.abs().max()))
    assert kept_by_attention(session)["result"] == "recomputed"
    assert torch.equal(torch.cuda.get_rng_state(), state), "backward draws nothing of its own"


def test_attention_with_dropout_can_be_captured():
    """Only the graph knows its position among the random numbers, so the result is kept instead."""
    x = torch.randn(4, 8, 128, 64, dtype=torch.bfloat16).requires_grad_()
    session = actzip.Session()

    def step():
        with session, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            result = F.scaled_dot_product_attention(2 * x, 3 * x, 4 * x, dropout_p=0.1)
        return torch.autograd.grad(result.sum(), x)[0]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    assert kept_by_attention(session)["result"] == "recomputed"
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradient = step()
    assert kept_by_attention(session)["result"] == "affine:8:dithered"
    graph.replay()
    torch.cuda.synchronize()
    assert torch.isfinite(gradient).all() and gradient.abs().max() > 0
