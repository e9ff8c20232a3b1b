"""In a profile each encode and each decode is one range, named after its site."""

from collections import Counter

import actzip
import pytest
import torch
from models import CNN, Llama, gradients, make


def ranges(profile, what):
    """Counts a profile's ranges by site. `what` is "encode" or "decode"."""
    return Counter(e.name.removeprefix(f"actzip {what} ") for e in profile.events() if e.name.startswith(f"actzip {what} "))


@pytest.mark.parametrize("model_class", [CNN, Llama])
@pytest.mark.parametrize("with_model", [True, False])
def test_one_range_for_each(model_class, with_model):
    model, batch = make(model_class)
    session = actzip.Session(model if with_model else None)
    gradients(model, batch, session)
    with torch.profiler.profile() as profile:
        gradients(model, batch, session)
    sites = session.report().sites
    encoded = {s.site for s in sites if s.codec not in ("as is", "shape only", "recomputed", "shared")}
    encodes, decodes = ranges(profile, "encode"), ranges(profile, "decode")
    assert len(encoded) > 5
    assert encoded <= set(encodes) and set(encodes.values()) == {1}
    assert encoded <= set(decodes) <= {s.site for s in sites}
    assert not {s.site for s in sites if s.reason == "a parameter or buffer"} & (set(encodes) | set(decodes))


def test_the_range_holds_the_work():
    x = torch.randn(512, 512, requires_grad=True) * 2
    with torch.profiler.profile() as profile:
        with actzip.Session():
            y = torch.nn.functional.gelu(x)
        y.sum().backward()
    times = {e.name: e.time_range for e in profile.events() if e.name.startswith("actzip") or e.name == "aten::gelu"}
    gelu, encode = times["aten::gelu"], times["actzip encode gelu.self"]
    assert gelu.start <= encode.start <= encode.end <= gelu.end
    assert times["actzip decode gelu.self"].start >= encode.end


def test_nothing_is_named_without_a_profiler():
    x = torch.randn(64, 64, requires_grad=True) * 2
    with actzip.Session():
        y = torch.nn.functional.gelu(x)
    with torch.profiler.profile() as profile:
        torch.relu(x)
    assert not ranges(profile, "encode") and y.requires_grad
