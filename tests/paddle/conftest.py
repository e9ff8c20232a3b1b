"""Small models and helpers for the tests on Paddle."""

import warnings

import paddle
import pytest
from paddle import nn
from paddle.base import core

import actzip.paddle as actzip

F = nn.functional


@pytest.fixture(autouse=True)
def seeded():
    paddle.seed(0)
    assert not actzip.hooks.is_entered()
    yield
    assert not actzip.hooks.is_entered(), "a scope was left open"
    assert paddle.is_grad_enabled(), "gradients were left disabled"


@pytest.fixture(autouse=True)
def no_noise():
    """Ignores Paddle's warning in the first step of each batch norm, that it tracks statistics."""
    warnings.filterwarnings("ignore", message="When training, we now always track")


def held():
    """Bytes currently allocated by Paddle's own allocator."""
    return core.host_memory_stat_current_value("Allocated", 0)


def activation(*shape):
    """Returns a tensor that sessions compress: no leaf, which exists anyway if it gets a gradient, and no view or
    multiple of one."""
    leaf = paddle.randn(list(shape))
    leaf.stop_gradient = False
    return paddle.add(leaf, paddle.zeros_like(leaf))


def small_cnn():
    return nn.Sequential(
        nn.Conv2D(3, 16, 3, padding=1), nn.BatchNorm2D(16), nn.ReLU(), nn.MaxPool2D(2),
        nn.Conv2D(16, 32, 3, padding=1), nn.BatchNorm2D(32), nn.ReLU(), nn.AdaptiveAvgPool2D(1), nn.Flatten(),
        nn.Linear(32, 10))


def batch_of(count=32, size=16):
    return paddle.randn([count, 3, size, size]), paddle.randint(0, 10, [count])


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def gradients(model, loss):
    """Runs backward, returns the gradients of all parameters as one vector, and clears them."""
    loss.backward()
    flat = paddle.concat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).numpy()
    model.clear_gradients()
    return flat


def site(session, name):
    """Returns the only site with this operator and slot."""
    found = [s for s in session.report().sites if f"{s.op}.{s.slot}" == name]
    assert len(found) == 1, [f"{s.op}.{s.slot}" for s in session.report().sites]
    return found[0]
