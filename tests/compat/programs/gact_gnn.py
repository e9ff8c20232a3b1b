"""Like GACT's graph benchmark: passes the controller's functions as hooks, and copies the best model."""

import argparse
import copy

import no_gpu  # noqa: F401
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GCN2Conv, GCNConv, SAGEConv

import gact
from gact.controller import Controller
from gact.utils import get_memory_usage

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="gcn", choices=["gcn", "sage", "gat", "gcn2"])
parser.add_argument("--gact", action="store_true")
parser.add_argument("--level", default="L2.2")
parser.add_argument("--hidden-size", type=int, default=32)
parser.add_argument("--num-layers", type=int, default=3)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--epochs", type=int, default=24)
parser.add_argument("--patience", type=int, default=24)
args = parser.parse_args()
torch.manual_seed(0)

NODES, CLASSES = 400, 4
y = torch.arange(NODES) % CLASSES
ends = torch.randint(NODES, (2, 6 * NODES))
edge_index = ends[:, y[ends[0]] == y[ends[1]]]  # only edges between nodes of one class
x = torch.randn(NODES, 16) + F.one_hot(y, 16) * 1.5
train_mask = torch.arange(NODES) % 3 > 0


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        hidden, heads = args.hidden_size, 2
        makers = {"gcn": lambda: GCNConv(hidden, hidden), "sage": lambda: SAGEConv(hidden, hidden),
                  "gat": lambda: GATConv(hidden, hidden // heads, heads=heads, dropout=0.1),
                  "gcn2": lambda: GCN2Conv(hidden, alpha=0.1)}
        self.first, self.last = nn.Linear(16, hidden), nn.Linear(hidden, CLASSES)
        self.convs = nn.ModuleList(makers[args.model]() for _ in range(args.num_layers - 1))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in self.convs)

    def forward(self, x, edge_index):
        h = start = F.relu(self.first(x))
        for conv, norm in zip(self.convs, self.norms):
            h = conv(h, start, edge_index) if args.model == "gcn2" else conv(h, edge_index)
            h = F.dropout(F.relu(norm(h)), args.dropout, self.training)
        return self.last(h)


model = Graph().cuda()
gact.set_optimization_level(args.level)
gact.set_adapt_interval(10)
controller = Controller(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses, best_model, best_acc, patience = [], None, -1.0, 0


def pack_hook(tensor):
    return controller.quantize(tensor) if args.gact else tensor


def unpack_hook(tensor):
    return controller.dequantize(tensor) if args.gact else tensor


def accuracy(model, mask):
    model.eval()
    with torch.no_grad():
        return (model(x, edge_index).argmax(1) == y)[mask].double().mean().item()


with torch.autograd.graph.saved_tensors_hooks(pack_hook, unpack_hook):
    for epoch in range(args.epochs):
        model.train()
        output = model(x, edge_index)
        loss = F.cross_entropy(output[train_mask], y[train_mask])
        get_memory_usage()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        found = accuracy(model, ~train_mask)
        if found > best_acc:
            best_acc, patience, best_model = found, 0, copy.deepcopy(model)
        else:
            patience += 1
            if patience >= args.patience:
                break

        def get_grad():
            model.train()
            loss = F.cross_entropy(model(x, edge_index)[train_mask], y[train_mask])
            optimizer.zero_grad()
            loss.backward()
            return loss

        if args.gact:
            controller.iterate(get_grad)
    test_acc = accuracy(best_model, ~train_mask)
print("Final Test Acc:", test_acc)
