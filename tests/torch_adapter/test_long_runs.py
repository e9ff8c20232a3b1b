"""Over thousands of steps neither live bytes, nor sites, nor the process grow, even if backward never runs."""

import os

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 10_000


def resident_bytes():
    """Under AddressSanitizer, whose own memory counts, 0."""
    if "ASAN_OPTIONS" in os.environ:
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
@pytest.mark.parametrize("with_model", [True, False])
def test_forward_only_steps(with_model):
    """Each step keeps about 3 KiB until its loss is freed. If they stayed, 10,000 steps would take 30 MiB."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    session, x = actzip.Session(model if with_model else None), torch.randn(64, 64)

    def run(steps):
        for _ in range(steps):
            with session:
                loss = model(x).square().mean()
        return loss

    loss = run(STEPS // 10)
    sites, kept, before = len(session.report().sites), session.live_bytes, resident_bytes()
    assert kept > 1000
    loss = run(STEPS)
    assert session.live_bytes == kept and len(session.report().sites) == sites
    assert session.report().steps == STEPS + STEPS // 10
    assert resident_bytes() - before < 4 << 20
    del loss
    assert session.live_bytes == 0


def test_new_sessions_and_changing_shapes():
    model = nn.Linear(64, 64)

    def run(steps):
        for i in range(steps):
            with actzip.Session(model, min_elems=0):
                F.gelu(model(torch.randn(16 + i % 7, 64))).sum().backward()

    run(300)
    before = resident_bytes()
    run(2000)
    assert resident_bytes() - before < 4 << 20


def test_one_session_sees_many_shapes():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    session = actzip.Session(model, min_elems=0)
    for i in range(1, 200):
        with session:
            loss = model(torch.randn(i, 64)).sum()
        loss.backward()
    assert len(session.report().sites) <= 4 and session.live_bytes == 0


def test_a_cycle_through_the_graph_is_freed():
    """A result that its own node saves must not keep itself alive."""
    session = actzip.Session(min_elems=0)
    for preset_function in (torch.exp, torch.relu, torch.tanh, lambda x: x.softmax(-1)):
        x = torch.randn(64, 64, requires_grad=True)
        with session:
            y = preset_function(x)
        del y
        assert session.live_bytes == 0
