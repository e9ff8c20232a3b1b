"""The preset `division`: feature maps are split in two parts, masks and indices stay small, the rest stays exact."""

import actzip
import pytest
import torch
from torch import nn


class Network(nn.Module):
    """Convolutions, batch norms, ReLU, pooling, dropout and a linear layer, on maps of 18 x 18 and 9 x 9."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.Dropout(0.1),
            nn.Conv2d(24, 8, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.body(x))


def gradients(preset, memory_format, **options):
    """Returns all gradients of one step of the same network on the same data, and the report."""
    torch.manual_seed(0)
    network = Network().to(memory_format=memory_format)
    x = torch.nn.functional.interpolate(torch.randn(16, 3, 5, 5), size=(18, 18), mode="bilinear")  # smooth, like images
    x = x.to(memory_format=memory_format)
    session = actzip.Session(network, preset=preset, **options) if preset else None
    torch.manual_seed(1)
    if session is None:
        loss = network(x).square().mean()
    else:
        with session:
            loss = network(x).square().mean()
    loss.backward()
    return [p.grad for p in network.parameters()], session and session.report()


def codecs(report):
    """Codecs by the name of the site."""
    return {site.site: site.codec for site in report.sites}


def cosine(a, b):
    a, b = (torch.cat([g.flatten() for g in gradient]) for gradient in (a, b))
    return torch.nn.functional.cosine_similarity(a, b, dim=0).item()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_maps_are_taken_apart_and_the_rest_is_kept(memory_format):
    exact, _ = gradients(None, memory_format)
    found, report = gradients("division", memory_format)
    kept = codecs(report)
    last = ":last=16" if memory_format == torch.channels_last else ""
    norm = next(codec for name, codec in kept.items() if name.startswith("body.1: ") and name.endswith(".input"))
    assert norm == f"dual:2:size=18x18{last}"
    convolution = next(codec for name, codec in kept.items() if name.startswith("body.4: ") and name.endswith(".input"))
    assert convolution == f"dual:2:size=9x9{last}"
    assert any(codec == "mask" and "relu" in name for name, codec in kept.items())
    assert any(codec.startswith("index") and "max_pool" in name for name, codec in kept.items())
    assert not any(codec.startswith("rotated") for codec in kept.values())
    assert cosine(exact, found) > 0.9
    assert not all(torch.equal(a, b) for a, b in zip(exact, found))


def test_more_bits_are_closer():
    exact, _ = gradients(None, torch.contiguous_format)
    near, report = gradients("division:8:block=4", torch.contiguous_format)
    assert any(codec == "dual:8:block=4:size=9x9" for codec in codecs(report).values())
    assert cosine(exact, near) > 0.9999


def test_all_compresses_what_has_no_maps():
    some = gradients("division", torch.contiguous_format, min_elems=1)[1]
    everything = gradients("division:all", torch.contiguous_format, min_elems=1)[1]
    linear = {name for name in codecs(some) if name.startswith("head: ")}
    assert linear and not any(codecs(some)[name].startswith("rotated") for name in linear)
    assert any(codecs(everything)[name].startswith("rotated") for name in linear)


def test_a_wrong_option_says_what_is_allowed():
    with pytest.raises(Exception, match=r"division\[:1\.\.8\].*\[:all\]"):
        actzip.Session(preset="division:size=4x4")
