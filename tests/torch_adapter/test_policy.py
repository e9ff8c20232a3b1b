"""How the policy behaves beyond its rows: sharing, presets, options. The rows are in test_policy_rows.py."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch import nn


def sites(function, *inputs, **options):
    """{"operator.slot": site} of one forward and backward."""
    session = actzip.Session(**options)
    with session:
        output = function(*inputs)
    output.float().sum().backward()
    return {f"{site.op}.{site.slot}": site for site in session.report().sites}


def image(*shape):
    """Makes a tensor that is no leaf, so that it counts as an activation."""
    return (torch.randn(*shape, requires_grad=True) * torch.randn(*shape)).relu() - 0.25


def unfused_attention(q, k, v, dropout=0.0, transposed=False):
    probabilities = F.dropout((q @ k.transpose(1, 2) / 4).softmax(-1), dropout)
    return (v.transpose(1, 2) @ probabilities.transpose(1, 2)) if transposed else probabilities @ v


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_unfused_attention(dropout, transposed, autocast):
    """Of the second product's operands, v gets 3 bits, and the other is kept as the softmax's result that it is."""
    q, k, v = (image(4, 64, 32) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = sites(unfused_attention, q, k, v, dropout, transposed)
    v_slot, softmax_slot = ("self", "mat2") if transposed else ("mat2", "self")
    assert found[f"softmax.bmm.{v_slot}"].codec == "rotated:3"
    assert found["bmm.mat2" if transposed else "bmm.self"].codec in ("affine:8", "shared")
    assert found["_softmax.result"].codec == "affine:8"
    assert f"softmax.bmm.{softmax_slot}" not in found
    first = [site for name, site in found.items() if name.startswith("bmm.") and site.shape[1:] != (64, 64)]
    assert first and {site.codec for site in first} == {"rotated:4"}


def length_along_exact(model, loss_of, draws=8):
    """How long the mean of compressed gradients is along the exact one, relative to it. Takes the second step of each
    session."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def gradient(loss):
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).double()

    exact = gradient(loss_of(model))
    mean = torch.zeros_like(exact)
    for seed in range(draws):
        session = actzip.Session(model, seed=seed)
        for step in range(2):
            with session:
                loss = loss_of(model)
            found = gradient(loss)
        mean += found / draws
    return float(mean @ exact / (exact @ exact))


