"""What compiled graphs keep, however they come about. These tests generate no code; test_compile.py does."""

import threading
import warnings

import actzip
import pytest
import torch
import torch.nn.functional as F
import torch.nn.modules.module as torch_modules
from compile_cases import (GPT, MLP, ResNet, Block, cosine, error, flat, gradient, graphs_alone, make, mean_error,
                           mean_square)
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def sites(**options):
    return actzip.compiled_session(**options).report().sites


def test_exact_is_bitwise_what_torch_computes():
    model, batch = make(ResNet)
    plain = gradient(model, graphs_alone(model, plain=True), batch)
    torch._dynamo.reset()
    assert torch.equal(gradient(model, graphs_alone(model, preset="exact"), batch), plain)
    assert {site.codec for site in sites(preset="exact") if site.kind == "encoded"} == {"mask"}
    assert gradient(model, graphs_alone(model), batch).ne(plain).any()


def test_masks_are_made_of_exact_values():
    """Masks made of values in few bits would have flipped signs."""
    model, batch = make(ResNet)
    exact = gradient(model, model, batch)
    eager = actzip.Session(model, guard=False)
    # a copy, because an input that its caller holds is kept as it is
    expected = [gradient(model, lambda x: model(x.clone()), batch, eager) for _ in range(9)][1:]
    forward = graphs_alone(model)
    draws = [gradient(model, forward, batch) for _ in range(8)]
    assert mean_error(draws, exact) < 1.3 * mean_error(expected, exact)  # 1.9 times with the signs of noisy values


@pytest.mark.parametrize("width", [64, 100])
def test_lengths_that_change(width):
    """Each row of 100 elements is a group, and their number changes with the length."""
    model, _ = make(MLP, width=width)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Raw SymInt")
        forward = graphs_alone(model, dynamic=True)
        for length in (64, 48, 80):
            batch = torch.randn(2, length, width)
            assert error(gradient(model, forward, batch), gradient(model, model, batch)) < 0.05
            kept = {site.site: site for site in sites()}
            assert kept["up: addmm.mat1"].shape == (2 * length, width)
            statistics = kept["norm: native_layer_norm.aux0"]
            assert (statistics.shape, statistics.codec) == ((2, length, 1), "as is")
            assert statistics.bytes_before == statistics.bytes_after == 4 * 2 * length


def test_a_graph_break():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = MLP(), MLP()

        def forward(self, x):
            x = self.first(x)
            torch._dynamo.graph_break()
            return self.second(x)

    torch.manual_seed(0)
    model, batch = Broken(), MLP.batch()
    forward = graphs_alone(model, fullgraph=False)
    assert error(gradient(model, forward, batch), gradient(model, model, batch)) < 0.05
    modules = {site.module for site in sites() if site.kind == "encoded"}
    assert {"first.up", "second.up"} <= modules


def test_autocast():
    model, batch = make(GPT)

    def in_bf16(forward):
        def run(x):
            with torch.autocast("cpu", torch.bfloat16):
                return forward(x)
        return run

    exact = gradient(model, model, batch)
    forward = graphs_alone(model, fullgraph=False)
    assert error(gradient(model, in_bf16(forward), batch), exact) < 0.05
    kept = {site.site: site for site in sites()}
    assert kept["blocks.0.up: addmm.mat1"].codec == "rotated:3" and kept["blocks.0.up: addmm.mat1"].dtype == "bf16"
    assert not [site for site in kept.values() if site.kind == "encoded" and site.slot in ("mat2", "weight")]


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_around_graphs(reentrant):
    model, batch = make(MLP)
    forward = graphs_alone(model)
    x = batch.requires_grad_()
    exact = gradient(model, model, x)
    session = actzip.CompiledSession()

    def run(value):
        return checkpoint(lambda v: session.run(forward, v), value, use_reentrant=reentrant)

    assert 0 < error(gradient(model, run, x), exact) < 0.05
    assert session.report().steps == 1 and session.report().bytes_after > 0


