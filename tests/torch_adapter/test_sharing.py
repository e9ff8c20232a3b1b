"""Saves share memory only if it holds the same values: casts of one source, and memory that several operators save."""

import actzip
import pytest
import torch
from torch import nn

EXACT = {"preset": "exact", "min_elems": 0}
SIZE = 64


def gradients(build, session=None):
    """Returns the gradients of what `build` computes from a leaf and weights."""
    torch.manual_seed(2)
    leaf = torch.randn(SIZE, SIZE, requires_grad=True)
    weights = [torch.randn(SIZE, SIZE, requires_grad=True) for _ in range(3)]
    if session is None:
        y = build(leaf, weights)
    else:
        with session:
            y = build(leaf, weights)
    y.backward()
    return [leaf.grad, *(weight.grad for weight in weights)]


def worst(build, **options):
    """Returns the largest relative error of any gradient."""
    plain, kept = gradients(build), gradients(build, actzip.Session(**options))
    pairs = [(a, b) for a, b in zip(plain, kept) if a is not None]
    return max(((a - b).norm() / a.norm()).item() for a, b in pairs)


def products(sources, weights):
    with torch.autocast("cpu", torch.bfloat16):
        return sum((source @ weight).float().square().sum() for source, weight in zip(sources, weights))


def edited_by(edit):
    """Makes a computation that casts one tensor twice, and edits it in between."""

    def build(leaf, weights):
        x = leaf * 1.0
        with torch.autocast("cpu", torch.bfloat16):
            first = x @ weights[0]
            edit(x)
            second = x @ weights[1]
        return first.float().square().sum() + second.float().square().sum()

    return build


def under_no_grad(x):
    with torch.no_grad():
        x.mul_(-1)


def by_out(x):
    with torch.no_grad():
        torch.mul(x, -1, out=x.data)


class Writer(torch.autograd.Function):
    """Writes to memory without declaring it, as kernels of other libraries may do."""

    @staticmethod
    def forward(ctx, anything, hidden):
        hidden.numpy()[...] *= -1
        return anything.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


EDITS = {
    "no_grad": under_no_grad,
    "data": lambda x: x.data.mul_(-1),
    "detach": lambda x: x.detach().mul_(-1),
    "view": lambda x: x.data.view(-1)[:].neg_(),
    "foreach": lambda x: torch._foreach_mul_([x.data], -1),
    "copy": lambda x: x.data.copy_(x.data.neg()),
    "set": lambda x: setattr(x, "data", x.data.neg()),
    "out": by_out,
    "function": lambda x: Writer.apply(torch.ones(1, requires_grad=True), x.data),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("options", [EXACT, {"preset": "cast:bf16", "min_elems": 0}, {"preset": "affine:8", "min_elems": 0}])
def test_a_source_that_is_edited_between_two_casts(edit, options):
    assert worst(edited_by(EDITS[edit]), **options) < (1e-6 if options is EXACT else 0.02)


def test_a_cast_that_is_edited_itself():
    def build(leaf, weights):
        x = leaf * 1.0
        casts = [x.to(torch.bfloat16) for _ in range(3)]
        with torch.no_grad():
            for factor, cast in enumerate(casts):
                cast.mul_(factor + 1)
        return products(casts, weights)

    assert worst(build, preset="affine:8", min_elems=0) < 0.02


def test_nodes_with_many_outputs():
    """Outputs of one node must not be taken for those of the node next to it in memory."""

    def build(leaf, weights):
        parts = [(leaf * (i + 1)).repeat(16, 1).unbind() for i in range(12)]
        total = 0
        with torch.autocast("cpu", torch.bfloat16):
            for many in parts:
                for one in (many[0], many[96], many[511], many[-1]):
                    total = total + (one.view(1, -1) @ weights[0]).float().square().sum()
        return total

    for _ in range(20):
        assert worst(build, preset="affine:8", min_elems=0) < 0.02


@pytest.mark.parametrize("order", ["contiguous", "transposed"])
def test_casts_with_another_memory_format(order):
    def build(leaf, weights):
        x = (leaf * 1.0).t()
        plain = x.to(torch.bfloat16)
        other = x.to(torch.bfloat16, memory_format=torch.contiguous_format)
        return products([plain, other] if order == "transposed" else [other, plain], weights)

    assert worst(build, preset="affine:8", min_elems=0) < 0.02


def test_parts_of_one_cast():
    def build(leaf, weights):
        x = leaf * 1.0
        first, second = x.to(torch.bfloat16).chunk(2)
        third, fourth = x.to(torch.bfloat16).chunk(2)
        return products([torch.cat([first, second]), torch.cat([fourth, third])], weights) + products(
            [second, third], weights)

    assert worst(build, preset="affine:8", min_elems=0) < 0.02


def test_casts_are_still_shared():
    layers = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(3))
    x = torch.randn(SIZE, SIZE, requires_grad=True) * 2
    session = actzip.Session(layers)
    with session, torch.autocast("cpu", torch.bfloat16):
        results = [layer(x.view(SIZE, SIZE)) for layer in layers]
    kept = [site for site in session.report().sites if site.slot == "mat1"]
    assert [site.codec for site in kept] == ["rotated:3", "shared", "shared"]
    del results


