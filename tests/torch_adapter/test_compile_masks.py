"""Compiled graphs read no masks that only make attention causal, or hide nothing. They read all other masks."""

import operator

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.compiled import call_masks, masks
from actzip.compiled.call_masks import simplify_calls
from actzip.compiled.joint_masks import simplify_masks
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


def open_to_all():
    return (torch.arange(LENGTH)[:, None] >= 0)[None, None].expand(2, 4, LENGTH, LENGTH)


def adding_nothing():
    return torch.zeros(LENGTH, LENGTH)


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


def in_steps():
    mask = causal()[0, 0]
    for i in range(10):
        mask = mask & (torch.arange(LENGTH)[None] <= torch.arange(i, LENGTH + i)[:, None])
    return mask


def of_many():
    positions = torch.arange(LENGTH)
    return torch.stack([positions[None] <= positions[:, None] + max(0, 9 - i) for i in range(10)]).all(0)


@torch.library.custom_op("actzip_test::mask", mutates_args=())
def of_another_library(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril(STATE["diagonal"])


@of_another_library.register_fake
def _(length):
    return torch.empty(length, length, dtype=torch.bool)


STATE = {"diagonal": 0}  #: read by the operator


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


@pytest.mark.parametrize("make_mask", [open_to_all, adding_nothing], ids=lambda make: make.__name__)
def test_masks_that_hide_nothing_are_not_read(make_mask):
    difference, _, is_read = run(make_mask)
    assert difference < 1e-3 and not is_read


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


def test_an_operator_of_another_library_may_read_state(monkeypatch):
    torch.manual_seed(0)
    model, batch = Attention(lambda: of_another_library(LENGTH)), torch.randn(2, LENGTH, 64)
    forward = graphs_alone(model, bits=8)
    before = gradient(model, forward, batch)
    monkeypatch.setitem(STATE, "diagonal", -8)
    after, exact = gradient(model, forward, batch), gradient(model, model, batch)
    assert error(before, exact) > 0.01 and error(after, exact) < 1e-3


@pytest.mark.parametrize("fault", [RuntimeError, NotImplementedError, TypeError])
def test_what_fails_while_a_mask_is_computed(fault, monkeypatch):
    def fail(*_):
        raise fault("no such device")

    monkeypatch.setattr(masks, "disable_current_modes", fail)
    difference, _, is_read = run(causal)
    assert difference < 1e-3 and is_read


@pytest.mark.parametrize("make_mask, most_masks, is_read", [(in_steps, 7, False), (of_many, 18, True),
                                                             (of_many, 32, False)])
def test_the_memory_that_computing_a_mask_may_take(make_mask, most_masks, is_read, monkeypatch):
    """Ten masks and their stack take as much as twenty."""
    monkeypatch.setattr(masks, "MOST_BYTES", most_masks * LENGTH**2)
    assert run(make_mask)[2] is is_read


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
    simplify_masks(graph)
    graph.recompile()
    told = [node.kwargs.get("attn_mask") is None for node in graph.graph.nodes if "scaled_dot" in node.name
            and node.target is not operator.getitem]
    assert told == [between is not torch.clone] * 2
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(graph(*inputs), expected, strict=True))


def cross(queries, keys, mask):
    q, k = queries.unflatten(-1, (4, 16)).transpose(1, 2), keys.unflatten(-1, (4, 16)).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask)