def test_a_checkpoint_inside():
    model, batch = make(MLP)

    class Inside(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return checkpoint(self.model, self.model(x), use_reentrant=False)

    outer = Inside()
    exact = gradient(outer, outer, batch)
    assert 0 < error(gradient(outer, graphs_alone(outer), batch), exact) < 0.05


def test_backward_twice():
    model, batch = make(MLP)
    loss = mean_square(graphs_alone(model)(batch))
    loss.backward(retain_graph=True)
    first = flat(model)
    model.zero_grad()
    loss.backward()
    assert torch.equal(first, flat(model))


def test_dropout_keeps_its_mask():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            return F.dropout(self.layer(x), 0.5).relu()

    torch.manual_seed(0)
    model, batch = Dropped(), torch.randn(64, 64)
    torch.manual_seed(1)
    plain = gradient(model, graphs_alone(model, plain=True), batch)
    torch._dynamo.reset()
    torch.manual_seed(1)
    assert error(gradient(model, graphs_alone(model), batch), plain) < 0.05


def test_parameters_are_never_compressed():
    """Neither frozen ones, nor casts of them, nor those that a function takes as arguments."""
    model, batch = make(MLP)
    model.up.weight.requires_grad_(False)
    gradient(model, graphs_alone(model), batch)
    assert not [site for site in sites() if site.kind == "encoded" and site.slot in ("mat2", "weight", "bias")]

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.randn(64, 64))

        def forward(self, x):
            return x.exp() * self.scale

    torch._dynamo.reset()
    mean_square(graphs_alone(Scaled())(batch.requires_grad_())).backward()
    causes = {site.shape: site.cause for site in sites() if site.op == "input"}
    assert causes[(64, 64)] == "parameter"

    torch._dynamo.reset()
    weight, bias = torch.randn(64, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    function = graphs_alone(lambda x, w, b: torch.addmm(b, x, w).relu())
    function(torch.randn(64, 64, requires_grad=True), weight, bias).sum().backward()
    assert {site.slot for site in sites() if site.kind == "encoded"} == {"mat1", "result"}


@torch.library.custom_op("actzip_test::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_fake(lambda x: torch.empty_like(x))
cube.register_autograd(lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
                       setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


def test_what_is_not_known_is_kept_exactly():
    model = nn.Linear(64, 64)
    forward = graphs_alone(lambda x: cube(model(x)))
    batch = torch.randn(64, 64)
    exact = gradient(model, lambda x: cube(model(x)), batch)
    assert error(gradient(model, forward, batch), exact) < 0.05
    kept = [site for site in sites() if "cube" in site.op]
    assert [(site.kind, site.use, site.cause) for site in kept] == [("as is", "foreign", "policy")]


def test_an_operator_without_a_row():
    model = nn.Linear(64, 64)
    gradient(model, graphs_alone(lambda x: torch.atan(model(x))), torch.randn(64, 64))
    assert [(site.op, site.kind, site.cause) for site in sites() if site.use == "unknown" and site.cause != "parameter"] == [
        ("atan", "as is", "policy")]


def test_a_reader_that_no_slot_stands_for():
    """For the gradient of an absolute value, forward keeps the sign of a difference, which is no factor like others."""
    model = nn.Linear(64, 64)
    gradient(model, graphs_alone(lambda x: F.l1_loss(model(x), x)), torch.randn(64, 64))
    assert {site.kind for site in sites() if site.module == "" and site.dtype == "f32"} == {"as is"}


def test_rules_for_attention():
    """The gradient and the call that runs again use the same sites."""
    options = {"rules": {"blocks.0: *scaled_dot*.query": "rotated:2", "blocks.0: *scaled_dot*.key": "none"}}
    model, batch = make(GPT)
    gradient(model, graphs_alone(model, **options), batch)
    kept = {site.slot: (site.module, site.codec) for site in sites(**options) if "scaled_dot" in site.op}
    assert kept["query"] == ("blocks.0", "rotated:2") and kept["key"] == ("blocks.0", "as is")
    assert kept["value"] == ("blocks.0", "rotated:3")


def test_rules_and_codecs():
    options = {"rules": {"norm: *": "none", "use:linear_input": "rotated:4"}}
    model, batch = make(MLP)
    gradient(model, graphs_alone(model, **options), batch)
    kept = {site.site: site.codec for site in sites(**options)}
    assert kept["up: addmm.mat1"] == "rotated:4" and kept["norm: native_layer_norm.input"] == "as is"

    model, batch = make(ResNet)  # its ReLUs keep exact masks, whatever the codec of the values
    exact = gradient(model, model, batch)
    for options, codecs in (({"preset": "affine:8"}, {"affine:8", "mask"}), ({"bits": 8}, {"affine:8:dithered", "mask"}),
                            ({"preset": "division"}, {"dual:2", "dual:2:size=32x32", "mask"})):
        torch._dynamo.reset()
        found = gradient(model, graphs_alone(model, **options), batch)
        assert error(found, exact) < (0.02 if options == {"preset": "division"} else 1e-4)
        assert {site.codec for site in sites(**options) if site.kind == "encoded"} == codecs


@pytest.mark.parametrize("model_class, options", [
    (GPT, {"bits": 2.5, "interval": 2}), (ResNet, {"bits": 2.5, "interval": 2}), (GPT, {"budget": 0.09})])
def test_what_a_session_has_planned(model_class, options):
    """Sites have the same names as in eager mode, and the codecs that the plan has chosen for them."""
    model, batch = make(model_class)
    exact = gradient(model, model, batch)
    session = actzip.Session(model, guard=False, **options)
    for _ in range(8):
        expected = gradient(model, model, batch, session)
    eager = {site.site: site for site in session.report().sites}
    gradient(model, graphs_alone(model, plan=session), batch)
    kept = {site.site: site.codec for site in sites(plan=session)}
    planned = {name: eager[site.kept_by or name].codec for name, site in eager.items() if site.reason == "as planned"}
    assert len(planned) > 6 and len(set(planned.values())) > 2
    assert {name: kept[name].removesuffix(":mask") for name in planned} == {  # some masks are apart from values
        name: codec.removesuffix(":mask") for name, codec in planned.items()}
    draws = [gradient(model, graphs_alone(model, plan=session), batch) for _ in range(4)]
    assert mean_error(draws, exact) == pytest.approx(error(expected, exact), rel=0.3)


def test_blocks_share_a_graph_and_are_told_apart():
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block() for _ in range(3)))
    batch = torch.randn(4, 32, 64)
    exact = gradient(blocks, blocks, batch)
    parts = [graphs_alone(block) for block in blocks]

    def forward(x):
        for part in parts:
            x = part(x)
        return x

    assert error(gradient(blocks, forward, batch), exact) < 0.05
    names = {site.site for site in sites()}
    assert {"up: addmm.mat1", "up: addmm.mat1 #1", "up: addmm.mat1 #2"} <= names
    steps = actzip.compiled_session().report().steps
    gradient(blocks, forward, batch)
    assert actzip.compiled_session().report().steps == steps + 1


def test_eager_code_in_the_same_step():
    torch.manual_seed(0)
    compiled_part, eager_part = MLP(), MLP()
    model = nn.Sequential(compiled_part, eager_part)
    batch = torch.randn(64, 64)
    exact = gradient(model, model, batch)
    forward = graphs_alone(compiled_part)
    graphs = actzip.compiled_session()
    session = actzip.Session(eager_part, guard=False)
    draws = [gradient(model, lambda x: eager_part(graphs.run(forward, x)), batch, session) for _ in range(4)]
    assert 0 < mean_error(draws, exact) < 0.05
    assert {site.module for site in session.report().sites if site.kind == "encoded"} >= {"up", "down"}
    assert {site.module for site in graphs.report().sites if site.kind == "encoded"} >= {"up", "down"}
    assert not [site for site in session.report().sites if "Compiled" in site.op]


def test_a_scope_of_another_thread_keeps_its_names():
    """It watches its modules while a compiled model runs inside a scope of this thread, and ends in the meantime."""
    inside, go_on, done = threading.Event(), threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x):
            inside.set()
            assert go_on.wait(60)
            return x

    other = nn.Sequential(Waits(), MLP())
    names = []

    def run_other():
        try:
            with actzip.Session(other, guard=False) as session:
                output = other(MLP.batch())
            mean_square(output).backward()
            names.extend(site.site for site in session.report().sites if site.kind == "encoded")
        finally:
            done.set()

    thread = threading.Thread(target=run_other)
    model, batch = make(MLP)
    forward = graphs_alone(model)

    def meanwhile(x):
        go_on.set()
        assert done.wait(60)
        return forward(x)

    exact = gradient(model, model, batch)
    thread.start()
    assert inside.wait(60)
    assert 0 < error(gradient(model, forward, batch), exact) < 0.05  # compiled as a whole while the other watches
    with actzip.Session(model):
        actzip.compiled_session().run(meanwhile, batch)
        assert list(torch_modules._global_forward_hooks) == ["actzip"]
    thread.join()
    assert names and all(name.startswith(("1.", "1: ")) for name in names)
    assert not torch_modules._global_forward_pre_hooks and not torch_modules._global_forward_hooks


