"""Third-party functions and operators: kept as they are, unless the program registers what they save."""

import math
import warnings

import actzip
import pytest
import torch
import torch.nn.functional as F


def activation(*shape):
    return torch.randn(*shape, requires_grad=True) * 1


def function(name, module=__name__):
    """Makes an autograd function of that name, which multiplies."""
    def forward(ctx, x, factor):
        ctx.save_for_backward(x, factor)
        return x * factor

    def backward(ctx, gradient):
        x, factor = ctx.saved_tensors
        return gradient * factor, gradient * x

    return type(name, (torch.autograd.Function,),
                {"forward": staticmethod(forward), "backward": staticmethod(backward), "__module__": module})


def codecs(apply, **options):
    session = actzip.Session(**options)
    x = activation(64, 64)
    with warnings.catch_warnings(), session:
        warnings.simplefilter("ignore")
        y = apply(x, x * 2)
    y.sum().backward()
    return {f"{site.op}.{site.slot}": site.codec for site in session.report().sites}


def test_a_registered_function_gets_the_codecs_of_its_uses():
    scale = function("RegisteredScale")
    actzip.register(scale, argument0="factor", argument1="linear_input")
    found = codecs(scale.apply)
    assert found["Function::test_register.RegisteredScale.argument0"] == "rotated:3"
    assert found["Function::test_register.RegisteredScale.argument1"] == "rotated:3"


def test_slots_that_are_not_named_stay():
    scale = function("HalfRegistered")
    actzip.register(scale, argument0="factor")
    found = codecs(scale.apply)
    assert found["Function::test_register.HalfRegistered.argument0"] == "rotated:3"
    assert found["Function::test_register.HalfRegistered.argument1"] == "as is"


def test_a_registered_operator():
    library = torch.library.Library("actzip_tests", "DEF")
    library.define("scale(Tensor x, Tensor factor) -> Tensor")
    library.impl("scale", lambda x, factor: x * factor, "CPU")
    torch.library.register_autograd(
        "actzip_tests::scale", lambda ctx, gradient: (gradient * ctx.saved_tensors[1], gradient * ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs), lib=library)
    assert actzip.operators.use_of(torch.ops.actzip_tests.scale.default, "x") == "foreign"
    actzip.register(torch.ops.actzip_tests.scale, x="factor")
    assert actzip.operators.use_of(torch.ops.actzip_tests.scale.default, "x") == "factor"
    assert actzip.operators.use_of(torch.ops.actzip_tests.scale.default, "factor") == "foreign"


def test_gradients_of_a_registered_function():
    scale = function("ScaleForGradients")
    actzip.register(scale, argument0="factor", argument1="factor")
    x = torch.randn(256, 256, requires_grad=True)

    def gradient(scope):
        with scope:
            y = scale.apply(x * 2, x.tanh())
        return torch.autograd.grad(y.square().sum(), x)[0]

    expected, actual = gradient(torch.enable_grad()), gradient(actzip.Session())
    assert not torch.equal(expected, actual)
    assert F.cosine_similarity(expected.flatten(), actual.flatten(), dim=0) > 0.97


@pytest.mark.parametrize("use", ["gelu", "interval", "index", "unknown", "foreign", "attention_result", ""])
def test_uses_that_cannot_be_told(use):
    with pytest.raises(ValueError, match=r"\(allowed: sign, shape, .*linear_input"):
        actzip.register(function(f"As_{use}"), argument0=use)


def test_what_is_refused():
    scale = function("RegisteredTwice")
    actzip.register(scale, argument0="factor")
    actzip.register(scale, argument0="factor")
    with pytest.raises(ValueError, match="registered with other uses"):
        actzip.register(scale, argument0="linear_input")
    with pytest.raises(ValueError, match="0 slots"):
        actzip.register(function("WithoutSlots"))
    with pytest.raises(ValueError, match="torch's own"):
        actzip.register(torch.ops.aten.sin.default, self="slope_input")
    with pytest.raises(TypeError, match="allowed: an operator of torch.ops"):
        actzip.register(math.sin, x="factor")
    late = function("RegisteredLate")
    codecs(late.apply)
    with pytest.raises(ValueError, match="has run in a scope already"):
        actzip.register(late, argument0="factor")


def test_two_functions_of_one_name():
    first, second = function("SameName"), function("SameName")
    with pytest.raises(ValueError, match=r"2 functions are called test_register\.SameName"):
        actzip.register(first, argument0="factor")
    del second


def test_a_function_of_the_same_name_in_another_module_is_another():
    ours, theirs = function("Namesake"), function("Namesake", "elsewhere")
    actzip.register(ours, argument0="factor")
    found = codecs(lambda x, y: ours.apply(x, y) + theirs.apply(x * 3, y))
    assert found["Function::test_register.Namesake.argument0"] == "rotated:3"
    assert found["Function::elsewhere.Namesake.argument0"] == "as is"


