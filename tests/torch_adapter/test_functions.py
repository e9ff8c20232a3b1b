"""actzip recognises autograd functions by module and name of the class, and by how many tensors they save.

Functions of other libraries are stand-ins of the same module, name and number of saves; the originals were not run.
"""

import actzip
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from actzip import _C
from models import Attention
from torch.nn.modules._functions import SyncBatchNorm


def over_channels(x):
    return [d for d in range(x.dim()) if d != 1]


def per_channel(x, values):
    return values.view(1, -1, *[1] * (x.dim() - 2))


def statistics(x, eps):
    return x.mean(over_channels(x)), (x.var(over_channels(x), correction=0) + eps).rsqrt()


def normalized(x, weight, bias, mean, invstd, eps):
    result = (x - per_channel(x, mean)) * per_channel(x, invstd)
    return result if weight is None else result * per_channel(x, weight) + per_channel(x, bias)


def reduced(above, x, mean, invstd, weight, *_):
    centred = above * (x - per_channel(x, mean))
    total, total_centred = above.sum(over_channels(x)), centred.sum(over_channels(x))
    return total, total_centred, total_centred * invstd, total


def input_gradient(above, x, mean, invstd, weight, total, total_centred, count):
    scale = invstd if weight is None else invstd * weight
    slope = per_channel(x, total_centred / count.sum() * invstd * invstd)
    return (above - per_channel(x, total / count.sum()) - (x - per_channel(x, mean)) * slope) * per_channel(x, scale)


