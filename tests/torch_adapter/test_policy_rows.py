"""What real modules get from each row of the policy table. A use that no case reaches is a failure."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip import _C
from torch import nn
from torch.utils.checkpoint import checkpoint

LARGE = (1024, 256)  # the policy's kLargeElems
TABLE = dict(_C.policy_rows())  # reasons by use


def activation(*shape):
    """Makes a tensor between 0.1 and 0.9 that is no leaf, so that it counts as an activation."""
    return torch.rand(*shape, requires_grad=True) * 0.8 + 0.1


def indices(bound, *shape):
    return torch.randint(bound, shape)


def grid():
    return activation(4, 16, 32, 2)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient * ctx.saved_tensors[0] ** 2


class Logits(Cube):
    """Only its registration distinguishes it from Cube."""


actzip.register(Logits, argument0="attention_operand")
SQUARE, IMAGE = (64, 64), (4, 8, 16, 16)
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
CASES = [
    (F.relu, IMAGE, "relu.result", "mask"),
    (lambda x: F.relu(x * 2, inplace=True), IMAGE, "relu_.self", "mask"),
    (F.relu6, IMAGE, "hardtanh.self", "mask:hi=6:on=3"),
    (lambda x: F.hardtanh(x, -2, 4), IMAGE, "hardtanh.self", "mask:lo=-2:hi=4:off=-2"),
    (lambda x: F.threshold(x, 0.5, 0), IMAGE, "threshold.self", "mask:lo=0.5:off=0.5:on=1.5"),
    (F.leaky_relu, IMAGE, "leaky_relu.self", "mask:nan=off"),
    (lambda x: F.hardtanh(x, 0, 0), IMAGE, "hardtanh.self", "as is"),
    (lambda x: F.dropout(x, 0.5), IMAGE, "dropout.mul.other", "mask:on=2"),
    (lambda x: F.max_pool2d(x, 2), IMAGE, "max_pool2d_with_indices.self", "shape only"),
    (lambda x: F.max_pool2d(x, 2), (4, 8, 32, 32), "max_pool2d_with_indices.aux0", "index:bound=1024"),
    (lambda x: F.adaptive_max_pool2d(x, 8), (4, 8, 32, 32), "adaptive_max_pool2d.aux0", "index:bound=1024"),
    (lambda x: F.max_pool3d(x, 2), (2, 4, 16, 16, 16), "max_pool3d_with_indices.aux0", "index:bound=4096"),
    (lambda x: F.avg_pool2d(x, 2), IMAGE, "avg_pool2d.self", "shape only"),
    (lambda x: F.nll_loss(x, indices(64, 64)), SQUARE, "nll_loss_forward.self", "shape only"),
    (lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3), (2, 4, 32, 16), f"{ATTENTION}.query", "rotated:4"),
    (lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3), (2, 4, 32, 16), f"{ATTENTION}.key", "rotated:4"),
    (lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3), (2, 4, 32, 16), f"{ATTENTION}.value", "rotated:3"),
    (lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3), (2, 4, 32, 16), f"{ATTENTION}.result", "recomputed"),
    (lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3), (4, 8, 64, 16), f"{ATTENTION}.aux0", "recomputed"),
    (lambda x: F.scaled_dot_product_attention(x, x * 2, x * 3, attn_mask=(x @ x.mT).detach()), (4, 8, 64, 16),
     f"{ATTENTION}.attn_mask", "as is"),
    (lambda x: x @ (x * 2).transpose(1, 2), (4, 32, 32), "bmm.mat2", "rotated:4"),
    (lambda x: x.softmax(-1) @ (x * 2), (4, 32, 32), "softmax.bmm.mat2", "rotated:3"),
    (lambda x: x @ torch.rand(64, requires_grad=True), SQUARE, "mv.self", "as is"),
    (lambda x: x.flatten() @ (x * 2).flatten(), LARGE, "dot.self", "rotated:2"),
    (nn.Conv2d(8, 8, 3), IMAGE, "convolution.input", "rotated:2"),
    (nn.Conv2d(64, 8, 1), (8, 64, 5, 5), "convolution.input", "rotated:4"),
    (nn.Conv3d(8, 8, 3), (2, 8, 8, 8, 8), "convolution.input", "rotated:2"),
    (nn.ConvTranspose2d(8, 8, 3), IMAGE, "convolution.input", "rotated:2"),
    (nn.Linear(64, 32), SQUARE, "addmm.mat1", "rotated:3"),
    (nn.Linear(4096, 32), (8, 4096), "addmm.mat1", "rotated:2"),
    (nn.Linear(64, 32, bias=False), SQUARE, "mm.self", "rotated:3"),
    (lambda x: torch.rand(64, 64, requires_grad=True) @ x, SQUARE, "mm.mat2", "rotated:3"),
    (lambda x: F.conv2d(torch.rand(IMAGE, requires_grad=True), x), (16, 8, 3, 3), "convolution.weight", "rotated:2"),
    (nn.BatchNorm2d(8), IMAGE, "native_batch_norm.input", "rotated:2"),
    (nn.BatchNorm2d(64), (8, 64, 2, 2), "native_batch_norm.input", "rotated:4"),
    (nn.LayerNorm(256), (8, 256), "native_layer_norm.input", "rotated:2"),
    (nn.LayerNorm(64), SQUARE, "native_layer_norm.input", "affine:4:dithered:group=64"),
    (nn.LayerNorm(128), (64, 128), "native_layer_norm.input", "rotated:4:group=128"),
    (nn.LayerNorm(200), (64, 200), "native_layer_norm.input", "affine:4:dithered"),
    (nn.LayerNorm(16), (256, 16), "native_layer_norm.input", "cast:bf16"),
    (nn.BatchNorm1d(256), (8, 256), "native_batch_norm.input", "cast:bf16"),
    (nn.BatchNorm1d(2048), (16, 2048), "native_batch_norm.aux0", "as is"),
    (nn.GroupNorm(2, 8), IMAGE, "native_group_norm.input", "rotated:2"),
    (nn.LayerNorm(4), (2048, 4), "native_layer_norm.aux1", "as is"),
    (lambda x: F.linear(x, torch._weight_norm(x * 2, x[:, :1])), (2048, 4), "_weight_norm_interface.aux0", "as is"),
    (lambda x: nn.LSTM(64, 64)(x)[0], (16, 4, 64), "mkldnn_rnn_layer.input", "as is"),
    (lambda x: nn.LSTM(64, 64)(x)[0], (16, 4, 64), "mkldnn_rnn_layer.result", "as is"),
    (F.gelu, SQUARE, "gelu.self", "rotated:3"),
    (F.silu, SQUARE, "silu.self", "rotated:4"),
    (F.mish, SQUARE, "mish.self", "rotated:4"),
    (F.softplus, SQUARE, "softplus.self", "rotated:4"),
    (lambda x: x * (x * 2), SQUARE, "mul.self", "rotated:3"),
    (lambda x: x**2, SQUARE, "pow.self", "affine:4:dithered:group=64"),
    (lambda x: x**2, (16, 256), "pow.self", "rotated:2"),
    (lambda x: x**3, (16, 256), "pow.self", "rotated:4"),
    (lambda x: x**5, (16, 256), "pow.self", "cast:bf16"),
    (lambda x: x * (x * 2).mean(-1, keepdim=True), (64, 320), "mul.self", "rotated:3:group=128"),
    (lambda x: x**0.5, SQUARE, "pow.self", "as is"),
    (lambda x: x**-1.5, SQUARE, "pow.self", "as is"),
    (lambda x: x ** (x * 2), SQUARE, "pow.exponent", "as is"),
    (torch.tanh, SQUARE, "tanh.result", "affine:4"),
    (lambda x: (x * 2).sigmoid_(), SQUARE, "sigmoid_.self", "affine:4"),
    (lambda x: x.softmax(-1), SQUARE, "_softmax.result", "affine:8"),
    (lambda x: x.log_softmax(-1), SQUARE, "_log_softmax.result", "as is"),
    (lambda x: x.log_softmax(-1), LARGE, "_log_softmax.result", "affine:8:nearest:stats=f32:floor=-32"),
    (lambda x: x.logsumexp(-1), LARGE, "logsumexp.self", "as is"),
    (torch.log, SQUARE, "log.self", "as is"),
    (torch.log, LARGE, "log.self", "cast:bf16"),
    (torch.sqrt, LARGE, "sqrt.result", "cast:bf16"),
    (lambda x: 1 / x / (x * 2), LARGE, "div.other", "cast:bf16"),
    (lambda x: F.mse_loss(x, torch.rand(64, 64)), SQUARE, "mse_loss.self", "as is"),
    (lambda x: F.mse_loss(x, torch.rand(LARGE)), LARGE, "mse_loss.self", "as is"),
    (lambda x: F.binary_cross_entropy_with_logits(x, torch.rand(LARGE)), LARGE,
     "binary_cross_entropy_with_logits.self", "cast:bf16"),
    (torch.exp, SQUARE, "exp.result", "as is"),
    (torch.exp, LARGE, "exp.result", "affine:8:dithered"),
    (torch.rsqrt, LARGE, "rsqrt.result", "affine:8:dithered"),
    (lambda x: x.amax(-1), SQUARE, "amax.self", "as is"),
    (lambda x: x.max(), SQUARE, "max.self", "as is"),
    (torch.abs, SQUARE, "abs.self", "as is"),
    (lambda x: torch.zeros(64, 64).scatter_reduce(0, indices(64, 64, 64), x, "amax"), SQUARE, "scatter_reduce.src", "as is"),
    (torch.asin, SQUARE, "asin.self", "as is"),
    (lambda x: x.cumprod(-1), SQUARE, "cumprod.self", "as is"),
    (lambda x: F.binary_cross_entropy(x, torch.rand(64, 64)), SQUARE, "binary_cross_entropy.self", "as is"),
    (lambda x: torch.linalg.solve(x + 9 * torch.eye(64), torch.rand(64, 64)), SQUARE, "_linalg_solve_ex.result", "as is"),
    (lambda x: torch.linalg.cholesky(x @ x.mT + 9 * torch.eye(64)), SQUARE, "linalg_cholesky_ex.result", "as is"),
    (lambda x: F.grid_sample(x, grid(), align_corners=False), IMAGE, "grid_sampler_2d.grid", "as is"),
    (lambda x: F.embedding(indices(200, 64, 64), torch.cat([x, x])), (100, 16), "embedding.indices", "index:bound=200"),
    (lambda x: x.gather(1, indices(32, 64, 32)), (64, 32), "gather.index", "index:bound=32"),
    (lambda x: x.sort()[0], SQUARE, "sort.aux0", "index:bound=64"),
    (lambda x: x.sort(stable=True, dim=0)[0], (128, 32), "sort.aux0", "index:bound=128"),
    (lambda x: x.topk(32)[0], SQUARE, "topk.aux0", "index:bound=64"),
    (lambda x: x.cummax(1)[0], SQUARE, "cummax.aux0", "index:bound=64"),
    (lambda x: x.cummin(0)[0], SQUARE, "cummin.aux0", "index:bound=64"),
    (lambda x: x.cummin(0)[0], SQUARE, "cummin.self", "shape only"),
    (lambda x: F.embedding_bag(indices(200, 64, 64), torch.cat([x, x])), (100, 16), "_embedding_bag.indices",
     "index:bound=200"),
    (lambda x: x.clamp(0, 1), SQUARE, "clamp.self", "mask:lo=-1e-45:hi=1.0000001:off=-1e-45:on=0.50000006:nan=off"),
    (F.hardshrink, SQUARE, "hardshrink.self", "mask:lo=-0.50000006:hi=0.50000006:off=-0.50000006:on=0:nan=off"),
    (lambda x: x.index_select(0, indices(64, 2048)), (64, 32), "index_select.index", "index:bound=64"),
    (lambda x: torch.zeros(50, 64).index_add(0, indices(50, 2048), x), (2048, 64), "index_add.index", "index:bound=50"),
    (lambda x: Cube.apply(x), SQUARE, "Function::test_policy_rows.Cube.argument0", "as is"),
    (lambda x: Logits.apply(x), SQUARE, "Function::test_policy_rows.Logits.argument0", "affine:8:dithered"),
    (lambda x: checkpoint(torch.atan, x, use_reentrant=False), SQUARE, "checkpoint.input", "as is"),
    (torch.atan, SQUARE, "atan.self", "as is"),
    (F.hardsigmoid, SQUARE, "hardsigmoid.self", "mask:lo=-3:hi=3:off=-3:on=0:nan=off"),
    (lambda x: x.gather(1, indices(32, 64, 16)), (64, 32), "gather.self", "shape only"),
    (lambda x: F.pad(x, (1, 1), mode="reflect"), (4, 8, 64), "reflection_pad1d.self", "shape only"),
    (F.elu, SQUARE, "elu.self", "rotated:4"),
    (nn.LayerNorm(384), (8, 384), "native_layer_norm.input", "rotated:2:group=128"),
    (nn.GroupNorm(4, 8), IMAGE, "native_group_norm.input", "rotated:2"),
    (nn.GroupNorm(8, 8), (4, 8, 8, 8), "native_group_norm.input", "affine:4:dithered:group=64"),
]
USES_MET = set()
IDS = [f"{site}-{codec}" for _, _, site, codec in CASES]


@pytest.mark.parametrize(("function", "shape", "site", "codec"), CASES, ids=IDS)
def test_case(function, shape, site, codec):
    session = actzip.Session()
    x = activation(*shape)
    with session:
        output = function(x)
    output.float().sum().backward()
    found = {f"{s.op}.{s.slot}": s for s in session.report().sites}
    assert site in found, list(found)
    assert found[site].codec == codec, found[site]
    assert found[site].kind == (codec if codec in ("as is", "recomputed", "shape only") else "encoded")
    if codec not in ("as is", "recomputed"):
        assert found[site].reason in TABLE.values()  # its arguments may require the row of another use
    assert found[site].reason
    USES_MET.add(found[site].use)


def test_every_use_has_a_case():
    """Must run after the cases, which record the uses that they have met."""
    if len(USES_MET) < 2:
        pytest.skip("the cases did not run")
    assert set(TABLE) == USES_MET


@pytest.mark.parametrize(("bits", "codec"), [(1, "affine:4:dithered:group=64"), (3, "affine:4:dithered:group=64"), (8, "affine:8:dithered")])
def test_bits_never_narrow_short_rows(bits, codec):
    session = actzip.Session(bits=bits)
    with session:
        nn.LayerNorm(64)(activation(64, 64))
    assert codec in {site.codec for site in session.report().sites if site.slot == "input"}


def test_booleans_take_one_bit():
    session = actzip.Session()
    condition, x = torch.rand(64, 64) > 0.5, activation(64, 64)
    with session:
        torch.where(condition, x, 0)
    assert [(s.slot, s.codec) for s in session.report().sites] == [("condition", "mask")]
