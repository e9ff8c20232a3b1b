"""Bits by sample: what the gradient gains, what is remembered of samples, and how a session gets their indices."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.measure import Measurement
from torch import nn
from torch.utils.data import DistributedSampler, IterableDataset, TensorDataset

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")

N = 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.last(x.mean((2, 3)))


def batch(spread=1.0):
    """Makes samples of which every fourth is `spread` times as large."""
    torch.manual_seed(1)
    scale = torch.where(torch.arange(N) % 4 == 0, spread, 1.0)
    return torch.randn(N, 3, 16, 16) * scale[:, None, None, None], torch.randint(4, (N,))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def closure_of(model, session, data, loss=F.cross_entropy, indices=None):
    def closure():
        if indices is not None:
            session.samples(indices)
        with session:
            value = loss(model(data[0]), data[1])
        value.backward()
    return closure


def variance(model, data, adapt, memory_format=torch.contiguous_format, loss=F.cross_entropy, **options):
    """Returns the measured variance of the gradient, and the report."""
    model = model.to(memory_format=memory_format)
    data = (data[0].to(memory_format=memory_format), data[1])
    session = actzip.Session(model, bits=2, adapt=adapt, **options)
    indices = torch.arange(N) if options else None
    closure = closure_of(model, session, data, loss, indices)
    closure()
    measurement = Measurement(session, model, closure)
    measurement.holdings()
    measurement.observe()
    measurement.holdings()
    return measurement.variance(draws=6), session.report()


@pytest.mark.parametrize("memory_format", (torch.contiguous_format, torch.channels_last))
def test_samples_that_differ_leave_less_variance_at_the_same_bytes(net, memory_format):
    data = batch(spread=8.0)
    uniform, before = variance(net, data, "measured", memory_format)
    by_sample, after = variance(net, data, "sample+measured", memory_format)
    assert after.bytes_after < 1.02 * before.bytes_after
    assert by_sample < 0.7 * uniform
    rows = [site.sample_bits for site in after.sites if site.sample_bits]
    assert rows and all(row.samples == N and row.fewest <= row.mean <= row.most for row in rows)
    assert any(row.fewest < row.most for row in rows)
    assert after.plan.predicted_variance < 3 * by_sample, "by sizes alone: the large ones have large gradients, too"
    assert "samples with" in str(after)


def weighted_loss(logits, target):
    """A few samples dominate the gradient, as hard ones do late in training."""
    weight = torch.where(torch.arange(N) % 4 == 1, 1.0, 0.02)
    return (F.cross_entropy(logits, target, reduction="none") * weight).mean()


def test_gradients_of_samples_decide_where_sizes_do_not(net):
    data = batch()
    options = {"use_gradient": True, "num_samples": 100}
    by_size, before = variance(net, data, "sample+measured", loss=weighted_loss)
    by_gradient, report = variance(net, data, "sample+measured", loss=weighted_loss, **options)
    assert by_gradient < 0.6 * by_size
    predicted = report.plan.predicted_variance / before.plan.predicted_variance
    assert predicted == pytest.approx(by_gradient / by_size, rel=0.3)
    assert report.sample_statistics == actzip.report.SampleStatistics(samples=100, bytes=400)
    assert "gradients of 100 samples are known in 400 B" in str(report)


def test_what_is_remembered_is_of_the_sample_not_of_its_place(net):
    x, y = batch()
    session = actzip.Session(net, adapt="sample", use_gradient=True, num_samples=2 * N)

    def spread(indices, order):
        closure_of(net, session, (x[order], y[order]), lambda a, b: weighted_loss(a[order.argsort()], b[order.argsort()]),
                   indices)()
        return {site.site: site.sample_bits for site in session.report().sites if site.sample_bits}

    order = torch.randperm(N)
    first = spread(order + N, order)
    second = spread(order.flip(0) + N, order.flip(0))
    assert {row.fewest for row in first.values()} == {2} == {row.most for row in first.values()}, "nothing known yet"
    assert any((row.fewest, row.most) == (1, 4) for row in second.values())
    hard = torch.zeros(2 * N, dtype=torch.bool)
    hard[N + 1::4] = True
    table = session._core.sample_factors()
    assert torch.equal(table[:N], torch.full((N,), -1.0)), "never seen"
    assert table[hard].min() > 10 * table[N:][~hard[N:]].max()


def test_the_running_mean_is_half_old_and_half_new():
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
    session = actzip.Session(adapt="sample", use_gradient=True, num_samples=N)
    x, _ = batch()
    squares = []
    for scale in (1.0, 3.0):
        session.samples(torch.arange(N))
        with session:
            inner = first(x)  # the only tensor with large enough samples that gets a gradient
            outer = second(inner)
        inner.register_hook(lambda g: squares.append(g.flatten(1).square().sum(1)))
        (outer.square().mean((1, 2, 3)) * torch.linspace(1, scale, N)).sum().backward()
    relative = [s / s.mean() for s in squares]
    assert torch.allclose(session._core.sample_factors(), (relative[0] + relative[1]) / 2, rtol=1e-3)


def test_measuring_leaves_what_is_known_of_samples(net):
    session = actzip.Session(net, adapt="sample+measured", use_gradient=True, num_samples=N)
    closure = closure_of(net, session, batch(), indices=torch.arange(N))
    closure()
    before = session._core.sample_factors()
    session.measure(closure)
    assert torch.equal(session._core.sample_factors(), before)
    closure_of(net, session, batch(spread=8.0), indices=torch.arange(N))()
    assert not torch.equal(session._core.sample_factors(), before)


def test_a_gradient_that_overflowed_tells_nothing(net):
    session = actzip.Session(net, adapt="sample", use_gradient=True, num_samples=N)
    data = batch()
    closure_of(net, session, data, indices=torch.arange(N))()
    before = session._core.sample_factors()
    closure_of(net, session, data, lambda a, b: F.cross_entropy(a, b) * float("inf"), torch.arange(N))()
    assert torch.equal(session._core.sample_factors(), before)


def test_gradients_are_unbiased_and_nothing_else_changes(net):
    data = batch(spread=8.0)
    F.cross_entropy(net(data[0]), data[1]).backward()
    exact = net.second.weight.grad.clone()
    total = torch.zeros_like(exact)
    session = actzip.Session(net, adapt="sample", use_gradient=True, num_samples=N)
    state = torch.get_rng_state()
    draws = 40
    for _ in range(draws):
        net.zero_grad()
        closure_of(net, session, data, indices=range(N))()
        total += net.second.weight.grad
    assert torch.equal(torch.get_rng_state(), state)
    one = (net.second.weight.grad - exact).norm() / exact.norm()
    mean = (total / draws - exact).norm() / exact.norm()
    assert mean < 2.0 * one / draws ** 0.5


def test_two_forwards_before_their_backwards(net):
    session = actzip.Session(net, adapt="sample", use_gradient=True, num_samples=2 * N)
    x, y = batch()
    losses = []
    for part in (0, 1):
        session.samples(torch.arange(N) + part * N)
        with session:
            losses.append(weighted_loss(net(x), y) if part == 0 else F.cross_entropy(net(x), y))
    sum(losses).backward()
    table = session._core.sample_factors()
    assert table[1:N:4].min() > 10 * table[0:N:4].max() > 0, "by the first loss"
    assert (table[N:] >= 0).all() and table[N:].max() < 10, "by the second one"


def test_tokens_are_grouped_by_the_texts_they_are_of():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    x = torch.randn(4, 64, 64)
    session = actzip.Session(model, adapt="sample")
    for known in (False, True):
        if known:
            session.samples([0, 1, 2, 3])
        with session:
            loss = model(x).square().mean()
        loss.backward()
        counts = {site.site: site.sample_bits and site.sample_bits.samples for site in session.report().sites}
        assert counts["0: addmm.mat1"] == (4 if known else None)


def test_steps_without_samples_are_warned_about_once(net):
    session = actzip.Session(net, adapt="sample", use_gradient=True, num_samples=N)
    with pytest.warns(UserWarning, match="use_gradient without samples"):
        closure_of(net, session, batch())()
    closure_of(net, session, batch(), indices=range(N))()


@pytest.mark.parametrize(("indices", "message"), (
    ([0, 50], r"index 50 \(allowed: 0 to 49"), ([-1, 3], r"index -1 \(allowed: 0 to 49"),
    ([0.5], "allowed: one of integers"), ([[1, 2]], "2 dimensions of Long")))
def test_indices_are_checked(indices, message):
    session = actzip.Session(adapt="sample", use_gradient=True, num_samples=50)
    with pytest.raises(ValueError, match=message):
        session.samples(indices)


def test_options_are_checked():
    with pytest.raises(ValueError, match="use_gradient with adapt 'layer' and num_samples 10"):
        actzip.Session(adapt="layer", use_gradient=True, num_samples=10)
    with pytest.raises(ValueError, match="num_samples 0"):
        actzip.Session(adapt="sample", use_gradient=True)


def test_a_million_samples_fit():
    session = actzip.Session(adapt="sample", use_gradient=True, num_samples=1_300_000)
    layer = nn.Conv2d(4, 4, 3)
    session.samples(torch.tensor([0, 1_299_999]))
    with session:
        loss = layer(torch.randn(2, 4, 32, 32)).square().mean()
    loss.backward()
    assert session.report().sample_statistics.bytes == 5_200_000


# actzip.data

DATA = TensorDataset(torch.arange(10) * 10)


def double(items):
    return [2 * item[0].item() for item in items]


@pytest.mark.parametrize("options", (
    {"batch_size": 4}, {"batch_size": 3, "shuffle": True}, {"batch_size": 4, "num_workers": 2},
    {"batch_sampler": [[3, 1], [9]]}, {"batch_size": 5, "drop_last": True},
    {"batch_size": 5, "sampler": DistributedSampler(DATA, num_replicas=2, rank=1, shuffle=False)},
    {"batch_size": None}), ids=str)
def test_the_loader_gives_the_indices_of_its_batches(options):
    seen = []
    for indices, (values,) in actzip.data.DataLoader(DATA, **options):
        assert indices.dtype == torch.int64 and indices.dim() == 1
        assert torch.equal(values.reshape(-1), indices * 10)
        seen += indices.tolist()
    assert seen and len(seen) == len(set(seen))


def test_the_loader_collates_as_the_user_says():
    batches = list(actzip.data.DataLoader(DATA, 5, collate_fn=double))
    assert [indices.tolist() for indices, _ in batches] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert batches[1][1] == [100, 120, 140, 160, 180]


def test_a_dataset_with_indices():
    dataset = actzip.data.IndexedDataset(DATA)
    assert len(dataset) == 10 and dataset[3] == (3, (torch.tensor(30),))


def test_what_has_no_indices_is_refused():
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError, match="Endless is iterated and has no indices"):
        actzip.data.DataLoader(Endless())


def test_a_training_loop(net):
    x, y = batch()
    session = actzip.Session(net, adapt="sample+layer", use_gradient=True, num_samples=N)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(12):
        for indices, (images, labels) in actzip.data.DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
            session.samples(indices)
            with session:
                loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-4:]) < sum(losses[:4])
    assert session.report().plan.plans > 1 and (session._core.sample_factors() >= 0).all()
