"""Accelerate on the CPU, one process; test_distributed.py has two."""

import page
import pytest
import small
import torch
from torch.nn.functional import cross_entropy

accelerate = pytest.importorskip("accelerate")


def train(package, **options):
    model = small.network()
    names = {"actzip": package, "model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1),
             "loader": small.loader(4), "loss_fn": cross_entropy,
             "accelerator": accelerate.Accelerator(cpu=True, **options)}
    page.run("Accelerate", names)
    return page.weights(model)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}],
                         ids=["f32", "accumulation", "bf16"])
def test_loop(options):
    accelerate.state.AcceleratorState._reset_state(True)
    page.check(lambda package: train(package, **options), 2.5)
