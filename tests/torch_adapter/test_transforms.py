"""torch.func, vmap, forward mode, inference mode, autocast: each works, or an error says why not."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import CNN, MODELS, gradients, make
from torch.autograd import forward_ad

LEAF = torch.randn(64, 64, requires_grad=True)
X = torch.randn(64, 64)


def total(x):
    return (x.sin() * F.gelu(x)).sum()


def dual():
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(F.gelu(forward_ad.make_dual(X, X))).tangent


def inference_input():
    with torch.inference_mode():
        constant = X * 2
    return torch.autograd.grad((LEAF * 1 * constant.clone()).sum(), LEAF)[0]


WORK = {
    "jvp": lambda: torch.func.jvp(total, (X,), (X,))[1],
    "jacfwd": lambda: torch.func.jacfwd(torch.sin)(X[0]),
    "vmap": lambda: torch.func.vmap(total)(X),
    "vmap, then backward": lambda: torch.autograd.grad(torch.func.vmap(lambda v: total(v * 2))(LEAF).sum(), LEAF)[0],
    "batched backward": lambda: torch.autograd.grad(F.gelu(LEAF * 2), LEAF, torch.ones(3, 64, 64), is_grads_batched=True)[0],
    "jacobian": lambda: torch.autograd.functional.jacobian(lambda v: total(v * 2), X),
    "forward mode": dual,
    "inference input": inference_input,
}
REFUSE = {
    "grad": lambda: torch.func.grad(total)(X),
    "vjp": lambda: torch.func.vjp(total, X),
    "jacrev": lambda: torch.func.jacrev(total)(X),
    "hessian": lambda: torch.func.hessian(total)(X[0]),
    "vmap of grad": lambda: torch.func.vmap(torch.func.grad(total))(X),
}


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("preset", ["exact", "affine:8:nearest"])
def test_works(name, preset):
    expected = WORK[name]()
    with actzip.Session(preset=preset, min_elems=0):
        actual = WORK[name]()
    if preset == "exact":
        assert torch.equal(actual, expected)
    else:
        assert float((actual - expected).norm()) < 0.05 * float(expected.norm())


@pytest.mark.parametrize("adapt", ["", "layer"])
def test_a_batched_backward_in_each_step(adapt):
    """The guard and the observation of steps must not keep batched norms, each of which stands for several."""
    model, batch = make(CNN)
    parameters = list(model.parameters())
    directions = torch.randn(3, 8, 10)

    def jacobian(session=None):
        with session or torch.enable_grad():
            result = model(batch)
        return torch.autograd.grad(result, parameters, directions, is_grads_batched=True)

    expected = jacobian()
    session = actzip.Session(model, adapt=adapt)
    for _ in range(12):
        actual = jacobian(session)
        assert all(torch.isfinite(a).all() for a in actual)
    cosine = F.cosine_similarity(torch.cat([a.flatten() for a in actual]), torch.cat([e.flatten() for e in expected]), dim=0)
    assert cosine > 0.9
    assert session.live_bytes == 0


def test_the_guard_looks_at_a_plain_backward_after_a_batched_one():
    leaf = torch.randn(64, 64, requires_grad=True)
    session = actzip.Session(rules={"addcdiv.*": "rotated:4"}, min_elems=0)
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        for batched in (True, True, False, False):
            with session:
                result = torch.addcdiv(leaf * 1, leaf + 1, leaf * 1)
            ones = torch.ones(3, 64, 64) if batched else torch.ones(64, 64)
            torch.autograd.grad(result, leaf, ones, is_grads_batched=batched)
    assert any(site.cause == "guard" for site in session.report().sites)


def test_a_hessian_needs_exact_tensors():
    def hessian():
        return torch.autograd.functional.hessian(lambda v: total(v * 2), X[0])

    with actzip.Session(preset="exact", min_elems=0):
        actual = hessian()
    assert torch.equal(actual, hessian())
    with actzip.Session(preset="affine:8:nearest", min_elems=0), pytest.raises(RuntimeError, match="create_graph=True"):
        hessian()


@pytest.mark.parametrize("name", REFUSE)
def test_refuses_clearly(name):
    session = actzip.Session()
    with session, pytest.raises(RuntimeError, match="saved tensor hooks"):
        REFUSE[name]()
    assert session.live_bytes == 0
    REFUSE[name]()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("model_class", MODELS)
def test_autocast_exact(model_class, dtype):
    model, batch = make(model_class)
    session = actzip.Session(model, preset="exact", min_elems=0)
    with torch.autocast("cpu", dtype):
        plain = gradients(model, batch)
        actual = gradients(model, batch, session)
    assert all(torch.equal(plain[name], actual[name]) for name in plain)
    assert str(dtype).replace("torch.bfloat", "bf").replace("torch.float", "f") in {s.dtype for s in session.report().sites}


def test_autocast_entered_inside_and_outside_the_scope():
    model, batch = make(CNN)
    results = []
    for order in ((0, 1), (1, 0)):
        scopes = [actzip.Session(model, seed=1), torch.autocast("cpu", torch.bfloat16)]
        torch.manual_seed(1)
        with scopes[order[0]], scopes[order[1]]:
            loss = model(batch).float().square().mean()
        results.append(torch.autograd.grad(loss, list(model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_inference_and_no_grad_save_nothing():
    model, batch = make(CNN)
    session = actzip.Session(model)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with session, mode:
            model(batch)
        assert not session.report().sites and session.live_bytes == 0
