"""actzip.compile as programs use it: options, caches, sessions, messages, bytes."""

import copy
import dataclasses
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import actzip
import pytest
import torch
from actzip import _C
from actzip.compiled import partitioner
from actzip.compiled.operators import encoded_bytes
from actzip.compiled.partitioner import Partitioner
from compile_cases import MLP, error, gradient, graphs_alone, make
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "reference"))
import actzip_reference as reference

CODECS = ["rotated:2", "rotated:3:mask", "rotated:4:group=128", "affine:4:dithered:group=64", "affine:8:nearest",
          "affine:2:stats=f32", "mask", "cast:bf16"]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """A folder without the graphs of earlier runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("segments", [1, 12])
def test_the_bytes_are_those_of_the_format(codec, segments):
    """They equal the reference's, and so those of an eager session with the same tensor, codec, segments and seed."""
    torch.manual_seed(0)
    tensor = torch.randn(12, 300).relu()
    seeds = torch.tensor([5, 1 << 40])
    data = torch.ops.actzip.encode(tensor, codec, segments, seeds, 1)
    expected = reference.encode(reference.parse(codec), tensor.numpy(), "f32", 1 << 40, segments)
    assert bytes(data.numpy()) == bytes(expected)
    restored = torch.ops.actzip.decode(data, codec, segments, seeds, 1, [12, 300], [300, 1], torch.float32)
    wanted = reference.decode(reference.parse(codec), expected, "f32", tensor.numel(), 1 << 40, segments)
    torch.testing.assert_close(restored.flatten(), torch.from_numpy(wanted), rtol=0, atol=1e-6)


@pytest.mark.parametrize("codec", CODECS)
def test_sizes_are_known_before_it_runs(codec):
    """Compares the formula for symbolic sizes with the core's."""
    for elems in (1, 31, 256, 257, 1000, 4096):
        for segments in (1, 2, 5):
            if elems % segments:
                continue
            for dtype in (torch.float32, torch.bool) if codec == "mask" else (torch.float32,):
                exact = _C.encoded_bytes(codec, "bool" if dtype is torch.bool else "f32", elems, segments)
                assert encoded_bytes(codec, dtype, _Symbol(elems), _Symbol(segments)) == exact


