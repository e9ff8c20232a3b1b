"""Operators that keep one bit per element: gradients equal torch's bit for bit, for any type, limits and values."""

import math
import random

import actzip
import pytest
import torch
import torch.nn.functional as F

TYPES = (torch.float32, torch.bfloat16, torch.float16)
INF, NAN = math.inf, math.nan


def gradient(function, x, session=None):
    x = x.detach().clone().requires_grad_()
    source = x * 1  # an activation, not a leaf
    if session is None:
        y = function(source)
    else:
        with session:
            y = function(source)
    torch.manual_seed(7)
    y.backward(torch.randn(y.shape).to(y.device, y.dtype))
    return x.grad


def assert_bitwise(function, x, preset="exact", codec=None):
    session = actzip.Session(preset=preset, min_elems=0)
    plain, kept = gradient(function, x), gradient(function, x, session)
    same = torch.equal(plain.view(torch.uint8), kept.view(torch.uint8))
    wrong = (~torch.isclose(plain.float(), kept.float(), rtol=0, atol=0, equal_nan=True)).double().mean().item()
    assert same, f"{wrong:.1%} of the gradient differs"
    if codec is not None:
        assert session.report().sites[-1].codec.split(":")[0] == codec
    return session


def values(dtype, limits=(), size=4099):
    """Random numbers, the limits rounded to the type, the numbers next to these, both zeros, and infinities."""
    torch.manual_seed(3)
    x = torch.randn(size).to(dtype)
    edges = [edge for limit in limits if math.isfinite(limit)
             for at in [torch.tensor(limit).to(dtype)]
             for edge in (at, torch.nextafter(at, at.new_tensor(INF)), torch.nextafter(at, at.new_tensor(-INF)))]
    for i, edge in enumerate([*edges, x.new_tensor(0.0), x.new_tensor(-0.0), x.new_tensor(INF), x.new_tensor(-INF)]):
        x[i::37] = edge
    return x


