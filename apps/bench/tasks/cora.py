"""A graph convolutional network of two layers on the citations of Cora."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .. import data as files
from .task import Task, Trial


class GCN(nn.Module):
    """The network of Kipf and Welling: two layers, each a product with weights and a mean over neighbours."""

    def __init__(self, features: int, hidden: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.layer1 = nn.Linear(features, hidden, bias=False)
        self.bias1 = nn.Parameter(torch.zeros(hidden))
        self.layer2 = nn.Linear(hidden, classes, bias=False)
        self.bias2 = nn.Parameter(torch.zeros(classes))
        for layer in (self.layer1, self.layer2):
            nn.init.xavier_uniform_(layer.weight)

    def forward(self, neighbours: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(torch.sparse.mm(neighbours, self.layer1(features)) + self.bias1)
        return torch.sparse.mm(neighbours, self.layer2(self.dropout(hidden))) + self.bias2


@dataclasses.dataclass(frozen=True)
class Cora(Task):
    """Uses the public split, and the accuracy after the last epoch, so that no epoch is chosen by its result."""

    name = "cora"
    metric = "test accuracy, %"
    digits = 2
    files = ("cora.nodes", "cora.edges")

    epochs: int = 200
    hidden: int = 16
    dropout: float = 0.5
    rate: float = 0.01
    weight_decay: float = 5e-4  #: only for the first layer, as published

    def load(self, folder: Path) -> dict[str, np.ndarray]:
        graph = files.read_graph(*(folder / file for file in self.files))
        features, edges = graph.pop("features"), graph.pop("edges")
        return {**graph, "features": features / np.maximum(1, features.sum(1, keepdims=True)),
                **_normalised(edges, len(features))}

    def start(self, data: dict[str, torch.Tensor], seed: int, device: torch.device) -> Trial:
        features, labels, train, test = (data[key] for key in ("features", "labels", "train_nodes", "test_nodes"))
        nodes = len(features)
        neighbours = torch.sparse_coo_tensor(data["ends"], data["weights"], (nodes, nodes), is_coalesced=True,
                                             check_invariants=True)
        model = GCN(features.shape[1], self.hidden, 1 + int(labels.max()), self.dropout).to(device)
        first = [model.layer1.weight, model.bias1]
        optimizer = torch.optim.Adam(
            [{"params": first, "weight_decay": self.weight_decay},
             {"params": [model.layer2.weight, model.bias2]}], self.rate)

        words = features.nonzero(as_tuple=True)
        values = features[words]

        def loss(_: None) -> torch.Tensor:
            # Dropout only where features are not 0, 1 in 80: for all of them it would take most of the step.
            dropped = torch.zeros_like(features).index_put_(words, F.dropout(values, self.dropout))
            return F.cross_entropy(model(neighbours, dropped)[train], labels[train])

        def evaluate() -> float:
            found = model(neighbours, features)[test].argmax(1)
            return 100 * (found == labels[test]).double().mean().item()

        return Trial(model, optimizer, self.epochs, None, itertools.repeat(None), loss, evaluate)


def _normalised(edges: np.ndarray, nodes: int) -> dict[str, np.ndarray]:
    """Adds the other direction of each edge, and a loop at each node. Returns each edge once, with its weight:
    1 / sqrt(degree of one end * degree of the other)."""
    loops = np.arange(nodes).repeat(2).reshape(-1, 2)
    ends = np.unique(np.concatenate([edges, edges[:, ::-1], loops]), axis=0).T
    degree = np.bincount(ends[0], minlength=nodes).astype(np.float32)
    return {"ends": np.ascontiguousarray(ends), "weights": 1 / np.sqrt(degree[ends[0]] * degree[ends[1]])}
