"""Two processes on gloo: DDP, FSDP2, and the tools that wrap a model in DDP by themselves."""

import page
import pytest
import small
import torch
import torch.distributed as dist
from processes import WORLD, run_in_two
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")


def part(rank, count=3):
    """Batches of one process."""
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


def check_here(rank, folder, train):
    """In a process of its own; all weights are those of the other process, too."""
    seen = []

    def train_and_remember(package):
        seen.append(train(rank, package))
        return seen[-1]

    report = page.check(train_and_remember)
    torch.save((seen, {site.site: (site.codec, site.bytes_before) for site in report.sites}), f"{folder}/{rank}")


def check_in_two(train, folder):
    """Gives codec and bytes before compression, by site."""
    run_in_two(check_here, folder, train)
    (first, sites), (second, _) = (torch.load(f"{folder}/{rank}") for rank in range(WORLD))
    assert all(page.are_same(a, b) for a, b in zip(first, second, strict=True))
    return sites


def test_ddp(tmp_path):
    assert "module.blocks.0.2: gelu.self" in check_in_two(ddp, tmp_path)


def test_fsdp(tmp_path):
    sites = check_in_two(fsdp, tmp_path)
    assert "blocks.0.2: gelu.self" in sites
    weights = [kept for site, kept in sites.items() if site.endswith("addmm.mat2")]
    assert weights and set(weights) == {("as is", 0)}  # gathered weights are FSDP's to free


def reset_accelerate():
    """Its state is of the whole process, and tests that ran before the fork have left one."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)


def accelerated(rank, package):
    import accelerate

    reset_accelerate()
    model = small.network()
    names = {"actzip": package, "model": model, "optimizer": optimizer_of(model), "loader": small.loader(6),
             "loss_fn": cross_entropy, "accelerator": accelerate.Accelerator(cpu=True)}
    page.run("Accelerate", names)
    assert isinstance(names["model"], DistributedDataParallel)
    return page.weights(model)


def test_accelerate(tmp_path):
    pytest.importorskip("accelerate")
    check_in_two(accelerated, tmp_path)


def test_trainer(tmp_path):
    from test_huggingface import train_by_page

    def train(rank, package):
        reset_accelerate()
        return train_by_page(package, tmp_path, ddp_backend="gloo")

    check_in_two(train, tmp_path)


def test_lightning(tmp_path):
    from test_lightning import fit

    check_in_two(lambda rank, package: fit(package, tmp_path, strategy="ddp", devices=WORLD), tmp_path)
