"""Compares each layer of actzip.nn with torch's."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from layer_cases import CASES, differentiable, pair, run
from torch import nn

#: Their backward is composed differently from torch's on the CPU, so they are equal only up to rounding.
COMPOSED = ("rms norm", "rms norm of planes, no affine")


@pytest.mark.parametrize("name", CASES)
def test_exact_is_bitwise_torch(name):
    theirs, ours, x = pair(name, preset="exact", min_elems=0)
    expected, actual = run(theirs, x), run(ours, x)
    assert actual[0].grad_fn.name().startswith("Actzip")
    assert torch.equal(expected[0], actual[0])
    for a, b in zip(expected[1], actual[1], strict=True):
        if name in COMPOSED:
            torch.testing.assert_close(a, b)
        else:
            assert torch.equal(a, b)
    for a, b in zip(theirs.buffers(), ours.buffers(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", [name for name in CASES if name != "embedding with padding"])  # no gradient by design
def test_gradcheck(name):
    _, ours, x = pair(name, preset="exact", min_elems=0)

    def forward(*_):
        torch.manual_seed(1)
        return ours(x)

    assert torch.autograd.gradcheck(forward, differentiable(ours, x))


LARGE = {
    "conv": (lambda: nn.Conv2d(16, 16, 3, padding=1), (8, 16, 16, 16), "rotated:2"),
    "linear": (lambda: nn.Linear(64, 64), (256, 64), "rotated:3"),
    "batch norm": (lambda: nn.BatchNorm2d(16), (8, 16, 16, 16), "rotated:2"),
    "layer norm": (lambda: nn.LayerNorm(512), (64, 512), "rotated:2"),
    "group norm": (lambda: nn.GroupNorm(4, 16), (8, 16, 16, 16), "rotated:2"),
    "rms norm": (lambda: nn.RMSNorm(512), (64, 512), "rotated:2"),
    "gelu": (nn.GELU, (64, 256), "rotated:3"),
    "silu": (nn.SiLU, (64, 256), "rotated:4"),
}


@pytest.mark.parametrize("name", LARGE)
def test_error_is_that_of_the_codec(name):
    """The error of all gradients, relative to their squares and averaged over seeds, is at most a few times the codec's
    own: a norm's gradient subtracts means, and a GELU's follows a slope."""
    make, shape, codec = LARGE[name]
    theirs = make()
    x = torch.randn(shape, requires_grad=True)
    _, exact = run(theirs, x)
    errors = []
    for seed in range(8):
        ours = actzip.convert(make(), seed=seed)
        ours.load_state_dict(theirs.state_dict(), strict=False)
        _, actual = run(ours, x)
        report = actzip.session_of(ours).report()
        assert [site.codec for site in report.sites] == [codec]
        total = sum(float((a - b).square().sum()) for a, b in zip(actual, exact, strict=True))
        errors.append(total / sum(float(b.square().sum()) for b in exact))
    bound = 3 * actzip._C.expected_error(codec)
    assert 0 < sum(errors) / len(errors) < bound, (errors, bound)


@pytest.mark.parametrize("name, make, shape, bits", [
    ("relu", nn.ReLU, (64, 64), 1), ("leaky", nn.LeakyReLU, (64, 64), 1), ("dropout", nn.Dropout, (64, 64), 1),
    ("pool", lambda: nn.MaxPool2d(3, 2, 1), (4, 16, 32, 32), 4), ("average", lambda: nn.AvgPool2d(2), (4, 4, 32, 32), 0)])
def test_masks_and_offsets_are_exact_and_small(name, make, shape, bits):
    x = torch.randn(shape, requires_grad=True)
    theirs, ours = make(), actzip.convert(make())
    expected, actual = run(theirs, x), run(ours, x)
    assert torch.equal(expected[0], actual[0]) and torch.equal(expected[1][0], actual[1][0])
    torch.manual_seed(1)
    result = ours(torch.cat([x]))
    session = actzip.session_of(ours)
    kept = result.numel() * bits / 8
    assert session.live_bytes == session.report().bytes_after == kept
    del result
    assert session.live_bytes == 0


def test_a_layer_knows_torchs_arguments_and_state():
    layer = actzip.nn.Conv2d(3, 8, 3, padding=1)
    assert isinstance(layer, nn.Conv2d)
    assert layer.state_dict().keys() == nn.Conv2d(3, 8, 3).state_dict().keys()
    assert str(layer).startswith("actzip.Conv2d(3, 8, kernel_size=(3, 3)")


@pytest.mark.parametrize("layer_class", [nn.ReLU, nn.LeakyReLU, nn.SiLU, nn.Dropout])
@pytest.mark.parametrize("is_view", [False, True])
def test_in_place(layer_class, is_view):
    base = torch.randn(32, 64, requires_grad=True)

    def gradient(layer):
        torch.manual_seed(1)
        h = base * 2
        part = h[:16] if is_view else h
        result = layer(part)
        assert result is part and result._version == 1
        (g,) = torch.autograd.grad((h * torch.arange(64)).sum(), base)
        return g

    options = {} if layer_class is nn.SiLU else {"preset": "default"}
    ours = actzip.convert(layer_class(inplace=True), **options)
    expected, actual = gradient(layer_class(inplace=True)), gradient(ours)
    if layer_class is nn.SiLU:  # its input is kept in few bits
        assert float((expected - actual).square().sum() / expected.square().sum()) < 0.02
    else:
        assert torch.equal(expected, actual)


def test_in_place_on_a_leaf_is_refused_as_torch_does():
    x = torch.randn(4, 4, requires_grad=True)
    for layer in (nn.ReLU(inplace=True), actzip.nn.ReLU(inplace=True)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            layer(x)


def test_a_modified_input_raises_as_in_torch():
    for preset in ("default", "exact"):
        layer = actzip.convert(nn.Linear(64, 64), preset=preset)
        x = torch.randn(64, 64)
        result = layer(x)
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_a_modified_weight_raises_as_in_torch():
    layer = actzip.convert(nn.Linear(64, 64))
    result = layer(torch.randn(64, 64, requires_grad=True))
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_what_is_kept_goes_with_backward_and_not_before():
    layer = actzip.convert(nn.Linear(64, 64))
    session = actzip.session_of(layer)
    result = layer(torch.randn(64, 64)).sum()
    held = session.live_bytes
    result.backward(retain_graph=True)
    assert held == session.live_bytes > 0
    first = layer.weight.grad.clone()
    result.backward()
    assert session.live_bytes == 0
    assert torch.equal(layer.weight.grad, 2 * first)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        result.backward()


def test_a_second_derivative_is_refused_with_a_way_out():
    layer = actzip.convert(nn.Linear(8, 8))
    x = torch.randn(4, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)  # allowed as it is
    with pytest.raises(RuntimeError, match=r"ActzipLinear cannot be differentiated twice; actzip.restore"):
        gradient.sum().backward()


def test_nothing_is_kept_that_nobody_needs():
    layer = actzip.convert(nn.Conv2d(8, 8, 3))
    session = actzip.session_of(layer)
    x = torch.randn(8, 8, 16, 16, requires_grad=True)
    with torch.no_grad():
        assert layer(x).grad_fn is None
    layer.requires_grad_(False)
    result = layer(x)  # the input's gradient does not need the input itself
    assert session.live_bytes == 0 and not session.report().sites
    (actual,) = torch.autograd.grad(result.sum(), x)
    (expected,) = torch.autograd.grad(F.conv2d(x, layer.weight, layer.bias).sum(), x)
    assert torch.equal(actual, expected)
    assert layer(x.detach()).grad_fn is None


def test_frozen_batch_norm_keeps_nothing():
    layer = actzip.convert(nn.BatchNorm2d(8).eval().requires_grad_(False))
    x = torch.randn(8, 8, 16, 16, requires_grad=True)
    result = layer(x)
    assert actzip.session_of(layer).live_bytes == 0
    result.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x) / (1 + layer.eps) ** 0.5)


def test_a_parameter_as_input_is_not_compressed():
    queries = nn.Parameter(torch.randn(64, 64))
    layer = actzip.convert(nn.Linear(64, 64))
    layer(queries).sum().backward()
    (site,) = actzip.session_of(layer).report().sites
    assert site.codec == "as is" and site.bytes_after == 0


@pytest.mark.parametrize("chunks", [2, 3, 8])
@pytest.mark.parametrize("make", [
    lambda: nn.Conv2d(8, 12, 3, stride=2, padding=1), lambda: nn.ConvTranspose2d(8, 4, 3, stride=2, bias=False),
    lambda: nn.Conv1d(8, 8, 3, groups=2)])
def test_backward_in_chunks(make, chunks):
    theirs = make()
    x = torch.randn((8, 8, 10) if isinstance(theirs, nn.Conv1d) else (8, 8, 10, 10), requires_grad=True)
    bytes_of = 4 * (theirs(x).numel() + 2 * x.numel())
    ours = actzip.convert(make(), preset="exact", pipeline_threshold=-(-bytes_of // chunks))
    ours.load_state_dict(theirs.state_dict())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        _, actual = run(ours, x)
    calls = sum(e.count for e in profile.key_averages() if e.key == "aten::convolution_backward")
    assert calls == chunks
    for a, b in zip(actual, run(theirs, x)[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
