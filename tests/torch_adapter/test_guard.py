"""The guard: a session checks each site once, and keeps tensors exactly if few bits of them would spoil a gradient."""

import contextlib
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


def test_converted_layers_are_looked_at():
    """A GELU whose input has one outlier in each row: one bit loses the rest."""
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.gelu = nn.Parameter(torch.ones(1)), nn.GELU()

        def forward(self, x):
            return self.gelu(x * self.weight)

    model = actzip.convert(Scaled(), rules={"*gelu*": "rotated:1"}, guard=True)
    x, gradient = 0.1 * torch.randn(128, 128), torch.randn(128, 128)
    x[:, 0], gradient[:, 0] = 1000, 0
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        for _ in range(2):
            model(x * 1).backward(gradient)
    assert [site.cause for site in actzip.converted(model).report().sites if site.op == "gelu"] == ["guard"]


class Oscillating(nn.Module):
    """The input of the product hardly changes from row to row, and its gradient sums to almost nothing over rows: so
    does the gradient of the weight, but not the noise in it."""

    def __init__(self, remains):
        super().__init__()
        self.first, self.last = nn.Linear(256, 256), nn.Linear(256, 8)
        self.remains = remains

    def forward(self, x):
        signs = 1 - 2.0 * (torch.arange(len(x)) % 2)[:, None]
        return (self.last(self.first(x)) * (signs + self.remains)).mean()

    def batch(self):
        return torch.randn(1, 256) + 0.01 * torch.randn(512, 256)


def codec_of_product(remains, steps, **options):
    """Returns the codec of the last layer's input, and what was warned of."""
    torch.manual_seed(0)
    model = Oscillating(remains)
    session = actzip.Session(model, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            with session:
                loss = model(model.batch())
            loss.backward()
    codec, = (site.codec for site in session.report().sites if site.site == "last: addmm.mat1")
    return codec, [str(warning.message) for warning in caught]


def test_products_whose_noise_remains_get_more_bits_in_a_later_round():
    codec, messages = codec_of_product(0.0, 49)
    assert codec == "rotated:3" and not messages
    codec, messages = codec_of_product(0.0, 60)
    assert codec == "affine:8:dithered" and len(messages) == 1
    assert "'last: addmm.mat1'" in messages[0] and "made much of a gradient noise; these sites get more" in messages[0]
    assert codec_of_product(0.0, 60, guard=False) == ("rotated:3", [])
    assert codec_of_product(1.0, 60) == ("rotated:3", []), "here the gradient does not cancel"


def test_more_bits_bring_the_noise_down():
    torch.manual_seed(0)
    model = Oscillating(0.0)
    x = model.batch()

    def gradient(session=None):
        model.zero_grad()
        with session or torch.enable_grad():
            loss = model(x)
        loss.backward()
        return model.last.weight.grad.clone()

    expected, session = gradient(), actzip.Session(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        errors = [float((gradient(session) - expected).square().sum() / expected.square().sum()) for _ in range(60)]
    before, after = sum(errors[:40]) / 40, sum(errors[-8:]) / 8
    assert after < 0.5 * before


class Outlier(nn.Module):
    """The middle layer reads one feature that is far larger than all others, as in large language models."""

    def __init__(self):
        super().__init__()
        self.before, self.layer, self.after = nn.Linear(256, 256), nn.Linear(256, 256), nn.Linear(256, 8)
        self.register_buffer("offset", 100.0 * (torch.arange(256) == 7))

    def forward(self, x):
        return self.after(F.gelu(self.layer(self.before(x) + self.offset)))


def test_a_feature_that_is_far_larger_than_others_does_not_hide_them():
    model, x, labels = Outlier(), torch.randn(512, 256), torch.randint(0, 8, (512,))
    session = actzip.Session(model)

    def gradient_of_others(scope):
        model.zero_grad()
        with scope:
            loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return torch.cat([model.layer.weight.grad[:, :7], model.layer.weight.grad[:, 8:]], 1).flatten()

    exact = gradient_of_others(contextlib.nullcontext())
    cosines = []
    with pytest.warns(UserWarning, match="'layer: addmm.mat1' made much of a gradient noise"):
        for _ in range(3):
            cosines.append(F.cosine_similarity(gradient_of_others(session), exact, dim=0))
    assert cosines[0] < 0.6 and cosines[2] > 0.95


def test_a_round_changes_no_gradient_where_little_is_noise():
    def last_gradients(guard):
        torch.manual_seed(0)
        model = Oscillating(1.0)
        session = actzip.Session(model, guard=guard)
        for _ in range(55):
            model.zero_grad()
            with session:
                loss = model(model.batch())
            loss.backward()
        assert session.live_bytes == 0
        return [parameter.grad for parameter in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(last_gradients(True), last_gradients(False), strict=True))


def turns(session, generator, critic):
    """Two networks take turns, as in adversarial training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(62):
            model = (generator, critic)[step % 2]
            with session:
                loss = model(model.batch())
            loss.backward()


def test_a_round_reaches_what_is_saved_in_some_steps_only():
    torch.manual_seed(0)
    networks = nn.ModuleList([Oscillating(0.0), Oscillating(0.0)])
    session = actzip.Session(networks)
    turns(session, *networks)
    codecs = {site.site: site.codec for site in session.report().sites}
    assert codecs["1.last: addmm.mat1"] == "affine:8:dithered"
    with session:
        networks[0](networks[0].batch())
    codecs = {site.site: site.codec for site in session.report().sites}
    assert codecs["0.last: addmm.mat1"] == "affine:8:dithered"


def test_a_head_without_a_gradient_does_not_keep_the_guard_awake():
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(64, 64), nn.GELU()), nn.Sequential(nn.Linear(64, 64), nn.GELU())
    model = nn.ModuleList([body, head])
    session, awake = actzip.Session(model), []
    for step in range(250):
        with session:
            h = body(torch.randn(64, 64))
            head(h)
        awake.append(session.is_guarding)
        h.sum().backward()
    assert sum(awake[110:200]) <= 30 and sum(awake[230:]) == 0


def test_a_gradient_that_is_zero_says_nothing():
    """Rows come in equal pairs, and their gradients cancel exactly."""
    torch.manual_seed(0)
    layer = nn.Linear(256, 8)
    session = actzip.Session(layer)
    signs = 1 - 2.0 * (torch.arange(512) % 2)[:, None]
    for _ in range(60):
        with session:
            x = torch.randn(256, 256).repeat_interleave(2, 0).requires_grad_() * 1
            loss = (layer(x) * signs).sum() / 512
        loss.backward()
    assert [site.codec for site in session.report().sites if site.slot == "mat1"] == ["rotated:3"]


def test_what_was_made_before_the_scope_is_judged_by_what_the_node_sends():
    weight = torch.ones(1, requires_grad=True)
    x, gradient = 0.1 * torch.randn(128, 128), torch.randn(128, 128)
    x[:, 0], gradient[:, 0] = 1000, 0
    session = actzip.Session(rules={"*gelu*": "rotated:1"})
    with pytest.warns(UserWarning, match="spoilt a gradient"):
        for _ in range(2):
            h = x * weight
            with session:
                y = F.gelu(h)
            y.backward(gradient)


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
