"""torch's own tools: accumulation, autocast, checkpointing, compilation."""

import actzip
import page
import pytest
import torch
from small import batches, network
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint


def names_of(package, **more):
    model = network()
    return {"actzip": package, "torch": torch, "model": model, "loader": batches(4), "loss_fn": cross_entropy,
            "optimizer": torch.optim.SGD(model.parameters(), 0.1), **more}


def test_plain_loop():
    def train(package):
        names = names_of(package)
        page.run("Plain PyTorch", names)
        return page.weights(names["model"])

    page.check(train, 3)


def test_accumulation_and_autocast():
    def train(package):
        names = names_of(package)
        page.run("Plain PyTorch", names, 1)
        return page.weights(names["model"])

    page.check(train, 1.5)


def checkpoint_names(package):
    (x, y), = batches(1, rows=256)
    return names_of(package, checkpoint=checkpoint, x=x, y=y)


def gradients_of(model):
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def around_checkpoints(package):
    names = checkpoint_names(package)
    page.run("torch.utils.checkpoint", names, 0)
    return gradients_of(names["model"])


def around_compressed_inputs(package):
    names = checkpoint_names(package)
    page.run("torch.utils.checkpoint", names, 1)
    return gradients_of(names["model"])


def codecs_of_inputs(report):
    return [site.codec for site in report.sites if site.op == "checkpoint" and site.shape == (256, 32)]


def test_around_checkpoints_their_inputs_are_kept_as_they_are():
    assert codecs_of_inputs(page.check(around_checkpoints, 1.5)) == ["as is", "as is"]


def test_around_checkpoints_a_rule_compresses_their_inputs():
    package = page.Compressing()
    gradients = around_compressed_inputs(package)
    report = package.sessions[-1].report()
    assert codecs_of_inputs(report) == ["affine:8:nearest"] * 2 and report.ratio > 4
    plain = around_checkpoints(page.Plain())
    ours, theirs = (torch.cat([value.flatten() for value in each.values()]) for each in (gradients, plain))
    assert torch.cosine_similarity(ours, theirs, dim=0) > 0.9


def test_inside_a_reentrant_checkpoint_what_is_computed_again_is_compressed():
    def train(package):
        names = checkpoint_names(package)
        page.run("torch.utils.checkpoint", names, 2)
        return gradients_of(names["model"])

    report = page.check(train, 3)
    assert report.steps == 1  # the checkpoint's own forward, without gradients, is no step
    assert {"gelu", "dropout.mul", "relu"} <= {site.op for site in report.sites}


def test_inside_another_checkpoint_nothing_is_computed_again():
    model, (x, y), calls = network(), batches(1, rows=256)[0], []
    block = model.blocks[0]
    block.register_forward_hook(lambda *_: calls.append(1))
    handle = actzip.attach(block)
    loss = checkpoint(block, model.first(x), use_reentrant=False).square().mean()
    assert handle.session.live_bytes > 0
    loss.backward()
    assert len(calls) == 1 and handle.session.live_bytes == 0


def step(model, forward, scope=None):
    """Gradients of one step without dropout."""
    (x, y), = batches(1, rows=256)
    model.zero_grad()
    with scope or torch.enable_grad():
        loss = cross_entropy(forward(x), y)
    loss.backward()
    return gradients_of(model)


@pytest.fixture
def to_compile():
    torch.compiler.reset()
    model = network()
    for block in model.blocks:
        block[3].p = 0.0
    yield model
    torch.compiler.reset()


def compiled(model, **options):
    return torch.compile(model, backend="aot_eager", **options)  # to autograd the same as inductor, which takes longer


def test_compiled_after_convert_nothing_is_compressed(to_compile):
    expected = step(to_compile, to_compile)
    actzip.convert(to_compile)
    assert page.are_same(expected, step(to_compile, compiled(to_compile)))
    assert actzip.session_of(to_compile).report().steps == 0


@pytest.mark.filterwarnings("ignore")
def test_compiled_in_a_scope_layers_are_not_compiled(to_compile):
    handle = actzip.attach(to_compile)
    eager = step(to_compile, to_compile)
    sites = [site.site for site in handle.report().sites]
    handle.remove()
    handle = actzip.attach(to_compile)
    assert page.are_same(eager, step(to_compile, compiled(to_compile)))
    assert [site.site for site in handle.report().sites] == sites
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="actzip"):
        step(to_compile, compiled(to_compile, fullgraph=True))


def test_a_compiled_graph_is_one_function(to_compile):
    forward = compiled(to_compile)
    expected = step(to_compile, forward)
    session = actzip.Session(to_compile)
    assert page.are_same(expected, step(to_compile, forward, session))
    codecs = {site.codec for site in session.report().sites if site.op.endswith(".CompiledFunction")}
    assert codecs == {"as is"}
