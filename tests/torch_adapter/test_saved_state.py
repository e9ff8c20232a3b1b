"""A session's state in a checkpoint: a session that loads what another has learned continues bit for bit."""

import pytest
import torch
from torch import nn

import actzip


class WithLoss(nn.Module):
    """Computes its loss in forward, which a session learns in its first step."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64), nn.ReLU(),
                                  nn.Linear(64, 64))

    def forward(self, x):
        return (self.body(x) - x.roll(1, -1)).square().add(1e-3).sqrt().mean()


def make(**options):
    torch.manual_seed(0)
    model = WithLoss()
    return model, actzip.Session(model, **options)


def step(model, session, seed):
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(seed))
    model.zero_grad()
    with session:
        loss = model(x)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def codecs(session):
    return [(site.site, site.codec, site.kept_by) for site in session.report().sites]


@pytest.mark.parametrize("options", [{}, {"bits": 2.5, "interval": 4}, {"preset": "affine:2"}, {"preset": "actnn:L3"}],
                         ids=str)
@pytest.mark.parametrize("steps", [1, 6])
def test_a_resumed_run_goes_on_bit_for_bit(options, steps):
    model, session = make(**options)
    for i in range(steps):
        step(model, session, i)
    state, weights = session.save_state(), {name: value.clone() for name, value in model.state_dict().items()}
    expected = [step(model, session, i) for i in range(steps, steps + 3)]
    resumed_model, resumed = make(**options)
    resumed_model.load_state_dict(weights)
    resumed.load_state(state)
    assert resumed.save_state() == state
    for i, gradient in enumerate(expected, start=steps):
        assert torch.equal(step(resumed_model, resumed, i), gradient), f"step {i}"
    assert codecs(resumed) == codecs(session)


def test_the_guards_verdict_is_remembered():
    model, session = make(rules={"sqrt.*": "affine:2"}, guard=True)
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        for i in range(3):
            step(model, session, i)
    resumed_model, resumed = make(rules={"sqrt.*": "affine:2"}, guard=True)
    resumed.load_state(session.save_state())
    step(resumed_model, resumed, 0)
    assert {site.cause for site in resumed.report().sites if site.op == "sqrt"} == {"guard"}


@pytest.mark.parametrize("other", ["", "a text", None, 7])
def test_another_text_changes_nothing(other):
    model, session = make()
    expected = session.save_state()
    with pytest.raises((TypeError, ValueError), match="allowed: .*save_state"):
        session.load_state(other)
    assert session.save_state() == expected


def test_a_session_that_has_begun_takes_no_state():
    model, session = make()
    step(model, session, 0)
    state = session.save_state()
    with pytest.raises(ValueError, match="allowed"):
        session.load_state(state)
    assert session.save_state() == state
