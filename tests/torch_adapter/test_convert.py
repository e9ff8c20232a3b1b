"""actzip.convert and actzip.restore: everything but the class of a module stays what it was."""

import copy
import io
import pickle

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import MODELS, cosine, gradients, make
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        h = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(h)) + self.downsample(x))


class ResNet(nn.Module):
    """ResNet-18, narrower."""

    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        sizes = [(width, width, 1), (width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)]
        self.blocks = nn.Sequential(*(BasicBlock(*size) for size in sizes))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))

    def batch(self):
        return torch.randn(16, 3, 64, 64)


class GPTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width),
                                 nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.ln1(x)).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(h.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(GPTBlock(width, 4) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)
        self.head.weight = self.embedding.weight  # tied

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens)))).mean(1)

    def batch(self):
        return torch.randint(64, (8, 32))


NETWORKS = [ResNet, GPT, *MODELS]


@pytest.mark.parametrize("network", NETWORKS)
def test_exact_is_bitwise(network):
    model, batch = make(network)
    plain = gradients(copy.deepcopy(model), batch)
    actual = gradients(actzip.convert(model, preset="exact", min_elems=0), batch)
    for name in plain:
        assert torch.equal(plain[name], actual[name]), name
    assert actzip.session_of(model).live_bytes == 0


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("in_scope", [False, True])
def test_default_is_close(network, in_scope):
    model, batch = make(network)
    plain = gradients(copy.deepcopy(model), batch)
    actzip.convert(model)
    session = actzip.session_of(model)
    for _ in range(3):
        assert cosine(plain, gradients(model, batch, session if in_scope else None)) > 0.9, session.report().text
    assert session.live_bytes == 0


def test_a_residual_network_gets_smaller_than_in_a_scope():
    """Thanks to what is derived: the first ReLU of each block keeps a mask, and its norm gets one bit more."""
    model, batch = make(ResNet)
    scope = actzip.Session(copy.deepcopy(model))
    for _ in range(3):
        gradients(model, batch, scope)
    actzip.convert(model)
    for _ in range(3):
        gradients(model, batch)
    report = actzip.session_of(model).report()
    derived = [site for site in report.sites if site.codec == "derived"]
    assert [site.module for site in derived] == [f"blocks.{i}.conv2" for i in range(4)]
    assert report.bytes_after < 0.9 * scope.report().bytes_after


def test_training_goes_on():
    torch.manual_seed(0)
    model = actzip.convert(ResNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.randn(32, 3, 32, 32), torch.arange(32) % 10
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.3 * losses[0], losses


@pytest.mark.parametrize("network", NETWORKS)
def test_restore_undoes_it(network):
    model, batch = make(network)
    before = str(model)
    types = [type(module) for module in model.modules()]
    attributes = [set(vars(module)) for module in model.modules()]
    state = {name: (tensor.data_ptr(), tensor.clone()) for name, tensor in model.state_dict().items()}
    assert actzip.convert(model) is model and "actzip." in str(model)
    assert actzip.restore(model) is model
    assert str(model) == before
    assert [type(module) for module in model.modules()] == types
    assert [set(vars(module)) for module in model.modules()] == attributes
    assert not model._forward_pre_hooks
    for name, tensor in model.state_dict().items():
        assert tensor.data_ptr() == state[name][0] and torch.equal(tensor, state[name][1])
    plain = gradients(copy.deepcopy(model), batch)
    actual = gradients(model, batch)
    assert all(torch.equal(plain[name], actual[name]) for name in plain)


def test_a_backward_may_come_after_restore():
    model = actzip.convert(nn.Linear(64, 64))
    result = model(torch.randn(64, 64)).sum()
    actzip.restore(model)
    result.backward()
    assert model.weight.grad is not None


def test_weights_flags_hooks_and_devices_stay():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.BatchNorm1d(8)).to(torch.bfloat16)
    model[1].eval()
    model[0].weight.requires_grad_(False)
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append("forward"))
    model[0].register_full_backward_hook(lambda *_: calls.append("backward"))
    parameters = list(model.parameters())
    actzip.convert(model)
    assert [a is b for a, b in zip(parameters, model.parameters(), strict=True)] == [True] * 4
    assert [module.training for module in model] == [True, False, True]
    assert not model[0].weight.requires_grad and model[0].weight.dtype == torch.bfloat16
    model(torch.randn(4, 8, dtype=torch.bfloat16, requires_grad=True)).sum().backward()
    assert calls == ["forward", "backward"]


def test_shared_modules_are_converted_once_and_counted_twice():
    layer = nn.Linear(64, 64)
    model = actzip.convert(nn.Sequential(layer, nn.ReLU(), layer))
    assert model[0] is model[2]
    for _ in range(2):
        model(torch.randn(64, 64)).sum().backward()
        sites = [site.site for site in actzip.session_of(model).report().sites if site.op == "linear"]
        assert sites == ["0: linear.input", "0: linear.input #1"]


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Named(nn.Linear):
    """Computes like its base class."""

    def __init__(self, *sizes, name):
        super().__init__(*sizes)
        self.name = name


