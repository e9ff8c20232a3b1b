"""Gradients of compiled graphs that are computed from encoded bytes. The CPU has no such kernels: there the operators
decode and call torch's. That shows whether the right gradients are replaced, and by what."""

import collections

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip import _C
from actzip.compiled import CompiledSession, fused
from actzip.compiled.partitioner import Partitioner
from compile_cases import GPT, ResNet, error, gradient, graphs_alone, make
from torch import nn

ACTIVATION, BATCH_NORM = "activation_backward", "batch_norm_backward"


@pytest.fixture
def backwards(monkeypatch):
    """The backward graphs that are made."""
    made = []
    split = Partitioner.__call__

    def noted(self, *given, **named):
        forward, backward = split(self, *given, **named)
        made.append(backward.graph)
        return forward, backward

    monkeypatch.setattr(Partitioner, "__call__", noted)
    return made


@pytest.fixture
def compare(monkeypatch, backwards):
    """Compares the gradients that the same bytes give with and without kernels. Returns which operators were used."""
    def compare(model, batch, **options):
        found = []
        for has_kernels in (False, True):
            monkeypatch.setattr(fused, "has_kernels", lambda device, answer=has_kernels: answer)
            torch._dynamo.reset()
            forward = graphs_alone(model, **options)
            session = CompiledSession(**options)  # whose first step has the same noise both times
            _C.set_default_graph_session(session._graphs)
            found.append(gradient(model, forward, batch))
            assert session.report().ratio > 1
        assert error(found[1], found[0]) < 1e-8
        assert not any(used(backwards[0]).values())
        return used(backwards[-1])

    return compare


def used(graph):
    targets = collections.Counter(str(node.target) for node in graph.nodes)
    return {name: targets[f"actzip.{name}.default"] for name in (ACTIVATION, BATCH_NORM)}


def images(model_class, **options):
    model, batch = make(model_class, **options)
    return model.to(memory_format=torch.channels_last), batch.contiguous(memory_format=torch.channels_last)


def test_batch_norms_and_the_relus_behind_them(compare, backwards):
    assert compare(*images(ResNet)) == {ACTIVATION: 0, BATCH_NORM: 5}
    calls = [node for node in backwards[-1].nodes if str(node.target) == f"actzip.{BATCH_NORM}.default"]
    # The gradients of residual sums have other readers, so their masks are applied before.
    assert sorted(call.args[5] for call in calls) == ["", "", "mask", "rotated:2:mask", "rotated:2:mask"]


def test_channels_that_are_apart_stay_torchs(compare):
    assert compare(*make(ResNet)) == {ACTIVATION: 0, BATCH_NORM: 0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gelu(compare, dtype):
    model, batch = make(GPT, blocks=2)
    assert compare(model.to(dtype), batch) == {ACTIVATION: 2, BATCH_NORM: 0}


class Feed(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(64, 128), nn.Linear(128, 64), activation

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


@pytest.mark.parametrize("activation, count", [
    (nn.GELU(approximate="tanh"), 1), (nn.SiLU(), 1), (nn.Mish(), 0),
    (lambda x: F.gelu(x) + 0.1 * torch.sigmoid(x), 0),  # something else reads the input as well
    (lambda x: 0.5 * x * (1 + torch.erf(x * 0.7)), 0),  # nearly a GELU
], ids=["tanh", "silu", "mish", "shared", "nearly"])
def test_activations(compare, activation, count):
    torch.manual_seed(0)
    assert compare(Feed(activation), torch.randn(4, 32, 64)) == {ACTIVATION: count, BATCH_NORM: 0}


class Norm(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(16, **options), nn.Conv2d(16, 16, 1)
        self.first = nn.Conv2d(16, 16, 1)

    def forward(self, x):
        return self.conv(self.norm(self.first(x)))


@pytest.mark.parametrize("options, count", [({}, 1), ({"affine": False}, 0), ({"track_running_stats": False}, 1)])
def test_kinds_of_batch_norms(compare, options, count):
    torch.manual_seed(0)
    model, batch = Norm(**options).to(memory_format=torch.channels_last), torch.randn(4, 16, 8, 8)
    assert compare(model, batch.contiguous(memory_format=torch.channels_last))[BATCH_NORM] == count


def test_a_frozen_norm_and_one_in_evaluation(compare):
    torch.manual_seed(0)
    model, batch = Norm().to(memory_format=torch.channels_last), torch.randn(4, 16, 8, 8)
    batch = batch.contiguous(memory_format=torch.channels_last)
    model.norm.requires_grad_(False)
    assert compare(model, batch)[BATCH_NORM] == 1
    model.norm.eval()
    assert compare(model, batch)[BATCH_NORM] == 0


def test_what_was_read_is_freed_in_the_report(monkeypatch):
    monkeypatch.setattr(fused, "has_kernels", lambda device: True)
    torch._dynamo.reset()
    model, batch = images(ResNet)
    gradient(model, graphs_alone(model, seed=1), batch)
    kept = [site for site in actzip.compiled_session(seed=1).report().sites if site.use in ("batch_norm_input", "sign")]
    assert kept and all(site.freed_at > site.kept_at for site in kept if site.kind == "encoded")
