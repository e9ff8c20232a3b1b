"""Trains some of the models from several seeds, plain and compressed, and compares the losses that they end with."""

import argparse
import statistics
import sys

import actzip
import torch
from measure import CASES, backward

NAMES = ("charbonnier", "siren", "vit-mae-384", "contrastive-0.01", "t5")


def end_loss(name, seed, steps, compressed):
    """Returns the mean loss of the last tenth of the steps."""
    torch.manual_seed(seed)
    model, loss = CASES[name]()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    session = actzip.Session(model, min_numel=256, seed=seed) if compressed else None
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(float(backward(loss, session).detach()))
        optimizer.step()
    return statistics.mean(losses[-steps // 10:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="MODEL")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(CASES):
        parser.error(f"no model {', '.join(sorted(unknown))} (allowed: {', '.join(sorted(CASES))})")
    print("| model | plain | compressed | difference of the means, in deviations between seeds |\n|---|---|---|---|")
    for name in arguments.names:
        plain, ours = ([end_loss(name, seed, arguments.steps, compressed) for seed in range(arguments.seeds)]
                       for compressed in (False, True))
        difference = (statistics.mean(ours) - statistics.mean(plain)) / statistics.stdev(plain)
        texts = (", ".join(f"{value:.4g}" for value in values) for values in (plain, ours))
        print(f"| {name} | {' | '.join(texts)} | {difference:+.1f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
