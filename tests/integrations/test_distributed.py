"""DDP and FSDP2 in two processes. Tools that wrap a model in DDP themselves have such tests in their own files."""

import page
import small
import torch
from processes import WORLD, check_in_two, needs_gloo
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

pytestmark = needs_gloo


def part(rank, count=3):
    """The batches of one process."""
    return [(x[rank::WORLD], y[rank::WORLD]) for x, y in small.batches(count, rows=128)]


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), 0.1)


def ddp(rank, package):
    model = small.network()
    names = {"actzip": package, "DistributedDataParallel": DistributedDataParallel, "model": model,
             "optimizer": optimizer_of(model), "loader": part(rank), "loss_fn": cross_entropy}
    torch.manual_seed(rank)
    page.run("DDP", names)
    return page.weights(model)


def fsdp(rank, package):
    model = small.network()
    names = {"actzip": package, "fully_shard": fully_shard, "model": model,
             "mesh": init_device_mesh("cpu", (WORLD,))}
    torch.manual_seed(rank)
    page.run("FSDP2", names)
    optimizer = optimizer_of(model)
    for x, y in part(rank):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return {name: parameter.full_tensor().detach() for name, parameter in model.named_parameters()}


def test_ddp(tmp_path):
    assert "module.blocks.0.2: gelu.self" in check_in_two(ddp, tmp_path)


def test_fsdp(tmp_path):
    sites = check_in_two(fsdp, tmp_path)
    assert "blocks.0.2: gelu.self" in sites
    weights = [kept for site, kept in sites.items() if site.endswith("addmm.mat2")]
    assert weights and set(weights) == {("as is", 0)}  # FSDP frees gathered weights itself
