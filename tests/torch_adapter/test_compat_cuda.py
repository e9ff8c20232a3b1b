"""Programs of ActNN and GACT on a GPU."""

import pytest
import torch
import torch.nn.functional as F
from actzip.compat import actnn, gact
from gpu import needs_gpu
from torch import nn

pytestmark = [needs_gpu,
              pytest.mark.filterwarnings("ignore:actzip. compression adds")]


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1),
                         nn.Linear(32 * 8 * 8, 10))


def data():
    generator = torch.Generator("cuda").manual_seed(1)
    return torch.randn(128, 3, 16, 16, device="cuda", generator=generator), torch.arange(128, device="cuda") % 10


def test_adaptation_leaves_the_gpu_as_it_was():
    """Above all the random states, because the closure draws a dropout mask in each run."""
    gact.set_optimization_level("L2")
    model, (x, y) = network().cuda(), data()
    optimizer = torch.optim.Adam(model.parameters())
    controller = gact.Controller(model)
    controller.install_hook()

    def backprop():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    backprop()
    before = torch.cuda.get_rng_state(), [p.grad.clone() for p in model.parameters()], [
        value.clone() for value in model.state_dict().values()], repr(optimizer.state_dict())
    controller.iterate(backprop)
    controller.uninstall_hook()
    assert controller.report().plan.plans > 0
    assert torch.equal(torch.cuda.get_rng_state(), before[0]) and repr(optimizer.state_dict()) == before[3]
    assert all(torch.equal(a, b) for a, b in zip((p.grad for p in model.parameters()), before[1]))
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), before[2]))


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L2.5", "L3", "L3.1"])
def test_actnn_trains(level):
    actnn.config.reset()
    actnn.set_optimization_level(level)
    actnn.config.use_gradient = level.startswith("L3")
    actnn.QScheme.num_samples = 128
    model, (x, y) = actnn.QModule(network()).cuda(), data()
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    losses = []
    for _ in range(12):
        actnn.QScheme.batch = torch.arange(128)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report = actnn.session_of(model).report()
    actnn.config.reset()
    assert losses[-1] < 0.8 * losses[0] and report.preset == f"actnn:{level}"
    assert report.bytes_before > {"L0": 1, "L1": 2}.get(level, 3) * report.bytes_after
    assert actnn.get_memory_usage() > 0
