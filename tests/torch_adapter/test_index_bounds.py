"""Indices get as few bits as they need and are restored exactly. Negative ones are kept as they are."""

import actzip
import pytest
import torch
import torch.nn.functional as F

N = 2000


@pytest.fixture(autouse=True)
def one_thread():
    """With more, torch itself adds what has the same index in any order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def table():
    torch.manual_seed(0)
    return torch.randn(300, 40, requires_grad=True)


def ids(most, count=N):
    return torch.randint(0, most, (count,), generator=torch.Generator().manual_seed(1))


CASES = {
    "index": (lambda x, i: x[i], 300, "index.aux0"),
    "index of a column": (lambda x, i: x[:, i], 40, "index.aux0"),
    "index of two": (lambda x, i: x[i, i % 40], 300, "index.aux0"),
    "index_put": (lambda x, i: torch.zeros(300, 40).index_put((i, i % 40), x[0, 0].expand(N)), 300, "index_put.aux0"),
    "take": (lambda x, i: x.take(i), 12000, "take.index"),
    "put": (lambda x, i: torch.zeros(300, 40).put(i, x[0, 0].expand(N)), 12000, "put.index"),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), 300, "index_fill.index"),
}
POSITIVE = {
    "index_copy": (lambda x, i: torch.zeros(N, 40).index_copy(0, torch.randperm(N), x[i % 300]), 300, "index_copy.index"),
    "max": (lambda x, i: x.repeat(10, 1).max(1).values, 300, "max.aux0"),
    "median": (lambda x, i: x.repeat(10, 1).median(1).values, 300, "median.aux0"),
    "scatter_reduce": (lambda x, i: torch.zeros(300, 40).scatter_reduce(
        0, (i % 300)[:, None].expand(N, 40), x.repeat(7, 1)[:N], "amax"), 300, "scatter_reduce.index"),
    "max_unpool2d": (lambda x, i: F.max_unpool2d(x.view(1, 30, 20, 20), torch.arange(400).repeat(30, 1).view(1, 30, 20, 20) * 4,
                                                 2), 400, "max_unpool2d.indices"),
    "embedding_bag": (lambda x, i: F.embedding_bag(i % 300, x, torch.arange(0, N, 4), mode="mean"), 300, "_embedding_bag.indices"),
}


def gradient(operator, x, i, session=None):
    torch.manual_seed(2)
    with session or torch.enable_grad():
        y = operator(x, i)
    return torch.autograd.grad((y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum(), x)[0]


def sites(session):
    return {site.site: site for site in session.report().sites}


@pytest.mark.parametrize("name", [*CASES, *POSITIVE])
@pytest.mark.parametrize("preset", ["exact", "default"])
def test_few_bits(name, preset):
    operator, most, site = {**CASES, **POSITIVE}[name]
    x, i, session = table(), ids(most), actzip.Session(preset=preset, rules={"mul.*": "none"})
    assert torch.equal(gradient(operator, x, i, session), gradient(operator, x, i))
    kept = sites(session)[site]
    assert kept.codec.startswith("index") and kept.bytes_before >= 4 * kept.bytes_after, session.report().to_text(all=True)


def test_indices_of_two_bounds_are_kept_once():
    x = torch.randn(2, 8, 32, 32, requires_grad=True)
    session = actzip.Session(preset="exact")
    with session:
        y = F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)
    (kept,) = torch.autograd.grad(y.sum(), x)
    (plain,) = torch.autograd.grad(F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2).sum(), x)
    assert torch.equal(kept, plain)
    assert sites(session)["max_unpool2d.indices"].codec == "shared"


@pytest.mark.parametrize("name", CASES)
def test_negative_indices(name):
    operator, most, site = CASES[name]
    i = ids(most)
    i[1::2] -= 40 if "column" in name else most
    x, session = table(), actzip.Session(preset="exact")
    assert torch.equal(gradient(operator, x, i, session), gradient(operator, x, i))
    assert sites(session)[site].codec == "as is"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("outside", [10**6, -(10**6), 2**40])
def test_outside_is_torchs_own_error(name, outside):
    operator, most, _ = CASES[name]
    i = ids(most)
    i[7] = outside
    with pytest.raises(Exception) as plain:
        gradient(operator, table(), i)
    with pytest.raises(Exception) as kept:
        gradient(operator, table(), i, actzip.Session())
    assert type(plain.value) is type(kept.value) and str(plain.value) == str(kept.value)


def test_labels_and_what_they_ignore():
    logits = torch.randn(4, 5, 32, 32, requires_grad=True)
    labels = torch.randint(0, 5, (4, 32, 32))
    for ignored in (False, True):
        labels[0, 0, 0] = -100 if ignored else 0
        session = actzip.Session(preset="exact")
        with session:
            loss = F.cross_entropy(logits, labels)
        (kept,) = torch.autograd.grad(loss, logits)
        (plain,) = torch.autograd.grad(F.cross_entropy(logits, labels), logits)
        assert torch.equal(kept, plain)
        assert sites(session)["nll_loss2d_forward.target"].codec == ("as is" if ignored else "index:bound=16")
