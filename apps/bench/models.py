"""The models whose training step is measured: well-known models in their usual sizes, on random data."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .errors import BenchError
from .graphs import GraphNetwork, random_graph


NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """One model, its data and its loss. `make` and `data` create on torch's default device."""

    dtype: str  #: as the table names it
    batch: int  #: images, sequences or nodes
    make: Callable[[], nn.Module]
    data: Callable[[int], tuple[Any, ...]]  #: returns that many images, sequences or nodes
    loss: Callable[..., torch.Tensor]  #: takes the model and its data
    blocks: Callable[[nn.Module], Iterable[nn.Module]]  #: the modules that checkpointing recomputes one at a time
    autocast: torch.dtype | None = None
    needs: str = ""  #: the package that has the model, if it is neither torch nor this one


def vision(name: str, classes: int = 1000, size: int = 224, **fields: Any) -> ModelSpec:
    """Returns a network of torchvision, with random weights."""

    def make() -> nn.Module:
        network = getattr(importlib.import_module("torchvision.models"), name)(weights=None, num_classes=classes)
        return network.to(memory_format=torch.channels_last) if fields.get("autocast") else network

    def data(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        images = torch.randn(batch, 3, size, size)
        if fields.get("autocast"):
            images = images.contiguous(memory_format=torch.channels_last)
        return images, torch.randint(classes, (batch,))

    return ModelSpec(make=make, data=data, loss=lambda model, x, y: F.cross_entropy(model(x), y),
                     needs="torchvision", **fields)


def residual(name: str, **sizes: Any) -> ModelSpec:
    """Returns a ResNet as it is usually trained: bf16 by autocast, channels last."""
    return vision(name, **sizes, dtype="bf16 autocast", batch=256, autocast=torch.bfloat16, blocks=lambda model: [
        block for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for block in stage])


def swin(**sizes: Any) -> ModelSpec:
    return vision("swin_t", **sizes, dtype="fp32", batch=256, blocks=lambda model: [
        block for stage in model.features[1::2] for block in stage])  # layers between stages merge patches


def bert(layers: int = 24, width: int = 1024, heads: int = 16, vocabulary: int = 30522, tokens: int = 128,
         attention: str = "sdpa", weights: torch.dtype = torch.bfloat16) -> ModelSpec:
    """Returns BERT-large by default. 15 % of the tokens are to be predicted."""

    def make() -> nn.Module:
        transformers = importlib.import_module("transformers")
        config = transformers.BertConfig(
            vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
            intermediate_size=4 * width, max_position_embeddings=max(512, tokens),
            attn_implementation=attention)
        return transformers.BertForMaskedLM(config).to(weights)

    def data(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.randint(vocabulary, (batch, tokens))
        return ids, torch.where(torch.rand(batch, tokens) < 0.15, ids, -100)  # -100: ignored by the loss

    return ModelSpec(NAMES[weights], 64, make, data, loss=language_loss,
                     blocks=lambda model: model.bert.encoder.layer, needs="transformers")


def llama(layers: int = 8, width: int = 2048, inner: int = 5632, heads: int = 16, vocabulary: int = 32000,
          tokens: int = 2048, weights: torch.dtype = torch.bfloat16) -> ModelSpec:
    """Returns a Llama with layers as in that of about 1.1 billion weights, but fewer of them."""

    def make() -> nn.Module:
        transformers = importlib.import_module("transformers")
        config = transformers.LlamaConfig(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=tokens, use_cache=False,
            attn_implementation="sdpa")
        return transformers.LlamaForCausalLM(config).to(weights)

    def data(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        ids = torch.randint(vocabulary, (batch, tokens))
        return ids, ids

    return ModelSpec(NAMES[weights], 8, make, data, loss=language_loss,
                     blocks=lambda model: model.model.layers, needs="transformers")


def gcn(width: int = 256, layers: int = 3, features: int = 128, classes: int = 40, nodes: int = 169_343) -> ModelSpec:
    """Returns the GCN of OGB's example for ogbn-arxiv, with a random graph of that size. A batch has all nodes."""
    edges_of_arxiv, nodes_of_arxiv, trained_nodes_of_arxiv = 1_166_243, 169_343, 90_941

    def data(batch: int) -> tuple[torch.Tensor, ...]:
        trained = torch.randperm(batch)[: max(1, batch * trained_nodes_of_arxiv // nodes_of_arxiv)]
        graph = random_graph(batch, batch * edges_of_arxiv // nodes_of_arxiv)
        return graph, torch.randn(batch, features), trained, torch.randint(classes, (len(trained),))

    def loss(model: nn.Module, graph: torch.Tensor, x: torch.Tensor, trained: torch.Tensor, y: torch.Tensor):
        return F.cross_entropy(model(x, graph)[trained], y)

    return ModelSpec("fp32", nodes, make=lambda: GraphNetwork(features, width, classes, layers), data=data, loss=loss,
                     blocks=lambda model: model.layers)


def language_loss(model: nn.Module, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return model(input_ids=ids, labels=labels).loss


def check_package(name: str, spec: ModelSpec) -> None:
    """Raises BenchError if the model's package is missing. Called before anything takes time."""
    try:
        importlib.import_module(spec.needs or "torch")
    except ImportError as error:
        raise BenchError(f"model '{name}' needs {spec.needs} (pip install {spec.needs}): {error}") from error


MODELS: dict[str, ModelSpec] = {
    "resnet50": residual("resnet50"),
    "bert-large": bert(),
    "llama": llama(),
    "swin-t": swin(),
    "gcn": gcn(),
    "wrn50-2": residual("wide_resnet50_2"),
}


def named(name: str) -> ModelSpec:
    if name not in MODELS:
        raise BenchError(f"model '{name}' (allowed: {', '.join(MODELS)})")
    check_package(name, MODELS[name])
    return MODELS[name]
