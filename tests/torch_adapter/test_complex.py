"""Complex tensors are kept as pairs of real numbers where the gradient permits it."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Spectral(nn.Module):
    """A layer of a Fourier neural operator, with a complex linear layer beside it."""

    def __init__(self, width=64, modes=32, dtype=torch.complex64):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(modes, width, width, dtype=dtype) / width**0.5)
        self.mix = nn.Parameter(torch.randn(width, width, dtype=dtype) / width**0.5)
        self.modes = modes

    def forward(self, x):
        z = torch.fft.rfft(x, dim=1)
        low = torch.einsum("bmi,mio->bmo", z[:, :self.modes], self.filter)
        low = low * (low @ self.mix).conj()
        return torch.fft.irfft(F.pad(low, (0, 0, 0, z.shape[1] - self.modes)), n=x.shape[1], dim=1)


def gradient(model, batch, session=None):
    model.zero_grad()
    if session is None:
        value = model(batch).square().sum()
    else:
        with session:
            value = model(batch).square().sum()
    value.backward()
    return torch.cat([torch.view_as_real(p.grad).flatten() for p in model.parameters()])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Spectral()


@pytest.fixture
def batch():
    return torch.randn(8, 128, 64, generator=torch.Generator().manual_seed(1))


def cosine(a, b):
    return float(F.cosine_similarity(a.double(), b.double(), dim=0))


def test_a_spectral_layer(model, batch):
    exact = gradient(model, batch)
    session = actzip.Session(model)
    draws = [gradient(model, batch, session) for _ in range(6)]
    report = session.report()
    complex_sites = [site for site in report.sites if site.codec.startswith("rotated") and list(site.shape)[-1:] == [2]]
    assert len(complex_sites) >= 2, report.to_text(all=True)
    assert all(cosine(draw, exact) > 0.97 for draw in draws)
    assert cosine(sum(draws) / len(draws), exact) > max(cosine(draw, exact) for draw in draws)
    assert sum(site.bytes_before for site in complex_sites) > 8 * sum(site.bytes_after for site in complex_sites)


def test_exact_is_bitwise(model, batch):
    assert torch.equal(gradient(model, batch), gradient(model, batch, actzip.Session(model, preset="exact", min_elems=0)))


@pytest.mark.parametrize("view", [lambda z: z, lambda z: z.conj(), lambda z: z.t(), lambda z: z[:, 3:40].conj(),
                                  lambda z: z[::2], lambda z: z[1].expand(5, 64), lambda z: z.conj().t().resolve_conj()])
@pytest.mark.parametrize("preset", ["affine:8", "default"])
def test_views(view, preset):
    z = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)
    w = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)

    def gradients(session=None):
        a, b = view(z * 1), view(w * 1)
        with session or torch.enable_grad():
            y = a * b
        return torch.autograd.grad(torch.view_as_real(y).sum(), (z, w))

    for plain, kept in zip(gradients(), gradients(actzip.Session(preset=preset, min_elems=0))):
        assert float((plain - kept).abs().square().sum()) < 0.1 * float(plain.abs().square().sum())


OPERATORS = {
    "matmul": lambda z, w: z[0] @ w[0], "bmm": torch.bmm, "mul": torch.mul, "div": lambda z, w: z / (w + 9),
    "dot": lambda z, w: torch.dot(z.flatten(), w.flatten()), "square": lambda z, w: z**2, "exp": lambda z, w: z.exp(),
    "reciprocal": lambda z, w: (z + 9).reciprocal()}


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_operators(name):
    torch.manual_seed(0)
    z, w = (torch.randn(4, 64, 64, dtype=torch.complex64, requires_grad=True) for _ in range(2))

    def gradient_of_first(session=None):
        with session or torch.enable_grad():
            y = OPERATORS[name](z.sinh(), w.sinh())  # leaves themselves would count as parameters
        return torch.view_as_real(torch.autograd.grad(torch.view_as_real(y).sum(), z)[0]).flatten()

    assert cosine(gradient_of_first(), gradient_of_first(actzip.Session(min_elems=0))) > 0.97


@pytest.mark.parametrize("operator", [torch.tanh, torch.sigmoid, torch.abs, torch.sin, torch.angle])
def test_curves_with_poles_are_kept_exactly(operator):
    z = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)

    def gradients(session=None):
        with session or torch.enable_grad():
            y = operator(z * 1)
        return torch.autograd.grad(torch.view_as_real(y).sum() if y.is_complex() else y.sum(), z)[0]

    assert torch.equal(gradients(), gradients(actzip.Session(min_elems=0)))


def test_128_bits_stay_as_they_are_and_count_once():
    model, batch = Spectral(dtype=torch.complex128), torch.randn(8, 128, 64, dtype=torch.float64)
    session = actzip.Session(model)
    assert torch.equal(gradient(model, batch), gradient(model, batch, session))
    assert {site.codec for site in session.report().sites} <= {"as is", "shared", "shape only"}


def test_modified_in_place():
    z = torch.randn(64, 64, dtype=torch.complex64, requires_grad=True)
    with actzip.Session():
        h = z * 1
        y = h * h.conj()
    with torch.no_grad():
        h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.view_as_real(y).sum().backward()


def test_the_guard_looks_at_complex_gradients():
    """One value is large among small ones, and gets no gradient itself."""
    z, w = (torch.randn(64, 64, dtype=torch.complex64, requires_grad=True) for _ in range(2))
    large = torch.ones(64, 64)
    large[0, 0] = 1e4
    session = actzip.Session(rules={"mul.self": "rotated:1"})
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        for _ in range(4):
            with session:
                y = (z * large) * w
            torch.view_as_real(y)[1:].sum().backward()


def test_a_plan_for_complex_sites(model, batch):
    session = actzip.Session(model, adapt="layer", bits=2, interval=2)
    for _ in range(6):
        gradient(model, batch, session)
    assert session.report().plan.plans >= 1
