"""Plans of bits: what observed steps and measurements find, and that neither changes anything else."""

import contextlib
import random
import warnings

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.measure import Measurement
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


class Net(nn.Module):
    """Layers that matter to very different degrees, a norm, a ReLU whose result is shared, dropout, statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Linear(128, 64)
        self.left, self.right, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        h = F.relu(self.norm(self.first(x)))
        h = F.dropout(F.gelu(self.second(h)), 0.1)
        return self.last(0.01 * self.left(h) + self.right(h))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


_seeded = torch.Generator().manual_seed(0)
X, Y = torch.randn(512, 64, generator=_seeded), torch.randint(8, (512,), generator=_seeded)


def loss_of(model):
    return F.cross_entropy(model(X.clone()), Y)  # a copy, because an input that its caller holds is kept as it is


def steps(model, session, count):
    for _ in range(count):
        model.zero_grad()
        with session:
            loss = loss_of(model)
        loss.backward()


def closure_of(model, session):
    def closure():
        with session:
            loss = loss_of(model)
        loss.backward()
    return closure


def test_a_plan_follows_from_one_observed_step(net):
    session = actzip.Session(net, bits=2, adapt="layer")
    steps(net, session, 2)
    assert session.report().plan.plans == 0
    steps(net, session, 1)
    report = session.report()
    assert report.plan.plans == 1 and 1 < report.plan.average_bits <= 2
    planned = {site.site: site for site in report.sites if site.sensitivity is not None}
    assert set(planned) == {"first: addmm.mat1", "norm: native_batch_norm.input", "relu.result", "gelu.self",
                            "left: addmm.mat1", "last: addmm.mat1"}
    assert len({site.codec for site in planned.values()}) > 1
    assert report.plan.predicted_variance == pytest.approx(sum(site.variance for site in planned.values()), rel=1e-3)
    assert "sensitivity" in str(report) and '"plan"' in report.to_json()


def test_observed_sensitivities_are_those_of_the_gradient(net):
    session = actzip.Session(net, bits=2, adapt="measured")
    measurement = Measurement(session, net, closure_of(net, session))
    measurement.holdings()
    found = measurement.observe()
    observed = {holding.name: holding.keeper.sensitivity for holding in found}
    measured = measurement.sensitivities(found, alone=found, draws=8)
    for name, value in measured.items():
        assert value / 3 < observed[name] < 3 * value, name
    linear = [name for name in measured if name.endswith("addmm.mat1")]
    assert linear and all(observed[name] == pytest.approx(measured[name], rel=0.3) for name in linear)
    together = measurement.sensitivities(found, alone=measurement.passing(found), draws=8)
    assert all(together[name] == pytest.approx(measured[name], rel=0.3) for name in linear)


def test_the_plan_is_better_than_the_same_bits_for_all(net):
    session = actzip.Session(net, bits=2, adapt="measured")
    measurement = Measurement(session, net, closure_of(net, session))
    measurement.holdings()
    found = measurement.observe()
    measurement.holdings()
    planned = measurement.variance(draws=8)
    session._core.learn([(site.site, torch.Size(holding.keeper.shape).numel() / len(holding.readers))
                         for holding in found for site in holding.readers])
    assert {holding.keeper.codec.removesuffix(":mask") for holding in measurement.holdings()} == {"rotated:2"}
    assert planned < 0.8 * measurement.variance(draws=8)


def state_of(model, optimizer, scheduler):
    return (
        [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        [value.clone() for value in model.state_dict().values()],
        torch.get_rng_state(), random.getstate(), repr(optimizer.state_dict()), repr(scheduler.state_dict()))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


def test_measuring_leaves_everything_as_it_was(net):
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    session = actzip.Session(net, bits=2, adapt="measured")
    steps(net, session, 1)
    optimizer.step()
    before = state_of(net, optimizer, scheduler)
    session.measure(closure_of(net, session))
    assert same(state_of(net, optimizer, scheduler), before)
    plan = session.report().plan
    assert plan.plans >= 1 and plan.measured_variance == pytest.approx(plan.predicted_variance, rel=1)


def test_an_observed_step_has_the_gradients_of_any_other(net):
    """Its gradients, with the noise of the session's seeds, its statistics and its random state do not differ."""
    found = []
    for adapt in ("", "layer"):
        torch.manual_seed(1)
        copy = Net()
        session = actzip.Session(copy, adapt=adapt)
        steps(copy, session, 2)  # the second is observed
        found.append([p.grad for p in copy.parameters()] + list(copy.state_dict().values()) + [torch.get_rng_state()])
    assert same(*found)