class Gated(nn.Module):
    """As in Llama: a root-mean-square norm, and a product behind an activation."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(128))
        self.gate, self.up, self.down = nn.Linear(128, 256), nn.Linear(128, 256), nn.Linear(256, 128)

    def forward(self, x):
        h = self.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
        return x + self.down(F.silu(self.gate(h)) * self.up(h))

    @staticmethod
    def batch():
        return torch.randn(64, 128)


def kept_and_error(model, batch, exact, **options):
    torch._dynamo.reset()
    forward = graphs_alone(model, **options)
    found = mean_error([gradient(model, forward, batch) for _ in range(8)], exact)
    return actzip.compiled_session(**options).report().bytes_after, found


def test_derived_instead_of_kept():
    model, batch = make(GPT, blocks=2)
    exact = gradient(model, model, batch)
    kept, error = kept_and_error(model, batch, exact)
    least, worst = kept_and_error(model, batch, exact, derive=True)
    fewer, same = kept_and_error(model, batch, exact, derive="auto")
    assert least < 0.8 * kept and worst < 1.2 * error
    assert least < fewer < 0.97 * kept and same < 1.03 * error


def test_derived_where_that_is_better():
    """The inputs of linear layers, which would get 3 bits, are derived from a norm's input in 4 bits."""
    model, batch = make(Gated)
    exact = gradient(model, model, batch)
    kept, error = kept_and_error(model, batch, exact)
    fewer, better = kept_and_error(model, batch, exact, derive="auto")
    assert fewer < 0.75 * kept and better < 0.95 * error
    rules = {"use:linear_input": "rotated:2"}
    kept_and_error(model, batch, exact, derive="auto", rules=rules)
    assert "rotated:2" in {site.codec for site in sites(derive="auto", rules=rules)}  # rules have precedence


