"""The guard: a session checks each site once, and keeps tensors exactly if few bits of them would spoil a gradient."""

import math
import warnings

import actzip
import pytest
import torch
import torch.nn.functional as F
from models import MODELS, Attention, gradients, make
from torch import nn


class Masked(torch.autograd.Function):
    """A softmax with an additive mask, which it saves as attention kernels do."""

    @staticmethod
    def forward(ctx, logits, mask):
        ctx.save_for_backward(logits, mask)
        return (logits + mask).softmax(-1)

    @staticmethod
    def backward(ctx, gradient):
        logits, mask = ctx.saved_tensors
        result = (logits + mask).softmax(-1)
        return result * (gradient - (gradient * result).sum(-1, keepdim=True)), None


def causal(value):
    return torch.full((64, 64), value).triu(1).expand(8, 64, 64).contiguous()


def masked(value):
    mask = causal(value)
    return (8, 64, 64), lambda h: Masked.apply(h, mask).square(), "Function::*Masked.*"


def attention():
    def apply(h):
        q, k, v = (3 * h).unflatten(-1, (3, 32)).unbind(-2)
        return Attention.apply(q, k, v)
    return (8, 64, 96), apply, "Function::*Attention.*"


def small_rows(width):
    """Three rows in four are 1,000 times smaller than the fourth."""
    scale = torch.full((64, 1), 0.001)
    scale[::4] = 1
    return (64, width), lambda h: F.layer_norm(h, (width,)), "native_layer_norm.input", scale


SPOILT = {
    "mask of -1e9": lambda: masked(-1e9),
    "mask of float-min": lambda: masked(torch.finfo(torch.float32).min),
    "mask of -inf": lambda: masked(-math.inf),
    "attention": attention,
    "addcdiv": lambda: ((256, 64), lambda h: torch.addcdiv(h, h + 1, h), "addcdiv.*"),
    "euclidean": lambda: ((64, 32), lambda h: torch.cdist(h, h.detach() + 1e-3 * torch.randn_like(h)),
                          "_euclidean_dist.*"),
    "square under a root": lambda: ((256, 64), lambda h: h * torch.rsqrt(h * h + 1e-4), "mul.*"),
    "rows of 320": lambda: small_rows(320),
    "rows of 384": lambda: small_rows(384),
}


class Steps:
    """Computes the gradients of a case for one input, with a loss of fixed random weights."""

    def __init__(self, shape, apply, scale=1):
        self.x = torch.randn(shape) * scale
        self.shift = torch.zeros(shape, requires_grad=True)
        self.apply = apply
        self.factors = None

    def gradient(self, session=None):
        with session or torch.enable_grad():
            y = self.apply(self.x + self.shift)
            if self.factors is None:
                self.factors = torch.randn_like(y)
            loss = (y * self.factors).sum()
        return torch.autograd.grad(loss, self.shift)[0]


@pytest.mark.parametrize("case", SPOILT)
def test_what_spoils_a_gradient_is_kept_exactly_from_then_on(case):
    shape, apply, sites, *scale = SPOILT[case]()
    steps = Steps(shape, apply, *scale)
    expected = steps.gradient()
    session = actzip.Session(rules={sites: "rotated:4", "*": "none"}, min_numel=0)
    first = steps.gradient(session)
    assert F.cosine_similarity(first.flatten(), expected.flatten(), dim=0).nan_to_num(0) < 0.9
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        second = steps.gradient(session)
    assert any(site.cause == "guard" for site in session.report().sites)
    third = steps.gradient(session)
    assert F.cosine_similarity(second.flatten(), expected.flatten(), dim=0) > 0.95
    assert F.cosine_similarity(third.flatten(), expected.flatten(), dim=0) > 0.95


def test_nobody_looks_without_a_guard():
    shape, apply, sites = SPOILT["mask of -1e9"]()
    steps = Steps(shape, apply)
    session = actzip.Session(rules={sites: "rotated:4"}, guard=False)
    for _ in range(3):
        steps.gradient(session)
    assert not [site for site in session.report().sites if site.cause == "guard"]


@pytest.mark.parametrize("options, is_guarded", [
    ({"preset": "rotated:4"}, False), ({"preset": "rotated:4", "guard": True}, True), ({"preset": "gact:L1"}, False),
    ({"rules": {"*": "rotated:4"}}, True),
])
def test_presets_of_one_codec_are_not_guarded_unless_asked(options, is_guarded):
    shape, apply, _ = SPOILT["mask of -1e9"]()
    steps = Steps(shape, apply)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = actzip.Session(**options)
        for _ in range(3):
            steps.gradient(session)
    assert any(site.cause == "guard" for site in session.report().sites) == is_guarded


@pytest.mark.parametrize("model_class", MODELS)
def test_looking_changes_no_gradient_of_usual_models(model_class):
    def last_gradients(guard):
        model, batch = make(model_class)
        session = actzip.Session(model, guard=guard)
        result = [gradients(model, batch, session) for _ in range(3)][-1]
        assert not [site for site in session.report().sites if site.cause == "guard"], session.report().text
        assert session.live_bytes == 0
        return result

    looked, plain = last_gradients(True), last_gradients(False)
    assert all(torch.equal(looked[name], plain[name]) for name in plain)


class Again(torch.autograd.Function):
    """A block that runs again in backward, which adds to the gradients of its parameters."""

    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        y.backward(gradient)
        return x.grad, None


def test_a_function_that_runs_a_backward_of_its_own_runs_once():
    block, x = nn.Linear(64, 64), torch.randn(64, 64)

    def gradient(guard):
        weight = torch.eye(64).requires_grad_()
        session = actzip.Session(rules={"Function::*Again.*": "rotated:4"}, guard=guard)
        block.zero_grad()
        with session:
            y = Again.apply(x @ weight, block) * 1
        y.square().sum().backward()
        return block.weight.grad

    assert torch.equal(gradient(True), gradient(False))


def test_gradients_in_f64_are_looked_at():
    """A product of an activation in f32 and one in f64 has gradients of both types."""
    x = torch.randn(64, 64) * torch.where(torch.rand(64, 64) < 0.05, 1.0, 1e-4)
    shift, other = torch.zeros(64, 64, requires_grad=True), torch.randn(64, 64, dtype=torch.float64, requires_grad=True)
    session = actzip.Session(rules={"mul.self": "rotated:1", "*": "none"})
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        for _ in range(2):
            with session:
                h = x + shift
                loss = (h * (other * 1) / (h.detach().double() ** 2 + 1e-8)).sum()
            loss.backward()


def test_a_graph_that_is_kept_is_looked_at_once():
    session = actzip.Session(rules={"gelu.*": "rotated:4"})
    x = torch.randn(64, 64, requires_grad=True)
    with session:
        y = F.gelu(x * 1).sum()
    y.backward(retain_graph=True)
    first, x.grad = x.grad, None
    y.backward()
    assert torch.equal(first, x.grad)


def test_witnesses_are_freed_with_their_node():
    session = actzip.Session()
    x = torch.randn(512, 512, requires_grad=True)
    with session:
        h = x * 1
        address = h.untyped_storage()._weak_ref()
        y = F.gelu(h).sum()
        del h
    assert not torch.UntypedStorage._expired(address)  # the guard needs it in this step
    y.backward()
    assert torch.UntypedStorage._expired(address)
    torch.UntypedStorage._free_weak_ref(address)
