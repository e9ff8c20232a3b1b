"""Pitfalls of Paddle's hooks, one test each. Each test fails if actzip's remedy is removed."""

import subprocess
import sys
import threading
import weakref

import numpy
import paddle
import pytest
from conftest import F, activation, batch_of, gradients, held, loss_of, site, small_cnn
from paddle import nn
from paddle.distributed.fleet.utils import recompute

import actzip.paddle as actzip


def test_addresses_that_come_again_are_not_taken_for_shared_memory():
    """Each product frees its operand, so the next operand has the same address."""
    weight = paddle.randn([64, 64])
    weight.stop_gradient = False

    def loss():
        total = paddle.zeros([])
        for i in range(8):
            total = total + paddle.matmul(paddle.full([64, 64], float(i + 1)) + 0.0, weight).sum()
        return total

    with actzip.Session(preset="rotated:4") as session:
        value = loss()
    addresses = [s.kind for s in session.report().sites if s.slot == "x"]
    assert addresses.count("encoded") == 8 and "shared" not in addresses
    value.backward()
    numpy.testing.assert_allclose(weight.grad.numpy(), 64.0 * sum(range(1, 9)), rtol=1e-3)


@pytest.mark.parametrize("view", [
    lambda x: x[8:], lambda x: x.transpose([1, 0]), lambda x: x[:, 8:40], lambda x: x[::2], lambda x: x[8:, ::2],
    lambda x: x[8:].transpose([1, 0]), lambda x: x.unsqueeze(0)[:, 3:],
], ids=["offset", "permuted", "gapped", "strided", "both", "permuted offset", "unsqueezed"])
def test_views_come_back_where_they_lay(view):
    x = activation(64, 64)

    def gradient():
        (found,) = paddle.grad(F.gelu(view(x)).sum(), [x])
        return found.numpy()

    exact = gradient()
    with actzip.Session(preset="affine:8:nearest", min_numel=0):
        loss = F.gelu(view(x)).sum()
    (found,) = paddle.grad(loss, [x])
    assert numpy.abs(found.numpy() - exact).max() < 0.05


#: Runs in a process of its own, because this one may have free memory.
FAILING_PACK = """
import resource
from pathlib import Path
import paddle
import actzip.paddle as actzip

x = paddle.randn([1 << 12, 1 << 12])
session = actzip.Session(preset="rotated:4")
try:
    with session:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), before[1]))
        held = session._pack(x)
        resource.setrlimit(resource.RLIMIT_AS, before)
except RuntimeError as error:
    assert "ResourceExhausted" in str(error) and str(error).endswith("; what was saved there is kept as it is"), error
    print("raised at the end of the scope")
assert paddle.is_grad_enabled()
assert bool((session._unpack(held) == x).all())
with session:
    print("and once")
"""


