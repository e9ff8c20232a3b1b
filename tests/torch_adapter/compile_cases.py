"""Models and helpers for tests of actzip.compile. Compiling takes seconds: models are small, and tests share them."""

import contextlib
import os

os.environ.setdefault("TORCHINDUCTOR_DEBUG_COMPILE", "1")  # compile without optimisation, which is faster

import actzip
import pytest
import torch
import torch._inductor.lowering  # its decompositions need it
import torch.nn.functional as F
from actzip.compiled.partitioner import Partitioner
from functorch.compile import make_boxed_compiler
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

DRAWS = 8


class Block(nn.Module):
    """A block of a GPT, with packed q, k and v and causal attention."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, blocks=1, width=64):
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 100)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def sharpen(self, factor):
        """Scales q and k, so that attention looks at few positions."""
        with torch.no_grad():
            for block in self.blocks:
                width = block.out.weight.shape[0]
                block.qkv.weight[: 2 * width] *= factor

    @staticmethod
    def batch():
        return torch.randint(100, (4, 64))


class ResNet(nn.Module):
    """Two residual blocks: ReLU results that convolutions and sums read, max pooling, batch norms."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(5))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norms[0](self.stem(x))), 2)
        for i in (0, 2):
            h = F.relu(self.norms[i + 1](self.convs[i](x)))
            x = F.relu(x + self.norms[i + 2](self.convs[i + 1](h)))
        return self.head(x.mean((2, 3)))

    @staticmethod
    def batch():
        return torch.randn(8, 3, 32, 32)


class MLP(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

    @staticmethod
    def batch():
        return torch.randn(64, 64)


def graphs_alone(model, *, plain=False, dynamic=None, fullgraph=True, **options):
    """Like actzip.compile, but runs the graphs as they are, because generating code takes most of the time.

    With ``plain``, without actzip. Reports go to ``actzip.compiled_session(**options)``.
    """
    key = actzip.compiled_session(**options).key
    partition = min_cut_rematerialization_partition if plain else Partitioner(key)
    run_as_it_is = make_boxed_compiler(lambda graph, _: graph.forward)
    backend = aot_autograd(
        fw_compiler=run_as_it_is, decompositions=select_decomp_table,
        partition_fn=lambda graph, inputs, **given: partition(graph, inputs, compiler="inductor", **given))
    return torch.compile(model, backend=backend, dynamic=dynamic, fullgraph=fullgraph)


def make(model_class, **options):
    torch.manual_seed(0)
    model = model_class(**options)
    return model, model.batch()


def mean_square(output):
    return output.float().square().mean()


def gradient(model, forward, batch, scope=None):
    """Returns the whole gradient as one vector. ``forward`` is the model or its compiled form."""
    model.zero_grad()
    with scope or contextlib.nullcontext():
        loss = mean_square(forward(batch))
    loss.backward()
    return flat(model)


def eager_gradients(model, batch, forward=None):
    """Returns ``DRAWS`` gradients of an eager session, after a step in which it learns what is shared."""
    session = actzip.Session(model, guard=False)

    def own_input(x):
        return model(x.clone())  # a copy, because an input that its caller holds is kept as it is

    return [gradient(model, forward or own_input, batch, session) for _ in range(DRAWS + 1)][1:]


def padded_llama(device="cpu"):
    """A Llama of one layer and four sequences, two of them shorter. Returns the model, and a function that wraps a
    forward so that it returns the results that are no padding."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, use_cache=False)
    model = transformers.LlamaForCausalLM(config).to(device)
    tokens = torch.randint(128, (4, 48), device=device)
    mask = torch.ones_like(tokens)
    mask[0, :20] = mask[2, :7] = 0
    return model, lambda forward: lambda _: forward(input_ids=tokens, attention_mask=mask).logits[mask.bool()]


def flat(model):
    return torch.cat([parameter.grad.flatten().double() for parameter in model.parameters() if parameter.grad is not None])


def error(gradient, exact):
    return float((gradient - exact).square().sum() / exact.square().sum())


def mean_error(gradients, exact):
    return sum(error(one, exact) for one in gradients) / len(gradients)


def cosine(a, b):
    return float(F.cosine_similarity(a, b, dim=0))