def test_subclasses_with_a_forward_of_their_own_are_left_alone_and_named():
    model = actzip.convert(nn.Sequential(Scaled(8, 8), nn.Linear(8, 8), nn.ReLU()))
    assert type(model[0]) is Scaled
    conversion = actzip.conversion_of(model)
    assert conversion.left == {"0": "Scaled has a forward of its own"}
    assert conversion.converted == {"1": "actzip.Linear", "2": "actzip.ReLU"}
    assert "0: left as it is" in str(conversion)


def test_subclasses_that_compute_as_their_layer_does_are_converted():
    plain = nn.Sequential(Named(64, 64, name="first"), nn.ReLU(), Named(64, 8, name="last"))
    x = torch.randn(64, 64)
    expected = plain(x)
    model = actzip.convert(copy.deepcopy(plain), preset="exact")
    assert torch.equal(model(x), expected) and isinstance(model[0], Named) and model[2].name == "last"
    assert type(model[0]) is type(model[2]) and str(model[0]) == "actzip.Named(in_features=64, out_features=64, bias=True)"
    actzip.convert(model, bits=4)(x).sum().backward()
    assert actzip.converted(model).report().bytes_after > 0
    loaded = pickle.loads(pickle.dumps(model))
    assert type(loaded[0]) is type(model[0]) and loaded[0].name == "first" and torch.equal(loaded(x), model(x))
    assert type(actzip.restore(loaded)[0]) is Named


def test_what_computes_otherwise_is_left():
    class Padded(nn.Conv2d):
        def _conv_forward(self, input, weight, bias):
            return super()._conv_forward(input, weight, bias) + 1

    with pytest.warns(UserWarning, match="2 of 3 layers of this Sequential stay as they are .0: Padded has a _conv_forw"):
        model = actzip.convert(nn.Sequential(Padded(3, 8, 3), nn.BatchNorm2d(8), nn.LazyLinear(8)))
    assert actzip.conversion_of(model).left["2"] == "LazyLinear has no parameters yet: let it run once before"


def test_a_model_without_layers_says_so():
    with pytest.warns(UserWarning, match="no layer of this Identity was converted"):
        actzip.convert(nn.Identity())


@pytest.mark.parametrize("parametrization", [parametrizations.weight_norm, parametrizations.spectral_norm,
                                             parametrizations.orthogonal])
def test_parametrizations(parametrization):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(parametrization(nn.Linear(64, 64)), nn.ReLU(), nn.Linear(64, 8))

    x = torch.randn(64, 64)
    plain, model = network(), actzip.convert(network(), preset="exact", min_elems=0)
    assert parametrize.is_parametrized(model[0]) and str(model[0]).startswith("actzip.ParametrizedLinear")
    for network_now in (plain, model):
        network_now(x).square().sum().backward()
    assert model(x).grad_fn.name() == "ActzipLinear"
    for (name, a), b in zip(plain.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, msg=name)
    copied = copy.deepcopy(model)
    assert type(copied[0]) is type(model[0])
    actzip.restore(model)
    assert parametrize.is_parametrized(model[0]) and "actzip" not in str(model)
    model(x).sum().backward()
    parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("parametrization", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_restore_gives_the_original_class_back(parametrization):
    """The same class object, not another one of that name, however often the model is converted."""
    model = nn.Sequential(parametrization(nn.Linear(64, 64)), parametrization(nn.Conv1d(4, 4, 3)), nn.Linear(64, 8))
    originals = [type(module) for module in model]
    copied = copy.deepcopy(model)
    for _ in range(3):
        for one in (model, copied):
            actzip.convert(one)
            assert all(isinstance(module, actzip.nn.binding.CompressedLayer) for module in one)
            actzip.restore(one)
            assert [type(module) for module in one] == originals


def test_restore_knows_of_a_parametrization_that_came_meanwhile():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(64, 64)))
    original = type(model[0])
    actzip.convert(model)
    parametrize.register_parametrization(model[0], "bias", nn.Identity())
    actzip.restore(model)
    assert type(model[0]) is not original and "actzip" not in str(model)
    assert set(model[0].parametrizations) == {"weight", "bias"}
    model(torch.randn(64, 64)).sum().backward()


def test_a_parametrization_that_comes_later():
    model = actzip.convert(nn.Sequential(nn.Linear(64, 64)))
    parametrizations.weight_norm(model[0])
    model(torch.randn(64, 64)).sum().backward()
    assert [site.op for site in actzip.session_of(model).report().sites] == ["linear"]
    actzip.restore(model)
    assert not isinstance(model[0], actzip.nn.Linear) and parametrize.is_parametrized(model[0])


def test_copies_share_the_session():
    model = actzip.convert(nn.Sequential(nn.Linear(64, 64), nn.ReLU()))
    copied = copy.deepcopy(model)
    assert actzip.session_of(copied) is actzip.session_of(model)
    assert copied[0].weight is not model[0].weight
    copied(torch.randn(64, 64)).sum().backward()
    assert model[0].weight.grad is None
    actzip.restore(copied)
    assert not copied._forward_pre_hooks and model._forward_pre_hooks
    assert type(model[0]) is actzip.nn.Linear


