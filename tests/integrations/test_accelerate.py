"""Accelerate on the CPU, in one process and in two."""

import page
import pytest
import small
import torch
from processes import check_in_two, needs_gloo
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

accelerate = pytest.importorskip("accelerate")


def train(package, is_distributed=False, **options):
    accelerate.state.AcceleratorState._reset_state(True)  # clears the state of the previous test
    model = small.network()
    names = {"actzip": package, "model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1),
             "loader": small.loader(6), "loss_fn": cross_entropy,
             "accelerator": accelerate.Accelerator(cpu=True, **options)}
    page.run("Accelerate", names)
    assert isinstance(names["model"], DistributedDataParallel) == is_distributed
    return page.weights(model)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}],
                         ids=["f32", "accumulation", "bf16"])
def test_loop(options):
    page.check(lambda package: train(package, **options), 2.5)


@needs_gloo
def test_two_processes(tmp_path):
    check_in_two(lambda rank, package: train(package, is_distributed=True), tmp_path)