FUNCTIONS = {
    "relu": F.relu,
    "relu_": lambda x: F.relu(x, inplace=True),
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "leaky_relu": F.leaky_relu,
    "leaky_relu_": lambda x: F.leaky_relu(x, 0.2, inplace=True),
    "leaky_relu(-0.3)": lambda x: F.leaky_relu(x, -0.3),
    "threshold": lambda x: F.threshold(x, 0.5, -3.0),
    "hardsigmoid": F.hardsigmoid,
    "clamp": lambda x: x.clamp(-1, 0.5),
    "clamp(max)": lambda x: x.clamp(max=0),
    "clamp(min)": lambda x: x.clamp(min=0),
    "clamp_min": lambda x: x.clamp_min(-1),
    "clamp_max": lambda x: x.clamp_max(3),
    "hardshrink": F.hardshrink,
    "softshrink": lambda x: F.softshrink(x, 1.0),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("preset", ["exact", "default"])
def test_infinities(name, dtype, preset):
    assert_bitwise(FUNCTIONS[name], values(dtype, (0, 6, -1, 1, 0.5, 3, -3)), preset, codec="mask")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan(name, dtype):
    x = values(dtype)
    x[5::11] = NAN
    x[-1] = NAN  # after the last whole vector, torch's loops run other code
    assert_bitwise(FUNCTIONS[name], x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("limits", [(-0.9, 0.9), (-0.1, 0.1), (0.1, 0.1001), (-1e-6, 1e-6), (-1e30, 1e30), (0.0, INF),
                                    (-INF, 0.5), (-INF, INF), (-65504.0, 65504.0), (2.0, 2.0), (3.0, 65504.0)])
def test_hardtanh_with_any_limits(limits, dtype):
    if max(map(abs, limits)) < INF and not torch.tensor(limits).to(dtype).isfinite().all():
        pytest.skip("torch itself refuses limits that are too large for the type")
    assert_bitwise(lambda x: F.hardtanh(x, *limits), values(dtype, limits))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("limit", [0.1, -0.1, 0.3, 1 / 3, 1e-7, 1e-40, 70000.0, -70000.0, INF, -INF, NAN])
def test_threshold_with_any_limit(limit, dtype):
    assert_bitwise(lambda x: F.threshold(x, limit, 0.0), values(dtype, (limit,)))


@pytest.mark.parametrize("dtype", TYPES)
def test_random_limits(dtype):
    draw = random.Random(11)
    for _ in range(100):
        lower = draw.choice([draw.uniform(-2, 2), draw.gauss(0, 1e-3), float(draw.randint(-4, 4)), -2.0 ** draw.randint(-9, 3)])
        upper = lower + draw.choice([draw.uniform(0, 2), 2.0 ** draw.randint(-12, 3), abs(draw.gauss(0, 1e-4))])
        x = values(dtype, (lower, upper), 515)
        assert_bitwise(lambda x, a=lower, b=upper: F.hardtanh(x, a, b), x)
        assert_bitwise(lambda x, a=lower: F.threshold(x, a, 0.0), x)


LARGEST = [torch.finfo(dtype).max for dtype in TYPES]
LIMITS = [*LARGEST, -LARGEST[0], -LARGEST[1], -INF, -70000.0, -65504.0, -1.0, -0.1, -1e-40, -0.0, 0.0, 1e-7, 1 / 3, 0.5, 1.0, 2.0, 3e38, INF, NAN]


def can_hold(dtype, limit):
    return limit is None or not math.isfinite(limit) or bool(torch.tensor(limit).to(dtype).isfinite())


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("upper", [None, *LIMITS])
def test_clamp_with_any_limits(upper, dtype):
    """The limits count as inside, also if both are equal, or the lower one is above the upper one."""
    if not can_hold(dtype, upper):
        pytest.skip("torch itself refuses limits that are too large for the type")
    lowers = (None, *LIMITS) if upper is not None else LIMITS
    for lower in (limit for limit in lowers if can_hold(dtype, limit)):
        x = values(dtype, [limit for limit in (lower, upper) if limit is not None], 515)
        x[7::41] = NAN
        assert_bitwise(lambda x, a=lower: x.clamp(a, upper), x)
    if upper is not None:
        assert_bitwise(lambda x: x.clamp_min(upper), x)
        assert_bitwise(lambda x: x.clamp_max(upper), x)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("limit", [limit for limit in LIMITS if 0 <= limit < INF])
def test_shrinking_with_any_limit(limit, dtype):
    if not can_hold(dtype, limit):
        pytest.skip("torch itself refuses limits that are too large for the type")
    x = values(dtype, (limit, -limit))
    assert_bitwise(lambda x: F.hardshrink(x, limit), x)
    assert_bitwise(lambda x: F.softshrink(x, limit), x)


@pytest.mark.parametrize("dtype", TYPES)
def test_limits_for_each_element(dtype):
    x = values(dtype)
    session = assert_bitwise(lambda x: x.clamp(x.detach() - 1, x.detach().flip(0)), x)
    assert {site.codec for site in session.report().sites if site.op == "clamp"} == {"as is"}


@pytest.mark.parametrize("dtype", TYPES)
def test_what_asks_for_more_than_one_bit(dtype):
    """abs has a third state at 0, maximum and minimum where both are equal; PReLU's weight needs values."""
    x, weight = values(dtype), torch.tensor([0.25], dtype=dtype, requires_grad=True)
    for function in (torch.abs, lambda x: torch.maximum(x, x.flip(0)), lambda x: torch.minimum(x, x.flip(0)),
                     lambda x: F.prelu(x, weight)):
        assert_bitwise(function, x, "default")


@pytest.mark.parametrize("dtype", TYPES)
def test_limits_that_the_type_has_are_kept_in_one_bit(dtype):
    assert_bitwise(lambda x: F.hardtanh(x, -0.75, 1.5), values(dtype, (-0.75, 1.5)), codec="mask")
    session = assert_bitwise(lambda x: F.threshold(x, 0.25, 0.0), values(dtype, (0.25,)), codec="mask")
    assert session.report().bytes_after * 15 < session.report().bytes_before


def test_limits_that_the_type_has_not_are_said():
    session = assert_bitwise(lambda x: F.threshold(x, 0.1, 0.0), values(torch.bfloat16, (0.1,)))
    assert "limit" in session.report().sites[-1].reason


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9, 1 / 3, 1.0, 0.0])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("function", [F.dropout, F.dropout1d])
def test_dropout(function, p, dtype):
    def apply(x):
        torch.manual_seed(5)
        return function(x.view(1, 1, -1) if function is F.dropout1d else x, p)

    assert_bitwise(apply, values(dtype))
