"""What is kept, for how long, and what happens when things go wrong."""

import copy
import gc
import pickle
import threading

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import CNN, MLP, Llama, cosine, gradients, loss_of, make
from actzip import _C
from torch import nn
from torch.utils.checkpoint import checkpoint


def test_retain_graph_decodes_the_same_again():
    model, batch = make(MLP)
    with actzip.Session(model):
        loss = loss_of(model, batch)
    first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_double_backward_exact():
    x = torch.randn(32, 64, requires_grad=True)

    def second(session=None):
        with session or torch.enable_grad():
            y = F.softplus(x * 2).tanh().sum()
            (first,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    assert torch.equal(second(), second(actzip.Session(preset="exact", min_elems=0)))


@pytest.mark.parametrize("preset", ["default", "exact"])
def test_in_place_modification_raises(preset):
    x = torch.randn(64, 64, requires_grad=True)
    with actzip.Session(preset=preset):
        h = x * 1.5
        y = F.gelu(h)
    with torch.no_grad():
        h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*gelu.self"):
        y.sum().backward()


def test_session_gone_before_backward():
    model, batch = make(CNN)
    expected = gradients(model, batch, actzip.Session(model, seed=3))
    model.zero_grad()
    torch.manual_seed(1)
    session = actzip.Session(model, seed=3)
    with session:
        loss = loss_of(model, batch)
    del session
    gc.collect()
    loss.backward()
    assert all(torch.equal(expected[name], p.grad) for name, p in model.named_parameters())


def test_exception_in_forward_then_a_clean_step():
    model, batch = make(CNN)
    session = actzip.Session(model)
    with pytest.raises(ZeroDivisionError), session:
        loss = loss_of(model, batch)
        assert session.live_bytes > 0
        raise ZeroDivisionError
    del loss
    gc.collect()
    assert session.live_bytes == 0
    plain = gradients(model, batch)
    assert cosine(plain, gradients(model, batch, session)) > 0.9
    assert session.report().sites[0].site == "conv1: convolution.input"


def test_forward_only_steps_keep_nothing():
    model, batch = make(MLP)
    session = actzip.Session(model)
    for _ in range(300):
        with session:
            loss = loss_of(model, batch)
    assert session.live_bytes > 0
    del loss
    assert session.live_bytes == 0
    assert len(session.report().sites) < 40


def test_sharing_counts_memory_once():
    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
    x = torch.randn(64, 64, requires_grad=True) * 2
    session = actzip.Session(layers)
    with session:
        y = sum(layer(x) for layer in layers)
    kept = [s for s in session.report().sites if s.slot == "mat1"]
    assert [s.codec for s in kept] == ["rotated:3", "shared", "shared"]
    assert session.live_bytes == kept[0].bytes_after
    y.sum().backward()
    assert session.live_bytes == 0


def test_sharing_sees_through_autocast():
    layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
    x = torch.randn(64, 64, requires_grad=True) * 2
    session = actzip.Session(layers)
    with session, torch.autocast("cpu", torch.bfloat16):
        y = sum(layer(x) for layer in layers)
    kept = [s for s in session.report().sites if s.slot == "mat1"]
    assert [s.codec for s in kept] == ["rotated:3", "shared", "shared"]
    y.sum().backward()


def test_changed_memory_is_not_shared():
    a, b = nn.Linear(64, 64), nn.Linear(64, 64)
    x = torch.randn(64, 64)
    session = actzip.Session()
    with session:
        y = a(x)
        x.mul_(2)
        z = b(x)
    assert [s.codec for s in session.report().sites if s.slot == "mat1"] == ["rotated:3", "rotated:3"]
    with pytest.raises(RuntimeError, match="inplace"):
        (y + z).sum().backward()


@pytest.mark.parametrize("view", [
    lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 3:40], lambda x: x.expand(5, 64, 64), lambda x: x.unfold(0, 8, 2),
    lambda x: x.view(2, 2, 16, 2, 8, 4), lambda x: x.permute(1, 0)[1:], lambda x: x.square().flatten()[7]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("preset", ["exact", "affine:8"])
def test_views_and_strides(view, dtype, preset):
    x = torch.randn(64, 64, dtype=dtype, requires_grad=True)

    def gradient(session=None):
        h = view(x * 2)
        with session or torch.enable_grad():
            y = h.sin() * torch.relu(h)
        return torch.autograd.grad(y.float().sum(), x)[0]

    actual, expected = gradient(actzip.Session(preset=preset, min_elems=0)), gradient()
    if preset == "exact":
        assert torch.equal(actual, expected)
    else:
        assert float((actual - expected).float().norm()) < 0.1 * float(expected.float().norm())


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_checkpoint(use_reentrant, inside):
    model, batch = make(Llama)
    plain = gradients(model, batch)
    session = actzip.Session(preset="exact", min_elems=0)
    x = model.embedding(batch)

    def run(block, x):
        if not inside:
            return block(x)
        with session:
            return block(x)

    model.zero_grad()
    with torch.enable_grad() if inside else session:
        for block in model.blocks:
            x = checkpoint(run, block, x, use_reentrant=use_reentrant)
    output = F.linear(x, model.embedding.weight).mean(1)
    F.cross_entropy(output, torch.arange(len(output)) % output.shape[1]).backward()
    for name, parameter in model.named_parameters():
        assert torch.equal(plain[name], parameter.grad), name
    assert session.live_bytes == 0


def test_other_hooks_nest_either_way():
    model, batch = make(MLP)
    plain = gradients(model, batch)
    session = actzip.Session(model, preset="exact", min_elems=0)

    class Both:
        def __init__(self, *scopes):
            self.scopes = scopes

        def __enter__(self):
            for scope in self.scopes:
                scope.__enter__()

        def __exit__(self, *_):
            for scope in reversed(self.scopes):
                scope.__exit__(None, None, None)

    save_on_cpu = torch.autograd.graph.save_on_cpu
    for both in (Both(session, save_on_cpu()), Both(save_on_cpu(), session)):
        actual = gradients(model, batch, both)
        assert all(torch.equal(plain[name], actual[name]) for name in plain)


def test_custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return 3 * x * x * gradient

    x = torch.randn(64, 64, requires_grad=True)
    session = actzip.Session(preset="exact", min_elems=0)
    with session:
        y = Cube.apply(x * 2)
    y.sum().backward()
    assert torch.allclose(x.grad, 3 * (2 * x.detach()) ** 2 * 2)
    assert any("Cube" in site.op for site in session.report().sites)


def test_threads_have_their_own_scopes():
    model, batch = make(MLP)
    plain = gradients(model, batch)
    session, failures = actzip.Session(preset="exact", min_elems=0), []

    def work():
        mine, _ = make(MLP)
        for _ in range(5):
            with session:
                loss = mine.net[0](batch).relu().square().mean()
            loss.backward()
        failures.extend(name for name, p in mine.named_parameters() if p.grad is not None and not p.grad.isfinite().all())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and session.live_bytes == 0
    assert all(torch.equal(plain[n], g) for n, g in gradients(model, batch, session).items())


def test_dry_compresses_nothing_and_counts_the_same():
    model, batch = make(CNN)
    plain = gradients(model, batch)
    dry, real = actzip.Session(model, dry=True), actzip.Session(model)
    actual = gradients(model, batch, dry)
    gradients(model, batch, real)
    assert all(torch.equal(plain[name], actual[name]) for name in plain)
    assert dry.report().bytes_after == real.report().bytes_after
    assert dry.report().bytes_before == real.report().bytes_before


def test_report_speaks_to_people_and_programs():
    model, batch = make(CNN)
    session = actzip.Session(model)
    gradients(model, batch, session)
    report = session.report()
    assert "conv1: convolution.input" in str(report)
    assert report.to_dict()["sites"][0]["shape"] == (8, 3, 32, 32)
    assert '"preset": "default"' in report.to_json()
    assert report.bytes_after == sum(site.bytes_after for site in report.sites)


def test_profile_names_sites():
    model, batch = make(CNN)
    with torch.profiler.profile() as profile:
        gradients(model, batch, actzip.Session(model))
    names = {event.name for event in profile.events()}
    assert {"actzip encode conv1: convolution.input", "actzip decode conv1: convolution.input"} <= names


def test_attach_and_remove():
    model, batch = make(CNN)
    handle = actzip.attach(model)
    gradients(model, batch)
    assert handle.report().bytes_after < handle.report().bytes_before / 3
    handle.remove()
    steps = handle.report().steps
    gradients(model, batch)
    assert handle.report().steps == steps


def test_a_second_attachment_takes_the_place_of_the_first():
    model, batch = make(CNN)
    first = actzip.attach(model)
    copied = copy.deepcopy(model)
    with pytest.warns(UserWarning, match="takes the place of the earlier one"):
        second = actzip.attach(model, bits=4)
    gradients(model, batch)
    assert second.report().sites and not first.report().sites
    gradients(copied, batch)
    assert first.report().sites
    first.remove()  # does nothing to the second
    gradients(model, batch)
    assert second.report().steps == 2
    second.remove()
    assert not model._forward_hooks and not model._forward_pre_hooks and not model._forward_hooks_always_called


def test_removing_an_attachment_ends_it_for_copies():
    model, batch = make(CNN)
    handle = actzip.attach(model)
    copied = copy.deepcopy(model)
    handle.remove()
    for other in (copied, pickle.loads(pickle.dumps(copied))):
        gradients(other, batch)
        assert not [hook.__self__ for hook in other._forward_hooks.values() if hook.__self__.report().sites]


def test_an_attachment_that_is_removed_while_its_model_runs():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
    handle = actzip.attach(model)
    model[0].register_forward_hook(lambda *_: handle.remove())
    x = torch.randn(64, 64, requires_grad=True)
    model(x).sum().backward()
    assert _C.open_scopes() == 0
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert len(handle.report().sites) > 1, "the forward that ran stayed in the scope"
    model(x)
    assert handle.report().steps == 1


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_evaluation_of_an_attached_model_is_no_step(without_gradients):
    model, batch = make(CNN)
    handle = actzip.attach(model)
    gradients(model, batch)
    trained = handle.report().text
    with without_gradients():
        model(batch)
    assert handle.report().text == trained
    handle.remove()


def test_an_attached_forward_may_change_the_grad_mode():
    class Frozen(torch.nn.Linear):
        def forward(self, x):
            torch.set_grad_enabled(not torch.is_grad_enabled())
            return super().forward(x)

    model, x = Frozen(64, 64), torch.randn(64, 64, requires_grad=True)
    handle = actzip.attach(model)
    for _ in range(2):  # entered with gradients and left without, then the other way round
        model(x)
    assert handle.report().steps == 1
    F.gelu(x * 2)  # would be kept if a scope was still open
    assert not [site for site in handle.report().sites if site.op == "gelu"]


def test_nothing_is_left_on_the_model():
    model, batch = make(CNN)
    session = actzip.Session(model)
    gradients(model, batch, session)
    pickle.loads(pickle.dumps(model))
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    handle = actzip.attach(model)
    gradients(copy.deepcopy(model), batch)
    handle.remove()
    pickle.dumps(model)


def test_nested_scopes_the_innermost_serves():
    x = torch.randn(64, 64, requires_grad=True)
    outer, inner = actzip.Session(), actzip.Session()
    with outer:
        a = F.gelu(x * 2)
        for _ in range(2):
            with inner:
                b = F.silu(a)
        with outer:
            c = F.silu(b)
        d = F.gelu(c)
    assert [site.site for site in inner.report().sites] == ["silu.self"]
    assert [site.op for site in outer.report().sites] == ["gelu", "silu", "gelu"]
    assert [site.ordinal for site in outer.report().sites] == [0, 0, 1]
    d.sum().backward()
    assert outer.live_bytes == inner.live_bytes == 0


def test_func_transforms_refuse_clearly():
    with actzip.Session(), pytest.raises(RuntimeError, match="hooks"):
        torch.func.grad(lambda x: x.sin().sum())(torch.randn(4))
