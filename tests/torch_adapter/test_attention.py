"""Fused attention runs again in backward, so that neither its result nor its statistics are kept."""

import contextlib

import actzip
import pytest
import torch
import torch.nn.functional as F

OPERATOR = "_scaled_dot_product_flash_attention_for_cpu"
OPERANDS_AS_THEY_ARE = {f"{OPERATOR}.{name}": "as is" for name in ("query", "key", "value")}
WAYS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "bool mask": {"attn_mask": torch.ones(96, 96).tril().bool()},
    "bias": {"attn_mask": torch.linspace(-2, 2, 96 * 96).reshape(96, 96)},
}


def operands(heads=4):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, h, 96, 32, generator=generator).requires_grad_() for h in (4, heads, heads)]


def attend(tensors, session=None, **way):
    """Returns the result, and a product with it, which saves the result, too."""
    with session or contextlib.nullcontext():
        result = F.scaled_dot_product_attention(*(2 * t for t in tensors), **way)
        return result, result @ (torch.eye(32) * 1.5).requires_grad_()


def gradients(session=None, heads=4, **way):
    tensors = operands(heads)
    product = attend(tensors, session, **way)[1]
    return torch.autograd.grad(product, tensors, torch.sin(torch.arange(product.numel())).view_as(product))


def kept(session):
    return {site.slot: site for site in session.report().sites if site.op == OPERATOR}


def error(found, exact):
    return float((found - exact).square().sum() / exact.square().sum())


@pytest.mark.parametrize("way", WAYS)
def test_runs_again_as_it_ran(way):
    """With operands kept as they are, gradients are exact, if attention runs again with all its other arguments."""
    session = actzip.Session(rules=OPERANDS_AS_THEY_ARE)
    found = gradients(session, **WAYS[way])
    for actual, exact in zip(found, gradients(**WAYS[way]), strict=True):
        torch.testing.assert_close(actual, exact, rtol=0, atol=0)
    assert kept(session)["result"].codec == "recomputed" and kept(session)["result"].bytes_after == 0


def test_grouped_heads():
    session = actzip.Session(rules=OPERANDS_AS_THEY_ARE)
    for actual, exact in zip(gradients(session, 2, enable_gqa=True), gradients(heads=2, enable_gqa=True), strict=True):
        torch.testing.assert_close(actual, exact, rtol=0, atol=0)


@pytest.mark.parametrize("which", [(0, 0, 0), (0, 1, 1), (0, 1, 0)])
def test_operands_that_are_one_tensor(which):
    def step(session):
        tensors = operands()
        with session or contextlib.nullcontext():
            doubled = [2 * t for t in tensors]
            result = F.scaled_dot_product_attention(*(doubled[i] for i in which))
        used = [tensors[i] for i in sorted(set(which))]
        return torch.autograd.grad(result.sin().sum(), used)

    rules = {**OPERANDS_AS_THEY_ARE, "sin.*": "as is"}
    session = actzip.Session(rules=rules)
    for actual, exact in zip(step(session), step(None), strict=True):
        torch.testing.assert_close(actual, exact, rtol=0, atol=0)
    assert kept(session)["result"].codec == "recomputed"


def test_nothing_is_kept_of_result_and_statistics():
    session = actzip.Session(min_elems=0)
    result, _ = attend(operands(), session)
    found = kept(session)
    assert {slot: site.codec for slot, site in found.items()} == {
        "query": "rotated:4", "key": "rotated:4", "value": "rotated:3", "result": "recomputed", "aux0": "recomputed"}
    assert found["result"].bytes_before == result.nbytes and found["result"].bytes_after == 0
    product = next(site for site in session.report().sites if f"{site.op}.{site.slot}" == "mm.self")
    assert product.codec == "rotated:3" and product.bytes_before == 0, "the same memory counts once"
    assert session.live_bytes == sum(site.bytes_after for site in session.report().sites)


