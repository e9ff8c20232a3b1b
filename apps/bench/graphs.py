"""Graph convolutions in plain torch."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from torch import nn


class SymmetricProduct(torch.autograd.Function):
    """graph @ x for a symmetric graph. Its gradient is the same product, and only the graph is kept.

    torch.sparse.mm also keeps only the graph, but its backward multiplies by the transpose, which is stored by columns.
    """

    @staticmethod
    def forward(ctx, graph: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        ctx.graph = graph
        return graph @ x

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, ctx.graph @ gradient


class GraphLayer(nn.Module):
    """Convolution and, except in the last layer, batch norm, ReLU and dropout."""

    def __init__(self, inputs: int, outputs: int, is_last: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.norm = None if is_last else nn.BatchNorm1d(outputs)

    def forward(self, x: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        x = SymmetricProduct.apply(graph, self.linear(x)) + self.bias
        return x if self.norm is None else F.dropout(F.relu(self.norm(x)), 0.5, self.training)


class GraphNetwork(nn.Module):
    """A GCN of `depth` layers."""

    def __init__(self, features: int, width: int, classes: int, depth: int) -> None:
        super().__init__()
        widths = [features] + [width] * (depth - 1) + [classes]
        self.layers = nn.ModuleList(
            GraphLayer(inputs, outputs, is_last=i == depth - 1)
            for i, (inputs, outputs) in enumerate(zip(widths[:-1], widths[1:])))

    def forward(self, x: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, graph)
        return x


def random_graph(nodes: int, edges: int) -> torch.Tensor:
    """Returns a symmetric graph with loops, normalised as for a GCN: D^-1/2 (A + I) D^-1/2, by rows (CSR)."""
    ends = torch.randint(nodes, (2, edges))
    loops = torch.arange(nodes).expand(2, -1)
    return normalised(torch.cat([ends, ends.flip(0), loops], 1), nodes)


def normalised(ends: torch.Tensor, nodes: int) -> torch.Tensor:
    """Returns the normalised graph of a list of edges, which must contain both directions of each edge, and the
    loops."""
    places = torch.unique(ends[0] * nodes + ends[1])  # sorted by rows, as CSR requires
    row, column = places // nodes, places % nodes
    degree = torch.bincount(row, minlength=nodes)
    scale = degree.rsqrt()
    first = F.pad(degree.cumsum(0), (1, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that CSR tensors are in beta
        return torch.sparse_csr_tensor(
            first, column, scale[row] * scale[column], (nodes, nodes), check_invariants=False)
