"""Operators are recognised by namespace, name, overload and kind: the same name as one of torch's is not enough."""

import math

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function

EXACT = {"preset": "exact", "min_elems": 0}


def named(name, saves="input"):
    """Makes a Function of that name. It squares, so that its gradient needs every value of what it saves."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            result = x * x
            ctx.save_for_backward(x if saves == "input" else result)
            return result

        @staticmethod
        def backward(ctx, gradient):
            (saved,) = ctx.saved_tensors
            return gradient * 2 * (saved if saves == "input" else saved.sqrt())

    Square.__name__ = Square.__qualname__ = name
    return type(name, (Square,), {})


def gradient(function, session=None, size=2048):
    torch.manual_seed(1)
    x = torch.randn(size, requires_grad=True)
    source = x.abs() + 0.5
    if session is None:
        y = function(source)
    else:
        with session:
            y = function(source)
    y.sum().backward()
    return x.grad


NAMES = ["relu", "relu_", "threshold", "leaky_relu", "hardtanh", "max_pool2d", "avg_pool2d", "dropout", "embedding",
         "gather", "nll_loss_forward", "_scaled_dot_product_flash_attention", "aten::relu", "aten::hardtanh"]


@pytest.mark.parametrize("saves", ["input", "result"])
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_python(name, saves):
    function = named(name, saves)
    session = actzip.Session(**EXACT)
    assert torch.equal(gradient(function.apply), gradient(function.apply, session))
    assert session.report().sites[-1].codec == "as is"


@pytest.mark.parametrize("first", ["torch", "python"])
def test_neither_spoils_the_other(first):
    """Whichever is seen first, both have exact gradients and different sites."""
    function, session = named("softplus"), actzip.Session(**EXACT)

    def both(x):
        return F.softplus(function.apply(x)) if first == "python" else function.apply(F.softplus(x))

    assert torch.equal(gradient(both), gradient(both, session))
    names = {site.site for site in session.report().sites}
    assert "softplus.self" in names and any(name.startswith("Function::test_identity.softplus.") for name in names), names


def test_operators_of_other_libraries():
    library = torch.library.Library("actzip_test_identity", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    function = named("inner")
    library.impl("relu", lambda x: function.apply(x), "CompositeImplicitAutograd")
    library.define("hardtanh(Tensor self, Scalar min_val, Scalar max_val) -> Tensor")

    def backward(ctx, gradient):
        (saved,) = ctx.saved_tensors
        return gradient * 2 * saved, None, None

    torch.library.impl("actzip_test_identity::hardtanh", "default", lambda x, a, b: x * x, lib=library)
    torch.library.register_autograd(
        "actzip_test_identity::hardtanh", backward, lib=library,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    own = torch.ops.actzip_test_identity
    for call in (lambda x: own.relu(x), lambda x: own.hardtanh(x, -1.0, 1.0)):
        session = actzip.Session(**EXACT)
        assert torch.equal(gradient(call), gradient(call, session))
        assert session.report().sites[-1].codec == "as is", session.report()


def test_a_function_that_is_called_like_the_one_that_was_freed():
    """A Function's name may have the address of a freed name."""
    for i in range(50):
        function = named("relu" if i % 2 else f"other{i}")
        assert torch.equal(gradient(function.apply), gradient(function.apply, actzip.Session(**EXACT)))


def test_dropout_is_torchs_own():
    """A product inside a function called dropout is no mask."""

    class dropout(Function):  # noqa: N801
        @staticmethod
        def forward(ctx, x):
            with torch.enable_grad():
                inner = x.detach().requires_grad_()
                result = inner * (inner + 1)
            ctx.inner, ctx.result = inner, result
            return result.detach()

        @staticmethod
        def backward(ctx, gradient):
            return torch.autograd.grad(ctx.result, ctx.inner, gradient)[0]

    assert torch.equal(gradient(dropout.apply), gradient(dropout.apply, actzip.Session(**EXACT)))


class MaskedSoftmax(torch.autograd.Function):
    """Saves its additive mask, as an attention written by hand may."""

    @staticmethod
    def forward(ctx, x, mask):
        ctx.save_for_backward(x, mask)
        return (x + mask).softmax(-1)

    @staticmethod
    def backward(ctx, gradient):
        x, mask = ctx.saved_tensors
        y = (x + mask).softmax(-1)
        return y * (gradient - (gradient * y).sum(-1, keepdim=True)), None


@pytest.mark.parametrize("options", [{}, {"bits": 8}, {"adapt": "layer"}, {"preset": "division"}], ids=str)
@pytest.mark.parametrize("low", [-math.inf, torch.finfo(torch.float32).min, -1e9])
def test_what_functions_save_is_left_alone(low, options):
    """Only their authors know what the tensors are for."""
    x = torch.randn(64, 64, requires_grad=True)
    mask = torch.full((64, 64), low).triu(1)
    weight = torch.randn(64, 64)

    def gradient(session):
        with session:
            loss = (MaskedSoftmax.apply(x * 2, mask) * weight).sum()
        return torch.autograd.grad(loss, x)[0]

    session = actzip.Session(min_numel=0, rules={"mul.*": "none"}, **options)
    assert torch.equal(gradient(torch.enable_grad()), gradient(session))
    sites = [site for site in session.report().sites if site.op == "Function::test_identity.MaskedSoftmax"]
    assert len(sites) == 2 and {site.codec for site in sites} == {"as is"}


def test_a_rule_compresses_what_a_function_saves():
    session = actzip.Session(min_numel=0, rules={"Function::test_identity.MaskedSoftmax.argument0": "rotated:4"})
    x = torch.randn(64, 64, requires_grad=True)
    with session:
        MaskedSoftmax.apply(x * 2, torch.zeros(64, 64)).sum().backward()
    codecs = {site.slot: site.codec for site in session.report().sites if site.op == "Function::test_identity.MaskedSoftmax"}
    assert codecs == {"argument0": "rotated:4", "argument1": "as is"}
