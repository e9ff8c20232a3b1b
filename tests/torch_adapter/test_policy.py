"""Which codec real modules get. Each case fails if its row of the table is removed."""

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
    """No leaf, so that it is taken for the activation that it is."""
    return (torch.randn(*shape, requires_grad=True) * torch.randn(*shape)).relu() - 0.25


ROWS = [
    (F.relu, (4, 8, 16, 16), "relu.result", "mask"),
    (F.relu6, (4, 8, 16, 16), "hardtanh.self", "mask:hi=6:on=3"),
    (lambda x: F.hardtanh(x, -2, 4), (4, 8, 16, 16), "hardtanh.self", "mask:lo=-2:hi=4:off=-2"),
    (lambda x: F.threshold(x, 0.5, 0), (4, 8, 16, 16), "threshold.self", "mask:lo=0.5:off=0.5:on=1.5"),
    (F.leaky_relu, (4, 8, 16, 16), "leaky_relu.self", "mask"),
    (lambda x: F.dropout(x, 0.5), (4, 8, 16, 16), "dropout.mul.other", "mask:on=2"),
    (lambda x: F.max_pool2d(x, 2), (4, 8, 16, 16), "max_pool2d_with_indices.self", "shape only"),
    (lambda x: F.max_pool2d(x, 2), (4, 8, 32, 32), "max_pool2d_with_indices.aux0", "index:bound=1024"),
    (lambda x: F.max_pool3d(x, 2), (2, 4, 16, 16, 16), "max_pool3d_with_indices.aux0", "index:bound=4096"),
    (lambda x: F.avg_pool2d(x, 2), (4, 8, 16, 16), "avg_pool2d.self", "shape only"),
    (nn.Conv2d(8, 8, 3), (4, 8, 16, 16), "convolution.input", "rotated:2"),
    (nn.Linear(64, 32), (64, 64), "addmm.mat1", "rotated:2"),
    (nn.Linear(64, 32, bias=False), (64, 64), "mm.self", "rotated:2"),
    (nn.BatchNorm2d(8), (4, 8, 16, 16), "native_batch_norm.input", "rotated:2"),
    (nn.LayerNorm(64), (64, 64), "native_layer_norm.input", "rotated:2"),
    (nn.LayerNorm(4), (2048, 4), "native_layer_norm.aux1", "as is"),
    (nn.GroupNorm(2, 8), (4, 8, 16, 16), "native_group_norm.input", "rotated:2"),
    (F.gelu, (64, 64), "gelu.self", "rotated:2"),
    (F.silu, (64, 64), "silu.self", "rotated:2"),
    (lambda x: x.softmax(-1), (64, 64), "_softmax.result", "affine:8:nearest"),
    (lambda x: x.log_softmax(-1), (64, 64), "_log_softmax.result", "as is"),
    (lambda x: x.log_softmax(-1), (1024, 256), "_log_softmax.result", "cast"),
    (lambda x: x.exp(), (64, 64), "exp.result", "as is"),
    (lambda x: x.exp(), (1024, 256), "exp.result", "affine:8:nearest"),
    (lambda x: x @ x.transpose(1, 2), (4, 32, 32), "bmm.mat2", "affine:8:nearest"),
    (torch.tanh, (64, 64), "tanh.result", "rotated:4"),
]


@pytest.mark.parametrize(("function", "shape", "site", "codec"), ROWS, ids=[f"{r[2]}-{r[3]}" for r in ROWS])
def test_row(function, shape, site, codec):
    found = sites(function, image(*shape))
    assert site in found, list(found)
    assert found[site].codec.removesuffix(":bf16") == codec, found[site]


def test_fused_attention():
    q, k, v = (image(2, 4, 32, 16) for _ in range(3))
    found = sites(lambda: F.scaled_dot_product_attention(q, k, v))
    op = "_scaled_dot_product_flash_attention_for_cpu"
    kept = {slot: found[f"{op}.{slot}"].codec for slot in ("query", "key", "value", "result")}
    assert kept == {"query": "affine:8:nearest", "key": "affine:8:nearest", "value": "rotated:2", "result": "rotated:2"}


