"""Layers under autocast, with other memory formats, in evaluation, with transforms and with hooks of others."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from layer_cases import CASES, pair, run
from torch import nn
from torch.utils.checkpoint import checkpoint

FLOATING = [name for name in CASES if not name.startswith(("embedding", "rms norm"))]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FLOATING)
def test_autocast(name, dtype):
    theirs, ours, x = pair(name, preset="exact", min_elems=0, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        expected, actual = run(theirs, x), run(ours, x)
    assert expected[0].dtype == actual[0].dtype and torch.equal(expected[0], actual[0])
    for a, b in zip(expected[1], actual[1], strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_whole_network_in_autocast(dtype):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3),
                             nn.GroupNorm(4, 16), nn.SiLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 64), nn.LayerNorm(64),
                             nn.Linear(64, 10))

    x = torch.randn(8, 3, 16, 16)

    def gradients(model):
        model.zero_grad()
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(model(x), torch.arange(8))
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    plain, exact, default = (gradients(m) for m in (
        network(), actzip.convert(network(), preset="exact"), actzip.convert(network())))
    assert torch.equal(plain, exact)
    assert F.cosine_similarity(plain, default, dim=0) > 0.9


@pytest.mark.parametrize("name", [name for name, (_, shape) in CASES.items() if shape and len(shape) == 4])
def test_channels_last(name):
    theirs, ours, x = pair(name, preset="exact", min_elems=0, dtype=torch.float32)
    for layer in (theirs, ours):
        layer.to(memory_format=torch.channels_last)
    x = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    expected, actual = run(theirs, x), run(ours, x)
    assert expected[0].stride() == actual[0].stride() and torch.equal(expected[0], actual[0])
    for a, b in zip(expected[1], actual[1], strict=True):
        assert a.stride() == b.stride() and torch.equal(a, b)


def test_channels_last_is_compressed_in_place():
    layer = actzip.convert(nn.Conv2d(16, 16, 3, bias=False).to(memory_format=torch.channels_last))
    x = torch.randn(8, 16, 16, 16).contiguous(memory_format=torch.channels_last)
    result = layer(x)
    (site,) = actzip.session_of(layer).report().sites
    assert site.codec == "rotated:2" and actzip.session_of(layer).live_bytes == site.bytes_after == x.numel() * 2.125 / 8
    result.sum().backward()
    exact = nn.Conv2d(16, 16, 3, bias=False)
    exact.load_state_dict(layer.state_dict())
    exact(x).sum().backward()
    assert F.cosine_similarity(layer.weight.grad.flatten(), exact.weight.grad.flatten(), dim=0) > 0.9


@pytest.mark.parametrize("name", [name for name, (_, shape) in CASES.items() if shape and len(shape) > 1])
def test_no_rows_at_all(name):
    theirs, ours, x = pair(name, dtype=torch.float32)
    x = x.detach()[:0].requires_grad_()
    try:
        expected = run(theirs, x)
    except (RuntimeError, ValueError) as error:
        with pytest.raises(type(error)):
            run(ours, x)
        return
    actual = run(ours, x)
    assert expected[0].shape == actual[0].shape
    for a, b in zip(expected[1], actual[1], strict=True):
        assert torch.equal(a, b)
    assert actzip.session_of(ours).live_bytes == 0


@pytest.mark.parametrize("name", FLOATING)
def test_evaluation_and_inference(name):
    theirs, ours, x = pair(name, dtype=torch.float32)
    theirs.eval(), ours.eval()
    with torch.no_grad():
        assert torch.equal(theirs(x), ours(x))
    with torch.inference_mode():
        assert torch.equal(theirs(x), ours(x))
    assert actzip.session_of(ours).live_bytes == 0


def test_one_value_for_a_channel_is_refused_as_torch_does():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        actzip.nn.BatchNorm1d(4)(torch.randn(1, 4, requires_grad=True))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def gradients(model, x, forward=None):
    model.zero_grad()
    (forward or model)(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(use_reentrant):
    model = actzip.convert(network())
    session = actzip.session_of(model)
    x = torch.randn(64, 64, requires_grad=True)
    forward = lambda x: checkpoint(model[1:], model[0](x), use_reentrant=use_reentrant)  # noqa: E731
    result = forward(x)
    assert session.live_bytes <= 64 * 64 * 3.125 / 8  # at most the first layer's: the rest is computed again
    result.square().sum().backward()
    assert session.live_bytes == 0
    plain, actual = gradients(network(), x), gradients(model, x, forward)
    assert F.cosine_similarity(torch.cat([g.flatten() for g in plain]), torch.cat([g.flatten() for g in actual]), dim=0) > 0.9


def test_hooks_of_others_get_what_torch_saves():
    model, x = actzip.convert(network()), torch.randn(64, 64)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        result = model(x)
    assert packed and "Actzip" not in result.grad_fn.name()
    assert actzip.session_of(model).live_bytes == 0


def test_inside_a_scope_nothing_is_compressed_twice():
    model, x = actzip.convert(network(), min_elems=0), torch.randn(64, 64)
    session = actzip.session_of(model)
    reports = []
    for scope in (torch.enable_grad(), session):
        for _ in range(3):
            with scope:
                loss = model(x)
            loss = loss.square().sum()
            loss.backward()
        reports.append({site.site: (site.codec, site.bytes_after) for site in session.report().sites})
    assert reports[0] == reports[1]  # layers only: a scope finds nothing else to keep


def test_a_scope_keeps_what_is_no_layer():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.gate = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x):
            return self.up(x) * torch.sigmoid(self.gate(x))

    model, x = actzip.convert(Gated()), torch.randn(64, 64)
    session = actzip.session_of(model)
    model(x).sum().backward()
    assert {site.op for site in session.report().sites} == {"linear"}
    with actzip.session_of(model):
        loss = model(x).sum()
    loss.backward()
    assert {site.op for site in session.report().sites} == {"linear", "mul", "sigmoid"}
    assert session.live_bytes == 0


def test_layers_without_a_session_keep_with_the_scope():
    layer, session = actzip.nn.Linear(64, 64), actzip.Session()
    with session:
        result = layer(torch.randn(64, 64))
    assert session.live_bytes > 0 and result.grad_fn.name() == "ActzipLinear"
    result.sum().backward()
    assert session.live_bytes == 0


def test_layers_without_a_session_have_steps_by_themselves():
    first, second = actzip.nn.Linear(64, 64), actzip.nn.Linear(64, 64)
    session = actzip._C.default_session()
    for _ in range(5):
        loss = second(second(first(torch.randn(64, 64)))).sum()
        names = actzip.Report.from_json(session.report_json())
        loss.backward()
    sites = [site.site for site in names.sites]
    assert len(sites) == 3 and sites[2] == f"{sites[1]} #1", sites


def test_parts_that_are_called_without_the_model_have_steps():
    model, x = actzip.convert(network()), torch.randn(64, 64)
    for _ in range(4):
        (model[0](x).sum() + model[0](x).sum()).backward()
    sites = [site.site for site in actzip.session_of(model).report().sites]
    assert sites == ["0: linear.input", "0: linear.input #1"]


def test_a_reentrant_checkpoint_is_of_the_step_it_belongs_to():
    model, x = actzip.convert(network()), torch.randn(64, 64, requires_grad=True)
    for _ in range(2):
        h = model[0](x)  # without the model's own hook: a step begins after backward, not within it
        for layer in model[1:]:
            h = checkpoint(layer, h, use_reentrant=True)
        h.sum().backward()
    assert len(actzip.session_of(model).report().sites) == len(model)


def test_compiled_models_are_torchs():
    model, x = actzip.convert(network()), torch.randn(16, 64)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), network()(x))


def test_transforms():
    model, plain, x = actzip.convert(network()), network(), torch.randn(16, 64)
    parameters = dict(plain.named_parameters())

    def loss_of(model):
        return lambda p, x: torch.func.functional_call(model, p, (x,)).square().sum()

    for transform in (torch.func.grad, torch.func.jacrev):
        expected = transform(loss_of(plain))(parameters, x)
        actual = transform(loss_of(model))(parameters, x)
        for name in expected:
            torch.testing.assert_close(expected[name], actual[name])
    expected = torch.func.vmap(torch.func.grad(loss_of(plain)), (None, 0))(parameters, x[:, None])
    actual = torch.func.vmap(torch.func.grad(loss_of(model)), (None, 0))(parameters, x[:, None])
    torch.testing.assert_close(expected["0.weight"], actual["0.weight"])
    _, tangent = torch.func.jvp(model, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, torch.func.jvp(plain, (x,), (torch.ones_like(x),))[1])


def test_modes_see_torchs_operators():
    from torch.utils.flop_counter import FlopCounterMode
    counts = []
    for model in (network(), actzip.convert(network())):
        with FlopCounterMode(display=False) as counter:
            model(torch.randn(16, 64)).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_threads():
    import threading
    model, x = actzip.convert(network(), preset="exact", min_elems=0), torch.randn(64, 64)
    expected = gradients(network(), x)
    found = {}

    def work(i):
        result = model(x).square().sum()
        found[i] = torch.autograd.grad(result, list(model.parameters()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for grads in found.values():
        for a, b in zip(grads, expected, strict=True):
            torch.testing.assert_close(a, b)
    assert actzip.session_of(model).live_bytes == 0
