"""Runs tests in two processes that train together on the CPU."""

import os

import page
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2
needs_gloo = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")


def _work(rank, function, folder, arguments):
    # Set as torchrun does, for accelerate and lightning.
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="0", TORCHELASTIC_RUN_ID="test")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    function(rank, folder, *arguments)
    dist.destroy_process_group()


def run_in_two(function, folder, *arguments):
    """Calls ``function(rank, folder, *arguments)`` in both processes. They are forked: nothing is imported again."""
    mp.start_processes(_work, (function, str(folder), arguments), nprocs=WORLD, start_method="fork")


def check_here(rank, folder, train):
    """Runs ``page.check`` in this process and saves its results, which ``check_in_two`` compares."""
    seen = []

    def train_and_remember(package):
        seen.append(train(rank, package))
        return seen[-1]

    report = page.check(train_and_remember)
    torch.save((seen, {site.site: (site.codec, site.bytes_before) for site in report.sites}), f"{folder}/{rank}")


def check_in_two(train, folder):
    """Runs ``page.check`` for ``train(rank, actzip)`` in two processes, which must end with the same weights. Returns
    codec and bytes before compression by site."""
    run_in_two(check_here, folder, train)
    (first, sites), (second, _) = (torch.load(f"{folder}/{rank}") for rank in range(WORLD))
    assert all(page.are_same(a, b) for a, b in zip(first, second, strict=True))
    return sites
