"""Small models of every kind, trained for a while on generated data, so that gradients are typical of training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from .errors import BenchError
from .graphs import GraphNetwork, normalised
from .models import ModelSpec, bert, check_package, llama
from .steps import Bench

CLASSES, PIXELS, VOCABULARY, TOKENS = 10, 16, 64, 64


def residual_block(width: int) -> nn.Module:
    return Residual(
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), last=nn.ReLU())


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.layers, self.last = nn.Sequential(*layers), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(x + self.layers(x))


class SqueezeExcite(nn.Module):
    """Weights the channels by a function of their means over the image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width // 4, 1), nn.SiLU(), nn.Conv2d(width // 4, width, 1),
            nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


def inverted_block(width: int) -> nn.Module:
    """Returns a block of EfficientNet: wider inside, one filter per channel, squeeze and excite."""
    inner = 4 * width
    return Residual(
        nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.SiLU(),
        nn.Conv2d(inner, inner, 3, padding=1, groups=inner, bias=False), nn.BatchNorm2d(inner), nn.SiLU(),
        SqueezeExcite(inner), nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), last=nn.Identity())


def image_network(block, widths: Sequence[int], activation: type[nn.Module], blocks: int = 2) -> nn.Module:
    """Returns a network with some blocks at each width. Between widths the image is halved."""
    layers: list[nn.Module] = []
    for before, width in zip([3, *widths], widths):
        layers += [nn.Conv2d(before, width, 3, 1 if before == 3 else 2, 1, bias=False), nn.BatchNorm2d(width),
                   activation(), *(block(width) for _ in range(blocks))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES))


class CausalTransformer(nn.Module):
    """A transformer of torch's own layers, with GELU and fused attention."""

    def __init__(self, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(0.02 * torch.randn(TOKENS, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.head(self.layers(self.embedding(ids) + self.position, mask=mask, is_causal=True))


def pictures(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images with a pattern for each class, and noise."""
    y = torch.randint(CLASSES, (batch,))
    coordinate = torch.linspace(-3, 3, PIXELS)
    angle = y[:, None, None, None] * (torch.pi / CLASSES)
    waves = torch.sin(2 * (coordinate[:, None] * angle.cos() + coordinate * angle.sin()))
    return waves + torch.randn(batch, 3, PIXELS, PIXELS), y


def sentences(batch: int) -> torch.Tensor:
    """Returns sentences in which a word determines the next one, except in one case of five."""
    surprises = torch.rand(TOKENS, batch) < 0.2
    words = torch.randint(VOCABULARY, (TOKENS, batch))
    for i in range(1, TOKENS):
        words[i] = torch.where(surprises[i], words[i], (5 * words[i - 1] + 7) % VOCABULARY)
    return words.T.contiguous()


def whole_sentences(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = sentences(batch)
    return ids, ids


def damaged_sentences(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns sentences with some words replaced by word 0. All words are to be predicted, as that is learned faster
    than the missing ones alone."""
    ids = sentences(batch)
    return torch.where(torch.rand(ids.shape) < 0.15, 0, ids), ids


def communities(nodes: int, features: int = 64) -> tuple[torch.Tensor, ...]:
    """Returns a graph whose nodes are mostly linked to nodes of their class, noisy features that hint at it, and the
    classes."""
    y = torch.arange(nodes) % CLASSES
    start = torch.randint(nodes, (6 * nodes,))
    same_class = (start + CLASSES * torch.randint(nodes, start.shape)) % nodes
    end = torch.where(torch.rand(start.shape) < 0.7, same_class, torch.randint(nodes, start.shape))
    loops = torch.arange(nodes).expand(2, -1)
    edges = torch.stack([start, end])
    hint = F.one_hot(y, features).float()
    return normalised(torch.cat([edges, edges.flip(0), loops], 1), nodes), hint + torch.randn(nodes, features), y


def blocks_of(network: nn.Sequential) -> list[nn.Module]:
    return [part for part in network if isinstance(part, Residual)]


def classified(make, data=pictures, batch: int = 32) -> ModelSpec:
    return ModelSpec("fp32", batch, make, data, lambda model, x, y: F.cross_entropy(model(x), y), blocks=blocks_of)


def next_word_loss(model: nn.Module, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def causal_transformer(depth: int) -> ModelSpec:
    return ModelSpec("fp32", 16, lambda: CausalTransformer(128, 4, depth), whole_sentences, next_word_loss,
                     blocks=lambda model: model.layers.layers)


def graph_loss(model: nn.Module, graph: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x, graph), y)


WORDS = {"vocabulary": VOCABULARY, "tokens": TOKENS, "weights": torch.float32}
SMALL_MODELS: dict[str, ModelSpec] = {
    "cnn": classified(lambda: image_network(residual_block, (16, 32), nn.ReLU)),
    "efficientnet": classified(lambda: image_network(inverted_block, (16, 24), nn.SiLU)),
    "gpt": causal_transformer(depth=2),
    "llama": dataclasses.replace(llama(2, 128, 344, 4, **WORDS), batch=16, data=whole_sentences),
    "bert": dataclasses.replace(bert(2, 128, 4, attention="eager", **WORDS), batch=16, data=damaged_sentences),
    "gcn": ModelSpec("fp32", 4000, lambda: GraphNetwork(64, 128, CLASSES, 3), communities, graph_loss,
                     blocks=lambda model: model.layers),
}
#: With as many blocks as make sense to run again in backward.
DEEP_MODELS: dict[str, ModelSpec] = {
    "deep-gpt": causal_transformer(depth=8),
    "deep-cnn": classified(lambda: image_network(residual_block, (16, 32), nn.ReLU, blocks=4)),
}


def trained(spec: ModelSpec, device: torch.device, steps: int) -> Bench:
    """Returns a model after some steps of AdamW, each on a new batch. Its data are the last batch."""
    bench = Bench(spec, device)
    optimizer = torch.optim.AdamW(bench.model.parameters(), lr=2e-3)
    for _ in range(steps):
        with device:
            bench.data = spec.data(bench.batch)
        optimizer.zero_grad()
        spec.loss(bench.model, *bench.data).backward()
        optimizer.step()
    return bench


def named(name: str) -> dict[str, ModelSpec]:
    """Returns one model, or all but the deep ones."""
    known = SMALL_MODELS | DEEP_MODELS
    if name != "all" and name not in known:
        raise BenchError(f"model '{name}' (allowed: all, {', '.join(known)})")
    chosen = SMALL_MODELS if name == "all" else {name: known[name]}
    for each, spec in chosen.items():
        check_package(each, spec)
    return chosen
