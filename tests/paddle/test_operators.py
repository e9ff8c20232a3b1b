"""How each operator's tensors are kept, and that its gradient is right. One case for each row of the table."""

import numpy
import paddle
import pytest
from conftest import F, activation
from paddle import nn

import actzip.paddle as actzip

LABELS = paddle.randint(0, 64, [64])


def positive(x):
    return x.abs() + 0.5


#: By name: a function, the shape of its input, and how each slot is kept.
CASES = {
    "relu": (F.relu, (64, 64), {"relu.out": "mask"}),
    "relu6": (F.relu6, (64, 64), {"relu6.out": "mask:hi=6:on=3:nan=off"}),
    "hardsigmoid": (F.hardsigmoid, (64, 64), {"hardsigmoid.out": "mask:hi=1:on=0.5:nan=off"}),
    "leaky_relu": (F.leaky_relu, (64, 64), {"leaky_relu.x": "mask:lo=-1.1754944e-38:off=-1.1754944e-38:nan=off"}),
    "dropout": (lambda x: F.dropout(x, 0.5), (64, 64), {"dropout.mask": "mask"}),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (4, 4, 16, 16, 16),
                   {"avg.pool3d.x": "shape only", "avg.pool3d.out": "shape only"}),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), (16, 16, 32),
                   {"max_pool2d_with_index.x": "shape only", "max_pool2d_with_index.mask": "index:bound=32"}),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (4, 4, 16, 16, 16),
                   {"max_pool3d_with_index.x": "shape only", "max_pool3d_with_index.mask": "index:bound=4096"}),
    "linear": (nn.Linear(64, 64), (2, 32, 64), {"linear.matmul.x": "rotated:3"}),
    "matmul": (lambda x: paddle.matmul(x, x.t()), (64, 64), {"matmul.x": "rotated:3"}),
    "batched matmul": (lambda x: paddle.matmul(x, x * 2, transpose_y=True), (2, 32, 64),
                       {"batched.matmul.x": "rotated:4", "batched.matmul.y": "rotated:4"}),
    "bmm": (lambda x: paddle.bmm(x, x * 2), (2, 32, 32), {"bmm.x": "rotated:4", "bmm.y": "rotated:4"}),
    "conv3d": (nn.Conv3D(4, 4, 3), (4, 4, 8, 8, 8), {"conv3d.input": "rotated:2"}),
    "conv2d_transpose": (nn.Conv2DTranspose(4, 4, 3), (16, 4, 16, 16), {"conv2d_transpose.input": "rotated:2"}),
    "depthwise": (nn.Conv2D(4, 4, 3, groups=4), (16, 4, 16, 16), {"depthwise_conv2d.input": "rotated:2"}),
    "layer_norm": (nn.LayerNorm(256), (64, 256), {"layer_norm.x": "rotated:2"}),
    "layer_norm of short rows": (nn.LayerNorm(64), (64, 64), {"layer_norm.x": "affine:4:dithered:group=64"}),
    "instance_norm": (nn.InstanceNorm2D(4), (16, 4, 16, 16), {"instance_norm.x": "rotated:2"}),
    "group_norm": (nn.GroupNorm(2, 4), (16, 4, 16, 16), {"group_norm.x": "rotated:2", "group_norm.out": "rotated:2"}),
    "gelu": (F.gelu, (64, 64), {"gelu.x": "rotated:3"}),
    "silu": (F.silu, (64, 64), {"silu.x": "rotated:4", "silu.out": "rotated:4"}),
    "mish": (F.mish, (64, 64), {"mish.x": "rotated:4"}),
    "hardswish": (F.hardswish, (64, 64), {"hardswish.x": "rotated:4"}),
    "softplus": (F.softplus, (64, 64), {"softplus.x": "rotated:4"}),
    "multiply": (lambda x: x * (x + 1), (256, 256), {"multiply.x": "rotated:3", "multiply.y": "rotated:3"}),
    "multiply, broadcast": (lambda x: x * x.mean(axis=[2, 3], keepdim=True), (16, 64, 16, 16),
                            {"multiply.x": "rotated:3", "multiply.y": "as is"}),
    "square": (paddle.square, (64, 64), {"square.x": "rotated:2"}),
    "pow": (lambda x: x ** 3, (64, 64), {"pow.saved0": "as is"}),
    "tanh": (paddle.tanh, (64, 64), {"tanh.out": "affine:4"}),
    "sigmoid": (F.sigmoid, (64, 64), {"sigmoid.out": "affine:4"}),
    "softmax": (F.softmax, (64, 64), {"softmax.out": "affine:8"}),
    "log_softmax": (F.log_softmax, (512, 1024), {"log_softmax.out": "affine:8:nearest:stats=f32:floor=-32"}),
    "divide": (lambda x: x / positive(x), (512, 1024), {"divide.y": "cast:bf16", "divide.out": "cast:bf16"}),
    "log": (lambda x: paddle.log(positive(x)), (512, 1024), {"log.x": "cast:bf16"}),
    "exp": (paddle.exp, (512, 1024), {"exp.out": "affine:8:dithered"}),
    "sqrt": (lambda x: paddle.sqrt(positive(x)), (64, 64), {"sqrt.out": "as is"}),
    "cross_entropy": (lambda x: F.cross_entropy(x, LABELS), (64, 64),
                      {"cross_entropy_with_softmax.softmax": "as is"}),
    "maximum": (lambda x: paddle.maximum(x, -x), (64, 64), {"maximum.x": "as is", "maximum.y": "as is"}),
    "abs": (paddle.abs, (64, 64), {"abs.x": "as is"}),
    "max": (lambda x: x.max(axis=1), (64, 64), {"max.x": "as is"}),
    "clip": (lambda x: paddle.clip(x, -1, 1), (64, 64), {"clip.saved0": "as is"}),
    "sin": (paddle.sin, (64, 64), {"sin.saved0": "as is"}),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_and_the_gradient(name):
    function, shape, kept = CASES[name]
    one_bit = all(codec.startswith(("mask", "shape", "index")) for codec in kept.values())
    x = paddle.round(2 * activation(*shape)) if one_bit else activation(*shape)  # so that values at the limits occur
    before = x.numpy()

    def gradient(session):
        paddle.seed(7)
        if session is None:
            y = function(x)
        else:
            with session:
                y = function(x)
        result = y.numpy()
        (found,) = paddle.grad((y * paddle.randn(y.shape)).sum(), [x])
        numpy.testing.assert_array_equal(y.numpy(), result, "backward has written into the result")
        numpy.testing.assert_array_equal(x.numpy(), before, "backward has written into the input")
        return found.numpy().astype("float64")

    paddle.seed(7)
    plain, session = gradient(None), actzip.Session()
    found = gradient(session)
    codecs = {f"{s.op}.{s.slot}": s.codec for s in session.report().sites if s.ordinal == 0}
    assert {slot: codecs.get(slot) for slot in kept} == kept
    cosine = (plain * found).sum() / numpy.linalg.norm(plain) / numpy.linalg.norm(found)
    if one_bit:
        numpy.testing.assert_array_equal(found, plain)
    is_coarse = any(codec.startswith(("rotated", "affine:4")) for codec in kept.values())
    assert cosine > (0.93 if is_coarse else 0.9985), cosine
    # With everything kept as it is, gradients must be exact: the table's operators do not write into what they saved.
    numpy.testing.assert_array_equal(gradient(actzip.Session(rules={"*": "none"}, min_numel=1 << 40)), plain)


def test_recurrent_layers():
    layer, x = nn.LSTM(16, 16), paddle.randn([8, 16, 16])
    with actzip.Session() as session:
        y = layer(x)[0]
    assert [s.codec for s in session.report().sites if s.slot == "x"] == ["rotated:4"]
    y.sum().backward()
    found = layer.weight_ih_l0.grad.numpy()
    layer.clear_gradients()
    layer(x)[0].sum().backward()
    exact = layer.weight_ih_l0.grad.numpy()
    assert (found * exact).sum() / numpy.linalg.norm(found) / numpy.linalg.norm(exact) > 0.95


def test_every_row_says_what_its_first_slot_is():
    for row in actzip.hooks._C.operator_rows():
        assert row["names"] and row["slots"][0][0], row


def test_no_operator_has_two_rows():
    names = [name for row in actzip.hooks._C.operator_rows() for name in row["names"].split()]
    assert len(names) == len(set(names))


def test_every_operator_of_the_table_is_one_of_paddles():
    """A name that Paddle does not have would never match."""
    names = {name for row in actzip.hooks._C.operator_rows() for name in row["names"].split()}
    missing = {name for name in names if not hasattr(paddle._C_ops, name.split(".")[-1])}
    assert not missing