def test_measures_by_itself_when_it_is_time(net):
    session = actzip.Session(net, adapt="measured", interval=4)
    calls = []

    def closure():
        calls.append(1)
        closure_of(net, session)()

    session.closure = closure
    steps(net, session, 2)
    assert not calls
    steps(net, session, 1)
    first = len(calls)
    assert 5 < first <= 22 and session.report().plan.plans > 0
    steps(net, session, 1)
    assert len(calls) == first
    steps(net, session, 1)
    assert len(calls) > first


def test_without_a_closure_it_says_so_once(net):
    session = actzip.Session(net, adapt="measured")
    steps(net, session, 2)
    with pytest.warns(UserWarning, match="session.closure"):
        steps(net, session, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(net, session, 2)


def test_a_closure_that_trains_is_refused(net):
    session = actzip.Session(net, adapt="measured")
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def closure():
        closure_of(net, session)()
        optimizer.step()

    with pytest.raises(RuntimeError, match="allowed: forward and backward, no optimizer"):
        session.measure(closure)


@pytest.mark.filterwarnings("default")
def test_warns_once_when_noise_is_much():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 8)), torch.ones(64, 256) + 0.01 * torch.randn(64, 256)
    session = actzip.Session(model, bits=1.25)  # all examples are alike: the gradient itself has hardly any variance

    def step():
        with session:
            loss = model(x * torch.randn(256)).square().mean()
        loss.backward()

    step(), step()
    with pytest.warns(UserWarning, match="more than 10 %.*more bits"):
        step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(), step()


class Twice(torch.autograd.Function):
    """Counts how often its node runs, which observation must not repeat."""

    runs = 0

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        Twice.runs += 1
        return 2 * gradient


def test_functions_of_the_user_run_once():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))
    session, x = actzip.Session(model, adapt="layer"), torch.randn(256, 64)
    Twice.runs = 0
    for _ in range(3):
        with session:
            loss = model[2](model[1](Twice.apply(model[0](x)))).square().mean()
        loss.backward()
    assert Twice.runs == 3
    assert {site.site for site in session.report().sites if site.sensitivity} >= {
        "0: addmm.mat1", "1: native_layer_norm.input", "2: addmm.mat1"}


def test_a_graph_that_runs_twice_or_never(net):
    session = actzip.Session(net, adapt="layer")
    steps(net, session, 1)
    for _ in range(2):
        with session:
            loss = loss_of(net)
    loss.backward(retain_graph=True)
    loss.backward()
    for _ in range(12):
        with session:
            loss_of(net)
    steps(net, session, 12)  # it waits for a while, because backward may come late
    assert session.report().plan.plans > 0


def test_options_are_checked():
    with pytest.raises(ValueError, match=r"adapt 'layer\+sample' \(allowed: layer, measured, sample, sample\+layer"):
        actzip.Session(adapt="layer+sample")
    with pytest.raises(ValueError, match="allowed with a model and adapt"):
        actzip.Session().measure(lambda: None)


@pytest.mark.parametrize("convert", [False, True])
def test_equal_seeds_learn_the_same(convert):
    """Independently of what other sessions in the process have tried before."""
    x, y = torch.randn(32, 3, 16, 16), torch.arange(32) % 10

    def learned():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 14 * 14, 10))
        session = actzip.Session(model, bits=2, adapt="sample+layer")
        scope = contextlib.nullcontext() if convert else session
        if convert:
            actzip.convert(model, session)
        for _ in range(4):
            with scope:
                loss = F.cross_entropy(model(x), y)
            loss.backward()
        report = session.report()
        assert report.plan.plans > 0
        return [(site.site, site.codec, site.sensitivity) for site in report.sites]

    assert learned() == learned()