def test_nothing_is_derived_where_that_is_worse():
    model, batch = make(ResNet)
    exact = gradient(model, model, batch)
    assert kept_and_error(model, batch, exact)[0] == kept_and_error(model, batch, exact, derive="auto")[0]
    assert kept_and_error(model, batch, exact, derive=True)[0] < kept_and_error(model, batch, exact)[0]


POLES = {
    "charbonnier": lambda y, z: (y.square() + 1e-4).sqrt(),
    "rsqrt": lambda y, z: (y * torch.rsqrt(y * y + 1e-4)).sin(),
    "cdist": lambda y, z: torch.cdist(y, z[:40]),
    "addcdiv": lambda y, z: torch.addcdiv(y, z, y.abs() + 0.01),
    "atan2": torch.atan2,
    "cosine": lambda y, z: F.cosine_similarity(y, z),
    "prod": lambda y, z: (y[:, :8] + 1).prod(-1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", POLES)
def test_what_gradients_divide_by_is_kept_exactly(name, dtype):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(128, 128, dtype=dtype) / 128)
    x, z = torch.randn(256, 128, dtype=dtype), torch.randn(256, 128, dtype=dtype)

    def loss():
        return POLES[name](x @ weight, z).mean()

    (exact,) = torch.autograd.grad(loss(), [weight])
    (found,) = torch.autograd.grad(graphs_alone(loss, min_numel=0)(), [weight])
    assert cosine(found.flatten(), exact.flatten()) > (0.95 if dtype is torch.float32 else 0.9999)