def test_casts_are_shared_by_converted_layers_in_a_scope():
    layers = actzip.convert(nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(3)))
    x = torch.randn(SIZE, SIZE, requires_grad=True) * 2
    session = actzip.session_of(layers)
    with session, torch.autocast("cpu", torch.bfloat16):
        results = [layer(x) for layer in layers]
    kept = [site for site in session.report().sites if site.slot in ("mat1", "input")]
    assert [site.codec for site in kept] == ["rotated:3", "shared", "shared"]
    del results


@pytest.mark.parametrize("scope", [True, False])
@pytest.mark.parametrize("edit", ["no_grad", "data", "set"])
def test_converted_layers_see_edits(edit, scope):
    """The edit happens between two layers under autocast, each of which casts the same tensor."""
    layers = nn.ModuleList(nn.Linear(SIZE, SIZE, bias=False) for _ in range(2))

    def gradients_of(session):
        layers.zero_grad()
        torch.manual_seed(4)
        leaf = torch.randn(SIZE, SIZE, requires_grad=True)
        x = leaf * 1.0
        with torch.autocast("cpu", torch.bfloat16):
            if session is not None and scope:
                with session:
                    first, _, second = layers[0](x), EDITS[edit](x), layers[1](x)
            else:
                first, _, second = layers[0](x), EDITS[edit](x), layers[1](x)
        (first.float().square().sum() + second.float().square().sum()).backward()
        return [layer.weight.grad.clone() for layer in layers]

    plain = gradients_of(None)
    actzip.convert(layers, preset="affine:8", min_elems=0)
    kept = gradients_of(actzip.session_of(layers))
    for a, b in zip(plain, kept):
        assert (a - b).norm() < 0.02 * a.norm()


@pytest.mark.parametrize("edit", ["data", "set", "no_grad"])
def test_what_is_derived_from_a_norm_sees_edits(edit):
    """A layer behind a norm derives its input from what the norm keeps, unless that input was edited."""
    model = nn.Sequential(nn.LayerNorm(SIZE), nn.Linear(SIZE, SIZE, bias=False))

    def gradient(session):
        model.zero_grad()
        torch.manual_seed(4)
        x = torch.randn(SIZE, SIZE, requires_grad=True) * 1.0

        def forward():
            normal = model[0](x)
            EDITS[edit](normal)
            return model[1](normal).square().sum()

        if session is None:
            loss = forward()
        else:
            with session:
                loss = forward()
        loss.backward()
        return model[1].weight.grad.clone()

    plain = gradient(None)
    actzip.convert(model, preset="affine:8", min_elems=0)
    kept = gradient(actzip.session_of(model))
    assert (plain - kept).norm() < 0.02 * plain.norm()


def test_memory_of_an_earlier_step_is_not_taken_for_that_of_this_one():
    """Between steps, a session does not watch what writes into memory."""
    a, b = nn.Linear(SIZE, SIZE, bias=False), nn.Linear(SIZE, SIZE, bias=False)
    x = torch.randn(SIZE, SIZE)
    session = actzip.Session(preset="affine:8", min_elems=0)
    with session:
        first = a(x).sum()
    x.data.neg_()
    with session:
        second = b(x).sum()
    second.backward()
    expected = torch.ones(SIZE, SIZE).t() @ x
    assert (b.weight.grad - expected).norm() < 0.02 * expected.norm()
    del first
