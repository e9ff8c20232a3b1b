"""Threads share a model and sessions: some run forward, others run backward on the graphs that these make.

    python thread_stress.py SECONDS [THREADS]

Prints how many steps ran and how many gradients were wrong. `exact` must be bitwise plain, on every thread; other presets
must stay close to it.
"""

import queue
import random
import sys
import threading
import time

import actzip
import torch
import torch.nn.functional as F
from torch import nn

SESSIONS = ({"preset": "exact", "min_elems": 0}, {}, {"preset": "affine:8", "min_elems": 0}, {"adapt": "layer", "interval": 5})


class Network(nn.Module):
    """Casts, masks, indices, shared memory and several modules. A step takes a millisecond."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
                                    for _ in range(3))
        self.conv = nn.Sequential(nn.Conv1d(32, 32, 3, padding=1), nn.BatchNorm1d(32, track_running_stats=False),
                                  nn.Hardtanh(), nn.MaxPool1d(2))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x)
        x = self.conv(x.transpose(1, 2))
        return F.leaky_relu(x).square().mean()


class Stress:
    def __init__(self, threads):
        torch.manual_seed(0)
        self.model = Network()
        self.batches = [torch.randint(50, (8, 32)) for _ in range(4)]
        self.plain = [self.gradients_of(self.model(batch)) for batch in self.batches]
        self.shared = [actzip.Session(self.model, **options) for options in SESSIONS]
        self.graphs, self.threads = queue.Queue(maxsize=2 * threads), threads
        self.is_over, self.lock = threading.Event(), threading.Lock()
        self.steps, self.faults = 0, []

    def gradients_of(self, loss):
        return torch.autograd.grad(loss, list(self.model.parameters()))

    def forward(self, number):
        draw = random.Random(number)
        while not self.is_over.is_set():
            kind, batch = draw.randrange(len(SESSIONS)), draw.randrange(len(self.batches))
            is_own = draw.random() < 0.5  # freed before backward
            session = actzip.Session(self.model, **SESSIONS[kind]) if is_own else self.shared[kind]
            with session:
                if draw.random() < 0.3:
                    with actzip.Session(self.model):  # a scope inside a scope, in which nothing is saved
                        pass
                loss = self.model(self.batches[batch])
            self.put((kind, batch, loss))

    def put(self, graph):
        while not self.is_over.is_set():
            try:
                return self.graphs.put(graph, timeout=0.1)
            except queue.Full:
                pass

    def backward(self, _):
        while not self.is_over.is_set():
            try:
                kind, batch, loss = self.graphs.get(timeout=0.1)
            except queue.Empty:
                continue
            self.check(kind, self.plain[batch], self.gradients_of(loss))

    def check(self, kind, plain, found):
        if kind == 0:
            is_right = all(torch.equal(a, b) for a, b in zip(plain, found))
        else:
            a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (plain, found))
            is_right = F.cosine_similarity(a, b, dim=0) > 0.7
        with self.lock:
            self.steps += 1
            if not is_right:
                self.faults.append(f"preset {SESSIONS[kind]}: a wrong gradient in step {self.steps}")

    def guarded(self, work, number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001
            with self.lock:
                self.faults.append(f"{type(error).__name__}: {error}")
            self.is_over.set()

    def run(self, seconds):
        workers = [threading.Thread(target=self.guarded, args=(self.forward if i % 2 == 0 else self.backward, i))
                   for i in range(self.threads)]
        for worker in workers:
            worker.start()
        self.is_over.wait(seconds)
        self.is_over.set()
        for worker in workers:
            worker.join()
        return self.steps, self.faults


if __name__ == "__main__":
    torch.set_num_threads(1)
    began = time.time()
    steps, faults = Stress(int(sys.argv[2]) if len(sys.argv) > 2 else 8).run(float(sys.argv[1]))
    print(f"{steps} steps in {time.time() - began:.0f} s, {len(faults)} faults")
    print("\n".join(faults[:20]))
    sys.exit(bool(faults) or steps == 0)
