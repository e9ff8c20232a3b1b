"""Gradients of whole models: bitwise torch's own with `exact`, close with `default`, and good enough to train."""

import actzip
import pytest
import torch
from models import MODELS, CNN, cosine, gradients, loss_of, make


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("with_model", [True, False])
def test_exact_is_bitwise(model_class, with_model):
    model, batch = make(model_class)
    plain = gradients(model, batch)
    session = actzip.Session(model if with_model else None, preset="exact", min_elems=0)
    for _ in range(2):
        assert_same(plain, gradients(model, batch, session))
    assert session.live_bytes == 0


@pytest.mark.parametrize("model_class", MODELS)
def test_exact_is_bitwise_under_autocast(model_class):
    model, batch = make(model_class)
    with torch.autocast("cpu", torch.bfloat16):
        plain = gradients(model, batch)
        assert_same(plain, gradients(model, batch, actzip.Session(model, preset="exact", min_elems=0)))


@pytest.mark.parametrize("model_class", MODELS)
def test_default_is_close(model_class):
    model, batch = make(model_class)
    plain = gradients(model, batch)
    session = actzip.Session(model)
    for _ in range(2):  # in the second, it knows which results several operators save
        assert cosine(plain, gradients(model, batch, session)) > 0.9
    report = session.report()
    assert report.bytes_after < report.bytes_before / 3
    assert session.live_bytes == 0


@pytest.mark.parametrize("model_class", MODELS)
def test_parameters_are_never_encoded(model_class):
    model, batch = make(model_class)
    shapes = {tuple(p.shape) for p in model.parameters()} | {tuple(p.T.shape) for p in model.parameters() if p.dim() == 2}
    for autocast in (False, True):
        session = actzip.Session(preset="rotated:4", min_elems=0)  # no model: only the graph shows parameters
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            gradients(model, batch, session)
        weights = [s for s in session.report().sites if s.shape in shapes and s.slot in ("weight", "mat2")]
        assert weights
        assert {s.codec for s in weights} == {"as is"}, [s for s in weights if s.codec != "as is"]


def test_default_trains():
    model, batch = make(CNN)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(40):
        with actzip.compress(model):
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


def test_the_users_random_stream_is_untouched():
    model, batch = make(CNN)
    torch.manual_seed(3)
    gradients(model, batch)
    expected = torch.rand(4)
    gradients(model, batch, actzip.Session(model))
    assert torch.equal(torch.rand(4), expected)


def test_a_seed_repeats_and_another_does_not():
    model, batch = make(CNN)
    first, again, other = (gradients(model, batch, actzip.Session(model, seed=s)) for s in (5, 5, 6))
    assert_same(first, again)
    assert cosine(first, other) < 1 - 1e-6


def test_state_dict_and_classes_stay():
    model, batch = make(CNN)
    keys, classes = list(model.state_dict()), [type(m) for m in model.modules()]
    handle = actzip.attach(model)
    gradients(model, batch)
    assert list(model.state_dict()) == keys and [type(m) for m in model.modules()] == classes
    handle.remove()


def test_small_results_of_an_exponential_are_not_lost():
    """Rounding to nearest would turn what is small beside a large value into 0, in every step."""
    torch.manual_seed(0)
    x = (torch.randn(1 << 18) * 2).requires_grad_()
    exact, = torch.autograd.grad((x * 1).exp().sum(), x)
    mean, draws = torch.zeros_like(exact), 16
    for seed in range(draws):
        with actzip.Session(seed=seed, guard=False) as session:
            y = (x * 1).exp()
        mean += torch.autograd.grad(y.sum(), x)[0] / draws
    assert "affine:8:dithered" in {site.codec for site in session.report().sites}
    small = exact <= exact.median()
    assert abs(float((mean * exact)[small].sum() / exact[small].square().sum()) - 1) < 0.02
