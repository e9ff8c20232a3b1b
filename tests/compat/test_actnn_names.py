"""ActNN's names one by one: arguments of its layers, schemes, its loader, its operators and utilities."""

import inspect
import os

import pytest
import torch
import torch.nn.functional as F
from actzip.compat import actnn
from actzip.compat.actnn import ops
from actzip.compat.actnn.cpp_extension import calc_precision, minimax, quantization
from actzip.compat.actnn.dataloader import default_collate
from actzip.compat.actnn.layers import LAYERS
from torch import nn
from torch.utils.data import TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")
ARGUMENTS = {"Conv": (8, 4, 3), "Batc": (8,), "Sync": (8,), "Line": (8, 4)}


@pytest.mark.parametrize("layer", [layer for layer in LAYERS if layer.__name__[1:5] in ARGUMENTS])
def test_the_last_argument_is_the_group(layer):
    own = getattr(nn, layer.__name__[1:])
    names = list(inspect.signature(own).parameters)
    names = names[:names.index("device")]
    given = list(ARGUMENTS[own.__name__[:4]])
    defaults = [inspect.signature(own).parameters[name].default for name in names[len(given):]]
    made = layer(*given, *defaults, 2)
    assert made.group == 2 and next(made.parameters()).device.type == "cpu"
    assert layer(*given, group=1).group == 1 and layer(*given, device="meta").group == 0
    with pytest.raises(TypeError, match="arguments by position .allowed"):
        layer(*given, *defaults, 2, "cpu")
    with pytest.raises(TypeError, match="group 'cpu' .allowed: 0 or more"):
        layer(*given, *defaults, "cpu")


def test_sizes_of_linear_layers_have_actnns_names_too():
    layer = actnn.QLinear(input_features=8, output_features=4, bias=False)
    assert layer.weight.shape == (4, 8) and layer.bias is None


class MyConv(nn.Conv2d):
    """A subclass that changes no computation, as models define them to count or to name their layers."""


class Doubled(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


def test_subclasses_are_converted_where_they_compute_as_their_layer():
    actnn.set_optimization_level("L2")
    model = actnn.QModule(nn.Sequential(MyConv(3, 16, 3), nn.ReLU(), MyConv(16, 16, 3)))
    assert isinstance(model.model[0], (MyConv, actnn.QConv2d)) and "QConv2d[MyConv](3, 16" in str(model)
    model(torch.randn(8, 3, 16, 16)).sum().backward()
    report = actnn.session_of(model).report()
    assert all(site.codec.startswith("rotated:4") for site in report.sites if site.op == "convolution"), report.text


def test_what_stays_torchs_is_named():
    with pytest.warns(UserWarning, match="actnn.QModule: 2 of 3 layers .*stay as they are .0: Doubled has a forward of its"):
        model = actnn.QModule(nn.Sequential(Doubled(3, 8, 3), Doubled(8, 8, 3), nn.ReLU()))
    assert type(model.model[0]) is Doubled
    with pytest.warns(UserWarning, match="no layer of this Identity was converted"):
        actnn.QModule(nn.Identity())


def test_convert_layers_without_a_wrapper():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3)), nn.BatchNorm2d(8))
    expected = model(torch.ones(2, 3, 8, 8))
    actnn.QModule.convert_layers(model)
    assert isinstance(model[0], actnn.QConv2d) and isinstance(model[1], actnn.QConv2d)
    assert torch.allclose(model(torch.ones(2, 3, 8, 8)), expected)
    nn.utils.parametrize.remove_parametrizations(model[1], "weight")
    assert type(model[1]) is actnn.QConv2d


def test_schemes_come_and_go_with_their_layers():
    before = len(actnn.QScheme.layers)
    model = nn.Sequential(actnn.QConv2d(3, 16, 3), actnn.QBatchNorm2d(16), actnn.QConv2d(16, 16, 3))
    scheme = model[0].scheme
    assert len(actnn.QScheme.layers) == before + 2 and scheme is model[0].scheme and scheme.layer is model[0]
    assert model[1].scheme in actnn.QBNScheme.layers and model[1].scheme.prev_linear in actnn.QScheme.layers
    assert scheme.bits == 2 and scheme.num_locations == 9 and scheme.group == 0
    for _ in range(3):
        model(torch.randn(16, 3, 16, 16)).square().sum().backward()
    assert 1 <= scheme.bits <= 8 and actnn.QScheme.prev_layer is model[2].scheme
    actnn.config.adaptive_conv_scheme = False
    assert model[0].scheme is None and model[1].scheme is not None
    with pytest.raises(AttributeError):
        scheme.bits = 4
    del model, scheme
    assert len(actnn.QScheme.layers) == before


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = actnn.QConv2d(3, 16, 3)
        self.fine, self.coarse = actnn.QConv2d(16, 16, 3, group=1), actnn.QConv2d(16, 16, 3)

    def forward(self, x):
        x = self.stem(x)
        return self.fine(x) + self.coarse(x)


def test_bits_are_those_of_the_layer_that_keeps_the_input():
    model = Branches()
    model(torch.randn(16, 3, 16, 16)).square().sum().backward()
    assert (model.stem.scheme.bits, model.fine.scheme.bits, model.coarse.scheme.bits) == (2, 8, 8)


