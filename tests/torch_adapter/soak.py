"""Trains for many steps and checks that memory stays flat.

    python soak.py [--steps 50000] [--device cuda]

Trains a small network in sessions of several kinds in turn, and regularly prints how much memory device and host hold.
Fails if either grows after the first tenth of the steps, or if a printed step's loss is NaN.
"""

import argparse
import gc
import itertools
import resource
import sys
import time

import actzip
import torch
import torch.nn.functional as F
from torch import nn

KINDS = ({}, {"preset": "exact"}, {"bits": 1.5, "interval": 500}, {"adapt": "sample+layer", "interval": 500},
         {"preset": "affine:4"})


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 64)
        self.norm, self.qkv, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)
        self.conv = nn.Sequential(nn.Conv1d(64, 64, 3, padding=1), nn.BatchNorm1d(64), nn.ReLU(), nn.MaxPool1d(2))
        self.head = nn.Linear(64, 10)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + F.dropout(self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)), 0.1)
        return self.head(self.conv(x.transpose(1, 2)).mean(-1))


def held(device):
    torch_bytes = torch.cuda.memory_allocated() if device == "cuda" else 0
    with open("/proc/self/statm") as status:
        return torch_bytes, int(status.read().split()[1]) * resource.getpagesize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Network().to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sessions = [actzip.Session(model, **kind) for kind in KINDS]
    batches = [(torch.randint(100, (16, 32), device=options.device), torch.randint(10, (16,), device=options.device))
               for _ in range(8)]
    period, began, seen = max(options.steps // 20, 1), time.time(), []
    for step, (tokens, labels) in zip(range(1, options.steps + 1), itertools.cycle(batches)):
        session = sessions[step // 100 % len(sessions)]
        with session, torch.autocast(options.device, torch.bfloat16, enabled=step // 500 % 2 == 1):
            loss = F.cross_entropy(model(tokens).float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % period == 0:
            value = float(loss)
            assert value == value, f"the loss of step {step} is not finite"
            del loss
            gc.collect()
            seen.append(held(options.device))
            print(f"step {step}: device {seen[-1][0] / 2**20:.2f} MiB, host {seen[-1][1] / 2**20:.1f} MiB, "
                  f"{(time.time() - began) / step * 1e3:.2f} ms a step", flush=True)
    settled = seen[2:]
    assert all(session.live_bytes == 0 for session in sessions)
    assert max(d for d, _ in settled) <= settled[0][0] + 2**20, "memory of the device grows"
    assert max(h for _, h in settled) <= settled[0][1] * 1.02 + 8 * 2**20, "memory of the host grows"
    print(f"{options.steps} steps, flat")
    return 0


if __name__ == "__main__":
    sys.exit(main())
