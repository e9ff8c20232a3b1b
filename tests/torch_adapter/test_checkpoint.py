"""Checkpointing together with compression: inside and outside the checkpoint, reentrant or not, nested, selective."""

import functools

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import Llama, make
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def step(run_block, around=None):
    """Returns the gradients of a model whose blocks are called as run_block(block, x)."""
    model, tokens = make(Llama)
    torch.manual_seed(1)
    with around or torch.enable_grad():
        x = model.embedding(tokens)
        for block in model.blocks:
            x = F.dropout(run_block(block, x), 0.1)
        output = F.linear(x, model.embedding.weight).mean(1)
    F.cross_entropy(output, torch.arange(len(output)) % output.shape[1]).backward()
    return [p.grad for p in model.parameters()]


def plain(block, x):
    return block(x)


def assert_same(a, b):
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def inside(session):
    def run(block, x):
        with session:
            return block(x)

    return run


@pytest.fixture
def exact():
    return actzip.Session(preset="exact", min_elems=0)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_outside_the_checkpoint(exact, use_reentrant):
    expected = step(plain)
    assert_same(expected, step(lambda b, x: checkpoint(b, x, use_reentrant=use_reentrant), exact))
    assert exact.live_bytes == 0


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_inside_the_checkpoint(exact, use_reentrant):
    expected = step(plain)
    run = inside(exact)
    assert_same(expected, step(lambda b, x: checkpoint(run, b, x, use_reentrant=use_reentrant)))
    assert exact.live_bytes == 0
    assert any(site.op == "silu" for site in exact.report().sites)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_on_both_sides(exact, use_reentrant):
    expected = step(plain)
    run, outer = inside(exact), actzip.Session(preset="exact", min_elems=0)
    assert_same(expected, step(lambda b, x: checkpoint(run, b, x, use_reentrant=use_reentrant), outer))
    assert exact.live_bytes == outer.live_bytes == 0


def test_nested_checkpoints(exact):
    expected = step(plain)
    inner = functools.partial(checkpoint, use_reentrant=False)
    assert_same(expected, step(lambda b, x: checkpoint(inner, b, x, use_reentrant=False), exact))


@pytest.mark.parametrize("around", [True, False])
def test_selective(exact, around):
    def policy(_, op, *args, **kwargs):
        save = op in (torch.ops.aten.mm.default, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default)
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    context = functools.partial(create_selective_checkpoint_contexts, policy)
    run = plain if around else inside(exact)
    actual = step(lambda b, x: checkpoint(run, b, x, use_reentrant=False, context_fn=context), exact if around else None)
    assert_same(step(plain), actual)
    assert exact.live_bytes == 0


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("around", [True, False])
def test_compressed_gradients_are_close(use_reentrant, around):
    session = actzip.Session(bits=4, min_elems=0)
    run = plain if around else inside(session)
    actual = step(lambda b, x: checkpoint(run, b, x, use_reentrant=use_reentrant), session if around else None)
    expected = step(plain)
    a, b = (torch.cat([g.flatten() for g in gradients]) for gradients in (expected, actual))
    assert F.cosine_similarity(a, b, dim=0) > 0.9


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_the_block_input_is_what_is_kept(use_reentrant):
    """Around checkpoints, the inputs of blocks are kept as they are, and nothing inside them is kept."""
    session = actzip.Session(min_elems=0)
    step(lambda b, x: checkpoint(b, x, use_reentrant=use_reentrant), session)
    sites = session.report().sites
    inputs = [site for site in sites if site.use == "checkpoint_input"]
    assert [site.site for site in inputs] == ["checkpoint.input", "checkpoint.input #1"]
    assert {site.codec for site in inputs} == {"as is"}
    assert not [site for site in sites if site.op in ("silu", "rsqrt") or site.use == "unknown"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_rule_compresses_the_inputs_of_blocks(use_reentrant):
    session = actzip.Session(preset="exact", min_elems=0, rules={"checkpoint.input": "affine:8:nearest"})
    actual = step(lambda b, x: checkpoint(b, x, use_reentrant=use_reentrant), session)
    codecs = {site.codec for site in session.report().sites if site.op == "checkpoint"}
    assert codecs == {"affine:8:nearest"}
    pairs = list(zip(step(plain), actual, strict=True))
    assert not all(torch.equal(a, b) for a, b in pairs)
    assert all(F.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.999 for a, b in pairs)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_preset_of_one_codec_compresses_the_inputs_too(use_reentrant, dtype):
    x = torch.randn(64, 64, dtype=dtype, requires_grad=True)
    session = actzip.Session(preset="affine:4")
    with session:
        y = checkpoint(torch.sin, x * 2, use_reentrant=use_reentrant)
    assert [site.codec for site in session.report().sites if site.op == "checkpoint"] == ["affine:4"]
    y.abs().sum().backward()


def test_checkpoints_cannot_be_registered():
    with pytest.raises(ValueError, match="cannot be registered.*checkpoint.input"):
        actzip.register(torch.utils.checkpoint.CheckpointFunction, argument2="linear_input")


def test_what_others_save_outside_of_operators_is_of_unknown_use():
    autograd = pytest.importorskip("torch._C._autograd")
    if not hasattr(autograd, "_make_saved_tensor"):
        pytest.skip("this torch saves tensors in operators alone")
    x = torch.randn(64, 64, requires_grad=True) * 2
    session = actzip.Session()
    with session:
        saved = [autograd._make_saved_tensor(each, is_output=False) for each in (x,)]
    assert [(site.site, site.use) for site in session.report().sites] == [("unknown.aux0", "unknown")]
    assert torch.equal(saved[0].unpack(), x)


def test_attached_model_under_checkpoint():
    expected = step(plain)

    def run(block, x):
        handle = actzip.attach(block, preset="exact", min_elems=0)
        y = checkpoint(block, x, use_reentrant=False)
        handle.remove()
        return y

    assert_same(expected, step(run))
