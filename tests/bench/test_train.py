"""`train`: the arithmetic of its rows, its JSON file, and which options it refuses. Tiny models, on the CPU."""

import argparse
import json
import sys
import types

import pytest
import torch
from actzip.bench import machine, models, results, steps, train
from actzip.bench.errors import BenchError
from actzip.bench.graphs import SymmetricProduct, random_graph
from actzip.bench.results import Row
from torch import nn

TINY = {
    "llama": models.llama(layers=2, width=64, inner=128, heads=4, vocabulary=100, tokens=32),
    "bert-large": models.bert(layers=2, width=64, heads=4, vocabulary=100, tokens=32),
    "gcn": models.gcn(width=32, features=16, classes=5, nodes=600),
}


class TinyResNet(nn.Module):
    """Has the same stages as torchvision's ResNets."""

    def __init__(self, weights, num_classes):
        assert weights is None
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3)
        for i in range(1, 5):
            block = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
            setattr(self, f"layer{i}", nn.Sequential(block))
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(x)))))
        return self.fc(x.mean((2, 3)))


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(models, "MODELS", {**models.MODELS, **TINY})


@pytest.fixture
def torchvision(monkeypatch):
    vision = types.ModuleType("torchvision.models")
    vision.resnet50 = TinyResNet
    monkeypatch.setitem(sys.modules, "torchvision", types.ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", vision)


def command(*arguments):
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    return train.run(parser.parse_args(["--device", "cpu", "--repeats", "2", *map(str, arguments)]))


def rows_in(path):
    return {(row["model"], row["preset"]): row for row in json.loads(path.read_text())["rows"]}


@pytest.mark.parametrize(("model", "batch"), [("llama", 4), ("bert-large", 4), ("gcn", 600)])
def test_all_ways(model, batch, tmp_path, capsys):
    pytest.importorskip("transformers")
    path = tmp_path / "rows.json"
    assert command("--model", model, "--batch", batch, "--preset", "default", "--preset", "exact", "--baselines",
                   "--json", path) == 0
    rows = rows_in(path)
    assert [way for _, way in rows] == ["plain", "default", "exact", "checkpointing", "save_on_cpu"]
    plain, default = rows[model, "plain"], rows[model, "default"]
    for row in rows.values():
        assert row["speed_ratio"] == plain["step_ms"] / row["step_ms"] and row["repeats"] == 2
    assert default["held_ratio"] == plain["held_bytes"] / default["held_bytes"] > 3.5
    assert default["peak_bytes"] is None and rows[model, "checkpointing"]["held_bytes"] is None
    assert 0.9 < default["cosine"] < 0.9999
    for way in ("plain", "exact", "checkpointing", "save_on_cpu"):
        assert rows[model, way]["cosine"] == pytest.approx(1, abs=1e-6)
    assert "save_on_cpu" in capsys.readouterr().out


def test_compiled_ways(tmp_path, monkeypatch):
    """With a model that compiles in seconds."""
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")  # compile without optimisation, which is faster
    make = lambda: nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))  # noqa: E731
    spec = models.ModelSpec("fp32", 256, make, lambda batch: (torch.randn(batch, 64),),
                            lambda model, x: model(x).square().mean(), blocks=list)
    monkeypatch.setitem(models.MODELS, "tiny", spec)
    path = tmp_path / "rows.json"
    command("--model", "tiny", "--compile", "--json", path)
    rows = {way: row for (_, way), row in rows_in(path).items()}
    assert list(rows) == ["plain", "default", "compiled", "compiled,budget=0.5", "compile:default"]
    assert [row["against"] for row in rows.values()] == ["plain", "plain", "plain", "compiled", "compiled"]
    compiled, half, few = (rows[way] for way in list(rows)[2:])
    for row in (compiled, half):
        assert row["cosine"] == pytest.approx(1, abs=1e-6)
    assert 0.95 < few["cosine"] < 0.9999
    assert few["held_ratio"] == compiled["held_bytes"] / few["held_bytes"] > 3.5
    assert half["held_bytes"] < 0.7 * compiled["held_bytes"]
    assert few["speed_ratio"] == compiled["step_ms"] / few["step_ms"]