class OfWhatIsKept(nn.Module):
    """Attention to those of the keys that data name."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        kept = (x[0, :, 0] > 0).nonzero()[:, 0]
        torch._check(kept.shape[0] > 1)
        mask = (x[:, None, None, :, 1] < 1)[..., kept].expand(2, 1, LENGTH, -1)
        return cross(self.q(x), self.k(x[:, kept]), mask)


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_number_of_keys_that_depends_on_data():
    torch.manual_seed(0)
    model, batch = OfWhatIsKept(), torch.randn(2, LENGTH, 64)
    assert error(gradient(model, graphs_alone(model, bits=8), batch), gradient(model, model, batch)) < 1e-3


def test_a_number_of_keys_that_changes():
    class Cross(OfWhatIsKept):
        def forward(self, both):
            x, y = both
            return cross(self.q(x), self.k(y), y[:, None, None, :, 1].expand(2, 1, LENGTH, y.shape[1]))

    torch.manual_seed(0)
    torch._dynamo.utils.counters.clear()
    model = Cross()
    forward = graphs_alone(model, bits=8)
    for length in (40, LENGTH, 56):
        batch = torch.randn(2, LENGTH, 64), torch.randn(2, length, 64)
        torch._dynamo.mark_dynamic(batch[1], 1)
        assert error(gradient(model, forward, batch), gradient(model, model, batch)) < 1e-3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def written_to():
    mask = torch.zeros(LENGTH, LENGTH)
    mask[0, 1] = float("-inf")
    return mask


def written_to_by_a_view():
    mask = torch.zeros(LENGTH, LENGTH)
    mask.view(-1)[1:8].sub_(100)
    return mask


def written_to_by_a_sum():
    mask = torch.zeros(LENGTH, LENGTH)
    row = mask[0]
    row -= torch.arange(LENGTH)
    return mask


def written_to_by_an_activation():
    mask = torch.zeros(LENGTH, LENGTH)
    F.threshold(mask[0], 0.0, -100.0, inplace=True)
    return mask


def written_as_a_result():
    mask = torch.zeros(LENGTH, LENGTH)
    torch.sub(mask[0], torch.arange(LENGTH), out=mask[0])
    return mask


def made_by_vmap():
    positions = torch.arange(LENGTH)
    return torch.vmap(lambda row: positions <= row)(positions)


def recorded(make_mask, length=LENGTH):
    """Returns the arguments of attention in the graph that Dynamo records, and the largest error of its result."""
    calls = []

    def simplified(graph, _):
        simplify_calls(graph.graph)
        graph.recompile()
        calls.extend(node.kwargs for node in graph.graph.nodes if "scaled_dot" in node.name or "attention" in node.name)
        return graph.forward

    def attention(q, k):
        return F.scaled_dot_product_attention(q, k, k, attn_mask=make_mask(), dropout_p=0.0)

    q, k = torch.randn(2, 4, length, 16), torch.randn(2, 4, LENGTH, 16)
    found = torch.compile(attention, backend=simplified)(q, k)
    return calls[-1], (found - attention(q, k)).abs().max()


@pytest.mark.parametrize("make_mask, is_causal", [(causal, True), (additive, True), (strict, True), (of_many, True),
                                                  (open_to_all, False), (adding_nothing, False)])
def test_calls_that_need_no_mask(make_mask, is_causal):
    call, difference = recorded(make_mask)
    assert call["attn_mask"] is None and call["is_causal"] is is_causal
    assert difference < 1e-5


@pytest.mark.parametrize("make_mask", [with_window, soft, biased, drawn, written_to, written_to_by_a_view,
                                       written_to_by_a_sum, written_to_by_an_activation, written_as_a_result,
                                       made_by_vmap], ids=lambda make: make.__name__)
def test_calls_that_keep_their_mask(make_mask):
    torch.manual_seed(0)
    call, difference = recorded(make_mask)
    assert call["attn_mask"] is not None
    assert difference < 1e-5 or make_mask is drawn


def test_calls_with_fewer_queries_keep_their_mask():
    call, difference = recorded(lambda: causal()[:, :, :40], length=40)
    assert call["attn_mask"] is not None and difference < 1e-5


@torch._inductor.config.patch(force_disable_caches=True)
@pytest.mark.parametrize("preset, is_simplified", [("default", True), ("exact", False)])
def test_calls_are_simplified_before_they_are_decomposed(preset, is_simplified, monkeypatch):
    """With a dropout, torch makes products of matrices and a softmax of attention on the CPU."""

    class Dropping(Attention):
        def forward(self, x):
            q, k, v = self.qkv(x).view(2, LENGTH, 3, 4, 16).permute(2, 0, 3, 1, 4)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.make_mask(), dropout_p=1e-6)

    meanings = []
    monkeypatch.setattr(call_masks, "meaning_of", lambda mask: meanings.append(masks.meaning_of(mask)) or meanings[-1])
    torch.manual_seed(0)
    model, batch = Dropping(open_to_all), torch.randn(2, LENGTH, 64)
    compiled = actzip.compile(model, preset=preset, min_numel=len(batch) * LENGTH * 512, fullgraph=True)
    assert error(gradient(model, compiled, batch), gradient(model, model, batch)) < 1e-3
    assert meanings == [masks.Meaning.NOTHING] * is_simplified


@torch._inductor.config.patch(force_disable_caches=True)
def test_a_pass_of_the_user_stays():
    passes = []

    def own(graph):
        passes.append(graph)

    own_options = {"pre_grad_custom_pass": own}
    model = nn.Linear(64, 64)
    compiled = actzip.compile(model, options=own_options)
    compiled(torch.randn(4, 64)).sum().backward()
    assert passes and list(own_options) == ["pre_grad_custom_pass"]
