"""Scopes: nested, left by exceptions, beside other hooks, on threads, in forked processes, freed early."""

import contextlib
import gc
import multiprocessing
import threading
import warnings
import weakref

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import CNN, MLP, Llama, cosine, gradients, loss_of, make
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.data import DataLoader, TensorDataset

EXACT = {"preset": "exact", "min_elems": 0}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@contextlib.contextmanager
def both(outer, inner):
    with outer, inner:
        yield


@pytest.mark.parametrize("model_class", [MLP, CNN, Llama])
@pytest.mark.parametrize("inside", [True, False])
def test_save_on_cpu(model_class, inside):
    model, batch = make(model_class)
    plain = gradients(model, batch)
    session = actzip.Session(model, **EXACT)
    scopes = (save_on_cpu(), session) if inside else (session, save_on_cpu())
    assert_same(plain, gradients(model, batch, both(*scopes)))
    assert bool(session.report().sites) == inside  # the innermost hooks serve


def test_users_hooks_inside_and_after():
    x, seen = torch.randn(64, 64, requires_grad=True), []
    with actzip.Session(**EXACT):
        a = F.gelu(x * 2)
        with saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
            b = F.gelu(a)
        c = F.gelu(b)
    assert len(seen) == 1
    c.sum().backward()


def test_nested_sessions():
    x = torch.randn(64, 64, requires_grad=True)
    outer, inner = actzip.Session(), actzip.Session(preset="exact")
    with outer:
        a = F.gelu(x * 2)
        with inner:
            b = F.silu(a)
        c = F.gelu(b)
    assert [s.op for s in inner.report().sites] == ["silu"]
    assert [s.op for s in outer.report().sites] == ["gelu", "gelu"]
    c.sum().backward()
    assert outer.live_bytes == inner.live_bytes == 0


def test_two_sessions_share_nothing():
    x = torch.randn(64, 64, requires_grad=True) * 2
    first, second = actzip.Session(), actzip.Session()
    with first:
        a = F.gelu(x)
    with second:
        b = F.gelu(x)
    assert first.report().sites[0].codec == second.report().sites[0].codec == "rotated:3"
    del a
    assert first.live_bytes == 0 and second.live_bytes > 0
    b.sum().backward()


class Boom(Exception):
    pass


@pytest.mark.parametrize("where", ["forward hook", "module", "between", "backward"])
def test_exception_then_a_clean_step(where):
    model, batch = make(CNN)
    plain = gradients(model, batch)
    session = actzip.Session(model, **EXACT)

    def fail(*_):
        raise Boom

    with pytest.raises(Boom):
        with contextlib.ExitStack() as stack:
            if where == "forward hook":
                stack.callback(model.conv2.register_forward_hook(fail).remove)
            if where == "module":
                stack.callback(setattr, model.conv2, "forward", model.conv2.forward)
                model.conv2.forward = fail
            with session:
                loss = loss_of(model, batch)
                if where == "between":
                    fail()
            model.conv1.weight.register_hook(fail)
            loss.backward()
    model.conv1.weight._backward_hooks = None
    loss = None
    gc.collect()
    assert session.live_bytes == 0
    batch_norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert batch_norms and session.report().steps == 1
    assert_same(plain, gradients(model, batch, session))
    assert session.report().sites[0].site == "conv1: convolution.input"
    x = torch.randn(64, 64, requires_grad=True)
    assert F.gelu(x * 2).grad_fn._saved_self.grad_fn is not None  # torch's own hooks are back


def test_keyboard_interrupt_in_a_generator():
    model, batch = make(MLP)
    session = actzip.Session(model)

    def steps():
        with session:
            yield loss_of(model, batch)

    generator = steps()
    loss = next(generator)
    with pytest.raises(KeyboardInterrupt):
        generator.throw(KeyboardInterrupt)
    del loss
    assert session.live_bytes == 0
    steps_before = session.report().steps
    loss_of(model, batch)
    assert session.report().steps == steps_before


