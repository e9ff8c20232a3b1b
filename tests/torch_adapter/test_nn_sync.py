"""SyncBatchNorm in two processes on the CPU is a batch norm over the joined batch."""

import copy
import os
import sys

import actzip
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

SIZES = (5, 3)  # rows of each process


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SyncBatchNorm(8), nn.ReLU(), nn.Conv2d(8, 4, 3),
                          nn.SyncBatchNorm(4, momentum=None))
    nn.init.normal_(model[1].weight)
    return model


def batch(rows=sum(SIZES)):
    return torch.randn(rows, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def loss_of(model, x):
    result = model(x)
    return (result * torch.linspace(-1, 1, result[0].numel()).view(result[0].shape)).square().sum()


def work(rank, folder, options):
    sys.path.insert(0, os.path.dirname(__file__))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(SIZES))
    model = actzip.convert(network(), **options)
    x = batch().split(SIZES)[rank]
    for _ in range(2):  # in the second, it knows what is derived
        model.load_state_dict(network().state_dict())
        model.zero_grad()
        loss = loss_of(model, x)
        loss.backward()
    assert actzip.session_of(model).live_bytes == 0
    codecs = {site.site: site.codec for site in actzip.session_of(model).report().sites}
    with torch.no_grad():
        model(x)  # statistics are shared without gradients, too
    found = {"gradients": {name: p.grad for name, p in model.named_parameters()},
             "buffers": dict(model.named_buffers()), "result": model.eval()(x).detach(), "codecs": codecs}
    torch.save(found, f"{folder}/{rank}")
    dist.destroy_process_group()


def two_processes(folder, **options):
    mp.spawn(work, (str(folder), options), nprocs=len(SIZES))
    found = [torch.load(folder / str(rank)) for rank in range(len(SIZES))]
    gradients = {name: sum(one["gradients"][name] for one in found) for name in found[0]["gradients"]}
    return gradients, found


def one_process():
    model = network()
    x = batch()
    loss_of(model, x).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    with torch.no_grad():
        model(x)
    return gradients, model, x


@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
def test_exact_is_one_process_with_the_joined_batch(tmp_path):
    expected, model, x = one_process()
    gradients, found = two_processes(tmp_path, preset="exact")
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-3)
    for one in found:
        for name, buffer in model.named_buffers():
            torch.testing.assert_close(one["buffers"][name], buffer, rtol=1e-4, atol=1e-5)
    joined = torch.cat([one["result"] for one in found])
    torch.testing.assert_close(joined, model.eval()(x), rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
def test_default_is_close_and_derives(tmp_path):
    expected, _, _ = one_process()
    gradients, found = two_processes(tmp_path, min_elems=0)
    flat = [torch.cat([g[name].flatten() for name in expected]) for g in (gradients, expected)]
    assert F.cosine_similarity(*flat, dim=0) > 0.95
    assert found[0]["codecs"]["3: convolution.input"] == "derived"


def test_alone_it_is_a_batch_norm():
    layer = actzip.convert(nn.SyncBatchNorm(8))
    plain = nn.BatchNorm2d(8)
    x = torch.randn(4, 8, 6, 6)
    torch.testing.assert_close(layer(x), plain(x))
    assert copy.deepcopy(layer).eval()(x).shape == x.shape
