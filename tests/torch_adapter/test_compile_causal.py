"""Compiled graphs do not read masks that only make attention causal. They read all other masks."""

import operator

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.compiled.causal import tell_causal
from compile_cases import cosine, error, gradient, graphs_alone
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

LENGTH = 48


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def causal(device="cpu"):
    """Made from positions and expanded over batch and heads, as models do it."""
    rows, columns = torch.arange(LENGTH, device=device)[:, None], torch.arange(LENGTH, device=device)[None]
    return (columns <= rows)[None, None].expand(2, 4, LENGTH, LENGTH)


def additive(hidden=torch.finfo(torch.float32).min):
    return torch.zeros(LENGTH, LENGTH).masked_fill(~causal()[0, 0], hidden)


def as_for_cudnn():
    return additive(-65536.0)


def soft():
    return additive(-100.0)


def with_window():
    return causal() & (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)[None] < 8)


def one_more():
    mask = causal().clone()
    mask[1, 0, 3, 7] = True
    return mask


def strict():
    return causal().clone().tril(-1) | torch.eye(LENGTH, dtype=torch.bool)


def biased():
    return additive() + 0.5 * torch.eye(LENGTH)


def drawn():
    return causal() & (torch.rand(LENGTH, LENGTH) < 2)


class Attention(nn.Module):
    def __init__(self, make_mask):
        super().__init__()
        self.make_mask, self.qkv = make_mask, nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.qkv(x).view(2, LENGTH, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.make_mask())


def run(make_mask, **options):
    """Returns the gradient's error against eager code, the gradient, and whether a mask was read."""
    torch.manual_seed(0)
    model, batch = Attention(make_mask), torch.randn(2, LENGTH, 64)
    found = gradient(model, graphs_alone(model, bits=8, **options), batch)
    return error(found, gradient(model, model, batch)), found, keeps_a_mask(bits=8, **options)


def keeps_a_mask(**options):
    return any(site.reason == "does not depend on the data" and site.shape[-2:] == (LENGTH, LENGTH)
               for site in actzip.compiled_session(**options).report().sites)


@pytest.mark.parametrize("make_mask", [causal, additive, as_for_cudnn, strict], ids=lambda make: make.__name__)
def test_causal_masks_are_not_read(make_mask):
    difference, found, is_read = run(make_mask)
    assert difference < 1e-3 and not is_read
    assert cosine(found, run(lambda: causal().clone())[1]) > 0.9999


@pytest.mark.parametrize("make_mask", [with_window, one_more, soft, biased, drawn], ids=lambda make: make.__name__)
def test_other_masks_are_read(make_mask):
    difference, _, is_read = run(make_mask)
    assert difference < 1e-3 and is_read


def test_a_mask_that_depends_on_data_is_read():
    class Padded(Attention):
        def forward(self, x):
            q, k, v = self.qkv(x).view(2, LENGTH, 3, 4, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=causal() & (x[:, None, None, :, 0] < 9))

    torch.manual_seed(0)
    model, batch = Padded(None), torch.randn(2, LENGTH, 64)
    batch[0, 5, 0] = 10
    assert error(gradient(model, graphs_alone(model, bits=8), batch), gradient(model, model, batch)) < 1e-3


def test_exact_computes_as_torch_does():
    torch.manual_seed(0)
    model, batch = Attention(causal), torch.randn(2, LENGTH, 64)
    plain = gradient(model, graphs_alone(model, plain=True), batch)
    torch._dynamo.reset()
    assert torch.equal(gradient(model, graphs_alone(model, preset="exact"), batch), plain)
    assert keeps_a_mask(preset="exact")


def test_other_lengths_of_keys_are_left_alone():
    class Cross(Attention):
        def forward(self, x):
            q, k, v = self.qkv(x).view(2, LENGTH, 3, 4, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q[:, :, :40], k, v, attn_mask=causal()[:, :, :40])

    torch.manual_seed(0)
    model, batch = Cross(None), torch.randn(2, LENGTH, 64)
    assert error(gradient(model, graphs_alone(model, bits=8), batch), gradient(model, model, batch)) < 1e-3


def attention_graph(between):
    """Returns a joint graph whose gradient reads results of attention through ``between``."""
    aten = torch.ops.aten

    def forward_and_backward(q, k, v, tangent):
        rows = torch.arange(LENGTH)
        mask = torch.where(rows[None] <= rows[:, None], 0.0, float("-inf"))
        out, sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=mask)
        return out, *aten._scaled_dot_product_flash_attention_for_cpu_backward(
            tangent, q, k, v, between(out), between(sums), 0.0, False, attn_mask=mask)

    return make_fx(forward_and_backward, tracing_mode="fake")(*(torch.randn(2, 4, LENGTH, 16) for _ in range(4)))


@pytest.mark.parametrize("between", [torch.ops.aten.alias, torch.ops.aten.detach, lambda x: x, torch.clone])
def test_forward_and_backward_are_told_alike(between):
    """The clones stand for gradients that are not recognised."""
    graph = attention_graph(between)
    inputs = [torch.randn(2, 4, LENGTH, 16) for _ in range(4)]
    expected = graph(*inputs)
    tell_causal(graph)
    graph.recompile()
    told = [node.kwargs.get("attn_mask") is None for node in graph.graph.nodes if "scaled_dot" in node.name
            and node.target is not operator.getitem]
    assert told == [between is not torch.clone] * 2
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(graph(*inputs), expected, strict=True))