def test_a_function_whose_name_nobody_knows_is_not_registered_either():
    """A direct call of torch's own apply() bypasses the frame that shows the class."""
    scale = function("PassedBy")
    actzip.register(scale, argument0="factor")
    found = codecs(lambda x, y: super(torch.autograd.Function, scale).apply(x, y))
    assert found["Function::PassedBy.argument0"] == "as is"


@pytest.mark.parametrize("operator", [torch.sin, torch.cos, torch.erf, torch.atan, torch.sinc])
def test_operators_that_actzip_does_not_know_are_exact(operator):
    x = torch.randn(256, 256, requires_grad=True)
    expected, = torch.autograd.grad(operator(x * 4).sum(), x)
    session = actzip.Session()
    with warnings.catch_warnings(), session:
        warnings.simplefilter("ignore")
        y = operator(x * 4)
    actual, = torch.autograd.grad(y.sum(), x)
    assert torch.equal(expected, actual)
    assert {site.use for site in session.report().sites if site.kind == "as is"} >= {"unknown"}


def test_a_preset_for_everything_takes_them_too():
    assert codecs(lambda x, y: torch.sin(x), preset="affine:2")["sin.self"] == "affine:2"
    assert codecs(function("Uniform").apply, preset="rotated:4")["Function::test_register.Uniform.argument0"] == "rotated:4"


def steps(apply, count=3, **options):
    session = actzip.Session(**options)
    for _ in range(count):
        x = activation(1024, 1024)
        with session:
            y = apply(x)
        y.sum().backward()
    return session


def test_what_is_left_alone_is_said_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        steps(lambda x: torch.sin(x) + torch.erf(x * 2))
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 1 and "does not know" in messages[0] and "actzip.register()" in messages[0]
    assert "sin (4.0 MiB)" in messages[0] and "erf (4.0 MiB)" in messages[0]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_what_a_scripted_module_saves_is_said_though_it_is_fused_later():
    model = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU()))
    session, x = actzip.Session(model), torch.randn(1024, 256)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(12):
            with session:
                loss = model(x).sum()
            loss.backward()
    messages = [str(warning.message) for warning in caught if "actzip" in str(warning.message)]
    assert len(messages) == 1 and "'unknown' is what is saved outside of torch's operators, as scripted" in messages[0]


@pytest.mark.parametrize("apply", [lambda x: torch.sin(x[:16]).sum() + F.gelu(x * 2).sum(), F.gelu])
def test_little_is_not_worth_a_word(apply):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(apply)


STRIDED = []


def strided(saved):
    """Makes a function that saves `saved(input)`, and records the values and strides that its backward gets."""
    class Strided(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            view = saved(x)
            ctx.save_for_backward(view)
            Strided.expected = view.detach().clone(), view.stride()
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            Strided.actual = ctx.saved_tensors[0].clone(), ctx.saved_tensors[0].stride()
            return gradient

    Strided.__qualname__ = f"Strided{len(STRIDED)}"
    STRIDED.append(Strided)
    return Strided


GAPPED = {"slice": lambda x: x[:, :128], "columns": lambda x: x[:, ::3], "turned": lambda x: x[:, :128].t(),
          "expanded": lambda x: x[:, :128, None].expand(-1, -1, 3), "rows": lambda x: x[::2],
          "whole": lambda x: x, "broadcast": lambda x: x[:, :1].expand(-1, 128)}


@pytest.mark.parametrize("preset", ["affine:8:nearest", "cast:bf16", "rotated:4"])
@pytest.mark.parametrize("view", GAPPED.values(), ids=GAPPED.keys())
def test_a_function_gets_back_the_strides_that_it_saved(view, preset):
    function = strided(view)
    session = actzip.Session(preset=preset, min_numel=0)
    x = activation(64, 384)
    with session:
        y = function.apply(x)
    y.sum().backward()
    assert next(site.codec for site in session.report().sites if "Strided" in site.op) == preset
    (values, strides), (restored, found) = function.expected, function.actual
    assert found == strides
    error = (restored - values).norm() / values.norm()
    assert 0 < error < {"affine:8:nearest": 0.01, "cast:bf16": 0.01, "rotated:4": 0.2}[preset]


def test_the_shape_alone_comes_back_with_its_strides():
    function = strided(GAPPED["slice"])
    actzip.register(function, aux0="shape")
    x = activation(64, 384)
    with actzip.Session() as session:
        y = function.apply(x)
    y.sum().backward()
    assert function.actual[1] == (384, 1)
    assert "shape only" in {site.codec for site in session.report().sites}
