"""Per-sample statistics in two processes: each knows its own samples, and gradients are those of the joined batch."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from actzip.compat import actnn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAMPLES, STEPS = 32, 4
needs_gloo = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")


def make():
    """Has no batch norm, which would see half a batch in each process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                         nn.Flatten(), nn.Linear(16 * 16 * 16, 10))


def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 3, 16, 16, generator=generator)
    return x * torch.logspace(-1, 1, SAMPLES)[:, None, None, None], torch.arange(SAMPLES) % 10


def train(model, part):
    """Returns the gradients of the last step, and what is known of the samples."""
    actnn.set_optimization_level("L3")
    actnn.config.use_gradient = True
    actnn.QScheme.num_samples = SAMPLES
    x, y = data()
    for _ in range(STEPS):
        actnn.QScheme.batch = torch.arange(SAMPLES)[part]
        model.zero_grad()
        F.cross_entropy(model(x[part]), y[part]).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()]), actnn.session_of(model)._core.sample_factors()


def normed():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))


def sync_process(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    actnn.set_optimization_level("L0")
    model = actnn.QModule(nn.SyncBatchNorm.convert_sync_batchnorm(normed()))
    assert isinstance(model.model[1], actnn.QSyncBatchNorm)
    x, y = data()
    F.cross_entropy(model(x[rank::2]), y[rank::2]).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(gradient)  # by hand: DistributedDataParallel wants such layers on a GPU
    results[rank] = (gradient / 2).tolist()
    dist.destroy_process_group()


def process(rank, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model = DistributedDataParallel(actnn.QModule(make()))
    gradient, factors = train(model, slice(rank, None, 2))
    results[rank] = (gradient.tolist(), factors.tolist())
    dist.destroy_process_group()


@needs_gloo
def test_batch_norms_of_two_processes_are_as_one(tmp_path):
    """torch's own layers refuse this on the CPU."""
    results = mp.Manager().dict()
    mp.spawn(sync_process, (str(tmp_path), results), nprocs=2)
    plain, (x, y) = normed(), data()
    F.cross_entropy(plain(x), y).backward()
    expected = torch.cat([p.grad.flatten() for p in plain.parameters()])
    for rank in range(2):
        assert torch.allclose(torch.tensor(results[rank]), expected, atol=1e-5, rtol=1e-3)


@needs_gloo
def test_two_processes_are_as_one(tmp_path):
    results = mp.Manager().dict()
    mp.spawn(process, (str(tmp_path), results), nprocs=2)
    (first, known_first), (second, known_second) = (
        tuple(map(torch.tensor, results[rank])) for rank in range(2))
    assert torch.equal(first, second)

    joined, known = train(actnn.QModule(make()), slice(None))
    exact, (x, y) = make(), data()
    F.cross_entropy(exact(x), y).backward()  # torch's own layers: nothing is compressed
    exact = torch.cat([p.grad.flatten() for p in exact.parameters()])

    def error(gradient):
        return float((gradient - exact).square().sum() / exact.square().sum())

    assert 0 < error(first) < 2 * error(joined) + 0.01 and error(first) < 0.1  # noise of the same size, and no more
    assert bool((known_first[0::2] >= 0).all()) and bool((known_first[1::2] < 0).all())
    assert bool((known_second[1::2] >= 0).all()) and bool((known_second[0::2] < 0).all())
    # A sample's factor is relative to its batch. So both agree up to one factor, which comes from the batch's mean.
    for part, own in ((slice(0, None, 2), known_first), (slice(1, None, 2), known_second)):
        ratio = own[part] / known[part]
        assert ratio.max() < 1.5 * ratio.min()
