"""Sites keep their own names, whether modules are watched or the sequence of saves is followed."""

import threading

import actzip
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

LEARNED = 4  # steps after which an unchanging model is followed


class Layers(nn.Module):
    """Linear layers of one size, run in an order that a test can change."""

    def __init__(self, count=3):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(count))
        self.order = list(range(count))
        self.watched = None

    def forward(self, x):
        self.watched = bool(torch_modules._global_forward_hooks)
        for i in self.order:
            x = self.layers[i](x)
        return x


def step(session, model):
    """Runs a step and returns its sites."""
    with session:
        loss = model(torch.randn(32, 64)).tanh().sum()
    loss.backward()
    return [site.site for site in session.report().sites]


def activations(names):
    return [name for name in names if "mat1" in name]


def test_modules_are_watched_until_steps_repeat():
    model = Layers()
    session = actzip.Session(model)
    first = step(session, model)
    assert model.watched
    assert activations(first) == [f"layers.{i}: addmm.mat1" for i in range(3)]
    for _ in range(LEARNED):
        assert step(session, model) == first
    assert not model.watched
    assert not torch_modules._global_forward_hooks and not torch_modules._global_forward_pre_hooks


@pytest.mark.parametrize("autocast", [False, True])
def test_another_order_gets_no_other_sites_name(autocast):
    """Layers of one size are distinguished by their weights, with autocast by the sources of their casts."""
    model = Layers()
    session = actzip.Session(model)

    def activations_of_step():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return activations(step(session, model))

    for _ in range(LEARNED):
        activations_of_step()
    assert not model.watched
    model.order = [0, 2, 1]
    names = activations_of_step()
    assert names == ["layers.0: addmm.mat1", "?: addmm.mat1", "?: addmm.mat1 #1"]  # no name rather than a wrong one
    assert activations_of_step() == [f"layers.{i}: addmm.mat1" for i in model.order]
    assert model.watched


def test_what_comes_after_the_sequence_is_no_known_site():
    """A step leaves the sequence after a site without module; the next save of its kind is a site of its own."""
    model = Layers(1)
    session = actzip.Session(model)

    def names(more):
        with session:
            loss = torch.randn(64, 64, requires_grad=True).mul(2).tanh().sum() + model(torch.randn(32, 64)).sum()
            if more:
                loss = loss + torch.randn(64, 64, requires_grad=True).mul(2).tanh().sum()
        return [site.site for site in session.report().sites if site.op == "tanh"]

    for _ in range(LEARNED):
        assert names(False) == ["tanh.result"]
    assert names(True) == ["tanh.result", "?: tanh.result"]
    assert names(True) == ["tanh.result", "tanh.result #1"]


def test_a_shorter_step_follows_and_a_longer_one_leaves():
    model = Layers()
    session = actzip.Session(model)
    for _ in range(LEARNED):
        full = step(session, model)
    with session:
        model.layers[0](torch.randn(32, 64)).sum()
    assert [site.site for site in session.report().sites] == full[:1]
    assert step(session, model) == full
    model.order = [0, 1, 2, 0]
    assert activations(step(session, model))[-1] == "?: addmm.mat1"
    assert activations(step(session, model))[-1] == "layers.0: addmm.mat1 #1"


def test_each_break_doubles_what_is_asked_for():
    model = Layers()
    session = actzip.Session(model)
    for _ in range(LEARNED):
        step(session, model)
    model.order.reverse()
    step(session, model)
    for _ in range(LEARNED):
        step(session, model)
    assert model.watched
    for _ in range(LEARNED):
        step(session, model)
    assert not model.watched


@pytest.mark.parametrize("frozen", [True, False])
def test_replaced_parameters_are_known_at_the_next_step(frozen):
    model = Layers()
    session = actzip.Session(model, preset="rotated:4", min_elems=0)
    for _ in range(LEARNED):
        step(session, model)
    model.layers[1] = nn.Linear(64, 64).requires_grad_(not frozen)
    model.layers[2].weight = nn.Parameter(torch.randn(64, 64), requires_grad=not frozen)
    step(session, model)
    step(session, model)
    weights = [site for site in session.report().sites if site.slot == "mat2"]
    assert {site.reason for site in weights} == {"a parameter or buffer"}


def test_steps_on_several_threads_are_watched():
    model = Layers()
    session = actzip.Session(model)
    for _ in range(LEARNED):
        step(session, model)
    entered, done = threading.Event(), threading.Event()

    def other():
        with session:
            entered.set()
            done.wait()

    with session:
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
        model(torch.randn(32, 64))
    done.set()
    thread.join()
    for _ in range(LEARNED):
        assert activations(step(session, model)) == [f"layers.{i}: addmm.mat1" for i in range(3)]
    assert model.watched


def test_a_scripted_child_is_asked_for_its_parameters():
    model = nn.Sequential(torch.jit.script(nn.Linear(64, 64)), nn.Linear(64, 64))
    session = actzip.Session(model, preset="rotated:4", min_elems=0)
    step(session, model)
    weights = [site for site in session.report().sites if site.slot in ("mat2", "weight")]
    assert weights and {site.reason for site in weights} == {"a parameter or buffer"}
