"""What verify() reports about gradients, by parameter and by site, and that it changes nothing."""

import random

import actzip
import pytest
import torch
from models import CNN, MLP, Llama, Transformer, loss_of, make
from torch import nn


@pytest.mark.parametrize(("model_class", "draws"), [(CNN, 4), (Transformer, 2)])
def test_by_parameter_and_by_site(model_class, draws):
    model, batch = make(model_class)
    result = actzip.verify(model, lambda: loss_of(model, batch), draws=draws)
    assert [row.name for row in result.parameters] == [name for name, _ in model.named_parameters()]
    assert 0 < result.total.error < 0.3 and abs(result.total.bias) < result.total.error
    assert result.sites and all(row.error >= 0 for row in result.sites)
    # Sites draw their signs independently, so that their errors nearly add up.
    assert sum(row.error for row in result.sites) == pytest.approx(result.total.error, rel=0.5)
    assert result.sites[0].name in str(result) and result.parameters[0].name in str(result)


def test_a_site_is_blamed_for_what_it_alone_does():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.randn(256, 64)
    # a copy, because an input that its caller holds is kept as it is
    result = actzip.verify(model, lambda: model(x.clone()).square().mean())
    assert [row.name for row in result.sites][:3] == ["0: addmm.mat1", "1: gelu.self", "2: addmm.mat1"]
    session = actzip.Session(model, only="2: addmm.mat1")
    loss = lambda: model(x).square().mean()  # noqa: E731
    exact = torch.autograd.grad(loss(), list(model.parameters()))
    with session:
        value = loss()
    found = torch.autograd.grad(value, list(model.parameters()))
    changed = [name for (name, _), a, b in zip(model.named_parameters(), exact, found) if not torch.equal(a, b)]
    assert changed == ["2.weight"]


def test_shared_sites_are_measured_alone():
    layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(2))
    x = torch.randn(256, 64)

    def both(x):
        return sum(layer(x).mean() ** 2 for layer in layers)

    result = actzip.verify(layers, lambda: both(x.clone()))
    assert result.report.sites[2].codec == "shared"
    assert [row.name for row in result.sites] == ["0: mm.self", "1: mm.self"]
    assert all(row.error > 0 for row in result.sites)


def test_bias_is_told_from_noise():
    """Nearest rounding repeats its error in every draw; random signs average out."""
    model, batch = make(MLP)
    biased = actzip.verify(model, batch, preset="affine:2:nearest", by_site=False).total
    assert biased.bias > 0.5 * biased.error
    unbiased = actzip.verify(model, batch, preset="rotated:2", by_site=False, draws=8).total
    assert abs(unbiased.bias) < 0.4 * unbiased.error


def test_exact_has_no_error():
    model, batch = make(Llama)
    result = actzip.verify(model, batch, preset="exact")
    assert result.total.error == result.total.bias == 0 and result.total.cosine == 1 and result.sites == ()


def test_everything_is_as_it_was():
    model, batch = make(CNN)
    loss_of(model, batch).backward()
    model.norm2.eval()
    pending = loss_of(model, batch)  # a graph that holds buffers
    grads = {name: (p.grad, p.grad.clone()) for name, p in model.named_parameters()}
    buffers = {name: (b, b.clone()) for name, b in model.named_buffers()}
    flags = {name: module.training for name, module in model.named_modules()}
    torch.manual_seed(5)
    random.seed(5)
    expected = torch.rand(3), random.random()
    torch.manual_seed(5)
    random.seed(5)

    def loss():
        model.train()
        torch.rand(1), random.random()
        return loss_of(model, batch)

    actzip.verify(model, loss, draws=2)
    assert torch.equal(torch.rand(3), expected[0]) and random.random() == expected[1]
    for name, p in model.named_parameters():
        assert p.grad is grads[name][0] and torch.equal(p.grad, grads[name][1])
    for name, b in model.named_buffers():
        assert b is buffers[name][0] and torch.equal(b, buffers[name][1])
    assert {name: module.training for name, module in model.named_modules()} == flags
    pending.backward()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="2 or more"):
        actzip.verify(nn.Linear(2, 2), torch.randn(2, 2), draws=1)
    with pytest.raises(ValueError, match="no parameter"):
        actzip.verify(nn.ReLU(), torch.randn(2, 2))
