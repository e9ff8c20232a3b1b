"""DDP and FSDP2 around compiled models, in two processes on the CPU: gradients are as good as an eager session's."""

import contextlib

import actzip
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from compile_cases import MLP, graphs_alone, mean_error, mean_square
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")
WORLD, DRAWS = 2, 8


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(MLP() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def ddp_around(model):
    return DistributedDataParallel(graphs_alone(model))


def ddp_inside(model):
    return graphs_alone(DistributedDataParallel(model), fullgraph=False)


def sharded(model):
    """The graphs, one for each block, get gathered weights as inputs."""
    mesh = init_device_mesh("cpu", (WORLD,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return graphs_alone(fully_shard(model, mesh=mesh), fullgraph=False)


def gradients(forward, batch, scope=None):
    forward.zero_grad()
    with scope or contextlib.nullcontext():
        loss = mean_square(forward(batch))
    loss.backward()
    found = (parameter.grad for parameter in forward.parameters())
    return torch.cat([getattr(grad, "full_tensor", lambda grad=grad: grad)().flatten().double() for grad in found])


def network():
    torch.manual_seed(0)
    return Network()


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    torch.manual_seed(5 + rank)
    batch = MLP.batch()
    plain = DistributedDataParallel(network())
    exact = gradients(plain, batch)
    session = actzip.Session(plain, guard=False)
    eager = mean_error([gradients(plain, batch, session) for _ in range(DRAWS + 1)][1:], exact)
    for wrap in (ddp_around, ddp_inside, sharded):
        torch.compiler.reset()
        forward = wrap(network())
        draws = [gradients(forward, batch) for _ in range(DRAWS)]
        assert mean_error(draws, exact) == pytest.approx(eager, rel=0.15), wrap
        both = [torch.empty_like(exact) for _ in range(WORLD)]
        dist.all_gather(both, draws[0])
        assert torch.equal(*both), wrap
        sites = actzip.compiled_session().report().sites
        assert sum(site.codec == "rotated:3" for site in sites) == 6, wrap  # two linear inputs and a GELU in each block
        weights = [site for site in sites if site.shape in ((128, 64), (64, 128)) and site.op == "input"]
        assert {site.cause for site in weights} == {"parameter"}, wrap
    dist.destroy_process_group()


def test_two_processes(tmp_path):
    mp.start_processes(work, (str(tmp_path),), nprocs=WORLD, start_method="fork")
