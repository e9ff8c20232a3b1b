"""ActNN's programs on actzip: conversion, layers by hand, samples and their loader."""

import contextlib
import copy

import pytest
import torch
import torch.nn.functional as F
from actnn_model import Net, X, Y, codecs, converted, fresh_config, kept, spreads, step  # noqa: F401  (a fixture)
from actzip.compat import actnn
from actzip.compat import roots
from actzip.compat.actnn.layers import LAYERS
from torch import nn
from torch.utils.checkpoint import checkpoint

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


def test_the_usage_example():
    """Sets a level, converts in one line, and prints the model."""
    torch.manual_seed(0)
    plain = Net()
    expected = plain(X)
    actnn.set_optimization_level("L2")
    model = actnn.QModule(plain)
    text = str(model)
    assert all(name in text for name in ("QConv2d(3, 16", "QBatchNorm2d(16", "QReLU()", "QMaxPool2d(", "QLinear("))
    assert torch.equal(model(X), expected)  # its weights are still there
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses = []
    for _ in range(10):
        losses.append(step(model))
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]
    report = actnn.session_of(model).report()
    assert report.preset == "actnn:L2" and report.bytes_before > 4 * report.bytes_after


def test_layers_by_hand_need_no_wrapper():
    """In a network built of ActNN's layers, the outermost module begins the step."""
    actnn.set_optimization_level("L2")
    model = Net(actnn)
    report = kept(model)
    assert report.steps == 3 and report.bytes_before > 4 * report.bytes_after
    assert codecs(report)["bn1: batch_norm.input"] == "rotated:4"


def test_evaluation_leaves_the_report_of_training():
    actnn.set_optimization_level("L2")
    model = Net(actnn)
    text = kept(model).text
    with torch.no_grad():
        model(X)
    assert actnn.session_of(model).report().text == text


def test_gradients_are_those_of_torch_at_l0():
    torch.manual_seed(0)
    plain = Net()
    model = actnn.QModule(copy.deepcopy(plain))
    actnn.set_optimization_level("L0")
    step(plain), step(model)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), model.parameters()))


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer is not actnn.QSyncBatchNorm])
def test_layers_have_the_interface_of_torchs(layer):
    own = getattr(nn, layer.__name__.removeprefix("Q"))
    assert issubclass(layer, own)
    dims = int(layer.__name__[-2]) if layer.__name__.endswith("d") else 0
    arguments = {"Conv": (8, 4, 3), "Batc": (8,), "Line": (8, 4), "MaxP": (2,), "AvgP": (2,)}.get(own.__name__[:4], ())
    x = torch.randn((6, 8, *[9] * dims) if dims else (64, 8), requires_grad=True)
    torch.manual_seed(0)
    model, plain = layer(*arguments), own(*arguments)
    plain.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    actual = model(x * 1)
    torch.manual_seed(1)
    assert torch.equal(actual, plain(x * 1))


def test_average_pooling_averages():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert torch.equal(actnn.QAvgPool2d(2)(x), F.avg_pool2d(x, 2))


def test_state_dict_has_the_names_of_the_model():
    model, plain = converted(), Net()
    assert list(model.state_dict()) == list(plain.state_dict())
    assert list(model.state_dict(prefix="x.")) == [f"x.{name}" for name in plain.state_dict()]
    model.load_state_dict(plain.state_dict())
    assert torch.equal(model.model.conv1.weight, plain.conv1.weight)
    plain.load_state_dict(model.state_dict())

    class Wrapper(nn.Module):  # like DistributedDataParallel
        def __init__(self, module):
            super().__init__()
            self.module = module

    outer = Wrapper(actnn.QModule(nn.Sequential(Wrapper(nn.Linear(2, 2)))))
    outer.load_state_dict({name: value + 1 for name, value in outer.state_dict().items()})
    assert list(outer.state_dict()) == ["module.0.module.weight", "module.0.module.bias"]
    with pytest.raises(RuntimeError, match="Missing key"):
        outer.load_state_dict({})


def test_conversion_keeps_hooks_flags_and_shared_layers():
    shared = nn.Linear(64, 64)
    model, calls = nn.Sequential(shared, nn.Dropout(0.5), shared, nn.GELU()).eval().double(), []
    shared.register_forward_hook(lambda *_: calls.append(1))
    model = actnn.QModule(model)
    assert model.model[0] is model.model[2] is shared and isinstance(shared, actnn.QLinear)
    assert shared.weight.dtype == torch.float64 and not shared.training and type(model.model[3]) is nn.GELU
    model(torch.randn(4, 64).double())
    assert len(calls) == 2


def test_checkpointed_parts_begin_no_step():
    actnn.set_optimization_level("L2")

    class Checkpointed(Net):
        def forward(self, x):
            x = checkpoint(lambda x: self.relu(self.bn1(self.conv1(x))), x, use_reentrant=False)
            return self.fc(self.relu(self.bn2(self.conv2(self.pool(x)))).flatten(1))

    model = actnn.QModule(Checkpointed())
    assert kept(model, 4).steps == 4


def test_a_model_that_ran_before_it_was_converted():
    actnn.set_optimization_level("L2")
    actnn.QReLU()  # so that forwards are watched
    model = Net()
    step(model)
    assert roots.root_of(model).library is None
    actnn.QModule(model)
    assert kept(model, 2).bytes_after > 0