@pytest.mark.parametrize("preset", ["default", "exact"])
def test_session_destroyed_before_backward(preset):
    model, batch = make(CNN)
    expected = gradients(model, batch, actzip.Session(model, preset=preset, seed=3))
    model.zero_grad()
    torch.manual_seed(1)
    session = actzip.Session(model, preset=preset, seed=3)
    with session:
        loss = loss_of(model, batch)
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    loss.backward()
    assert_same(expected, {name: p.grad for name, p in model.named_parameters()})


def test_model_destroyed_with_its_session():
    model, batch = make(CNN)
    with actzip.compress(model):
        loss = loss_of(model, batch)
    loss.backward()
    gone = weakref.ref(model)
    del model, loss
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("shared", [True, False])
def test_threads(shared):
    """Forward and backward on several threads at once, in one session or in one each."""
    model, batch = make(MLP)
    plain = {name: g for name, g in gradients(model, batch).items() if name.startswith("net.0")}
    common, failures = actzip.Session(**EXACT), []

    def work():
        mine, _ = make(MLP)
        session = common if shared else actzip.Session(mine, **EXACT)
        for _ in range(10):
            mine.zero_grad()
            with session:
                loss = mine.net[0](batch).relu().square().mean()
            loss.backward()
            reference = torch.autograd.grad(mine.net[0](batch).relu().square().mean(), mine.net[0].weight)[0]
            if not torch.equal(mine.net[0].weight.grad, reference):
                failures.append("differs")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and common.live_bytes == 0 and plain


def test_backward_on_another_thread():
    model, batch = make(CNN)
    plain, session = gradients(model, batch), actzip.Session(model, **EXACT)
    model.zero_grad()
    torch.manual_seed(1)
    with session:
        loss = loss_of(model, batch)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert_same(plain, {name: p.grad for name, p in model.named_parameters()})


def test_a_scope_does_not_reach_other_threads():
    session, seen = actzip.Session(), []
    x = torch.randn(64, 64, requires_grad=True)
    with session:
        thread = threading.Thread(target=lambda: seen.append(F.gelu(x * 2)))
        thread.start()
        thread.join()
    assert not session.report().sites and seen[0].grad_fn is not None


def collate(rows):
    """Runs a step in a worker, and returns its inputs and their gradient."""
    x = torch.stack([row for (row,) in rows]).requires_grad_()
    with actzip.Session(bits=4, min_elems=0):
        y = F.gelu(x * 2).sum()
    y.backward()
    return x.detach(), x.grad


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_workers(workers):
    """Workers are forked while a scope is open and after sessions have run."""
    if workers and torch.cuda.is_initialized():
        pytest.skip("torch itself refuses backward in a process forked after a backward on a GPU")
    model, batch = make(MLP)
    session = actzip.Session(model)
    loader = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=16, num_workers=workers, collate_fn=collate,
                        multiprocessing_context="fork" if workers else None, timeout=60 if workers else 0)
    gradients(model, batch, session)
    count = 0
    with session:
        for x, gradient in loader:
            exact = torch.func.jvp(lambda v: F.gelu(v * 2), (x,), (torch.ones_like(x),))[1]
            assert cosine({"": exact}, {"": gradient}) > 0.9
            count += 1
            loss = loss_of(model, batch)
    assert count == 4
    loss.backward()


def test_spawned_processes():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        x, gradient = pool.apply(collate, ([(torch.ones(64),)] * 16,))
    assert x.shape == gradient.shape


def test_a_whole_loop_in_one_scope_is_said_once_and_keeps_its_sites():
    model, batch = make(MLP)
    once = actzip.Session(model)
    with once:
        loss_of(model, batch).backward()
    session = actzip.Session(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with session:
            for _ in range(50):
                loss_of(model, batch).backward()
    assert len([warning for warning in caught if "several times in one scope" in str(warning.message)]) == 1
    assert len(session.report().sites) == len(once.report().sites)
