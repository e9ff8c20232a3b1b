"""In which types compiled graphs encode and decode, where in forward, and what is kept of shapes alone."""

import actzip
import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from actzip.compiled import partitioner
from actzip.compiled.nodes import is_backward
from compile_cases import gradient as whole_gradient
from compile_cases import graphs_alone
from torch import nn

WORDS = 4096


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch):
    """Collects the graphs of forward and backward when they have been rewritten."""
    found = []

    class Kept(partitioner.Rewrite):
        def run(self):
            found.append((self._forward, self._backward))
            return super().run()

    monkeypatch.setattr(partitioner, "Rewrite", Kept)
    return found


class Words(nn.Module):
    """Predicts words. Its loss is of another type than its logits, as in models of Hugging Face."""

    def __init__(self, to=torch.float32):
        super().__init__()
        self.to_type, self.head = to, nn.Linear(64, WORDS)

    def forward(self, x, words):
        return F.cross_entropy(self.head(x).to(self.to_type), words)


def gradient(model, forward):
    model.zero_grad()
    torch.manual_seed(0)
    x, words = torch.randn(256, 64, dtype=model.head.weight.dtype), torch.randint(WORDS, (256,))
    forward(x, words).backward()
    return model.head.weight.grad.float()


def types_of(graphs):
    """Returns the types that are encoded and those that are decoded."""
    forward, backward = graphs[-1]
    encoded = forward.find_nodes(op="call_function", target=torch.ops.actzip.encode.default)
    decoded = backward.find_nodes(op="call_function", target=torch.ops.actzip.decode.default)
    return {node.args[0].meta["val"].dtype for node in encoded}, {node.meta["val"].dtype for node in decoded}


@pytest.mark.parametrize("weights, logits, coded", [(torch.float32, torch.float32, torch.float16),
                                                    (torch.bfloat16, torch.float32, torch.float16),
                                                    (torch.bfloat16, torch.bfloat16, torch.bfloat16)])
def test_log_probabilities_have_16_bits_when_they_are_coded(graphs, weights, logits, coded):
    """They are the largest tensor of a language model. Where torch rounds them, their rounded form is kept."""
    rules = {"use:linear_*": "none"}
    torch.manual_seed(0)
    model = Words(logits).to(weights)
    exact = gradient(model, graphs_alone(model, plain=True))
    torch._dynamo.reset()
    found = gradient(model, graphs_alone(model, rules=rules))
    assert types_of(graphs) == ({coded}, {coded})
    assert (found - exact).norm() < 0.02 * exact.norm()
    [site] = [site for site in actzip.compiled_session(rules=rules).report().sites if site.use == "log_probabilities"]
    assert site.kind == "encoded" and site.bytes_before == logits.itemsize * 256 * WORDS


def test_a_rule_is_for_the_tensor_as_it_is(graphs):
    torch.manual_seed(0)
    model = Words()
    gradient(model, graphs_alone(model, rules={"use:linear_*": "none", "use:log_*": "affine:8:nearest:floor=-32"}))
    assert types_of(graphs) == ({torch.float32}, {torch.float32})


class Decomposed(nn.Module):
    """On the CPU, torch makes two products of each attention with a dropout. Their gradients read transposed operands."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 192) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            q, k, v = layer(x).view(4, 32, 3, 4, 16).permute(2, 0, 3, 1, 4)
            x = x + F.scaled_dot_product_attention(q, k, v, dropout_p=0.1).transpose(1, 2).flatten(2)
        return x


def test_forward_encodes_what_it_computes_for_backward_at_once(graphs):
    """torch computes that at the end of forward, up to which everything it is computed from would stay in memory."""
    torch.manual_seed(0)
    graphs_alone(Decomposed())(torch.randn(4, 32, 64)).sum().backward()
    forward, _ = graphs[-1]
    order = {node: i for i, node in enumerate(forward.nodes)}
    coded = forward.find_nodes(op="call_function", target=torch.ops.actzip.encode.default)
    late = [node for node in coded if is_backward(node.args[0])]
    assert len(late) > 6
    for node in late:
        [source] = node.args[0].all_input_nodes
        assert order[node] - order[source] < 8


class Pooled(nn.Module):
    """The gradient of the pooling reads its input, of which it needs the shape alone."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 16, 1)

    def forward(self, x):
        return self.last(F.avg_pool2d(F.relu(self.first(x)), 3, 2, 1))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dynamic", [False, True])
def test_nothing_is_kept_where_a_shape_is_enough(graphs, memory_format, dynamic):
    torch.manual_seed(0)
    model = Pooled().to(memory_format=memory_format)
    forward = graphs_alone(model, preset="exact", dynamic=dynamic)
    plain = graphs_alone(model, plain=True, dynamic=dynamic)
    for size in (34, 42) if dynamic else (34,):
        batch = torch.randn(4, 3, size, size).contiguous(memory_format=memory_format)
        assert torch.equal(whole_gradient(model, forward, batch), whole_gradient(model, plain, batch))
        sites = actzip.compiled_session(preset="exact").report().sites
        [site] = [site for site in sites if site.op == "avg_pool2d"]
        assert site.kind == "shape only" and site.bytes_after == 0 < site.bytes_before
    _, backward = graphs[-1]
    [pooling] = [node for node in backward.nodes if "avg_pool2d_backward" in str(node.target)]
    assert pooling.args[1].target is torch.ops.aten.empty_strided.default


POOLINGS = {
    "max 3d": lambda h: F.max_pool3d(h[:, None], 2),
    "adaptive max 2d": lambda h: F.adaptive_max_pool2d(h, 3),
    "adaptive max 3d": lambda h: F.adaptive_max_pool3d(h[:, None], 3),
    "mean 1d": lambda h: F.avg_pool1d(h.flatten(2), 3),
    "mean 3d": lambda h: F.avg_pool3d(h[:, None], 2),
    "adaptive mean 2d": lambda h: F.adaptive_avg_pool2d(h, 3),
    "adaptive mean 3d": lambda h: F.adaptive_avg_pool3d(h[:, None], 3),
    "power mean": lambda h: F.lp_pool2d(h.abs() + 0.1, 2.0, 2),
}


class PooledBy(nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.first, self.pool = nn.Conv2d(3, 16, 1), pool

    def forward(self, x):
        return self.pool(torch.sin(self.first(x)))


@pytest.mark.parametrize("kind", POOLINGS)
def test_gradients_that_ask_for_a_shape_read_no_values(kind):
    torch.manual_seed(0)
    model, batch = PooledBy(POOLINGS[kind]), torch.randn(4, 3, 8, 8)
    plain = whole_gradient(model, graphs_alone(model, plain=True), batch)
    torch._dynamo.reset()
    assert torch.equal(whole_gradient(model, graphs_alone(model, preset="exact", min_numel=1), batch), plain)
    sites = actzip.compiled_session(preset="exact", min_numel=1).report().sites
    assert "shape only" in {site.kind for site in sites}
