"""Two processes that train together on the CPU."""

import os

import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 2


def _work(rank, function, folder, arguments):
    # As torchrun sets them: accelerate and lightning read them.
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="0", TORCHELASTIC_RUN_ID="test")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    function(rank, folder, *arguments)
    dist.destroy_process_group()


def run_in_two(function, folder, *arguments):
    """Calls ``function(rank, folder, *arguments)`` in each. Forked, so that nothing is imported again."""
    mp.start_processes(_work, (function, str(folder), arguments), nprocs=WORLD, start_method="fork")