def test_going_back_to_a_configuration_goes_back_to_what_was_learned():
    model, x = actnn.QModule(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))), torch.randn(16, 3, 16, 16)

    def step():
        model(x).square().sum().backward()
        return actnn.session_of(model)

    first = [step() for _ in range(3)][-1]
    plans = first.report().plan.plans
    actnn.config.compress_activation = False
    assert step() is not first
    actnn.config.compress_activation = True
    assert step() is first and first.report().plan.plans >= plans > 0


def test_the_loader_gives_lists():
    data = TensorDataset(torch.arange(10.0), torch.arange(10))
    data.classes = ["even", "odd"]
    loader = actnn.DataLoader(data, batch_size=4, collate_fn=default_collate)
    found = [(indices.copy(), target.tolist()) for indices, (_, target) in loader]
    assert found[0] == ([0, 1, 2, 3], [0, 1, 2, 3]) and found[-1] == ([8, 9], [8, 9])
    assert loader.dataset.classes == ["even", "odd"] and not hasattr(loader.dataset, "labels")
    actnn.QScheme.num_samples, actnn.QScheme.batch, actnn.config.use_gradient = 10, found[0][0], True
    model = actnn.QModule(nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64)))
    model(torch.randn(4, 1)).sum().backward()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_operators_at_l0_are_torchs(dims):
    actnn.set_optimization_level("L0")
    x = torch.randn(2, 4, *[7] * dims, requires_grad=True)
    weight = torch.randn(4, 4, *[3] * dims, requires_grad=True)
    bias = torch.randn(4, requires_grad=True)

    def gradients(result):
        return [result, *torch.autograd.grad(result.square().sum(), (x, weight, bias))]

    def check(found, expected):
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(gradients(found), gradients(expected)))

    check(getattr(ops, f"conv{dims}d").apply(x, weight, bias, 2, 1, 1, 1, None),
          getattr(F, f"conv{dims}d")(x, weight, bias, 2, 1))
    check(getattr(ops, f"conv_transpose{dims}d").apply(x, weight, bias, 2, 1, 1, 1, 1, None),
          getattr(F, f"conv_transpose{dims}d")(x, weight, bias, 2, 1, 1))


def test_operators_keep_by_the_configuration():
    actnn.set_optimization_level("L2")
    x, weight = torch.randn(256, 64, requires_grad=True), torch.randn(32, 64, requires_grad=True)
    scale, bias = torch.ones(64, requires_grad=True), torch.zeros(64, requires_grad=True)
    ops._layers.clear()
    normed = ops.batch_norm.apply(x, None, None, scale, bias, True, 0.1, 1e-5, actnn.QBNScheme())
    ops.linear.apply(normed * 1, weight, None, actnn.QScheme(None)).square().sum().backward()
    exact = torch.autograd.grad(F.linear(F.batch_norm(x, None, None, scale, bias, True), weight).square().sum(), weight)[0]
    error = (weight.grad - exact).norm() / exact.norm()
    assert 0 < error < 0.2  # 4 bits: close, but not equal
    assert torch.equal(ops.adaptive_avg_pool2d.apply(x.view(4, 64, 8, 8), (1, 1)), x.view(4, 64, 8, 8).mean((2, 3), True))


def test_compiled_functions():
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    assert torch.equal(quantization.act_quantized_relu(x), F.relu(x))
    pooled = quantization.act_quantized_max_pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1), False, False)
    assert torch.equal(pooled, F.max_pool2d(x, 3, 2, 1))
    assert torch.equal(torch.autograd.grad(pooled.sum(), x)[0], torch.autograd.grad(F.max_pool2d(x, 3, 2, 1).sum(), x)[0])
    kept = quantization.act_quantized_dropout(torch.ones(10000), 0.25)
    assert abs((kept == 0).float().mean() - 0.25) < 0.05 and kept[kept != 0].unique().tolist() == pytest.approx([4 / 3])
    least, most = minimax.minimax(torch.tensor([[3.0, 1.0], [2.0, 5.0]]))
    assert least.tolist() == [1, 2] and most.tolist() == [3, 5]
    bits = calc_precision.calc_precision(torch.full((4,), 8, dtype=torch.int32), torch.tensor([1.0, 4.0, 16.0, 64.0]),
                                         torch.ones(4, dtype=torch.int32), 12)
    assert bits.sum() == 12 and bits.tolist() == sorted(bits.tolist()) and bits.min() >= 1
    with pytest.raises(ValueError, match="return_indices=True .allowed"):
        quantization.act_quantized_max_pool2d(x, (3, 3), (2, 2), (1, 1), (1, 1), False, True)


def test_utilities(monkeypatch):
    x = torch.randn(5)
    copy = actnn.utils.swap_to_cpu(x)
    assert torch.equal(copy, x) and copy.data_ptr() != x.data_ptr()
    monkeypatch.delenv("PYTORCH_NO_CUDA_MEMORY_CACHING", raising=False)
    actnn.utils.disable_cache_allocator()
    assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    actnn.utils.enable_cache_allocator()
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ
    actnn.utils.empty_cache(None), actnn.utils.empty_cache(0.5)
    assert isinstance(actnn.exp_recorder, actnn.utils.GlobalExpRecorder)