class OneKey(nn.Module):
    """Unfused attention in which the first key takes nine tenths of each row, and has no value of its own."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.qkv, self.dropout = nn.Linear(64, 192, bias=False), dropout
        self.on_first, self.others = 8.0 * (torch.arange(256) == 0), (torch.arange(256) != 0)[:, None]

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        probabilities = (q @ k.mT / 8 + self.on_first).softmax(-1)
        return F.dropout(probabilities, self.dropout) @ (v * self.others)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_small_probabilities_keep_their_gradient(dropout):
    torch.manual_seed(0)
    x, target = torch.randn(2, 2, 256, 64)

    def loss_of(model):
        torch.manual_seed(1)
        return (F.normalize(model(x), dim=-1) * target).sum()

    model = OneKey(dropout)
    model.qkv.weight.register_hook(lambda g: torch.cat([g[:128] * 100, g[128:]]))  # q and k have small gradients
    assert length_along_exact(model, loss_of) == pytest.approx(1, abs=0.15)


def chain(x):
    """The logarithm of a sum over paths, as in a conditional random field."""
    steps = x.reshape(64, 64, 64)
    state = steps[:, 0]
    for i in range(1, 64):
        state = torch.logsumexp(state[:, :, None] + 5 * steps[:, i, None, :], 1)
    return state.logsumexp(1).mean()


def unlikely(x):
    """The probability of a label that a network thinks unlikely."""
    return (30 * x).softmax(1)[:, :1] + 1e-8


LOSSES = {
    "differences": lambda x: F.mse_loss(x + 300, torch.randn(512, 512) + 300),
    "small differences": lambda x: F.smooth_l1_loss(x + 300, torch.randn(512, 512) + 300),
    "paths": chain,
    "softmax": lambda x: -unlikely(x[:, :16]).log().mean(),
    "sigmoid": lambda x: -(1 - (30 * x).sigmoid() + 1e-8).log().mean(),
    "tanh": lambda x: -(1 - torch.tanh(3 * x) ** 2 + 1e-6).log().mean(),
}


@pytest.mark.parametrize("loss_of", LOSSES.values(), ids=LOSSES.keys())
def test_losses_that_divide_or_subtract_keep_their_gradient(loss_of):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 512)), torch.randn(512, 64)

    def loss_with_seed(model):
        torch.manual_seed(1)
        return loss_of(model(x))

    assert length_along_exact(model, loss_with_seed, draws=4) == pytest.approx(1, abs=0.03)


class Power(nn.Module):
    def __init__(self, exponent):
        super().__init__()
        self.exponent = exponent

    def forward(self, x):
        return (3 * x).pow(self.exponent)


@pytest.mark.parametrize(("exponent", "scale"), [(2, 0.1), (3, 0.1), (4, 0.1), (6, 0.001)])
def test_powers_are_unbiased(exponent, scale):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 512), Power(exponent), nn.Linear(512, 10)), torch.randn(256, 64)
    model[2].requires_grad_(False)

    def loss_of(model):
        return F.cross_entropy(scale * model(x), torch.arange(256) % 10)

    assert length_along_exact(model, loss_of, draws=4) == pytest.approx(1, abs=0.02)


def test_pointwise_operators_after_the_model_are_a_loss():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    session = actzip.Session(model)
    with session:
        (model(image(64, 64)) - 1).pow(2).mean().backward()
    found = {site.site: site for site in session.report().sites}
    assert found["1: gelu.self"].codec == "rotated:3"
    assert found["pow.self"].codec == "cast:bf16" and "loss" in found["pow.self"].reason
    assert sites(lambda x: (x - 1).pow(2), image(64, 64))["pow.self"].codec.startswith("affine:4")  # no model, so no loss known


def charbonnier(y, target):
    return ((y - target).pow(2) + 1e-6).sqrt().mean()


def by_products(y, target):
    difference = y - target
    return (difference * torch.rsqrt(difference * difference + 1e-6)).mul(torch.linspace(-1, 1, 64)).mean()


@pytest.mark.parametrize("loss", [charbonnier, by_products])
def test_what_is_divided_by_its_own_size_keeps_its_small_values(loss):
    """Most differences are a thousandth of the largest in their group, and coarse rounding would lose them."""
    model, x = nn.Linear(64, 64), image(64, 64)
    with torch.no_grad():
        target = model(x) + torch.randn(64, 64) * torch.where(torch.rand(64, 64) < 0.05, 1.0, 1e-3)

    def gradient(scope):
        with scope:
            value = loss(model(x), target)
        return torch.autograd.grad(value, model.bias, retain_graph=True)[0]

    expected, actual = gradient(torch.enable_grad()), gradient(actzip.Session(model))
    assert F.cosine_similarity(expected, actual, dim=0) > 0.999


def test_operators_of_an_attached_model_are_no_loss():
    """An attached session begins inside the model's forward, so operators after its modules belong to the model."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            return F.gelu(self.layer(x))

    model = Net()
    handle = actzip.attach(model)
    for _ in range(5):  # the last ones are followed without hooks
        model(image(64, 64)).sum().backward()
        assert {site.op: site.codec for site in handle.report().sites}["gelu"] == "rotated:3"


