"""Sessions as programs use them."""

import copy
import importlib
import pickle
import subprocess
import sys

import numpy
import paddle
import pytest
from conftest import F, activation, batch_of, gradients, loss_of, site, small_cnn
from paddle import nn

import actzip.paddle as actzip


def train(preset, steps=25):
    paddle.seed(3)
    model, losses = small_cnn(), []
    optimizer = paddle.optimizer.Momentum(0.05, parameters=model.parameters())
    for _ in range(steps):
        batch = batch_of(16)
        if preset:
            with actzip.compress(model, preset=preset):
                loss = loss_of(model, batch)
        else:
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(loss.item())
    return losses


def test_exact_is_full_precision_bit_by_bit():
    assert train("exact") == train(None)
    assert train("default") != train(None)


def test_sites_have_the_names_of_layers_and_the_loss_is_after_the_model():
    model, batch = small_cnn(), batch_of()
    with actzip.compress(model) as session:
        loss = loss_of(model, batch)
        (model(batch[0]) * paddle.randn([32, 10])).sum()
    names = [s.site for s in session.report().sites]
    assert {"0: conv2d.input", "1: batch_norm.x", "2: relu.out", "3: max_pool2d_with_index.mask",
            "9: linear.matmul.x", "cross_entropy_with_softmax.softmax"} <= set(names)
    loss.backward()


def test_a_layer_that_raised_does_not_name_what_comes_after():
    class Fails(nn.Layer):
        def forward(self, x):
            raise KeyError

    class Outer(nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Fails()

        def forward(self, x):
            try:
                self.inner(x)
            except KeyError:
                pass
            return x

    model = Outer()
    with actzip.compress(model) as session:
        F.gelu(model(activation(64, 64)))
    assert site(session, "gelu.x").module == ""


def test_gradients_are_near_and_unbiased():
    model, batch = small_cnn(), batch_of(64)
    exact = gradients(model, loss_of(model, batch)).astype("float64")
    draws = []
    for seed in range(16):
        with actzip.Session(model, seed=seed):
            loss = loss_of(model, batch)
        draws.append(gradients(model, loss))
    draws = numpy.array(draws, "float64")
    cosines = draws @ exact / numpy.linalg.norm(draws, axis=1) / numpy.linalg.norm(exact)
    assert cosines.min() >= 0.95
    mean = draws.mean(axis=0)
    standard_error = numpy.sqrt(((draws - mean) ** 2).sum() / 15 / 16)
    assert numpy.linalg.norm(mean - exact) <= 1.3 * standard_error


def test_verify_finds_the_same():
    model, batch = small_cnn(), batch_of()
    before = {name: value.numpy() for name, value in model.state_dict().items()}
    result = actzip.verify(model, lambda: loss_of(model, batch), draws=4)
    assert result.total.cosine > 0.9 and result.total.error > 0
    assert {"0: conv2d.input", "1: batch_norm.x"} <= {row.name for row in result.sites}
    for name, value in model.state_dict().items():
        numpy.testing.assert_array_equal(value.numpy(), before[name])
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match="1 draws"):
        actzip.verify(model, batch[0], draws=1)


def test_the_report_reads_and_prints():
    model, batch = small_cnn(), batch_of()
    session = actzip.compress(model)
    assert repr(session) == "<actzip.paddle.Session(Sequential): nothing kept yet>"
    with session:
        loss_of(model, batch)
    report = session.report()
    assert report.ratio > 5 and str(report).startswith("preset 'default', step 1: held")
    assert actzip.Report.from_json(report.to_json()) == report
    assert actzip.compress(model) is session and actzip.compress(model, bits=4) is not session


def test_unknown_operators_are_named_once_and_kept():
    x = activation(1024, 512)
    session = actzip.Session()
    for again in range(2):
        if again:
            with pytest.warns(UserWarning, match="sin .* are kept as they are"):
                session.__enter__()
        else:
            session.__enter__()
        paddle.sin(x)
        session.__exit__()
    assert site(session, "sin.saved0").use == "unknown"


def test_attach_compresses_each_forward_with_gradients():
    model, batch = small_cnn(), batch_of()
    handle = actzip.attach(model)
    twin = copy.deepcopy(model)
    loss = loss_of(model, batch)
    assert handle.report().steps == 1 and handle.session.live_bytes > 0
    gradients(model, loss)
    with paddle.no_grad():
        model(batch[0])
    assert handle.report().steps == 1
    twin(batch[0])
    assert handle.report().steps == 2
    with pytest.raises(Exception, match="."):
        model(paddle.randn([2, 5, 16, 16]))
    assert not actzip.hooks.is_entered()
    handle.remove()
    assert type(model) is nn.Sequential
    loss_of(model, batch)
    assert handle.report().steps == 3


def test_as_a_decorator():
    model, batch = small_cnn(), batch_of()
    session = actzip.compress(model)
    session(lambda: loss_of(model, batch))().backward()
    assert session.report().steps == 1


