"""Programs of ActNN-PaddlePaddle, run unchanged."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy
import paddle
import pytest
from conftest import F, batch_of, gradients, small_cnn
from paddle import nn

import actzip.compat
from actzip.compat import actnn_paddle as actnn

HERE = Path(__file__).parent
DOCUMENT = (HERE.parent.parent / "docs/paddle.md").read_text()


@pytest.fixture(autouse=True)
def as_at_first():
    yield
    actnn.config.reset()
    actnn.set_optimization_level("L3")


def test_the_documents_usage():
    actzip.compat.install("paddle")
    try:
        names = {}
        exec("""
import paddle
import actnn
# available choices are ["L0", "L1", "L2", "L3", "L4", "L5"]
actnn.set_optimization_level("L3")
model = paddle.vision.models.resnet18(num_classes=10)
model = actnn.QModule(model)
text = str(model)    # Should be actnn.QConv2d, actnn.QBatchNorm2d, etc.

from actnn import config, QScheme
config.use_gradient = True
QScheme.num_samples = 1300000   # the size of training set

actnn.set_optimization_level("L2")
actnn.config.activation_compression_bits = [8]
config.use_gradient = False
""", names)
    finally:
        actzip.compat.uninstall()
    assert all(name in names["text"] for name in ("QConv2d", "QBatchNorm2d", "QReLU", "QMaxPool2d", "QLinear"))
    model = names["model"]
    loss = F.cross_entropy(model(paddle.randn([4, 3, 32, 32])), paddle.zeros([4], "int64"))
    codecs = {s.codec for s in actnn.session_of(model).report().sites if s.op == "conv2d" and s.kind == "encoded"}
    assert codecs <= {"affine:8:dithered", "affine:8:dithered:stats=f32"} and codecs
    loss.backward()


@pytest.mark.parametrize("level", ["L0", "L1", "L2", "L3", "L4", "L5", "swap"])
def test_a_program_of_its_shape_at_every_level(level, tmp_path):
    output = tmp_path / "results.json"
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "actzip.compat", "--framework", "paddle",
                           HERE / "programs/image_classification.py", "--actnn-level", level, "--output", output],
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "QConv2d" in done.stdout
    assert ("QBatchNorm2d" in done.stdout) == (level != "L1")
    found = json.loads(output.read_text())
    assert found["level"] == level and len(found["losses"]) == 3
    assert all(math.isfinite(loss) for loss in found["losses"])
    whole = 6_600_000
    most = {"L0": 0.9, "swap": 0.9, "L1": 0.7, "L2": 0.25}.get(level, 0.17)
    assert 0 < found["activation"] < most * whole


def test_layers_by_hand_and_in_lower_case():
    model = nn.Sequential(actnn.qconv2d(3, 8, 3, bias=False), actnn.QBatchNorm2d(8, eps=1e-4), actnn.qrelu(),
                          actnn.qmax_pool2d(2), nn.Flatten(), actnn.QLinear(8 * 49, 10, group=1))
    assert model[0].bias is None and model[1]._epsilon == 1e-4 and model[5].group == 1
    loss = F.cross_entropy(model(paddle.randn([16, 3, 16, 16])), paddle.randint(0, 10, [16]))
    assert numpy.isfinite(gradients(model, loss)).all()
    sites = model[5]._binding().session.report().sites
    assert [s.codec for s in sites if s.slot == "x"] == ["affine:8:dithered"]
    with pytest.raises(TypeError, match="group"):
        actnn.QConv2d(3, 8, 3, group=-1)


def test_a_module_keeps_weights_and_names():
    plain = small_cnn()
    keys, weights = list(plain.state_dict()), [id(p) for p in plain.parameters()]
    model = actnn.QModule(plain)
    assert list(model.state_dict()) == keys and [id(p) for p in model.parameters()] == weights
    model.set_state_dict(small_cnn().state_dict())
    model.eval()
    assert not actnn.config.training and not model.model.training
    x = batch_of()[0]
    model(x)
    model.train()
    assert actnn.config.training and model.model.training
    model(x)
    assert actnn.session_of(model).report().steps == 1


def test_every_level_is_what_it_was_when_a_program_comes_back_to_it():
    model, x = actnn.QModule(small_cnn()), batch_of()[0]
    model(x)
    first = actnn.session_of(model)
    actnn.set_optimization_level("L2")
    model(x)
    assert actnn.session_of(model) is not first
    actnn.set_optimization_level("L3")
    assert actnn.session_of(model) is first


def test_gradients_of_samples_are_named_as_missing():
    actnn.config.use_gradient = True
    with pytest.warns(UserWarning, match="gradients of samples are not known on Paddle"):
        actnn.session_of(actnn.QModule(small_cnn()))


def test_the_loader_gives_indices():
    dataset = paddle.io.TensorDataset([paddle.arange(10)])
    assert [(indices, batch[0].tolist()) for indices, batch in actnn.DataLoader(dataset, batch_size=4)] == [
        ([0, 1, 2, 3], [0, 1, 2, 3]), ([4, 5, 6, 7], [4, 5, 6, 7]), ([8, 9], [8, 9])]


def test_memory_is_that_of_paddles_allocator():
    before = actnn.get_memory_usage()
    x = paddle.ones([256, 256])
    assert actnn.get_memory_usage() - before == actnn.compute_tensor_bytes(x) == 1 << 18


def test_a_program_that_paddle_is_not_installed_for():
    with pytest.raises(ValueError, match="allowed: torch, paddle"):
        actzip.compat.install("jax")


def test_the_documents_table_names_what_there_is():
    names = re.findall(r"`actnn\.([\w.]+)`", DOCUMENT.split("## Names of ActNN-PaddlePaddle")[1])
    assert len(names) > 50
    for name in names:
        value = actnn
        for part in name.split("."):
            value = getattr(value, part)
    assert {name.removeprefix("config.") for name in names if name.startswith("config.")} == set(actnn.config._fields)
    assert set(actnn.__all__) <= set(names) | {"dataloader"}