def test_a_loss_inside_of_forward_is_found_in_the_second_step():
    class Contrasted(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            y = self.layer(F.gelu(x) * 1)
            return F.cross_entropy(F.cosine_similarity(y[:, None], y[None], dim=-1) / 0.01, torch.arange(len(x)))

    model = Contrasted()
    session = actzip.Session(model)
    for codec in ("rotated:3", "cast:bf16", "cast:bf16"):
        with session:
            loss = model(image(64, 64))
        loss.backward()
        found = {f"{site.op}.{site.slot}": site.codec for site in session.report().sites}
        assert found["mul.self"] == codec
        assert found["gelu.self"] == "rotated:3"  # before the last parameter


def test_rules_by_module_hold_where_a_step_leaves_its_sequence():
    """Otherwise ten equal steps would be followed without their modules. The next step is different."""
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(64, 64), nn.GELU()), "b": nn.GELU()})
    session = actzip.Session(model, rules={"b: *": "none"})
    for step in range(11):
        with session:
            y = model["b"](model["a"](image(64, 64)) if step < 10 else model["a"][0](image(64, 64)).sin())
        y.sum().backward()
    assert {site.site: site.codec for site in session.report().sites}["b: gelu.self"] == "as is"


@pytest.mark.parametrize("masked", [0.0, -1e9, -torch.inf])
def test_logarithms_of_probabilities(masked):
    """8 bits suffice, and masked logits do not spoil neighbours. Predictions are sure: gradients are differences."""
    targets = torch.randint(512, (1024,))
    logits = torch.randn(1024, 1024) + 12 * F.one_hot(targets, 1024)
    logits[:, 512:] = masked
    logits.requires_grad_()
    expected, = torch.autograd.grad(F.cross_entropy(logits * 1, targets), logits)
    session = actzip.Session()
    with session:
        loss = F.cross_entropy(logits * 1, targets)
    actual, = torch.autograd.grad(loss, logits)
    assert session.report().bytes_after < logits.numel() * 4 / 3.8
    assert (actual - expected).square().sum() < 2e-3 * expected.square().sum()


def test_what_serves_a_parameters_gradient_alone_takes_two_bits():
    """The gradient of a norm's weight sums over all rows. A gate's does not, and its factors serve other gradients."""
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(64))

        def forward(self, x):
            return x * self.weight + x * x.sum(1, keepdim=True)

    model = Scale()
    session = actzip.Session(model)
    with session:
        output = model(image(64, 64))
    output.sum().backward()
    first, second = (site for site in session.report().sites if site.slot == "self")
    assert first.codec == "rotated:2" and second.codec == "affine:4:dithered:group=64"


@pytest.mark.parametrize("options", [{"preset": "affine:2"}, {"rules": {"*": "rotated:4"}}])
def test_masks_of_attention_stay_whatever_is_asked_for(options):
    """Kernels rely on the padding of masks."""
    q, mask = image(2, 4, 32, 32), torch.randn(2, 4, 32, 32)
    found = sites(lambda q: F.scaled_dot_product_attention(q, q * 2, q * 3, attn_mask=mask), q, **options)
    assert [site.codec for name, site in found.items() if name.endswith(".attn_mask")] == ["as is"]
    assert [site.codec for name, site in found.items() if name.endswith(".query")] != ["as is"]


def test_a_factor_that_is_broadcast_stays_as_it_is():
    """Rotary positions: one small table is used for every head of every sample, and so would its error be."""
    table, heads = torch.randn(1, 1, 64, 32), image(8, 8, 64, 32)
    found = sites(lambda x: x * table, heads)
    assert found["mul.other"].codec == "as is" and "small beside" in found["mul.other"].reason
    assert sites(lambda x: x * (x * 2), image(8, 8, 64, 32))["mul.other"].codec == "rotated:3"


def test_relu_learns_that_a_layer_follows():
    layer, x = nn.Conv2d(8, 8, 3), image(4, 8, 16, 16)
    session = actzip.Session()
    kept = []
    for _ in range(2):
        with session:
            y = layer(F.relu(x))
        y.sum().backward(retain_graph=True)
        kept.append({f"{s.op}.{s.slot}": s.codec for s in session.report().sites})
    assert kept[0] | {"convolution.weight": ""} == {
        "relu.result": "mask", "convolution.input": "rotated:2:mask", "convolution.weight": ""}
    assert kept[1] | {"convolution.weight": ""} == {
        "relu.result": "rotated:2:mask", "convolution.input": "shared", "convolution.weight": ""}