def test_autocast_and_channels_last(torchvision, tmp_path):
    spec = models.residual("resnet50", classes=10, size=16)
    bench = steps.Bench(spec, torch.device("cpu"), 8)
    assert bench.data[0].is_contiguous(memory_format=torch.channels_last)
    comparison = train.Comparison("resnet50", bench, [steps.PLAIN, "default", steps.CHECKPOINTING], "cpu", "1")
    comparison.measure(1)
    assert comparison.rows["default"].held_ratio > 3 and comparison.rows["default"].cosine > 0.8
    assert comparison.rows[steps.CHECKPOINTING].cosine == pytest.approx(1, abs=1e-3)
    # Autocast makes 16-bit copies of the filters and the matrix. With checkpointing, those in the blocks are not held.
    stem, blocks, matrix = 16 * 3 * 9 * 2, 4 * 16 * 16 * 9 * 2, 16 * 10 * 2
    assert comparison.variants["default"]._weight_casts() == stem + blocks + matrix
    assert comparison.variants[steps.CHECKPOINTING]._weight_casts() == stem + matrix
    assert steps.Variant(steps.OFFLOADING, bench)._weight_casts() == 0


def test_memory_of_a_step_on_a_gpu(torchvision, monkeypatch):
    """Checks only the arithmetic, with invented figures of the allocator."""
    bench = steps.Bench(models.residual("resnet50", classes=10, size=16), torch.device("cpu"), 8)
    variant = steps.Variant("default", bench)
    answers = iter([5_000, 105_000])
    monkeypatch.setattr(bench, "device", torch.device("cuda"))
    monkeypatch.setattr(bench, "forward", lambda scope, model: torch.ones((), requires_grad=True) * 2)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(steps, "active_bytes", lambda device: next(answers))
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"active_bytes.all.peak": 155_000})
    assert variant.memory() == steps.Memory(held=100_000 - variant._weight_casts(), peak=150_000)


def test_checkpointing_leaves_the_model_as_it_was():
    bench = steps.Bench(TINY["gcn"], torch.device("cpu"))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        plain = bench.forward(steps.Variant(steps.PLAIN, bench).scope())
        count = len(saved)
        checkpointed = bench.forward(steps.Variant(steps.CHECKPOINTING, bench).scope())
    assert plain.requires_grad and checkpointed.requires_grad
    assert len(saved) - count < count  # blocks save nothing
    assert all("forward" not in vars(module) for module in bench.model.modules())


def test_a_graph_is_its_own_transpose():
    graph = random_graph(50, 200)
    assert torch.equal(graph.to_dense(), graph.to_dense().T)
    assert (graph.to_dense().diagonal() > 0).all()
    x = torch.randn(50, 4, requires_grad=True)
    weights = torch.randn(50, 4)
    (from_dense,) = torch.autograd.grad((graph.to_dense() @ x * weights).sum(), x)
    (from_ours,) = torch.autograd.grad((SymmetricProduct.apply(graph, x) * weights).sum(), x)
    torch.testing.assert_close(from_ours, from_dense)


def test_ratios():
    plain, half = Row("m", "plain", "fp32", 1, "cpu"), Row("m", "default", "fp32", 1, "cpu")
    plain.step_ms, plain.held_bytes = 10.0, 800
    half.step_ms, half.held_bytes = 20.0, 100
    half.compare(plain)
    assert (half.speed_ratio, half.held_ratio, half.peak_ratio) == (0.5, 8.0, None)
    assert half.plain == {"step_ms": 10.0, "held_bytes": 800, "peak_bytes": None}


def test_cosine():
    x, y = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])], [torch.tensor([0.0, 5.0]), torch.tensor([[12.0]])]
    assert steps.cosine(x, y) == pytest.approx(48 / (5 * 13))


@pytest.mark.parametrize("victim", ["plain", "default"])
def test_out_of_memory_is_a_row(victim, monkeypatch, tmp_path, capsys):
    step = steps.Variant.step

    def failing(self):
        if self.name == victim:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        step(self)

    monkeypatch.setattr(steps.Variant, "step", failing)
    path = tmp_path / "rows.json"
    assert command("--model", "gcn", "--preset", "default", "--preset", "exact", "--json", path) == 0
    rows = rows_in(path)
    assert rows["gcn", victim]["note"] == "out of memory" and rows["gcn", victim]["step_ms"] is None
    assert rows["gcn", "exact"]["step_ms"] > 0
    assert (rows["gcn", "exact"]["speed_ratio"] is None) == (victim == "plain")
    assert "out of memory" in capsys.readouterr().out


def test_other_errors_are_not_taken_for_it(monkeypatch):
    def failing(self):
        raise RuntimeError("something else")

    monkeypatch.setattr(steps.Variant, "step", failing)
    with pytest.raises(RuntimeError, match="something else"):
        command("--model", "gcn")


def test_offloading_wants_room_on_the_host(monkeypatch, tmp_path):
    monkeypatch.setattr(train, "fits_host", lambda held: held < 1)
    path = tmp_path / "rows.json"
    command("--model", "gcn", "--baselines", "--json", path)
    assert rows_in(path)["gcn", "save_on_cpu"]["note"] == "the host has too little memory"