def test_an_error_while_packing_is_raised_at_the_end_of_the_scope():
    """An error raised in the hook would leave gradients disabled for good."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FAILING_PACK], capture_output=True, text=True)
    assert done.stdout == "raised at the end of the scope\nand once\n", done.stderr


def test_an_error_while_unpacking_leaves_gradients_on():
    x = activation(64, 64)
    with actzip.Session():
        y = F.gelu(x)
    with paddle.no_grad():
        x.add_(paddle.ones_like(x))
    with pytest.raises(OSError, match="gelu.x was saved for backward and has been changed by an in-place"):
        y.sum().backward()
    assert paddle.is_grad_enabled()


@pytest.mark.parametrize("change", [lambda x: x, lambda x: x.detach(), lambda x: x[1:], lambda x: x.reshape([-1])],
                         ids=["itself", "detached", "a slice", "reshaped"])
@pytest.mark.parametrize("rules", [{}, {"*": "none"}], ids=["encoded", "as it is"])
def test_changes_in_place_are_noticed(change, rules):
    x = activation(64, 64)
    with actzip.Session(rules=rules):
        y = paddle.tanh(x)
    with paddle.no_grad():
        change(y).add_(paddle.ones_like(change(y)))
    with pytest.raises(OSError, match="in-place"):
        y.sum().backward()


def test_relu_in_place_is_no_such_change():
    x = activation(64, 64)
    with actzip.Session() as session:
        y = F.relu_(x * 1.0)
    assert site(session, "relu_.out").codec == "mask"
    (gradient,) = paddle.grad(y.sum(), [x])
    numpy.testing.assert_array_equal(gradient.numpy(), (x.numpy() > 0).astype("float32"))


def test_an_inner_session_leaves_the_outer_one_entered():
    x = activation(64, 64)
    outer, inner = actzip.Session(), actzip.Session()
    with outer:
        F.gelu(x)
        with inner:
            F.gelu(x)
        F.gelu(x)
    assert [s.ordinal for s in outer.report().sites] == [0, 1]
    assert len(inner.report().sites) == 1


def test_hooks_of_others_nest_in_a_session():
    x, seen = activation(64, 64), []
    with actzip.Session() as session:
        with paddle.autograd.saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
            F.gelu(x)
        F.gelu(x)
    assert len(seen) == 1 and len(session.report().sites) == 1


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_recompute(use_reentrant):
    model, x = small_cnn(), batch_of()[0]
    model.eval()  # in training, it would update running statistics twice

    def loss():
        return recompute(model, x, use_reentrant=use_reentrant).square().mean()

    x.stop_gradient = False
    exact = gradients(model, loss())
    with actzip.Session(preset="exact"):
        value = loss()
    numpy.testing.assert_array_equal(gradients(model, value), exact)


def test_other_threads_are_left_alone():
    session, failures = actzip.Session(), []

    def elsewhere():
        try:
            x = activation(64, 64)
            (gradient,) = paddle.grad(paddle.tanh(x).sum(), [x])
            numpy.testing.assert_allclose(gradient.numpy(), 1 - numpy.tanh(x.numpy()) ** 2, rtol=1e-4, atol=1e-6)
        except BaseException as error:
            failures.append(error)

    with session:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert not failures and not session.report().sites


def test_static_mode_is_refused():
    paddle.enable_static()
    try:
        with pytest.raises(RuntimeError, match="static mode"):
            actzip.Session().__enter__()
    finally:
        paddle.disable_static()


def test_to_static_is_refused():
    model = paddle.jit.to_static(nn.Linear(64, 64), full_graph=True)
    x = paddle.randn([64, 64])
    with pytest.raises(RuntimeError, match="to_static"):
        with actzip.Session():
            model(x)
    with paddle.no_grad(), actzip.Session():
        model(x)
    model(x).sum().backward()


def test_no_grad_keeps_nothing():
    model, batch = small_cnn(), batch_of()
    with paddle.no_grad(), actzip.Session(model) as session:
        loss_of(model, batch)
    assert not session.report().sites


@pytest.mark.parametrize("padding", [0, 1, [1, 0]])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pooling_keeps_positions_and_has_the_same_gradient(padding, ceil_mode):
    x = activation(4, 8, 17, 17)
    with paddle.no_grad():
        x.set_value(paddle.round(x * 2))  # with ties
    def pool():
        return F.max_pool2d(x, 3, 2, padding, ceil_mode=ceil_mode)

    weight = paddle.randn(pool().shape)
    (exact,) = paddle.grad((pool() * weight).sum(), [x])
    with actzip.Session() as session:
        y = pool()
    assert site(session, "max_pool2d_with_index.x").kind == "shape only"
    assert site(session, "max_pool2d_with_index.mask").codec == "index:bound=289"
    numpy.testing.assert_array_equal(y.numpy(), pool().numpy())
    (found,) = paddle.grad((y * weight).sum(), [x])
    numpy.testing.assert_array_equal(found.numpy(), exact.numpy())


@pytest.mark.parametrize("padding", ["SAME", [[0, 0], [0, 0], [1, 0], [0, 1]]])
def test_max_pooling_that_has_no_positions_keeps_values(padding):
    x = activation(4, 8, 16, 16)
    with actzip.Session() as session:
        y = F.max_pool2d(x, 3, 2, padding)
    assert site(session, "max.pool2d.x").codec == "as is"
    numpy.testing.assert_array_equal(y.numpy(), F.max_pool2d(x, 3, 2, padding).numpy())


@pytest.mark.parametrize("pool", [lambda x: F.avg_pool2d(x, 2), lambda x: F.adaptive_avg_pool2d(x, 3), nn.AvgPool2D(2)])
def test_average_pooling_keeps_shapes(pool):
    x = activation(16, 8, 16, 16)
    (exact,) = paddle.grad(pool(x).sum(), [x])
    with actzip.Session() as session:
        y = pool(x)
    assert [s.kind for s in session.report().sites] == ["shape only", "shape only"]
    (found,) = paddle.grad(y.sum(), [x])
    numpy.testing.assert_array_equal(found.numpy(), exact.numpy())


def test_a_function_of_the_users_that_is_called_like_average_pooling_is_not_taken_for_it():
    def avg_pool2d(x):
        return paddle._C_ops.pool2d(x, [2, 2], [2, 2], [0, 0], False, True, "NCHW", "max", False, False, "EXPLICIT")

    with actzip.Session() as session:
        avg_pool2d(activation(4, 8, 16, 16))
    assert {s.codec for s in session.report().sites} == {"as is"}


class Tied(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([64, 64])
        self.conv = nn.Conv1D(64, 64, 3)

    def forward(self, x):
        return self.conv(paddle.matmul(x, self.weight.t()) * 1.0)


@pytest.mark.parametrize("with_model", [True, False])
def test_what_is_made_of_parameters_is_kept_exactly(with_model):
    model = Tied()
    x = paddle.randn([8, 64, 64])
    with actzip.Session(model if with_model else None) as session:
        model(x).sum()
    causes = {f"{s.op}.{s.slot}": s.cause for s in session.report().sites}
    assert causes["matmul.y"] == "parameter"
    assert causes["conv2d.filter"] == "parameter"
    assert causes["conv2d.input"] == ""


def test_running_statistics_are_kept_exactly():
    model = nn.BatchNorm2D(2048)
    with actzip.Session() as session:
        model(paddle.randn([4, 2048, 2, 2]))
    sites = {f"{s.slot} {s.ordinal}": s for s in session.report().sites}
    assert sites["x 0"].kind == "encoded"
    assert all(s.codec == "as is" for name, s in sites.items() if name != "x 0")


@pytest.mark.parametrize(("layer", "shape", "name", "codec"), [
    (nn.Conv2D(8, 8, 1), (4, 8, 4, 8), "conv2d.input", "rotated:4"),
    (nn.Conv2D(8, 8, 1), (16, 8, 16, 8), "conv2d.input", "rotated:2"),
    (nn.Conv2D(256, 8, 1, data_format="NHWC"), (2, 16, 4, 256), "conv2d.input", "rotated:4"),
    (nn.BatchNorm2D(128), (2, 128, 4, 4), "batch_norm.x", "rotated:4"),
    (nn.BatchNorm2D(8), (16, 8, 16, 8), "batch_norm.x", "rotated:2"),
    (nn.BatchNorm1D(64), (64, 64), "batch_norm.x", "rotated:4"),
], ids=str)
def test_rows_are_known_so_that_short_ones_get_more_bits(layer, shape, name, codec):
    with actzip.Session() as session:
        layer(activation(*shape))
    found = [s.codec for s in session.report().sites if f"{s.op}.{s.slot}" == name and s.ordinal == 0]
    assert found == [codec]


def test_masks_of_dropout_take_one_bit():
    x = activation(64, 64)
    with actzip.Session() as session:
        y = F.dropout(x, 0.5)
    assert site(session, "dropout.mask").codec == "mask"
    (gradient,) = paddle.grad(y.sum(), [x])
    numpy.testing.assert_array_equal(gradient.numpy() != 0, y.numpy() != 0)


def test_a_retained_graph_can_be_run_again():
    model, batch = small_cnn(), batch_of()
    session = actzip.Session(model)
    with session:
        loss = loss_of(model, batch)
    loss.backward(retain_graph=True)
    first = paddle.concat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).numpy()
    assert session.live_bytes > 0, "a retained graph keeps its bytes"
    model.clear_gradients()
    numpy.testing.assert_array_equal(gradients(model, loss), first)
    assert session.live_bytes == 0


def test_a_graph_that_is_not_retained_is_not_run_again():
    x = activation(64, 64)
    with actzip.Session():
        loss = F.gelu(x).sum()
    loss.backward()
    with pytest.raises(SystemError, match="retain_graph=True"):
        loss.backward()
    assert paddle.is_grad_enabled()


def test_a_gradient_of_few_bits_is_not_differentiated_again():
    x = activation(64, 64)
    with actzip.Session():
        y = F.gelu(x).sum()
    with pytest.raises(OSError, match="create_graph=True asks for what gelu.x saved"):
        paddle.grad(y, [x], create_graph=True)
    assert paddle.is_grad_enabled()
    with actzip.Session(preset="exact"):
        y = (x * x * x).sum()
    (once,) = paddle.grad(y, [x], create_graph=True)
    (twice,) = paddle.grad(once.sum(), [x])
    numpy.testing.assert_allclose(twice.numpy(), 6 * x.numpy(), rtol=1e-5)


class Cube(paddle.autograd.PyLayer):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,), (again,) = ctx.saved_tensor(), ctx.saved_tensor()
        return 3 * gradient * x * again


def test_what_a_pylayer_saves_is_kept_exactly_and_may_be_asked_for_twice():
    x = activation(64, 64)
    with actzip.Session() as session:
        y = Cube.apply(x)
    assert site(session, "PyLayer.saved0").use == "foreign"
    (gradient,) = paddle.grad(y.sum(), [x])
    numpy.testing.assert_allclose(gradient.numpy(), 3 * x.numpy() ** 2, rtol=1e-5)


def test_a_session_may_be_gone_before_backward():
    model, batch = small_cnn(), batch_of()
    session = actzip.Session(model)
    with session:
        loss = loss_of(model, batch)
    gone = weakref.ref(session)
    del session
    assert gone() is None
    assert numpy.isfinite(gradients(model, loss)).all()