def test_relu_is_exact_though_it_shares_two_bits():
    """The ReLU reads the mask plane, because a decoded value may be negative where the gradient passes."""
    x = image(64, 64)
    weight = torch.randn(64, 64)
    (expected,) = torch.autograd.grad((F.relu(x) @ weight).sum(), x, retain_graph=True)
    session = actzip.Session()
    for _ in range(2):
        with session:
            y = F.relu(x)
            loss = (y @ weight.clone().requires_grad_()).sum()
        (actual,) = torch.autograd.grad(loss, x, retain_graph=True)
        assert torch.equal(actual, expected)


def test_uniform_preset_treats_all_alike():
    found = sites(lambda x: F.gelu(F.relu(x)), image(64, 64), preset="affine:2")
    assert found["relu.result"].codec == found["gelu.self"].codec.replace("shared", "affine:2") == "affine:2"


@pytest.mark.parametrize(("bits", "codec"), [(1, "rotated:2"), (2, "rotated:3"), (4, "rotated:4"), (8, "affine:8:dithered")])
def test_bits_move_the_three_of_linear_layers(bits, codec):
    assert sites(nn.Linear(64, 64), image(64, 64), bits=bits)["addmm.mat1"].codec == codec


@pytest.mark.parametrize("width", [256, 320, 384, 640, 1024])
def test_small_rows_do_not_get_the_noise_of_large_ones(width):
    """A norm divides by the size of its row: noise that is small beside a large row is large beside a small one."""
    torch.manual_seed(0)
    scale = torch.where(torch.arange(256) % 4 == 0, 1.0, 0.01)[:, None]
    x, norm = torch.randn(256, width, requires_grad=True), nn.LayerNorm(width)
    weights = torch.randn(256, width)

    def gradient(scope):
        with scope:
            y = norm(x * scale)
        return torch.autograd.grad((y * weights).sum(), x)[0] / (1 / scale)

    expected, actual = gradient(torch.enable_grad()), gradient(actzip.Session())
    small = (torch.arange(256) % 4 != 0)[:, None].expand_as(expected)
    assert F.cosine_similarity(expected[small], actual[small], dim=0) > 0.97


def test_groups_that_restart_at_rows_cost_little():
    """Rows of 260 are padded to 384, which is nearly the worst case; short rows are not padded."""
    def kept(width):
        return sites(nn.LayerNorm(width), image(256, width))["native_layer_norm.input"].bytes_after / (256 * width)

    assert kept(384) < 1.1 * kept(256) and kept(320) < 1.35 * kept(256)
    assert kept(300) < 1.45 * kept(256) and kept(260) < 1.6 * kept(256)
    assert kept(200) < 1.05 * kept(128) and kept(64) < 1.1 * kept(128)


def test_rules_come_first():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    session = actzip.compress(model, rules={"1: *": "rotated:1", "addmm.*": "as is"})
    assert session is actzip.compress(model, rules={"1: *": "rotated:1", "addmm.*": "as is"})
    assert session is not actzip.compress(model)
    with session:
        output = model(image(64, 64))
    output.sum().backward()
    codecs = {site.site: site.codec for site in session.report().sites}
    assert codecs["1: gelu.self"] == "rotated:1" and codecs["2: addmm.mat1"] == "as is"


def test_kinds_that_no_codec_takes():
    assert "f64" in sites(lambda x: x.double().tanh(), image(64, 64))["tanh.result"].reason
    found = sites(lambda x: torch.view_as_real(torch.complex(x, x).tanh()), image(64, 64))
    assert "complex" in found["tanh.result"].reason
    assert sites(F.gelu, image(8, 8))["gelu.self"].reason == "small"


@pytest.mark.parametrize("options", [{"preset": "huffman"}, {"preset": "index"}, {"bits": 9}, {"min_elems": -1}, {"rules": {"gelu.*": "best"}},
                                     {"preset": "exact", "bits": 2}])
def test_wrong_options_say_what_is_allowed(options):
    with pytest.raises(ValueError, match="allowed|takes no bits"):
        actzip.Session(**options)
