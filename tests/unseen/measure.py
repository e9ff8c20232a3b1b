"""Measures what compression does to a model's gradients, after it has trained for a few steps."""

import contextlib
import dataclasses
import warnings

import actzip
import cases_torch
import cases_transformers
import numpy as np
import torch

CASES = {**cases_torch.CASES, **cases_transformers.CASES}
TRAINING_STEPS, DRAWS = 30, 16
#: Compresses nearly every site, because these models are small.
SMALLEST = 256


@dataclasses.dataclass(frozen=True)
class Result:
    name: str
    is_exact: bool  #: gradients with preset "exact" are those of plain torch, bit for bit
    cosine: float  #: with the exact gradient, mean over the draws
    bias: float  #: |mean of the draws - exact| as a multiple of what unbiased noise would leave of it
    ratio: float  #: bytes before by bytes after
    guarded: tuple[str, ...]  #: sites that the guard keeps as they are

    @property
    def is_finite(self):
        return self.cosine == self.cosine


def backward(loss, session=None):
    with session or contextlib.nullcontext():
        value = loss()
    value.backward()
    return value


def gradient(model, loss, session=None):
    """Returns the gradient of all parameters as one vector, with the same random numbers each time."""
    model.zero_grad()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002  (what some models of transformers draw from)
    backward(loss, session)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def train(model, loss):
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(TRAINING_STEPS):
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()


@contextlib.contextmanager
def one_thread():
    """With several threads, sums have a different order each time, so that torch's own gradients differ."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def is_exact(model, loss):
    ours = gradient(model, loss, actzip.Session(model, preset="exact", min_numel=0))
    return torch.equal(gradient(model, loss), ours)


def measured(name, draws=DRAWS, seed=0, **options):
    """Trains and measures a model. `seed` is for the model and its data."""
    torch.manual_seed(seed)
    model, loss = CASES[name]()
    train(model, loss)
    exact = gradient(model, loss).double()
    session = actzip.Session(model, **{"min_numel": SMALLEST, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):  # it learns what is shared and where the loss begins, and checks each site
            gradient(model, loss, session)
        drawn = [gradient(model, loss, session).double() for _ in range(draws)]
    report = session.report()
    assert session.live_bytes == 0
    noise = torch.stack([(each - exact).square().sum() for each in drawn]).mean().sqrt()
    bias = (sum(drawn) / draws - exact).norm() / (noise / draws ** 0.5) if noise > 0 else torch.zeros(())
    cosine = torch.stack([torch.cosine_similarity(each, exact, dim=0) for each in drawn]).mean()
    guarded = tuple(site.site for site in report.sites if site.cause == "guard")
    return Result(name, is_exact(model, loss), float(cosine), float(bias), report.ratio, guarded)
