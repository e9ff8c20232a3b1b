"""Inputs that are not kept, but derived from what the norm before them keeps."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Convolution, batch norm, ReLU, convolution."""

    def __init__(self, inplace=True, relu=True, channels=16):
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=inplace) if relu else nn.Identity()
        self.conv2 = nn.Conv2d(channels, 8, 3)

    def forward(self, x):
        return self.conv2(self.relu(self.norm(self.conv1(x))))


def randomized(block):
    nn.init.normal_(block.norm.weight, 1.0, 0.3)
    nn.init.normal_(block.norm.bias, 0.0, 0.3)
    return block


def sites_of(model):
    return {site.site: site for site in actzip.session_of(model).report().sites}


def steps(model, x, count):
    for _ in range(count):
        model.zero_grad()
        model(x.clone()).square().sum().backward()  # a copy, because an input that its caller holds is kept as it is


@pytest.mark.parametrize("inplace", [False, True])
def test_a_convolution_after_batch_norm_and_relu(inplace):
    model, x = actzip.convert(randomized(Block(inplace))), torch.randn(8, 3, 16, 16)
    steps(model, x, 1)
    result = model(x.clone())
    sites = sites_of(model)
    elems = 8 * 16 * 16 * 16
    assert sites["conv2: convolution.input"].codec == "derived"
    assert sites["conv2: convolution.input"].kept_by == "norm: batch_norm.input"
    # one bit more than the norm needs for itself, because the zeros of a kept ReLU result would have been exact
    assert sites["norm: batch_norm.input"].codec == "rotated:3"
    assert sites["relu: relu.result"].codec == "mask"
    kept = 8 * 3 * 16 * 16 * 2.125 / 8 + elems * 3.125 / 8 + elems / 8
    assert actzip.session_of(model).live_bytes == actzip.session_of(model).report().bytes_after == kept
    result.sum().backward()
    assert actzip.session_of(model).live_bytes == 0


def test_without_a_relu():
    model, x = actzip.convert(randomized(Block(relu=False))), torch.randn(8, 3, 16, 16)
    steps(model, x, 1)
    assert sites_of(model)["conv2: convolution.input"].codec == "derived"
    assert sites_of(model)["norm: batch_norm.input"].codec == "rotated:2"


def test_it_is_decoded_scaled_and_masked_bit_for_bit():
    """The weight's gradient is that of a convolution with the input derived from the codes, and with no other."""
    torch.manual_seed(0)
    x = torch.randn(8, 3, 16, 16)
    model = actzip.convert(randomized(Block(inplace=False)))
    steps(model, x, 1)
    model.zero_grad()
    seen = {}
    for name in ("conv1", "norm", "relu"):
        getattr(model, name).register_forward_hook(lambda _m, _i, result, name=name: seen.update({name: result}))
    result = model(x)
    h, normal, after = seen["conv1"], seen["norm"], seen["relu"]
    assert sites_of(model)["conv2: convolution.input"].codec == "derived"
    probe = torch.randn_like(result)
    decoded = decoded_input(model, h, normal)
    result.backward(probe)
    var, mean = torch.var_mean(h.detach(), (0, 2, 3), unbiased=False)
    rstd = torch.rsqrt(var + model.norm.eps)
    scale = rstd * model.norm.weight.detach()
    shift = model.norm.bias.detach() - mean * scale
    derived = torch.addcmul(shift[:, None, None], decoded, scale[:, None, None]) * (after.detach() > 0)
    expected = torch.nn.grad.conv2d_weight(derived, model.conv2.weight.shape, probe)
    torch.testing.assert_close(model.conv2.weight.grad, expected, rtol=1e-4, atol=1e-3)
    exact = torch.nn.grad.conv2d_weight(after.detach(), model.conv2.weight.shape, probe)
    assert (model.conv2.weight.grad - exact).norm() > 20 * (model.conv2.weight.grad - expected).norm()


def decoded_input(model, h, normal):
    """Finds what the norm keeps of `h` from its own gradient: d weight = sum of gradient times normalised input."""
    var, mean = torch.var_mean(h.detach(), (0, 2, 3), unbiased=False)
    rstd = torch.rsqrt(var + model.norm.eps)
    decoded = torch.empty_like(h)
    for n in range(h.shape[0]):
        for i in range(h.shape[2]):
            for j in range(h.shape[3]):
                probe = torch.zeros_like(normal)
                probe[n, :, i, j] = 1
                (weight,) = torch.autograd.grad(normal, model.norm.weight, probe, retain_graph=True)
                decoded[n, :, i, j] = weight / rstd + mean
    return decoded


def test_it_is_unbiased():
    torch.manual_seed(0)
    x = torch.randn(8, 3, 12, 12)
    block = randomized(Block(inplace=False))
    block(x).sum().backward()
    exact = block.conv2.weight.grad.clone()
    draws = []
    for seed in range(64):
        actzip.convert(block, seed=seed)
        steps_of_sum(block, x, 2)
        draws.append(block.conv2.weight.grad.clone())
        assert sites_of(block)["conv2: convolution.input"].codec == "derived"
    draws = torch.stack(draws)
    bias = (draws.mean(0) - exact).square().sum()
    noise = draws.var(0).sum() / len(draws)
    assert noise > 0 and bias < 2 * noise, (bias, noise)


def steps_of_sum(model, x, count):
    for _ in range(count):
        model.zero_grad()
        model(x).sum().backward()


