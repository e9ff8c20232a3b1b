"""Threads that run backward through one graph at the same time: python shared_graph_stress.py SECONDS.

The losses of two heads share a trunk, whose graph is retained. It must not crash while the guard looks at the trunk.
"""

import sys
import threading
import time

import actzip
import torch
from torch import nn

WIDTH, ROWS, STEPS = 512, 1024, 3


def run_together(losses):
    start = threading.Barrier(len(losses))

    def run(loss):
        start.wait()
        loss.backward(retain_graph=True)

    threads = [threading.Thread(target=run, args=(loss,)) for loss in losses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(seconds):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
    heads = [nn.Sequential(nn.GELU(), nn.Linear(WIDTH, 8)) for _ in range(2)]
    steps, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        session = actzip.Session()
        for _ in range(STEPS):
            with session:
                shared = trunk(torch.randn(ROWS, WIDTH))
                losses = [head(shared).square().mean() for head in heads]
            run_together(losses)
            steps += 1
    print(f"{steps} steps")


if __name__ == "__main__":
    main(float(sys.argv[1]))