@pytest.mark.skipif(TORCH < (2, 13), reason="older compilers break the graph at super()")
def test_compiled_models_are_torchs():
    model = converted("L0")
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(X), model(X), atol=1e-5)


def test_replicas_keep_with_the_session_of_their_model():
    """As DataParallel makes them for each step."""
    model = converted("L2")
    step(model)
    count, saves = len(roots._roots), actnn.session_of(model)._core.saves()
    replica = copy.copy(model)
    replica._is_replica = True
    F.cross_entropy(replica(X), Y).backward()
    assert len(roots._roots) == count and actnn.session_of(model)._core.saves() > saves


def test_errors_come_through():
    """Errors of a forward reach the caller, and later steps count as usual."""
    model = converted("L2")
    with pytest.raises(RuntimeError, match="expected input"):
        model(torch.randn(4, 5, 16, 16))
    assert roots._running.depth == 0 and kept(model, 2).steps == 3
    copied = copy.deepcopy(model)
    assert kept(copied, 2).steps == 2 and actnn.session_of(copied) is not actnn.session_of(model)


def test_an_interrupted_forward_does_no_harm():
    actnn.set_optimization_level("L2")
    model = Net(actnn)
    with contextlib.suppress(KeyboardInterrupt):
        handle = model.fc.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        model(X)
    handle.remove()
    assert kept(model, 2).steps == 3 and roots._running.depth == 0


def test_use_gradient_takes_what_the_loader_says():
    """Samples with little weight in the loss have small gradients. The statistics show it; others get their bits."""
    actnn.set_optimization_level("L3")
    actnn.config.use_gradient = True
    actnn.QScheme.num_samples = 100
    torch.manual_seed(0)
    model = actnn.QModule(Net())
    indices = torch.arange(50, 82)
    heavy = torch.arange(32) < 16
    found = []
    for _ in range(6):
        actnn.QScheme.batch = indices
        model.zero_grad()
        (F.cross_entropy(model(X), Y, reduction="none") * torch.where(heavy, 1.0, 0.01)).mean().backward()
        report = actnn.session_of(model).report()
        found.append(max((spread.most - spread.fewest for spread in spreads(report)), default=0))
    factors = actnn.session_of(model)._core.sample_factors()
    assert factors.shape == (100,) and (factors >= 0).sum() == 32 and bool((factors[indices] >= 0).all())
    assert factors[indices][heavy].min() > 10 * factors[indices][~heavy].max()
    assert report.sample_statistics.samples == 100 and found[-1] > found[0]


def test_update_scale():
    actnn.set_optimization_level("L2.5")  # all layers have bits for samples, always
    actnn.config.use_gradient = True
    actnn.QScheme.num_samples, actnn.QScheme.batch = 32, torch.arange(32)
    model = actnn.QModule(Net())
    step(model)
    known = actnn.session_of(model)._core.sample_factors()
    actnn.QScheme.update_scale = False
    step(model, 3 * X.flip(0))
    assert torch.equal(actnn.session_of(model)._core.sample_factors(), known)
    actnn.QScheme.update_scale = True
    step(model, 3 * X.flip(0))
    assert not torch.equal(actnn.session_of(model)._core.sample_factors(), known)


def test_indices_outside_the_data_set_are_refused():
    actnn.config.use_gradient = True
    actnn.QScheme.num_samples, actnn.QScheme.batch = 10, torch.arange(32)
    model = actnn.QModule(Net())
    with pytest.raises(ValueError, match="index 31 .allowed: 0 to 9"):
        model(X)
    actnn.QScheme.num_samples = 32
    assert kept(model, 2).sites


def test_allocate_perlayer():
    model = converted("L3")
    plans = kept(model, 5).plan.plans
    actnn.QScheme.allocate_perlayer()
    assert actnn.session_of(model).report().plan.plans == plans + 1
    assert issubclass(actnn.QBNScheme, actnn.QScheme)


def test_a_training_script_with_indices():
    """Like ActNN's own: its loader, per-sample gradients, conversion, evaluation in between."""
    torch.manual_seed(0)
    labels = torch.arange(256) % 4
    images = torch.randn(256, 3, 16, 16) + 2 * F.one_hot(labels, 4).float()[:, :3, None, None]
    images *= torch.where(torch.rand(256) < 0.2, 5.0, 0.5)[:, None, None, None]
    dataset = torch.utils.data.TensorDataset(images, labels)
    actnn.set_optimization_level("L3")
    actnn.config.activation_compression_bits = [2]
    actnn.config.use_gradient = True
    actnn.QScheme.num_samples = len(dataset)
    loader = actnn.DataLoader(dataset, batch_size=32, shuffle=True)
    model = actnn.QModule(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9)
    losses = []
    for _ in range(3):
        model.train()
        for indices, (x, target) in loader:
            actnn.QScheme.batch = indices
            loss = F.cross_entropy(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            model(images[:64])
    assert sum(losses[-4:]) < 0.5 * sum(losses[:4])
    session = actnn.session_of(model)
    factors = session._core.sample_factors()
    assert bool((factors >= 0).all()) and factors.max() > 5 * factors.median()  # each was seen, and they differ
    report = session.report()
    assert report.plan.plans > 0 and any(spread.fewest < spread.most for spread in spreads(report))
    assert report.bytes_before > 7 * report.bytes_after