@pytest.mark.parametrize("save", ["pickle", "torch"])
def test_pickling(save):
    model = actzip.convert(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), bits=4, derive=False)
    if save == "pickle":
        loaded = pickle.loads(pickle.dumps(model))
    else:
        buffer = io.BytesIO()
        torch.save(model, buffer)
        loaded = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    session = actzip.session_of(loaded)
    assert session is not actzip.session_of(model) and session.options["bits"] == 4
    assert not actzip.conversion_of(loaded).derive
    loaded(torch.randn(64, 64)).sum().backward()
    assert [site.codec for site in session.report().sites] == ["rotated:4", "mask", "rotated:4:mask"]
    assert len(loaded._forward_pre_hooks) == 1


def test_converted_anew():
    model = actzip.convert(nn.Sequential(nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 64))))
    actzip.convert(model[1], preset="exact")
    assert actzip.session_of(model[1]) is not actzip.session_of(model)
    session = actzip.Session(preset="exact")
    actzip.convert(model, session)
    assert actzip.session_of(model) is actzip.session_of(model[1]) is session
    assert len(model._forward_pre_hooks) == 1 and not model[1]._forward_pre_hooks


def test_layers_made_by_hand_are_bound():
    model = nn.Sequential(actzip.nn.Linear(64, 64), nn.ReLU())
    session = actzip.Session()
    actzip.convert(model, session)
    model(torch.randn(64, 64)).sum().backward()
    assert [site.site for site in session.report().sites] == ["0: linear.input", "1: relu.result"]


def test_attach_and_scopes_work_with_it():
    model, batch = make(GPT)
    actzip.convert(model)
    handle = actzip.attach(model)
    model(batch).sum().backward()
    assert {site.op for site in actzip.session_of(model).report().sites} >= {"linear", "gelu", "native_layer_norm"}
    assert {site.op for site in handle.report().sites} == {"_scaled_dot_product_flash_attention_for_cpu"}
    handle.remove()


def test_evaluation_leaves_the_report():
    model = actzip.convert(nn.Sequential(nn.Linear(64, 64), nn.ReLU()))
    model(torch.randn(64, 64)).sum().backward()
    with torch.no_grad():
        model.eval()(torch.randn(64, 64))
    assert len(actzip.session_of(model).report().sites) == 2


def test_verify_and_measure_know_what_is_derived():
    torch.manual_seed(0)
    model = actzip.convert(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)),
                           adapt="measured", bits=3)
    x = torch.randn(16, 3, 12, 12)
    session = actzip.session_of(model)
    for _ in range(2):
        model(x).sum().backward()
    session.measure(lambda: model(x).square().sum().backward())
    report = session.report()
    assert report.plan.plans >= 1 and report.plan.measured_variance > 0


@pytest.mark.filterwarnings("ignore:actzip. compression adds")
def test_samples_share_bits_in_converted_layers():
    """Without a scope, the gradients of layers give the statistics of samples."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    actzip.convert(model, bits=2, adapt="sample+layer", use_gradient=True, num_samples=32)
    session = actzip.session_of(model)
    x = torch.randn(16, 64, 64) * torch.linspace(0.1, 4, 16)[:, None, None]
    for _ in range(4):
        session.samples(torch.arange(16))
        model(x).square().sum().backward()
    report = session.report()
    assert any(site.sample_bits for site in report.sites), report.text
    known = session._core.sample_factors()
    assert (known[:16] >= 0).all() and (known[16:] < 0).all()
    actzip.restore(model)
    assert not model._forward_hooks and not model._forward_hooks_always_called


def test_refusals():
    model = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="a session and options for one"):
        actzip.convert(model, actzip.Session(), bits=2)
    with pytest.raises(ValueError, match=r"pipeline_threshold -1 \(allowed: 0 or more bytes\)"):
        actzip.convert(model, pipeline_threshold=-1)
    with pytest.raises(ValueError, match="no layer of this Linear is converted"):
        actzip.session_of(model)
    with pytest.raises(ValueError, match="preset"):
        actzip.convert(model, preset="nonsense")
    assert type(model) is nn.Linear


def test_modules_of_transformers():
    activations = pytest.importorskip("transformers.activations")
    model = nn.Sequential(activations.GELUActivation(), activations.GELUTanh(), activations.GELUTanh(True))
    x = torch.cat([torch.randn(32, 64, requires_grad=True)])
    expected = model(x)
    actzip.convert(model, preset="exact")
    assert torch.equal(model(x), expected)
    assert list(actzip.conversion_of(model).converted) == ["0", "1"]  # the third has a formula of its own
    loaded = pickle.loads(pickle.dumps(model[0]))
    assert torch.equal(loaded(x), model[0](x))
    actzip.restore(model)
    assert type(model[0]) is activations.GELUActivation
