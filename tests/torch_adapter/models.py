"""Small models with the parts of large ones, and helpers that compare gradients."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 128), nn.ReLU(), nn.LayerNorm(128), nn.Dropout(0.1), nn.Linear(128, 128), nn.GELU(),
            nn.Linear(128, 10, bias=False))

    def forward(self, x):
        return self.net(x)

    def batch(self):
        return torch.randn(64, 64)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 32, 3, stride=2)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.relu(x + self.norm2(self.conv2(x)), inplace=True)
        x = F.relu6(self.conv3(x))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))

    def batch(self):
        return torch.randn(8, 3, 32, 32)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))

    def batch(self):
        return torch.randint(100, (8, 32))


class LlamaBlock(nn.Module):
    """A hand-written RMSNorm, rotary positions, fused causal attention, a gated unit, no biases."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def rms_norm(self, x, weight):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def rotate(self, x):
        angles = torch.arange(x.shape[2], device=x.device)[:, None]
        angles = angles / 100 ** (torch.arange(x.shape[3] // 2, device=x.device) / x.shape[3])
        angles = torch.cat([angles, angles], -1)
        half1, half2 = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-half2, half1], -1) * angles.sin()

    def forward(self, x):
        h = self.rms_norm(x, self.norm1)
        q, k, v = (layer(h).view(*h.shape[:2], self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
        x = x + self.o(h.transpose(1, 2).reshape(x.shape))
        h = self.rms_norm(x, self.norm2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 64)
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(2))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.embedding.weight).mean(1)  # tied

    def batch(self):
        return torch.randint(100, (8, 32))


MODELS = [MLP, CNN, Transformer, Llama]


def make(model_class):
    torch.manual_seed(0)
    model = model_class()
    return model, model.batch()


def loss_of(model, batch):
    output = model(batch)
    return F.cross_entropy(output, torch.arange(len(output), device=output.device) % output.shape[1])


def gradients(model, batch, session=None):
    """Returns the gradients of one step from a fixed random state. Only forward runs in the scope of `session`."""
    model.zero_grad()
    torch.manual_seed(1)
    if session is None:
        loss = loss_of(model, batch)
    else:
        with session:
            loss = loss_of(model, batch)
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def cosine(a, b):
    flat = [torch.cat([g.flatten() for g in grads.values()]) for grads in (a, b)]
    return float(F.cosine_similarity(*flat, dim=0))


class Attention(torch.autograd.Function):
    """Saves query, key, value, result and the logarithm of the sums, as fused kernels of other libraries do."""

    @staticmethod
    def forward(ctx, q, k, v):
        logits = q @ k.mT / math.sqrt(q.shape[-1])
        sums = logits.logsumexp(-1, keepdim=True)
        result = (logits - sums).exp() @ v
        ctx.save_for_backward(q, k, v, result, sums)
        return result

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, result, sums = ctx.saved_tensors
        scale = 1 / math.sqrt(q.shape[-1])
        p = (q @ k.mT * scale - sums).exp()
        inner = p * (gradient @ v.mT - (gradient * result).sum(-1, keepdim=True)) * scale
        return inner @ k, inner.mT @ q, p.mT @ gradient
