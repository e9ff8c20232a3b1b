"""Sizes that change from step to step, and what compiled graphs make of them."""

import actzip
import pytest
import torch
import torch.nn.functional as F
from compile_cases import error, gradient, graphs_alone
from torch import nn


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


class Scores(nn.Module):
    """Attention as it was once written: its probabilities are square."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.out = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        q, k = (layer(x).unflatten(-1, (4, 16)).transpose(1, 2) for layer in (self.q, self.k))
        return self.out(((q @ k.transpose(-1, -2)).softmax(-1) @ k).transpose(1, 2).flatten(-2))


class Joined(nn.Module):
    """A layer reads tensors of several lengths, joined. Backward takes the length of the result from what it reads."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        h = torch.cat([x, x[:, :24]], 1)
        return F.gelu(self.down(h)) @ self.up(h).transpose(1, 2)


class Image(nn.Module):
    """Strides are products of three numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


@pytest.mark.parametrize(("model_class", "sizes"), [
    (Scores, [(2, 64, 64), (2, 48, 64), (2, 80, 64)]),
    (Joined, [(2, 64, 64), (2, 48, 64), (2, 80, 64)]),
    (Image, [(4, 8, 24, 32), (4, 8, 16, 40), (4, 8, 32, 24)]),
])
def test_what_has_a_changing_size_is_compressed_too(model_class, sizes):
    torch.manual_seed(0)
    model = model_class()
    forward, session = graphs_alone(model, dynamic=True, bits=8), actzip.compiled_session(bits=8)
    for size in sizes:
        batch = torch.randn(size)
        assert error(gradient(model, forward, batch), gradient(model, model, batch)) < 1e-3
        large = [site for site in session.report().sites if site.bytes_before >= 2**14]
        assert len(large) >= 3 and all(site.kind == "encoded" for site in large), session.report()
