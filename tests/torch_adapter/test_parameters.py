"""Parameters are never compressed, however they reach the operator that uses them."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

WIDTH, ROWS = 64, 48  # no activation has the shape of a weight


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(80, WIDTH)

    def forward(self, x):
        return F.linear(x, self.embedding.weight) @ self.embedding.weight


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, 80))

    def forward(self, x):
        return F.linear(x @ self.weight, self.weight)


class Stacked(nn.Module):
    """One parameter cut into several weights, like packed projections."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3 * 80, WIDTH))

    def forward(self, x):
        a, b, c = self.weight.chunk(3)
        return F.linear(x, a) @ b + F.linear(x, self.weight[:80]) @ c


class LoRA(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, 80)
        self.base.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(16, WIDTH)), nn.Parameter(torch.randn(80, 16))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b * 0.5)


def linear():
    return nn.Linear(WIDTH, 80)


def frozen():
    return nn.Sequential(linear(), nn.Linear(80, 72).requires_grad_(False), nn.Linear(72, 80))


MODELS = {
    "plain": linear,
    "tied": Tied,
    "transposed": Transposed,
    "stacked": Stacked,
    "frozen": frozen,
    "LoRA": LoRA,
    "weight_norm": lambda: parametrizations.weight_norm(linear()),
    "old weight_norm": lambda: torch.nn.utils.weight_norm(linear()),
    "spectral_norm": lambda: parametrizations.spectral_norm(linear()),
    "old spectral_norm": lambda: torch.nn.utils.spectral_norm(linear()),
    "orthogonal": lambda: parametrizations.orthogonal(linear()),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (16, 2, 2)), nn.Conv2d(16, 80, 1), nn.Flatten()),
    "bilinear": lambda: nn.Sequential(linear(), nn.GELU(), nn.Linear(80, 80), nn.RReLU()),
}
# A matrix exponential of a weight does not count as a weight.
COMPUTED = {"orthogonal"}
# Without the model, a leaf times a constant may as well be a scaled input.
NEED_THE_MODEL = {"LoRA", "spectral_norm", "old spectral_norm"}


def weight_shapes(model):
    shapes = set()
    for parameter in model.parameters():
        shape = tuple(parameter.shape)
        shapes |= {shape, shape[::-1], (80, WIDTH), (WIDTH, 80)}
    return shapes


def step(model, session, autocast, call=None):
    x = torch.randn(ROWS, WIDTH, requires_grad=True) * 2
    with session, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = (call or model)(x)
    y.float().square().sum().backward()


def encoded_weights(session, model):
    return [s for s in session.report().sites
            if min(s.shape, default=0) > 1 and len(s.shape) > 1 and s.shape in weight_shapes(model) and s.codec not in ("as is", "shared", "shape only", "recomputed")]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("preset", ["rotated:4", "default"])
def test_never_encoded(name, with_model, autocast, preset):
    model = MODELS[name]()
    session = actzip.Session(model if with_model else None, preset=preset, min_elems=0)
    for _ in range(2):
        step(model, session, autocast)
    if name not in COMPUTED and (with_model or name not in NEED_THE_MODEL):
        assert not encoded_weights(session, model), session.report().text
    assert any(site.codec.startswith("rotated:") for site in session.report().sites)
    assert session.live_bytes == 0


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("with_model", [True, False])
def test_functional_call(with_model, autocast):
    model = linear()
    replaced = {name: (torch.randn_like(p)).requires_grad_() for name, p in model.named_parameters()}
    session = actzip.Session(model if with_model else None, preset="rotated:4", min_elems=0)
    step(model, session, autocast, lambda x: torch.func.functional_call(model, replaced, (x,)))
    assert not encoded_weights(session, model), session.report().text


@pytest.mark.parametrize("move", [
    lambda m: m.double().float(),
    lambda m: [setattr(p, "data", p.data.clone()) for p in m.parameters()],
    lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}, assign=True)])
def test_moved_between_steps(move):
    model = linear().requires_grad_(False)
    session = actzip.Session(model, preset="rotated:4", min_elems=0)
    for _ in range(2):
        step(model, session, False)
        assert not encoded_weights(session, model), session.report().text
        move(model)
        model.requires_grad_(False)


def test_buffers_are_not_encoded():
    model = nn.Linear(WIDTH, 80)
    model.register_buffer("mask", torch.rand(80, WIDTH))
    session = actzip.Session(model, preset="rotated:4", min_elems=0)
    with session:
        y = F.linear(torch.randn(ROWS, WIDTH, requires_grad=True) * 2, model.weight * model.mask)
    y.sum().backward()
    assert not encoded_weights(session, model), session.report().text


def test_an_input_times_a_parameter_is_an_activation():
    model = nn.ParameterList([nn.Parameter(torch.randn(WIDTH))])
    session = actzip.Session(model)
    with session:
        F.gelu(torch.randn(ROWS, WIDTH) * model[0])
    assert {s.op: s.codec for s in session.report().sites} == {"mul": "rotated:3", "gelu": "rotated:3"}


def test_a_frozen_model_saves_nothing_for_its_weights():
    """Grad mode and requires_grad decide, not model.train(): a session sees only what autograd saves."""
    model = nn.Sequential(linear(), nn.Linear(80, 80)).requires_grad_(False)
    session = actzip.Session(model, min_elems=0)
    with session:
        model(torch.randn(ROWS, WIDTH))
    assert not session.report().sites
    with session, torch.no_grad():
        model.requires_grad_(True)(torch.randn(ROWS, WIDTH))
    assert not session.report().sites