@pytest.fixture(scope="module")
def alone():
    """A process group of one, and CPU kernels for torch's SyncBatchNorm, which has none."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("batch_norm_stats", statistics, "CPU")
    library.impl("batch_norm_gather_stats_with_counts", lambda x, mean, invstd, *_: (mean[0], invstd[0]), "CPU")
    library.impl("batch_norm_elemt", normalized, "CPU")
    library.impl("batch_norm_backward_reduce", reduced, "CPU")
    library.impl("batch_norm_backward_elemt", input_gradient, "CPU")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()
    library._destroy()


def synchronized(x, weight, bias, group):
    return SyncBatchNorm.apply(x, weight, bias, None, None, 1e-5, 0.1, group, 1)


def step(apply, inputs, session=None):
    """Returns the gradients of the inputs, and the codecs by slot of the function."""
    inputs = [None if x is None else x.detach().clone().requires_grad_() for x in inputs]
    session = session or actzip.Session(preset="exact")
    with session:
        result = apply(*[x if x is None or x.dim() == 1 else x * 1 for x in inputs])
    noise = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    above = noise + 0.3 * result.detach()  # so that neither the gradient of an input nor that of a weight cancels
    gradients = torch.autograd.grad(result, [x for x in inputs if x is not None], above)
    sites = [site for site in session.report().sites if site.op.startswith("Function::")]
    assert session.live_bytes == 0
    return gradients, {site.slot: site.codec for site in sites}


def maps(channels=2048, size=(4, 16, 16)):
    torch.manual_seed(0)
    batch, *plane = size
    return torch.randn(batch, channels, *plane), torch.randn(channels), torch.randn(channels)


def cosines(actual, expected):
    return [float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0)) for a, b in zip(actual, expected, strict=True)]


@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_torchs_own_sync_batch_norm_is_a_batch_norm(alone, layout):
    x, weight, bias = maps()
    x = x.to(memory_format=layout)
    apply = lambda *inputs: synchronized(*inputs, alone)  # noqa: E731
    plain, _ = step(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (x, weight, bias))
    exact, _ = step(apply, (x, weight, bias))
    for ours, torchs in zip(exact, plain, strict=True):
        torch.testing.assert_close(ours, torchs, rtol=1e-3, atol=1e-3)
    actual, codecs = step(apply, (x, weight, bias), actzip.Session())
    assert codecs == {"input": "rotated:2", "weight": "as is", "mean": "as is", "invstd": "as is", "count": "as is"}
    assert min(cosines(actual, exact)) > 0.97, cosines(actual, exact)


def test_without_weight(alone):
    x, *_ = maps(channels=64, size=(8, 16, 16))
    apply = lambda x: synchronized(x, None, None, alone)  # noqa: E731
    exact, _ = step(apply, (x,))
    actual, codecs = step(apply, (x,), actzip.Session())
    assert codecs == {"input": "rotated:2", "mean": "as is", "invstd": "as is", "count": "as is"}
    assert min(cosines(actual, exact)) > 0.97


def test_few_elements_a_channel_get_more_bits(alone):
    x, weight, bias = maps(channels=256, size=(4, 4, 4))
    _, codecs = step(lambda *inputs: synchronized(*inputs, alone), (x, weight, bias), actzip.Session())
    assert codecs["input"] == "rotated:4"


def renamed(function, module, name):
    function.__module__, function.__name__, function.__qualname__ = module, name, name
    return function


def stand_in(module, name, count, save_result=False):
    """Makes a function of that module and name: count * x^2. It saves x, or its result, and copies of x."""
    class StandIn(torch.autograd.Function):
        backwards = 0

        @staticmethod
        def forward(ctx, x):
            result = x * x * count
            ctx.save_for_backward(result if save_result else x, *[x.clone() for _ in range(count - 1)])
            return result

        @staticmethod
        def backward(ctx, above):
            StandIn.backwards += 1
            first, *others = ctx.saved_tensors
            first = (first / count).sqrt() if save_result else first
            return above * 2 * sum([first, *others])

    return renamed(StandIn, module, name)


@pytest.mark.parametrize(("module", "count", "save_result"), [
    ("torch.nn.modules._functions", 5, True), ("torch.nn.modules._functions", 3, False),
    ("torch.nn.modules._functions", 6, False), ("mylib._functions", 5, False)],
    ids=["saves its result", "too few", "too many", "another module"])
def test_what_is_not_quite_that_function_is_kept_exactly(module, count, save_result):
    function = stand_in(module, "SyncBatchNorm", count, save_result)
    x = torch.rand(8, 32, 16, 16) + 0.5
    (exact,), _ = step(function.apply, (x,))
    (actual,), codecs = step(function.apply, (x,), actzip.Session())
    assert torch.equal(actual, exact)
    assert len(codecs) == count and set(codecs.values()) == {"as is"}


def test_a_stand_in_would_be_compressed():
    """Shows that the test above can fail."""
    _, codecs = step(stand_in("torch.nn.modules._functions", "SyncBatchNorm", 5).apply, (torch.randn(8, 32, 16, 16),),
                     actzip.Session())
    assert codecs["input"] == "rotated:2"


def test_what_is_kept_late_is_guarded_like_the_rest():
    function = stand_in("torch.nn.modules._functions", "SyncBatchNorm", 5)
    x = torch.randn(8, 32, 16, 16, requires_grad=True)
    with actzip.Session():
        y = x * 1
        result = function.apply(y)
    assert torch.equal(result.grad_fn.saved_tensors[0], result.grad_fn.saved_tensors[0])
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"SyncBatchNorm\.input saved is at version 1; expected version 0"):
        result.sum().backward()


ATTENTION = ["affine:8:dithered"] * 3
ROW_NORM = ["rotated:2"]
FLASH, APEX = "flash_attn.flash_attn_interface", "apex.normalization.fused_layer_norm"
GENERATED = "torch._library.autograd"
#: Module, name, number of saves, and the codecs of the first of them; the others are kept exactly.
LIBRARIES = [
    (FLASH, "FlashAttnFunc", 6, ATTENTION),
    (FLASH, "FlashAttnKVPackedFunc", 6, ATTENTION),
    (FLASH, "FlashAttnQKVPackedFunc", 6, ATTENTION),
    (FLASH, "FlashAttnVarlenFunc", 8, ATTENTION),
    (FLASH, "FlashAttnVarlenKVPackedFunc", 8, ATTENTION),
    (FLASH, "FlashAttnVarlenQKVPackedFunc", 7, ATTENTION),
    ("xformers.ops.fmha", "_fMHA", 5, ATTENTION),
    (APEX, "FusedLayerNormAffineFunction", 5, ROW_NORM),
    (APEX, "FusedLayerNormAffineMixedDtypesFunction", 5, ROW_NORM),
    (GENERATED, "GeneratedBackwardFor_apex_fused_layer_norm_affine_fwd_default", 5, ROW_NORM),
    (APEX, "FusedLayerNormFunction", 3, ROW_NORM),
    (GENERATED, "GeneratedBackwardFor_apex_fused_layer_norm_fwd_default", 3, ROW_NORM),
    (APEX, "FusedRMSNormAffineFunction", 3, ROW_NORM),
    (APEX, "FusedRMSNormAffineMixedDtypesFunction", 3, ROW_NORM),
    (GENERATED, "GeneratedBackwardFor_apex_fused_rms_norm_affine_fwd_default", 3, ROW_NORM),
    (APEX, "FusedRMSNormFunction", 2, ROW_NORM),
    (GENERATED, "GeneratedBackwardFor_apex_fused_rms_norm_fwd_default", 2, ROW_NORM),
    ("liger_kernel.ops.layer_norm", "LigerLayerNormFunction", 5, ROW_NORM),
    *[("causal_conv1d.causal_conv1d_interface", "CausalConv1dFn", count, ["rotated:4"]) for count in (2, 3, 4, 5)],
]


@pytest.mark.parametrize(("module", "name", "count", "codecs"), LIBRARIES, ids=[f"{n}-{c}" for _, n, c, _ in LIBRARIES])
def test_functions_of_other_libraries(module, name, count, codecs):
    _, found = step(stand_in(module, name, count).apply, (torch.randn(64, 512),), actzip.Session())
    assert list(found.values()) == codecs + ["as is"] * (count - len(codecs))


@pytest.mark.parametrize("other", [-1, 1])
@pytest.mark.parametrize(("module", "name", "count"), [(m, n, c) for m, n, c, _ in LIBRARIES if n != "CausalConv1dFn"])
def test_another_number_of_saves_is_another_function(module, name, count, other):
    _, found = step(stand_in(module, name, count + other).apply, (torch.randn(64, 512),), actzip.Session())
    assert len(found) == count + other and set(found.values()) == {"as is"}


def test_norms_that_save_their_result_are_others():
    """As apex does with memory_efficient: backward divides by the weight, which may be near 0."""
    function = stand_in(APEX, "FusedRMSNormAffineFunction", 3, save_result=True)
    _, found = step(function.apply, (torch.rand(64, 512) + 0.5,), actzip.Session())
    assert len(found) == 3 and set(found.values()) == {"as is"}


def test_every_row_has_a_stand_in():
    known = {(name, len(saves.split())) for names, saves in _C.function_rows() for name in names.split()}
    sync = {("torch.nn.modules._functions.SyncBatchNorm", count) for count in (4, 5)}
    assert known == sync | {(f"{module}.{name}", count) for module, name, count, _ in LIBRARIES}


def test_what_talks_to_other_processes_runs_once():
    """The guard runs functions again, but the other processes would not take part."""
    def backwards(function, steps=3):
        session = actzip.Session()
        for _ in range(steps):
            x = torch.randn(8, 32, 16, 16, requires_grad=True)
            with session:
                y = function.apply(x * 1) * 2
            y.sum().backward()
        return function.backwards

    assert backwards(stand_in("torch.nn.modules._functions", "SyncBatchNorm", 5)) == 3
    assert backwards(stand_in("xformers.ops.fmha", "_fMHA", 5)) == 4


def squared_errors(actual, expected):
    return [float((a - b).square().sum() / b.square().sum()) for a, b in zip(actual, expected, strict=True)]


@pytest.mark.parametrize("sharpness", [1, 2, 3])
def test_attention_beside_kept_sums_is_no_worse_than_torchs_own(sharpness):
    torch.manual_seed(0)
    inputs = [torch.randn(4, 1, 256, 64) * factor for factor in (sharpness, sharpness, 1)]
    function = renamed(type("_fMHA", (Attention,), {}), "xformers.ops.fmha", "_fMHA")
    exact, _ = step(function.apply, inputs)
    actual, codecs = step(function.apply, inputs, actzip.Session(guard=False))
    assert codecs["query"] == codecs["key"] == "affine:8:dithered"
    torchs, _ = step(F.scaled_dot_product_attention, inputs, actzip.Session(guard=False))
    for ours, own in zip(squared_errors(actual, exact), squared_errors(torchs, exact), strict=True):
        assert ours < own


def test_a_plan_takes_no_bits_from_attention_that_keeps_its_sums():
    actzip.register(Kept, argument0="attention_operand", argument1="attention_operand")
    layer = torch.nn.Linear(64, 128)
    session = actzip.Session(layer, bits=2, adapt="layer", interval=3)
    for _ in range(8):
        with session:
            q, k = layer(torch.randn(64, 64)).chunk(2, -1)
            y = Kept.apply(q * 1, k * 1)
        (y * y).sum().backward()
    codecs = [site.codec for site in session.report().sites if site.op.endswith(".Kept")]
    assert codecs == ["affine:8:dithered"] * 2


class Kept(torch.autograd.Function):
    """Saves q and k as a fused attention does."""

    @staticmethod
    def forward(ctx, q, k):
        ctx.save_for_backward(q, k)
        return (q @ k.mT).softmax(-1)

    @staticmethod
    def backward(ctx, gradient):
        q, k = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            y = (q @ k.mT).softmax(-1)
        return torch.autograd.grad(y, (q, k), gradient)
