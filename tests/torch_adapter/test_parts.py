"""The parts that `dual` makes of a tensor, as format.md specifies them, and the sites of a model."""

import actzip
import pytest
import torch
from torch import nn

FORMATS = [torch.contiguous_format, torch.channels_last]
#: bf16 keeps 8 bits of an average, so it is off by up to 2^-8 of itself: section 9 of format.md, docs/division.md.
ROUNDING = 2.0**-8


def sloping(*shape):
    """Makes maps with much energy in both parts."""
    torch.manual_seed(0)
    return torch.randn(shape) + torch.linspace(-3, 3, shape[-1])


def energy(tensor):
    return float(tensor.double().square().sum())


def block_averages(x, block):
    """Block averages by torch's own pooling, in f64. Incomplete blocks at the far edges average what they have."""
    averages = nn.functional.avg_pool2d(x.double(), block, ceil_mode=True, count_include_pad=False)
    return averages.repeat_interleave(block, -2).repeat_interleave(block, -1)[..., :x.shape[-2], :x.shape[-1]]


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("codec", ["dual:2", "dual:4:dithered:block=4", "dual:1:block=16"])
def test_the_low_part_has_the_averages_of_blocks(codec, memory_format):
    x = sloping(3, 6, 18, 13).to(memory_format=memory_format)
    found = actzip.parts(x, codec)
    block = int(codec.partition("block=")[2] or 8)
    exact = block_averages(x, block)
    assert ((found.low - exact).abs() <= ROUNDING * exact.abs() + 1e-6).all()
    assert torch.equal(found.low, found.low.bfloat16().float())
    assert torch.equal(found.high, x - found.low)
    assert found.low.stride() == found.high.stride() == found.restored.stride() == x.stride()


@pytest.mark.parametrize("shape", [(3, 6, 18, 13), (2, 4, 50), (2, 3, 5, 9, 10)])
def test_energies_add_up(shape):
    x = sloping(*shape)
    found = actzip.parts(x)
    low, high = energy(found.low), energy(found.high)
    assert low > 0.1 * energy(x) and high > 0.1 * energy(x)
    assert abs(energy(x) - low - high) <= 2 * ROUNDING * low


@pytest.mark.parametrize("memory_format", FORMATS)
def test_what_backward_gets_is_near_with_many_bits_and_right_on_average(memory_format):
    x = sloping(3, 6, 18, 13).to(memory_format=memory_format)
    errors = [energy(actzip.parts(x, f"dual:{bits}").restored - x) for bits in (1, 2, 4, 8)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < 1e-4 * energy(x)
    mean = sum(actzip.parts(x, seed=seed).restored for seed in range(64)) / 64
    assert energy(mean - x) < errors[1] / 30


def test_bytes_of_the_parts():
    found = actzip.parts(sloping(3, 6, 18, 13))
    blocks, maps, elements = 3 * 2, 3 * 6, 3 * 6 * 18 * 13
    assert found.low_bytes == 2 * blocks * maps
    assert found.high_bytes == 4 * maps + -(-2 * elements // 32) * 4


def test_gaps_in_memory_change_nothing():
    wide = sloping(3, 6, 18, 30)
    gapped = wide[..., 4:17]
    found, expected = actzip.parts(gapped), actzip.parts(gapped.contiguous())
    assert torch.equal(found.low, expected.low) and torch.equal(found.restored, expected.restored)


def test_the_type_of_the_tensor_stays_for_backward():
    x = sloping(2, 4, 16, 16).bfloat16().requires_grad_()
    found = actzip.parts(x)
    assert found.restored.dtype == torch.bfloat16 and found.low.dtype == found.high.dtype == torch.float32
    assert not any(tensor.requires_grad for tensor in (found.low, found.high, found.restored))


@pytest.mark.parametrize(("tensor", "codec", "message"), [
    (torch.randn(4, 512), "dual:2", r"sizes \[4, 512\].*allowed: N,C,L"),
    (torch.randn(4, 8, 1, 1), "dual:2", "more than one position"),
    (torch.ones(4, 8, 9, 9, dtype=torch.long), "dual:2", r"does not take i64 \(allowed: f32"),
    (torch.randn(4, 8, 9, 9), "rotated:2", r"'rotated:2' has no two parts \(allowed: dual"),
])
def test_refused(tensor, codec, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        actzip.parts(tensor, codec)


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def test_sites_of_a_step():
    model, x, seen = network(), sloping(16, 3, 20, 20), {}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sites = actzip.site_parts(model, x, look=lambda site, tensor, parts: seen.update({site: (tensor.clone(), parts)}))
    session = actzip.Session(model, preset="division")
    with session:
        model(x)
    expected = [(site.site, site.codec, site.shape) for site in session.report().sites if site.codec.startswith("dual")]
    assert [(site.site, site.codec, site.shape) for site in sites] == expected and len(sites) == 3
    model.load_state_dict(before)
    hidden = {"0: convolution.input": x, "1: native_batch_norm.input": model[0](x),
              "3: convolution.input": model[:3](x)}  # what the ReLU in place left
    for site in sites:
        tensor, parts = seen[site.site]
        assert torch.allclose(tensor, hidden[site.site], atol=1e-5)
        assert site.energy == pytest.approx(energy(tensor))
        assert site.low_energy == pytest.approx(energy(parts.low)) and site.high_energy == pytest.approx(
            energy(parts.high))
        assert abs(site.energy - site.low_energy - site.high_energy) <= 2 * ROUNDING * site.low_energy
        assert site.squared_error == pytest.approx(energy(parts.restored - tensor), rel=1e-4)


def test_nothing_is_left_behind():
    model, x = network(), sloping(16, 3, 20, 20)
    model(x).sum().backward()
    before = [value.clone() for value in (*model.state_dict().values(), *(p.grad for p in model.parameters()))]
    state = torch.get_rng_state()
    actzip.site_parts(model, x)
    after = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    assert all(map(torch.equal, before, after)) and torch.equal(state, torch.get_rng_state())


def test_what_shares_memory_is_seen_once():
    shared = nn.ModuleList([nn.Conv2d(3, 8, 1), nn.Conv2d(3, 8, 3, padding=1)])
    x = sloping(16, 3, 20, 20)
    sites = actzip.site_parts(shared, lambda: shared[0](x) + shared[1](x), preset="division:4:block=4")
    assert [(site.site, site.codec) for site in sites] == [("0: convolution.input", "dual:4:block=4:size=20x20")]


def test_presets_without_maps_have_no_parts():
    assert actzip.site_parts(network(), sloping(16, 3, 20, 20), preset="default") == ()