def rows_of(run, *presets, step_ms=1.0):
    return [Row("m", preset, "fp32", 8, "cpu", run, step_ms=step_ms) for preset in presets]


def test_rows_measured_again_replace(tmp_path):
    path = tmp_path / "rows.json"
    results.train_file(path).merge("a", {"date": "1"}, rows_of("a", "plain", "default"))
    results.train_file(path).merge("b", {"date": "2"}, rows_of("b", "plain", "exact", step_ms=2.0))
    content = json.loads(path.read_text())
    assert {(row["preset"], row["run"], row["step_ms"]) for row in content["rows"]} == {
        ("default", "a", 1.0), ("plain", "b", 2.0), ("exact", "b", 2.0)}
    assert content["runs"] == {"a": {"date": "1"}, "b": {"date": "2"}}
    results.train_file(path).merge("c", {"date": "3"}, rows_of("c", "default"))
    assert set(json.loads(path.read_text())["runs"]) == {"b", "c"}
    assert [p.name for p in tmp_path.iterdir()] == ["rows.json"]


@pytest.mark.parametrize("content", ['{"format": "something"}', "[1]", "no JSON"])
def test_a_foreign_file_is_refused_and_left(content, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(BenchError, match="left as it is"):
        command("--model", "gcn", "--json", path)
    assert path.read_text() == content


@pytest.mark.parametrize(("arguments", "message"), [
    (["--model", "resnet51"], r"model 'resnet51' \(allowed: resnet50, "),
    (["--model", "gcn", "--preset", "rotated:9"], "--preset rotated:9: .*allowed"),
    (["--model", "gcn", "--preset", "compile:bits=1.5"], "--preset compile:bits=1.5: .*an average"),
    (["--model", "gcn", "--preset", "compile:default,budget=0.5"], r"budget=0.5 \(allowed: compiled,budget=B"),
    (["--model", "gcn", "--preset", "compiled,budget=2"], r"budget=2 \(allowed"),
    (["--model", "gcn", "--compile", "--mode", "reduce-overhead"], "CUDA graphs, which need a GPU"),
    (["--model", "gcn", "--mode", "reduce-overhead"], r"--mode reduce-overhead \(allowed: with --compile\)"),
    (["--model", "gcn", "--batch", "0"], r"--batch 0 \(allowed: 1 or more\)"),
    (["--model", "gcn", "--repeats", "0"], r"--repeats 0 \(allowed: 1 or more\)"),
    (["--model", "gcn", "--device", "tpu"], r"device 'tpu' \(allowed: cpu, cuda, cuda:N\)"),
    (["--model", "gcn", "--device", "cuda:99"], "device 'cuda:99': torch sees"),
    (["--model", "gcn", "--json", "/no/such/folder/x.json"], "there is no folder /no/such/folder"),
])
def test_refused(arguments, message):
    with pytest.raises(BenchError, match=message):
        command(*arguments)


@pytest.mark.parametrize(("model", "package"), [("swin-t", "torchvision"), ("llama", "transformers")])
def test_a_missing_package_is_named(model, package, monkeypatch, capsys):
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")] + [package]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BenchError, match=f"model '{model}' needs {package}"):
        command("--model", "gcn", "--model", model)
    assert not capsys.readouterr().err  # refused before anything was measured


def test_heading_names_machine_and_versions():
    facts = machine.describe(torch.device("cpu"))
    assert torch.__version__ in machine.heading(facts) and facts["date"] in machine.heading(facts)


def test_converted_layers_have_rows_of_their_own(tmp_path, torchvision):
    command("--model", "resnet50", "--batch", 8, "--convert", "--json", tmp_path / "f.json")
    command("--model", "bert-large", "--batch", 8, "--preset", "convert:bits=4", "--json", tmp_path / "f.json")
    rows = rows_in(tmp_path / "f.json")
    plain, scope, layers = (rows["resnet50", name] for name in ("plain", "default", "convert:default"))
    assert layers["held_bytes"] < scope["held_bytes"] < plain["held_bytes"] / 4
    assert layers["cosine"] > 0.9
    both = rows["resnet50", "convert+scope:default"]
    assert both["held_bytes"] == layers["held_bytes"]  # the scope adds only the loss, which is small
    converted = rows["bert-large", "convert:bits=4"]
    assert plain["cosine"] == 1 and 0.97 < converted["cosine"] < 1
    assert converted["held_bytes"] > rows["bert-large", "plain"]["held_bytes"] / 4  # attention is not converted


def test_a_twin_shares_weights_and_gradients():
    bench = steps.Bench(TINY["bert-large"], torch.device("cpu"), 2)
    twin = bench.twin()
    assert twin is not bench.model
    assert all(a is b for a, b in zip(bench.model.parameters(), twin.parameters(), strict=True))
