"""When memory is freed, and who may write into it. Each test fails if actzip's remedy is removed."""

from contextlib import nullcontext

import numpy
import paddle
import pytest
from conftest import F, activation, batch_of, held, loss_of, site, small_cnn

import actzip.paddle as actzip


def test_bytes_are_freed_by_backward_while_the_loss_lives():
    model, batch = small_cnn(), batch_of()
    loss_of(model, batch).backward()
    model.clear_gradients(set_to_zero=False)
    session = actzip.Session(model)
    before = held()
    with session:
        loss = loss_of(model, batch)
    assert session.live_bytes > 0
    loss.backward()
    model.clear_gradients(set_to_zero=False)
    assert session.live_bytes == 0
    assert held() - before <= 64, "the loss itself, and nothing else"
    assert loss.item() > 0


def test_what_is_kept_as_it_is_is_freed_by_backward_too():
    x = activation(256, 256)
    with actzip.Session(rules={"*": "none"}):
        before = held()
        loss = F.gelu(paddle.tanh(x)).sum()
    assert held() - before >= x.size * 4
    loss.backward()
    assert held() - before <= 64, "the loss itself, and nothing else"


def test_a_saved_output_does_not_keep_its_own_graph_alive():
    session = actzip.Session(preset="copy")
    for _ in range(3):
        before = held()
        with session:
            loss = paddle.tanh(activation(512, 512)).sum()
        del loss
        assert held() - before < 1024


@pytest.mark.parametrize("preset", ["default", "exact"])
def test_the_softmax_that_backward_writes_into_is_not_the_users(preset):
    logits = activation(64, 32)
    label = paddle.randint(0, 32, [64, 1])
    with actzip.Session(preset=preset):
        loss, softmax = F.softmax_with_cross_entropy(logits, label, return_softmax=True)
        total = loss.sum()
    before = softmax.numpy()
    total.backward(retain_graph=True)
    numpy.testing.assert_array_equal(softmax.numpy(), before)
    total.backward()
    numpy.testing.assert_array_equal(softmax.numpy(), before)


def test_the_softmax_that_backward_writes_into_is_decoded_each_time():
    logits = paddle.randn([1024, 512])
    logits.stop_gradient = False
    label = paddle.randint(0, 512, [1024, 1])
    session = actzip.Session()
    with session:
        loss = F.softmax_with_cross_entropy(logits * 1.0, label).sum()
    assert site(session, "cross_entropy_with_softmax.softmax").codec == "cast:bf16"
    (first,) = paddle.grad(loss, [logits], retain_graph=True)
    (second,) = paddle.grad(loss, [logits])
    numpy.testing.assert_array_equal(first.numpy(), second.numpy())


def test_an_operator_that_is_not_known_gets_a_copy_of_what_it_saved():
    """Its backward may write into what it saved if it seems to be the only owner, as margin_cross_entropy's does."""
    x = activation(64, 64)
    with actzip.Session() as session:
        y = paddle.sin(x)
    assert site(session, "sin.saved0").codec == "as is"
    before = held()
    (gradient,) = paddle.grad(y.sum(), [x], retain_graph=True)
    assert held() - before >= 2 * x.size * 4, "a gradient, and the copy, which the graph retains"
    numpy.testing.assert_allclose(gradient.numpy(), numpy.cos(x.numpy()), rtol=1e-5)


def test_what_one_backward_writes_another_does_not_read():
    """The softmax is decoded for two readers, and its own backward writes into what it gets."""
    paddle.seed(3)
    logits, labels = paddle.randn([256, 64]), paddle.randint(0, 64, [256, 1])
    logits.stop_gradient = False

    def gradient(session=None):
        weight = paddle.ones([256, 64])
        weight.stop_gradient = False
        with session or nullcontext():
            loss, softmax = F.softmax_with_cross_entropy(logits * 1.0, labels, return_softmax=True)
            total = (softmax.detach() * (weight * 1.0)).square().sum() + loss.sum()
        total.backward()
        return weight.grad.numpy()

    session = actzip.Session(rules={"cross_entropy_with_softmax.softmax": "affine:8", "multiply.x": "affine:8"})
    plain, found = gradient(), gradient(session)
    assert next(s.kind for s in session.report().sites if s.op == "multiply" and s.slot == "x") == "shared"
    assert (plain * found).sum() > 0.99 * numpy.linalg.norm(plain) * numpy.linalg.norm(found)