class Attention(nn.Module):
    """Three linear layers after one norm."""

    def __init__(self, norm):
        super().__init__()
        self.embed, self.norm = nn.Linear(256, 256), norm
        self.q, self.k, self.v = (nn.Linear(256, 256) for _ in range(3))

    def forward(self, x):
        h = self.norm(self.embed(x))
        return self.q(h) * self.k(h) + self.v(h)


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_linear_layers_after_a_norm(norm):
    def make():
        torch.manual_seed(0)
        return Attention(norm(256))

    model, plain, x = actzip.convert(make()), make(), torch.randn(32, 16, 256)
    steps(plain, x, 1)
    steps(model, x, 2)
    sites = sites_of(model)
    kept = [site for site in sites.values() if "norm" in site.site]
    assert [site.codec for site in kept] == ["rotated:3"]  # as the linear layers need it
    derived = [sites[f"{name}: linear.input"] for name in "qkv"]
    assert [site.codec for site in derived] == ["derived"] * 3
    assert [site.bytes_before for site in derived] == [32 * 16 * 256 * 4, 0, 0]  # torch keeps it once
    for name in "qkv":
        actual, expected = (getattr(m, name).weight.grad.flatten() for m in (model, plain))
        assert F.cosine_similarity(actual, expected, dim=0) > 0.97


def test_what_several_derive_is_computed_once():
    model, x = actzip.convert(Attention(nn.LayerNorm(256))), torch.randn(32, 16, 256)
    steps(model, x, 2)
    loss = model(x.clone()).sum()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loss.backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::addcmul"] == 2  # once by row, once by feature
    decodes = [key for key in counts if key.startswith("actzip decode")]
    assert len(decodes) == 3 and all(counts[key] == 1 for key in decodes), decodes  # one of the three, the norm, embed


def test_autocast_derives_in_its_own_type():
    torch.manual_seed(0)
    model, x = actzip.convert(Attention(nn.LayerNorm(256))), torch.randn(32, 16, 256)
    for _ in range(2):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().square().sum()
        loss.backward()
    assert sites_of(model)["q: linear.input"].codec == "derived"
    torch.manual_seed(0)
    plain = Attention(nn.LayerNorm(256))
    with torch.autocast("cpu", torch.bfloat16):
        loss = plain(x).float().square().sum()
    loss.backward()
    assert F.cosine_similarity(model.q.weight.grad.flatten(), plain.q.weight.grad.flatten(), dim=0) > 0.97


def test_exact_derives_nothing():
    model = actzip.convert(Block(), preset="exact")
    steps(model, torch.randn(8, 3, 16, 16), 2)
    assert "derived" not in {site.codec for site in sites_of(model).values()}


def test_it_can_be_turned_off():
    model = actzip.convert(Block(), derive=False)
    steps(model, torch.randn(8, 3, 16, 16), 2)
    assert sites_of(model)["conv2: convolution.input"].codec == "shared"
    assert sites_of(model)["relu: relu.result"].codec == "rotated:2:mask"


def test_an_input_that_was_changed_is_not_derived():
    class Shifted(Block):
        def forward(self, x):
            h = self.relu(self.norm(self.conv1(x)))
            with torch.no_grad():
                h += 1
            return self.conv2(h)

    model, plain = Shifted(inplace=False), Shifted(inplace=False)
    plain.load_state_dict(model.state_dict())
    plain.relu, plain.conv1 = nn.Identity(), nn.Conv2d(3, 16, 3, padding=1)
    actzip.convert(model)
    x = torch.randn(8, 3, 16, 16)
    result = model(x)
    assert sites_of(model)["conv2: convolution.input"].codec != "derived"
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()  # the ReLU's result, as in torch


def test_a_norm_whose_weight_changes_raises():
    for name in ("weight", "bias"):
        model, x = actzip.convert(randomized(Block())), torch.randn(8, 3, 16, 16)
        steps(model, x, 1)
        result = model(x)
        with torch.no_grad():
            getattr(model.norm, name).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_what_is_derived_outlives_the_norm_and_goes_with_the_graph():
    model, x = actzip.convert(randomized(Block())), torch.randn(8, 3, 16, 16)
    session = actzip.session_of(model)
    steps(model, x, 1)
    h = model.relu(model.norm(model.conv1(x)))
    first, second = model.conv2(h), model.conv2(h)
    del h
    torch.autograd.grad(second.sum(), model.conv2.weight)  # frees only its own node
    held = session.live_bytes
    assert held > 0
    first.sum().backward()
    del first, second
    assert session.live_bytes == 0
    assert model.norm.weight.grad is not None


def test_shared_values_are_taken_where_somebody_keeps_them_anyway():
    """A ReLU's result that is kept with its values for other operators need not be derived."""

    class Both(Block):
        def forward(self, x):
            h = self.relu(self.norm(self.conv1(x)))
            return self.conv2(h).sum() + torch.tanh(h * h).sum()

    model, x = actzip.convert(Both(inplace=False), min_elems=0), torch.randn(8, 3, 16, 16)
    session = actzip.session_of(model)
    for _ in range(4):
        with session:
            loss = model(x)
        loss.backward()
    sites = sites_of(model)
    assert sites["conv2: convolution.input"].codec in ("derived", "shared")
    assert session.live_bytes == 0


@pytest.mark.filterwarnings("ignore:actzip. compression adds")
def test_plans_choose_for_those_who_derive():
    torch.manual_seed(0)
    model, x = actzip.convert(randomized(Block()), adapt="layer", bits=3), torch.randn(32, 3, 16, 16)
    steps(model, x, 8)
    report = actzip.session_of(model).report()
    assert report.plan.plans >= 1
    sites = {site.site: site for site in report.sites}
    assert sites["conv2: convolution.input"].codec == "derived"
    assert sites["norm: batch_norm.input"].sensitivity > 0  # of both together
    assert sites["conv1: convolution.input"].sensitivity is not None