def unfused_attention(q, k, v, dropout=0.0, transposed=False):
    probabilities = F.dropout((q @ k.transpose(1, 2) / 4).softmax(-1), dropout)
    return (v.transpose(1, 2) @ probabilities.transpose(1, 2)) if transposed else probabilities @ v


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_unfused_attention(dropout, transposed, autocast):
    """Of the second product's operands only v goes to 2 bits: the other is a softmax's result."""
    q, k, v = (image(4, 64, 32) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = sites(unfused_attention, q, k, v, dropout, transposed)
    v_slot, softmax_slot = ("self", "mat2") if transposed else ("mat2", "self")
    assert found[f"softmax.bmm.{v_slot}"].codec == "rotated:2"
    assert found["bmm.mat2" if transposed else "bmm.self"].codec in ("affine:8:nearest", "shared")
    assert found["_softmax.result"].codec == "affine:8:nearest"
    assert f"softmax.bmm.{softmax_slot}" not in found
    first = [site for name, site in found.items() if name.startswith("bmm.") and site.shape[1:] != (64, 64)]
    assert first and {site.codec for site in first} == {"affine:8:nearest"}


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits])
def test_losses_take_eight_bits(loss):
    target = torch.rand(64, 64)
    found = sites(lambda x: loss(x, target), image(64, 64))
    assert found and {site.codec for site in found.values() if site.slot == "self"} == {"affine:8:nearest"}


def test_pointwise_operators_outside_the_model_are_near_the_loss():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    session = actzip.Session(model)
    with session:
        (model(image(64, 64)) - 1).pow(2).mean().backward()
    found = {site.site: site for site in session.report().sites}
    assert found["1: gelu.self"].codec == "rotated:2"
    assert found["pow.self"].codec == "affine:8:nearest" and "loss" in found["pow.self"].reason
    assert sites(lambda x: (x - 1).pow(2), image(64, 64))["pow.self"].codec == "rotated:2"  # no model, nothing to go by


def test_embedding_indices():
    found = sites(nn.Embedding(200, 16), torch.randint(200, (64, 64)))
    assert found["embedding.indices"].codec == "index:bound=200"


@pytest.mark.parametrize("op", ["gather", "index_select"])
def test_positions_along_a_dimension(op):
    x = image(64, 32)
    index = torch.randint(32, (64, 32)) if op == "gather" else torch.randint(32, (2048,))
    found = sites(lambda: getattr(torch, op)(x, -1, index))
    assert found[f"{op}.index"].codec == "index:bound=32"


def test_booleans_take_one_bit():
    condition = torch.rand(64, 64) > 0.5
    x = image(64, 64)
    assert sites(lambda: torch.where(condition, x, 0))["where.condition"].codec == "mask"


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
    """The mask is read from the plane: a decoded value may be negative where the gradient passes."""
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


@pytest.mark.parametrize(("bits", "codec"), [(1, "rotated:1"), (4, "rotated:4"), (8, "affine:8:nearest")])
def test_bits_replace_the_two(bits, codec):
    assert sites(F.gelu, image(64, 64), bits=bits)["gelu.self"].codec == codec


def test_kinds_that_no_codec_takes():
    assert "f64" in sites(lambda x: x.double().tanh(), image(64, 64))["tanh.result"].reason
    found = sites(lambda x: torch.view_as_real(torch.complex(x, x).exp()), image(64, 64))
    assert "type" in found["exp.result"].reason
    assert sites(F.gelu, image(8, 8))["gelu.self"].reason == "small"


@pytest.mark.parametrize("options", [{"preset": "huffman"}, {"preset": "index"}, {"bits": 7}, {"min_elems": -1},
                                     {"preset": "exact", "bits": 2}])
def test_wrong_options_say_what_is_allowed(options):
    with pytest.raises(ValueError, match="allowed|takes no bits"):
        actzip.Session(**options)
