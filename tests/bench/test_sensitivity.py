"""`sensitivity`: which rows of the policy a model uses, which rules it sets to measure each row, and its arithmetic."""

import argparse
import dataclasses
import inspect
import json

import actzip
import pytest
import torch
from actzip.bench import sensitivity, small_models
from actzip.bench.errors import BenchError
from actzip.bench.models import ModelSpec
from torch import nn

HAS_RULES = "rules" in inspect.signature(actzip.Session).parameters


class Gated(nn.Module):
    """Uses rows of the policy: products, a slope, factors. One factor is broadcast and stays as it is."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 128), nn.Linear(128, 4)
        self.register_buffer("table", torch.randn(16, 128))

    def forward(self, x):
        h = nn.functional.silu(self.first(x))
        return self.last(h * h.roll(1, -1) * (self.table + 1)).mean(1)


def spec():
    def data(batch):
        return torch.randn(batch, 16, 64), torch.randint(4, (batch,))

    return ModelSpec("fp32", 64, Gated, data, lambda model, x, y: nn.functional.cross_entropy(model(x), y), blocks=list)


@pytest.fixture
def bench():
    return small_models.trained(spec(), torch.device("cpu"), steps=3)


def command(*arguments):
    parser = argparse.ArgumentParser()
    sensitivity.add_arguments(parser)
    return sensitivity.run(parser.parse_args(["--device", "cpu", "--draws", "1", *map(str, arguments)]))


def reports(bench):
    found = []
    for preset in ("default", "rotated:4"):
        session = actzip.Session(bench.model, preset=preset, dry_run=True)
        bench.step(session)
        found.append(session.report())
    return found


def test_rows_in_use(bench):
    rows = {row.operators: row for row in sensitivity.rows_in_use(*reports(bench))}
    assert {" ".join(sorted(name.split())) for name in rows} == {"addmm.mat1", "silu.self", "mul.other mul.self"}
    assert rows["silu.self"].codecs == ("rotated:4",) and rows["silu.self"].sites == ("silu.self",)
    assert rows["addmm.mat1"].sites == ("first: addmm.mat1", "last: addmm.mat1")
    factors = next(row for row in rows.values() if row.operators.startswith("mul"))
    broadcast = [site.site for site in reports(bench)[0].sites if site.reason.startswith("small beside")]
    assert broadcast and not set(broadcast) & set(factors.sites) and factors.codecs == ("rotated:3",)


def test_a_relu_is_no_row_of_values():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
    x, session = torch.randn(4, 3, 16, 16), actzip.Session(model)
    for _ in range(3):
        with session:
            loss = model(x.clone()).sum()  # a copy, because an input that its caller holds is kept as it is
        loss.backward()
    report = session.report()
    assert [s.codec for s in report.sites if s.op == "relu"] == ["rotated:2:mask"]
    (row,) = sensitivity.rows_in_use(report, report)
    assert row.operators == "convolution.input" and set(row.codecs) == {"rotated:2", "rotated:2:mask"}


class Recorded:
    """Stands in for a session: compresses nothing and records the rules that it was given."""

    asked: list = []

    def __init__(self, model, rules, dry_run=False):
        self.model, self.rules = model, rules
        if not dry_run:
            Recorded.asked.append(rules)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_what_is_asked_for(bench, monkeypatch):
    default, coarse = reports(bench)
    Recorded.asked = []
    Recorded.report = lambda self: coarse if "*" in self.rules else default
    monkeypatch.setattr(sensitivity, "Session", Recorded)
    lines = sensitivity.Sensitivity("gated", bench, draws=1).lines()
    assert [line.codec for line in lines if line.row == "silu.self"] == [
        "rotated:4", *(codec for codec in sensitivity.CODECS if codec != "rotated:4")]
    assert [line.row for line in lines if line.codec == "default"] == ["all"]
    silu = "silu.self"
    assert {silu: "rotated:2"} in Recorded.asked  # everything else as in the policy
    alone = [rules for rules in Recorded.asked if rules.get(silu) == "rotated:2" and len(rules) > 1]
    assert len(alone) == 1 and next(iter(alone[0])) == silu  # first: the first rule that matches wins
    assert {codec for site, codec in alone[0].items() if site != silu} == {"as is"}
    assert "first: addmm.mat1" in alone[0]


def test_error_and_cosine(bench, monkeypatch):
    """Gradients that are twice the exact ones have an error of 1 and the same direction."""
    default, _ = reports(bench)
    monkeypatch.setattr(sensitivity, "Session", Recorded)
    Recorded.report = lambda self: default
    measured = sensitivity.Sensitivity("gated", bench, draws=2)
    gradients = type(bench).gradients
    monkeypatch.setattr(type(bench), "gradients", lambda self, scope: [2 * g for g in gradients(self, scope)])
    held, error, cosine = measured._measure({})
    assert held == default.bytes_after and error == pytest.approx(1, rel=1e-4) and cosine == pytest.approx(1, rel=1e-4)


@pytest.mark.skipif(not HAS_RULES, reason="this build of actzip.Session takes no rules")
def test_the_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(small_models, "SMALL_MODELS", {"gated": spec()})
    path = tmp_path / "rows.json"
    assert command("--model", "all", "--json", path) == 0
    assert command("--model", "gated", "--json", path) == 0
    content = json.loads(path.read_text())
    assert len(content["runs"]) == 1  # a second run replaces all rows of its model
    lines = {(row["row"], row["codec"]): row for row in content["rows"]}
    whole, silu = lines["all", "default"], lines["silu.self", "rotated:4"]
    assert silu["is_default"] and silu["error"] == whole["error"] > silu["own_error"] > 0
    own = [lines["silu.self", f"rotated:{bits}"]["own_error"] for bits in (1, 2, 3, 4)]
    assert own == sorted(own, reverse=True) and own[0] > 10 * own[3]
    held = [lines["silu.self", codec]["held_bytes"] for codec in ("rotated:1", "rotated:4", "as is")]
    assert held == sorted(held) and held[1] == whole["held_bytes"]
    assert lines["silu.self", "as is"]["own_error"] == 0
    assert "rotated:4 *" in capsys.readouterr().out


@pytest.mark.parametrize("name", small_models.SMALL_MODELS)
def test_small_models_learn(name):
    if name in ("llama", "bert"):
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = dataclasses.replace(small_models.SMALL_MODELS[name], batch=500 if name == "gcn" else 8)
    loss_before = float(small_models.trained(small, torch.device("cpu"), 0).forward(torch.no_grad()))
    loss_after = float(small_models.trained(small, torch.device("cpu"), 16).forward(torch.no_grad()))
    assert loss_after < 0.97 * loss_before


def test_refused():
    with pytest.raises(BenchError, match=r"model 'alexnet' \(allowed: all, cnn, "):
        command("--model", "alexnet")
    with pytest.raises(BenchError, match=r"--draws 0 \(allowed: 1 or more\)"):
        command("--model", "cnn", "--draws", "0")
