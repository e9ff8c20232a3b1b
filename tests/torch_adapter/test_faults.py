"""Errors anywhere in a scope: afterwards torch has no hook of actzip's, nothing listens, and steps work as before."""

import gc
import signal
import sys
import warnings
from collections import OrderedDict

import actzip
import pytest
import torch
from actzip import _C
from models import MLP, gradients, loss_of, make
from torch import nn

SESSION_FILE = actzip.session.__file__


class Injected(Exception):
    pass


def assert_clean():
    assert _C.open_scopes() == 0
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert not nn.modules.module._global_forward_pre_hooks and not nn.modules.module._global_forward_hooks


def lines_of(action):
    """Returns every line of the package's Python that runs in `action`, as often as it runs."""
    lines = []

    def trace(frame, event, _):
        if "actzip" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return lines


def raising_at(number, action):
    """Runs `action`, and raises when the package runs its line number `number`, counted from 1."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if "actzip" not in frame.f_code.co_filename or "tests" in frame.f_code.co_filename:
            return None
        if event == "line":
            count += 1
            if count == number:
                raise Injected
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)


OPTIONS = [{}, {"adapt": "layer"}, {"use_gradient": True, "num_samples": 64, "adapt": "sample"}, {"bits": 1.5, "interval": 3}]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_fault_at_each_line_of_entering_and_leaving(options):
    model, batch = make(MLP)

    def step(session):
        with session:
            loss = loss_of(model, batch)
        loss.backward()

    warnings.simplefilter("ignore")
    rehearsal = actzip.Session(model, **options)
    lines = [lines_of(lambda: step(rehearsal)) for _ in range(5)]  # the first steps differ
    injected = 0
    for before, of_step in enumerate(lines):
        for number in range(1, len(of_step) + 1):
            session = actzip.Session(model, seed=1, **options)
            for _ in range(before):
                step(session)
            with pytest.raises(Injected):
                raising_at(number, lambda s=session: step(s))
            injected += 1
            assert_clean()
            step(session)
            assert_clean()
    assert injected >= 5
    model.zero_grad()
    fresh = [gradients(model, batch, actzip.Session(model, seed=1)) for _ in range(2)]
    assert all(torch.equal(fresh[0][name], fresh[1][name]) for name in fresh[0])


class Fragile(nn.Module):
    """While broken, raises if its buffers are accessed."""

    is_broken = False

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def __getattribute__(self, name):
        if name == "_buffers" and type(self).is_broken:
            raise Injected
        return super().__getattribute__(name)

    def forward(self, x):
        return self.inner(x)


def test_a_model_that_cannot_be_looked_at():
    model = Fragile()
    session = actzip.Session(model)
    x = torch.randn(64, 64)
    for _ in range(6):  # steps with hooks, then steps that follow the learned sequence
        Fragile.is_broken = True
        with pytest.raises(Injected), session:
            pass
        Fragile.is_broken = False
        assert_clean()
        with session:
            loss = model(x).sum()
        loss.backward()
        assert_clean()
    assert session.report().steps == 12  # a step that failed to enter counts, too


@pytest.mark.parametrize("name", ["_global_forward_pre_hooks", "_global_forward_hooks",
                                  "_global_forward_hooks_always_called"])
def test_hooks_that_cannot_be_registered(name, monkeypatch):
    model, batch = make(MLP)
    session = actzip.Session(model)

    class Full(OrderedDict):
        def __setitem__(self, key, value):
            raise Injected

    with monkeypatch.context() as patch:
        patch.setattr(nn.modules.module, name, Full())
        with pytest.raises(Injected), session:
            pass
    assert_clean()
    with session:
        loss_of(model, batch).backward()
    assert_clean()


def test_inside_a_transform_that_forbids_hooks():
    """Entering fails there each time, and leaves neither a listener nor sites behind."""
    model, batch = make(MLP)
    session = actzip.Session(model)
    with session:
        loss_of(model, batch).backward()
    sites, steps = len(session.report().sites), session.report().steps

    def inner(x):
        with session:
            return x.square().sum()

    for _ in range(20):
        with pytest.raises(RuntimeError, match="saved tensor hooks"):
            torch.func.grad(inner)(torch.randn(8))
        assert_clean()
    for _ in range(5):
        with session:
            loss_of(model, batch).backward()
    assert len(session.report().sites) == sites
    assert session.report().steps == steps + 25


def test_a_session_that_dies_inside_of_its_scope():
    """A nested session is left by an error and freed. Leaving the outer one must remove only its listener."""
    model, batch = make(MLP)
    outer = actzip.Session(model)
    with outer:
        inner = actzip.Session(model)
        with pytest.raises(ZeroDivisionError), inner:
            raise ZeroDivisionError
        del inner
        gc.collect()
        loss = loss_of(model, batch)
    loss.backward()
    assert_clean()


def test_leaving_what_was_not_entered():
    session, other = actzip.Session(), actzip.Session()
    with pytest.raises(RuntimeError, match="not entered on this thread"):
        session.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="not entered on this thread"):
        _C.stop_listening(session)
    session.__enter__()
    with pytest.raises(RuntimeError, match="not entered on this thread"):
        other.__exit__(None, None, None)
    other.__enter__()
    with pytest.raises(RuntimeError, match="entered later"):
        session.__exit__(None, None, None)
    other.__exit__(None, None, None)
    session.__exit__(None, None, None)
    assert_clean()


def test_a_thread_that_ends_inside_of_a_scope():
    import threading

    session = actzip.Session()
    thread = threading.Thread(target=session.__enter__)
    thread.start()
    thread.join()
    del session
    gc.collect()
    assert_clean()
    x = torch.randn(64, 64, requires_grad=True)
    with actzip.Session() as again:
        y = torch.relu(x * 2).sum()
    y.backward()
    assert again.report().sites


def test_interrupts_at_any_time():
    """Ctrl-C at 400 different moments: in Python, in torch, in actzip."""
    model, batch = make(MLP)
    session, interrupts = actzip.Session(model), 0

    def interrupt(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for i in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + (i % 40) * 0.00005)
                while True:
                    with session:
                        pass
                    with session:
                        loss = loss_of(model, batch)
                    loss.backward()
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert_clean()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert interrupts == 400
    model.zero_grad()
    session = actzip.Session(model, preset="exact", min_elems=0)
    plain, kept = gradients(model, batch), gradients(model, batch, session)
    assert all(torch.equal(plain[name], kept[name]) for name in plain)
