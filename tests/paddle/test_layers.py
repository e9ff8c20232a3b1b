"""Layers that compress their own activations, and the conversion of models to them."""

import copy
import pickle

import numpy
import paddle
import pytest
from conftest import F, batch_of, gradients, held, loss_of, small_cnn
from paddle import nn

import actzip.paddle as actzip

#: Each layer's arguments, the shape of its input, and the largest allowed part of the bytes that Paddle keeps.
LAYERS = {
    "Conv1D": ((16, 16, 3), (8, 16, 64), 0.25), "Conv2D": ((16, 16, 3), (8, 16, 16, 16), 0.2),
    "Conv3D": ((8, 8, 3), (4, 8, 8, 8, 8), 0.2), "Conv1DTranspose": ((16, 16, 3), (8, 16, 64), 0.2),
    "Conv2DTranspose": ((16, 16, 3), (8, 16, 16, 16), 0.2), "Conv3DTranspose": ((8, 8, 3), (4, 8, 8, 8, 8), 0.2),
    "BatchNorm1D": ((16,), (512, 16), 0.25), "BatchNorm2D": ((16,), (8, 16, 16, 16), 0.2),
    "BatchNorm3D": ((8,), (4, 8, 8, 8, 8), 0.2), "Linear": ((64, 64), (256, 64), 0.2), "ReLU": ((), (64, 64), 0.05),
    "Dropout": ((0.5,), (64, 64), 0.2), "MaxPool2D": ((2,), (8, 16, 16, 16), 0.25),
    "AvgPool2D": ((2,), (8, 16, 16, 16), 0.01),
}


@pytest.mark.parametrize("name", LAYERS)
def test_each_layer(name):
    arguments, shape, most = LAYERS[name]
    layer, plain = getattr(actzip.nn, name)(*arguments), getattr(nn, name)(*arguments)
    layer.set_state_dict(plain.state_dict())
    assert isinstance(layer, type(plain)) and list(layer.state_dict()) == list(plain.state_dict())
    assert repr(layer) == f"actzip.{plain!r}"
    values, found = paddle.randn(shape), {}
    for one in (plain, layer):
        paddle.seed(1)
        x = paddle.add(values, paddle.zeros(shape))
        x.stop_gradient = False
        x = paddle.add(x, paddle.zeros(shape))
        x.retain_grads()
        y = one(x)
        loss = (y * paddle.randn(y.shape)).sum()
        loss.backward()
        found[one] = y.numpy(), *(t.grad.numpy() for t in (x, *one.parameters()) if t.grad is not None)
    numpy.testing.assert_array_equal(found[plain][0], found[layer][0])
    for exact, near in zip(found[plain][1:], found[layer][1:], strict=True):
        assert (exact * near).sum() > 0.8 * numpy.linalg.norm(exact) * numpy.linalg.norm(near)
    report = layer._binding().session.report()
    assert report.bytes_after <= most * report.bytes_before
    assert layer._binding().session.live_bytes == 0 and report.steps == 1


def test_sync_batch_norm_is_there_and_paddle_runs_it_on_a_gpu_alone():
    layer = actzip.nn.SyncBatchNorm(16)
    assert isinstance(layer, nn.SyncBatchNorm)
    with pytest.raises(Exception, match="(?i)sync_batch_norm"):
        layer(paddle.randn([4, 16, 8, 8]))
    assert not actzip.hooks.is_taken()


def test_conversion_keeps_weights_names_and_training():
    model, batch = small_cnn(), batch_of()
    before, keys = loss_of(model, batch).item(), list(model.state_dict())
    weights = [id(p) for p in model.parameters()]
    assert actzip.convert(model) is model
    assert [id(p) for p in model.parameters()] == weights and list(model.state_dict()) == keys
    assert loss_of(model, batch).item() == before
    assert "(0): actzip.Conv2D(3, 16" in str(model) and "(3): actzip.MaxPool2D" in str(model)
    report = actzip.converted(model).report()
    assert report.steps == 1 and report.ratio > 8
    assert {s.module for s in report.sites} == {"0", "1", "2", "3", "4", "5", "6", "9"}
    assert "0: actzip.Conv2D(3, 16" in str(actzip.converted(model))
    assert str(actzip.converted(model).restore()) == str(small_cnn())
    with pytest.raises(ValueError, match="convert"):
        actzip.session_of(model)


def test_a_converted_model_holds_less_and_gives_it_back():
    model, batch = actzip.convert(small_cnn()), batch_of()
    gradients(model, loss_of(model, batch))
    before = held()
    loss = loss_of(model, batch)
    ours = held() - before
    gradients(model, loss)
    del loss
    actzip.restore(model)
    before = held()
    loss = loss_of(model, batch)
    assert held() - before > 4 * ours


def test_in_a_scope_the_scope_keeps_once():
    model, batch = small_cnn(), batch_of()
    actzip.convert(model)
    with actzip.session_of(model) as session:
        loss = loss_of(model, batch)
    assert session.report().steps == 1
    assert "softmax" in {s.slot for s in session.report().sites}
    gradients(model, loss)
    assert session.live_bytes == 0


def test_evaluation_is_no_step():
    model, batch = actzip.convert(small_cnn()), batch_of()
    loss_of(model, batch)
    with paddle.no_grad():
        loss_of(model, batch)
    assert actzip.session_of(model).report().steps == 1


def test_exact_layers_train_as_paddles():
    batch, losses = batch_of(), []
    start = small_cnn()
    for model in (copy.deepcopy(start), actzip.convert(copy.deepcopy(start), preset="exact")):
        optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())
        curve = []
        for _ in range(10):
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            curve.append(loss.item())
        losses.append(curve)
    assert losses[0] == losses[1]


def test_copies_share_a_session_and_derived_layers_are_left_alone():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    model = actzip.convert(nn.Sequential(nn.Linear(32, 32), Own(32, 32)))
    assert type(model[1]) is Own
    assert actzip.session_of(copy.deepcopy(model)) is actzip.session_of(model)


def test_a_model_without_layers_is_told():
    with pytest.warns(UserWarning, match="no layer of this Flatten was converted"):
        actzip.convert(nn.Flatten())


def test_a_pickled_layer_is_a_layer():
    layer = actzip.nn.ReLU()
    layer(paddle.randn([64, 64]))
    again = pickle.loads(pickle.dumps(layer._binding()))
    assert again.session.options == layer._binding().session.options


def test_recompute_gets_what_its_layers_save():
    from paddle.distributed.fleet.utils import recompute

    model, x = actzip.convert(small_cnn()), batch_of()[0]
    model.eval()
    x.stop_gradient = False
    session = actzip.session_of(model)
    loss = recompute(model, x, use_reentrant=False).square().mean()
    assert session.live_bytes == 0
    found = gradients(model, loss)
    actzip.restore(model)
    numpy.testing.assert_array_equal(found, gradients(model, model(x).square().mean()))


def test_functional_pooling_outside_of_sessions_is_paddles_own():
    x = paddle.randn([2, 4, 8, 8])
    x.stop_gradient = False
    assert F.max_pool2d(x, 2).grad_fn.name() == "Pool2dGradNode"