class _Symbol:
    """An integer that is no int, like torch's symbols."""

    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        return _Symbol(self.value + getattr(other, "value", other))

    def __sub__(self, other):
        return _Symbol(self.value - getattr(other, "value", other))

    def __mul__(self, other):
        return _Symbol(self.value * getattr(other, "value", other))

    def __floordiv__(self, other):
        return _Symbol(self.value // getattr(other, "value", other))

    def __eq__(self, other):
        return self.value == getattr(other, "value", other)

    __radd__, __rmul__ = __add__, __mul__


def test_operators_are_well_behaved():
    tensor, seeds = torch.randn(8, 64), torch.tensor([1, 2])
    torch.library.opcheck(torch.ops.actzip.encode.default, (tensor, "rotated:2", 1, seeds, 0),
                          test_utils=("test_schema", "test_faketensor"))
    data = torch.ops.actzip.encode(tensor, "rotated:2", 1, seeds, 0)
    torch.library.opcheck(torch.ops.actzip.decode.default, (data, "rotated:2", 1, seeds, 0, [8, 64], [64, 1], torch.float32),
                          test_utils=("test_schema", "test_faketensor"))
    for name in ("encode", "decode"):
        assert torch.Tag.needs_fixed_stride_order in getattr(torch.ops.actzip, name).default.tags


def test_a_cache_hit_still_reports(monkeypatch):
    """With a cache hit, nothing is partitioned. Graphs report when they run."""
    calls = []
    partition = Partitioner.__call__
    monkeypatch.setattr(Partitioner, "__call__", lambda self, *given, **named: calls.append(1) or partition(self, *given, **named))
    model, batch = make(MLP)
    first = actzip.compile(model, bits=3, seed=7)
    gradient(model, first, batch)
    made = len(calls)
    torch._dynamo.reset()
    second = actzip.compile(model, bits=3, seed=7)
    gradient(model, second, batch)
    assert len(calls) == made
    reports = [forward.session.report() for forward in (first, second)]
    sites = [[dataclasses.replace(site, kept_at=None, freed_at=None) for site in report.sites] for report in reports]
    assert sites[0] == sites[1] and reports[0].steps == 1
    assert {"rotated:4"} <= {site.codec for site in reports[1].sites}
    torch._dynamo.reset()
    gradient(model, actzip.compile(model, bits=4), batch)
    assert len(calls) == made + 1  # another policy needs another graph


def test_a_partitioner_is_its_options():
    a, b, other = (actzip.compile_options(**options)["custom_partitioner_fn"] for options in ({}, {}, {"bits": 4}))
    assert a == b and hash(a) == hash(b) and a.uuid() == b.uuid() and pickle.loads(pickle.dumps(a)) == a
    assert a != other and a.uuid() != other.uuid()
    assert copy.deepcopy(a) == a
    assert partitioner.revision() in a.uuid()


def test_seeds_of_sessions():
    """Equal seeds give the same noise, different seeds different noise, and so do different steps."""
    model, batch = make(MLP)
    noise = []
    for seed in (0, 0, 1):
        torch._dynamo.reset()
        session = actzip.CompiledSession(seed=seed)
        forward = graphs_alone(model, seed=seed)
        noise.append([session.run(lambda: gradient(model, forward, batch)) for _ in range(2)])
    assert torch.equal(noise[0][0], noise[1][0]) and torch.equal(noise[0][1], noise[1][1])
    assert not torch.equal(noise[0][0], noise[2][0]) and not torch.equal(noise[0][0], noise[0][1])


@pytest.mark.parametrize(("options", "message"), [
    ({"adapt": "layer"}, "adapt='layer' is for sessions that are not compiled"),
    ({"guard": True}, "actzip.verify"),
    ({"bits": 2.5}, "an average, which a plan spends"),
    ({"nonsense": 1}, "no option 'nonsense'"),
    ({"preset": "nonsense"}, "preset 'nonsense'"),
])
def test_options_that_cannot_be(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        actzip.compile(nn.Linear(4, 4), **options)


def test_plans_that_cannot_be():
    with pytest.raises(TypeError, match="allowed: an actzip.Session that has made a plan"):
        actzip.compile_options(plan="layer")
    with pytest.raises(ValueError, match="has made no plan yet"):
        actzip.compile_options(plan=actzip.Session(bits=1.5))
    with pytest.raises(ValueError, match="has made no plan yet"):
        actzip.compile_options(plan=actzip.Session())
    with pytest.raises(ValueError, match="change from batch to batch"):
        actzip.compile_options(plan=actzip.Session(bits=2, adapt="sample+layer"))
    with pytest.raises(TypeError, match="plan=session beside bits"):
        actzip.compile_options(plan=actzip.Session(bits=1.5), bits=2)


def test_compress_and_attach_around_compiled_models():
    model = nn.Linear(4, 4)
    compiled = actzip.compile(model, bits=3)
    assert actzip.compress(compiled, bits=3) is compiled.session
    with actzip.compress(compiled) as session:
        assert session is compiled.session is actzip.session_of(compiled)
    with pytest.raises(TypeError, match="compiled without {'bits': 4}"):
        actzip.compress(compiled, bits=4)
    with pytest.raises(TypeError, match="compressed already"):
        actzip.attach(compiled)
    for call in (actzip.compress, actzip.attach):
        with pytest.warns(UserWarning, match=r"write actzip.compile\(model\) in place of torch.compile"):
            call(torch.compile(model))


def test_a_converted_model_that_is_compiled(monkeypatch):
    monkeypatch.setattr(actzip.compiled.hand_over, "has_default_sessions", lambda: False)
    model = actzip.convert(nn.Sequential(nn.Linear(64, 64), nn.ReLU()))
    batch = torch.randn(64, 64)
    with pytest.warns(UserWarning, match="a converted model is compiled"):
        torch.compile(model, backend="aot_eager", fullgraph=True)(batch)
    torch._dynamo.reset()
    session = actzip.CompiledSession()
    forward = graphs_alone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(lambda: gradient(model, forward, batch))
    assert "rotated:3" in {site.codec for site in session.report().sites}


@pytest.mark.parametrize("guard", [True, False])
def test_compiled_autograd(guard):
    model, batch = make(MLP)
    with actzip.compress(model, guard=guard):
        loss = model(batch).sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        with pytest.raises(RuntimeError, match="compiled autograd cannot trace the backward of a step"):
            loss.backward()


def test_sites_of_graphs_that_run_again():
    """Sites are known by name and counted anew in each step. Each run says what they are saved for."""
    session = actzip.CompiledSession(seed=3)

    def run(*uses):
        lines = ("\t".join(("up", "addmm", "mat1", use, "as is", "copy", "policy", "f32", "4x4", "64", "64", ""))
                 for use in uses)
        torch.ops.actzip.begin(session.key, "\n".join(lines), torch.device("cpu"))

    def kept():
        return [(site.site, site.use) for site in session.report().sites]

    for _ in range(2):
        session.run(lambda: [run("linear_input"), run("linear_input", "unknown")])
        assert kept() == [("up: addmm.mat1", "linear_input"), ("up: addmm.mat1 #1", "linear_input"),
                          ("up: addmm.mat1 #2", "unknown")]
    session.run(run, "unknown")
    assert kept() == [("up: addmm.mat1", "unknown")]
    session.run(run, "linear_input")
    assert kept() == [("up: addmm.mat1", "linear_input")]


def test_evaluation_is_no_step():
    model, batch = make(MLP)
    forward = graphs_alone(model)
    session = actzip.compiled_session()
    gradient(model, forward, batch)
    steps = session.report().steps
    with torch.no_grad():
        session.run(forward, batch)
    assert session.report().steps == steps and session.report().sites


def test_a_step_without_a_graph_leaves_the_report():
    """Such as the replay of a CUDA graph, in which nothing of actzip runs on the host."""
    model, batch = make(MLP)
    session, forward = actzip.CompiledSession(), graphs_alone(model)
    session.run(lambda: gradient(model, forward, batch))
    before = session.report()
    session.run(lambda: None)
    assert session.report() == before and before.sites
    session.run(lambda: gradient(model, forward, batch))
    assert session.report().steps == 2 and len(session.report().sites) == len(before.sites)


def test_what_is_registered_is_part_of_the_key():
    before = Partitioner("{}").uuid()
    actzip.register("actzip_test::of_the_key", x="factor")
    assert Partitioner("{}").uuid() != before


def test_a_model_that_torch_leaves_to_eager_code():
    class Left(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        @torch.compiler.disable
        def forward(self, x):
            return self.layer(x)

    model = Left()
    compiled = actzip.compile(model, bits=4)
    with pytest.warns(UserWarning, match="from the next call on, an eager session compresses"):
        compiled(torch.randn(64, 64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # it warns only once
            compiled(torch.randn(64, 64)).sum().backward()
    [site] = [site for site in compiled.session.report().sites if site.kind == "encoded"]
    assert (site.site, site.codec) == ("layer: addmm.mat1", "rotated:4")
    x = torch.randn(64, 64)  # each call gets a copy, because an input that its caller holds is kept as it is
    assert 0 < error(gradient(model, lambda x: compiled(x.clone()), x), gradient(model, model, x)) < 0.02
    assert 0 < actzip.verify(compiled, lambda: compiled(x.clone()).square().mean()).total.error < 0.02


def test_a_graph_that_keeps_nothing_at_first():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            return self.layer(x).relu() if x.shape[0] > 1 else x + self.layer.bias

    compiled = actzip.compile(Late())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.zeros(1, 64)).sum().backward()
        compiled(torch.randn(64, 64)).sum().backward()
    assert "encoded" in {site.kind for site in compiled.session.report().sites}


def test_a_function():
    weight = torch.randn(64, 64, requires_grad=True)

    @actzip.compile
    def forward(x):
        return (x @ weight).relu() @ weight

    x = torch.randn(64, 64)
    forward(x).sum().backward()
    found, weight.grad = weight.grad, None
    ((x @ weight).relu() @ weight).sum().backward()
    assert 0 < error(found.flatten(), weight.grad.flatten()) < 0.05
    assert forward.session.report().bytes_after > 0


def test_nothing_of_the_compiler_is_loaded_before_it_is_asked_for():
    code = "import sys, actzip; sys.exit(any(name.startswith(('torch._dynamo', 'torch._inductor')) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_copy_runs_too():
    model, batch = make(MLP)
    compiled = actzip.compile(model, bits=3, seed=7)
    other = copy.deepcopy(compiled)
    assert 0 < error(gradient(other, other, batch), gradient(model, model, batch)) < 0.05


def test_verify():
    """Uses the options of test_a_cache_hit_still_reports(), whose graph is in the cache."""
    model, batch = make(MLP)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="actzip")
        found = actzip.verify(actzip.compile(model, bits=3, seed=7), batch)
    assert 0 < found.total.error < 0.05 and found.total.cosine > 0.98
    assert [row.name for row in found.parameters] == [name for name, _ in model.named_parameters()]
    assert found.report.bytes_after < found.report.bytes_before / 3


def test_a_torch_without_these_parts(monkeypatch):
    import importlib

    from actzip.compiled import torch_parts

    monkeypatch.setitem(sys.modules, "torch._inductor.custom_graph_pass", None)
    with pytest.raises(RuntimeError, match=rf"torch {torch.__version__.split('+')[0]}.* has no .*allowed: torch 2.11 and 2.13"):
        importlib.reload(torch_parts)


def test_importing_registers_no_operators():
    """Only programs that compile need them."""
    code = ("import torch, actzip; assert not hasattr(torch.ops.actzip, 'encode'); "
            "actzip.compile_options(); assert hasattr(torch.ops.actzip, 'encode')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
