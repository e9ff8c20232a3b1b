"""actzip.compile: gradients are as good as those of an eager session, and memory is really saved."""

import actzip
import pytest
import torch
from compile_cases import (DRAWS, GPT, ResNet, cosine, eager_gradients, error, gradient, make, mean_error, padded_llama)


def held_bytes(model, forward, batch):
    """Bytes that autograd saves, without parameters."""
    own = {parameter.data_ptr() for parameter in model.parameters()}
    found = {}

    def pack(tensor):
        if tensor.data_ptr() not in own:
            found[tensor.data_ptr()] = tensor.nbytes
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward(batch).sum().backward()
    return sum(found.values())


@pytest.fixture(scope="module")
def gpt():
    model, batch = make(GPT)
    return model, batch, actzip.compile(model, fullgraph=True)


def test_gpt_as_eager(gpt):
    model, batch, compiled = gpt
    exact = gradient(model, model, batch)
    draws = [gradient(model, compiled, batch) for _ in range(DRAWS)]
    eager = mean_error(eager_gradients(model, batch), exact)
    assert mean_error(draws, exact) == pytest.approx(eager, rel=0.1)
    assert error(sum(draws) / DRAWS, exact) == pytest.approx(mean_error(draws, exact) / DRAWS, rel=0.25)
    assert len({float(one.sum()) for one in draws}) == DRAWS  # each step has its own noise


def test_gpt_with_sharp_attention(gpt):
    model, batch, compiled = gpt
    model.sharpen(5)
    try:
        exact = gradient(model, model, batch)
        assert cosine(gradient(model, compiled, batch), exact) >= 0.9
    finally:
        model.sharpen(1 / 5)


def test_the_report_is_of_what_is_held(gpt):
    model, batch, compiled = gpt
    held = held_bytes(model, compiled, batch)
    report = actzip.session_of(compiled).report()
    assert report.bytes_after == compiled.session.report().bytes_after
    assert 0 <= held - report.bytes_after <= 8 * len(report.sites) + 4096  # seeds
    assert held < held_bytes(model, model, batch) / 4
    by_name = {site.site: site for site in report.sites}
    assert by_name["blocks.0.up: addmm.mat1"].codec == "rotated:3"
    assert by_name["blocks.0: _scaled_dot_product_flash_attention_for_cpu.query"].codec == "rotated:4"
    assert by_name["blocks.0: _scaled_dot_product_flash_attention_for_cpu.aux0"].kind == "recomputed"
    assert not [site for site in report.sites if site.cause == "policy" and site.use == "unknown"]


def test_generators_are_not_touched(gpt):
    model, batch, compiled = gpt
    before = torch.get_rng_state()
    gradient(model, compiled, batch)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_resnet_as_eager(memory_format):
    model, batch = make(ResNet)
    model, batch = model.to(memory_format=memory_format), batch.to(memory_format=memory_format)
    exact = gradient(model, model, batch)
    compiled = actzip.compile(model, fullgraph=True)
    draws = [gradient(model, compiled, batch) for _ in range(DRAWS)]
    eager = mean_error(eager_gradients(model, batch), exact)
    assert mean_error(draws, exact) == pytest.approx(eager, rel=0.1)
    codecs = {site.codec for site in compiled.session.report().sites}
    assert {"rotated:2", "rotated:2:mask", "mask"} <= codecs


def test_llama_with_a_padding_mask():
    model, through = padded_llama()
    exact = gradient(model, through(model), None)
    eager_draws = eager_gradients(model, None, through(model))
    compiled = actzip.compile(model, fullgraph=True)
    draws = [gradient(model, through(compiled), None) for _ in range(DRAWS)]
    assert mean_error(draws, exact) == pytest.approx(mean_error(eager_draws, exact), rel=0.1)
    kept = {site.slot: site.codec for site in compiled.session.report().sites if "scaled_dot" in site.op}
    assert kept["attn_mask"] == "as is" and kept["aux0"] == "recomputed"