@pytest.mark.parametrize(("call", "message"), [
    (lambda: actzip.compress("exact"), "paddle.nn.Layer; a preset is compress"),
    (lambda: actzip.Session(preset="affine:99"), "allowed"),
    (lambda: actzip.Session(use_gradient=True), "use_gradient"),
    (lambda: actzip.Session(guard=True), "use verify"),
    (lambda: actzip.Session(adapt="layer"), "'sample' or ''"),
    (lambda: actzip.Session(adapt="sample+measured"), "'sample' or ''"),
    (lambda: actzip.Session(bits=2.5), "a whole number"),
    (lambda: actzip.Session(bits="2"), "a number from 1 to 8"),
    (lambda: actzip.Session().__exit__(), "not entered"),
    (lambda: actzip.converted(nn.Linear(2, 2)), "convert"),
    (lambda: actzip.convert(nn.Linear(2, 2), actzip.Session(), bits=4), "either"),
])
def test_messages_say_what_is_allowed(call, message):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        call()


def test_rules_and_bits():
    model, batch = small_cnn(), batch_of()
    with actzip.Session(model, bits=4, rules={"0: *": "none", "batch_norm.*": "affine:3"}) as session:
        loss_of(model, batch)
    codecs = {s.site: s.codec for s in session.report().sites}
    assert codecs["0: conv2d.input"] == "as is" and codecs["1: batch_norm.x"] == "affine:3"


def test_samples_get_bits_of_their_own():
    model, batch = small_cnn(), batch_of()
    batch[0][:4] *= 100
    session = actzip.Session(model, adapt="sample", bits=2)
    for _ in range(2):
        with session:
            loss = loss_of(model, batch)
    found = [s.sample_bits for s in session.report().sites if s.sample_bits]
    assert found and found[0].most > found[0].fewest
    assert numpy.isfinite(gradients(model, loss)).all()


def test_data_parallel_in_one_process():
    model, batch = small_cnn(), batch_of()
    parallel = paddle.DataParallel(model)
    with actzip.compress(parallel, preset="exact") as session:
        loss = loss_of(parallel, batch)
    found = gradients(model, loss)
    model2 = copy.deepcopy(model)
    assert any(s.kind == "encoded" for s in session.report().sites)
    numpy.testing.assert_array_equal(found, gradients(model2, loss_of(model2, batch)))


def test_auto_cast_on_the_cpu_changes_nothing():
    """On the CPU, Paddle warns and computes in float32, and so the session sees float32."""
    model, batch = small_cnn(), batch_of()
    with pytest.warns(UserWarning), paddle.amp.auto_cast(dtype="float16"), actzip.compress(model) as session:
        loss_of(model, batch).backward()
    assert {s.dtype for s in session.report().sites if s.kind == "encoded"} <= {"f32", "i32", "i64"}


def test_bfloat16_by_hand():
    x, y = activation(64, 64).astype("bfloat16"), activation(64, 64).astype("bfloat16")
    with actzip.Session(preset="rotated:4", min_numel=0) as session:
        z = (F.dropout(x, 0.5) * y).sum()
    assert {(s.slot, s.dtype) for s in session.report().sites} == {("mask", "bool"), ("x", "bf16"), ("y", "bf16")}
    found = paddle.grad(z, [y])[0].astype("float32").numpy()
    assert numpy.isfinite(found).all() and numpy.abs(found).max() > 0


def test_a_session_is_copied_and_pickled():
    session = actzip.Session(preset="exact", seed=5)
    assert copy.deepcopy(session) is session
    assert pickle.loads(pickle.dumps(session)).options == session.options


def test_torch_is_neither_needed_nor_imported():
    code = ("import actzip.paddle, sys; assert 'torch' not in sys.modules; import actzip; print(actzip.__version__)\n"
            "try: actzip.compress\nexcept ImportError as error: print(error)")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    version, message = done.stdout.splitlines()
    assert version == actzip.__version__
    assert "actzip.compress is for PyTorch" in message and "actzip.paddle.compress" in message
    assert importlib.util.find_spec("torch") is None


def test_another_paddle_is_refused():
    from actzip.paddle._paddle_check import problem

    assert not problem("3.3.1", "3.3.1")
    assert "built against paddlepaddle 3.0.0, and 3.3.1 is running" in problem("3.3.1", "3.0.0")


def test_a_resumed_session_goes_on_bit_for_bit():
    batch = batch_of()
    model = small_cnn()

    def gradients_of(session):
        with session:
            loss = loss_of(model, batch)
        loss.backward()
        found = [p.grad.numpy() for p in model.parameters() if p.grad is not None]
        model.clear_gradients(set_to_zero=False)
        return found

    session = actzip.Session(model)
    for _ in range(3):
        gradients_of(session)
    state = session.save_state()
    resumed = actzip.Session(model)
    resumed.load_state(state)
    for expected, found in zip(gradients_of(session), gradients_of(resumed)):
        numpy.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="begun already"):
        resumed.load_state(state)


def test_the_command_works_without_torch(capsys):
    from actzip import console

    assert console.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"ok       Paddle       {paddle.__version__} running" in text and "ok       Paddle step" in text
    assert console.main(["codecs"]) == 0
    assert "rotated" in capsys.readouterr().out
    assert console.main(["demo"]) == 1
    assert "bench paddle-train" in capsys.readouterr().err