@pytest.mark.parametrize("way", WAYS)
def test_noise_cancels(way):
    """The gradients of q and k have only a fraction of the error that they have if the result has its own noise."""
    exact = gradients(**WAYS[way])
    again, stored = (actzip.Session(seed=1, rules=rules, guard=False) for rules in ({}, {f"{OPERATOR}.result": "rotated:3"}))
    errors = [[sum(error(gradients(session, **WAYS[way])[i], exact[i]) for _ in range(4)) for i in (0, 1)]
              for session in (again, stored)]
    assert kept(again)["result"].codec == "recomputed" and kept(stored)["result"].codec == "rotated:3"
    assert errors[0][0] < 0.6 * errors[1][0] and errors[0][1] < 0.8 * errors[1][1], errors


def test_backward_may_come_again():
    tensors, session = operands(), actzip.Session()
    product = attend(tensors, session)[1]
    first = torch.autograd.grad(product.sum(), tensors, retain_graph=True)
    second = torch.autograd.grad(product.sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    del product
    assert session.live_bytes == 0


def test_runs_once():
    tensors, session = operands(), actzip.Session(guard=False)  # the guard would run it again
    product = attend(tensors, session)[1]
    with torch.profiler.profile() as profile:
        product.sum().backward()
    names = [event.name for event in profile.events()]
    assert names.count(f"aten::{OPERATOR}") == 1
    decoded = [name for name in names if name.startswith(f"actzip decode {OPERATOR}")]
    assert sorted(decoded) == [f"actzip decode {OPERATOR}.{slot}" for slot in ("key", "query", "value")]


def test_does_not_run_again_for_a_result_that_a_rule_keeps():
    session = actzip.Session(min_elems=0, rules={"*scaled_dot_product*.result": "rotated:2"})
    product = attend(operands(), session)[1]
    with torch.profiler.profile() as profile:
        product.sum().backward()
    assert f"aten::{OPERATOR}" not in [event.name for event in profile.events()]
    assert kept(session)["result"].codec == "rotated:2" and kept(session)["aux0"].codec == "as is"


def test_a_result_that_was_modified_is_refused():
    result, _ = attend(operands(), actzip.Session())
    saved = result.grad_fn
    with torch.no_grad():
        result.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved(torch.ones_like(result))


@pytest.mark.parametrize("options", [{"preset": "exact"}, {"preset": "rotated:4"}, {"rules": {"*attention*": "as is"}}])
def test_only_where_operands_are_noisy_by_the_table(options):
    session = actzip.Session(min_elems=0, **options)
    gradients(session)
    assert "recomputed" not in {site.codec for site in session.report().sites}


def test_a_dry_session_says_so_and_keeps():
    session = actzip.Session(dry=True)
    exact = gradients()
    assert all(torch.equal(a, b) for a, b in zip(gradients(session), exact, strict=True))
    assert kept(session)["result"].codec == "recomputed"


def test_observed_steps():
    """Noise that is tried in an operand also reaches the result, so that its sensitivity includes the whole effect."""
    session = actzip.Session(bits=2, adapt="layer", interval=1)
    for _ in range(4):
        tensors = operands()
        attend(tensors, session)[1].square().sum().backward()
    found = kept(session)
    assert all(found[slot].sensitivity > 0 for slot in ("query", "key", "value"))
    assert found["result"].codec == "recomputed" and found["result"].sensitivity is None


@pytest.mark.parametrize("keys", [20, 100, 256])
def test_a_row_without_keys_does_not_spoil_its_neighbours(keys):
    """The softmax of such a row is NaN, which the model replaces by zeros. The gradient must be finite."""
    torch.manual_seed(0)
    scores = torch.randn(8, 64, keys, requires_grad=True)
    mask = torch.rand(8, 64, keys) < 0.3
    mask[1, 5] = mask[4, :7] = True
    weights = torch.randn(8, 64, keys)

    def gradient(session):
        with session:
            rows = (scores * 1).masked_fill(mask, -torch.inf).softmax(-1).masked_fill(mask, 0.0)
        return torch.autograd.grad((rows * weights).sum(), scores)[0]

    exact = gradient(torch.enable_grad())
    kept = gradient(actzip.Session(guard=False))
    assert exact.isfinite().all() and kept.isfinite().all()
    assert float((kept - exact).square().sum()) < 1e-3 * float(exact.square().sum())
