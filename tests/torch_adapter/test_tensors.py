"""Tensors of every kind that autograd may save: strides, ranks, types, no elements, values that are not finite."""

import actzip
import pytest
import torch
import torch.nn.functional as F

VIEWS = {
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows": lambda x: x[::2],
    "columns": lambda x: x[:, 3:40],
    "expanded": lambda x: x[:, None].expand(64, 5, 64),
    "expanded in front": lambda x: x.expand(3, 64, 64),
    "overlapping windows": lambda x: x.unfold(0, 8, 2),
    "overlapping": lambda x: torch.as_strided(x, (60, 64), (48, 1)),
    "all one element": lambda x: torch.as_strided(x, (64, 64), (0, 0), 5),
    "permuted": lambda x: x.view(4, 16, 8, 8).permute(3, 1, 0, 2),
    "channels last": lambda x: x.view(4, 16, 8, 8).contiguous(memory_format=torch.channels_last),
    "channels last 3d": lambda x: x.view(2, 8, 4, 8, 8).contiguous(memory_format=torch.channels_last_3d),
    "offset": lambda x: x.flatten()[7:3007],
    "none": lambda x: x[:0],
    **{f"{rank}-d": lambda x, rank=rank: x.reshape([64 * 64] + [1] * (rank - 1)) if rank else x.sum() for rank in range(7)},
    "6-d": lambda x: x.view(4, 2, 8, 4, 4, 4).transpose(1, 4),
}


def run(view, dtype, session=None):
    """Returns the gradient through a view whose values several operators save, and one unpacked tensor."""
    torch.manual_seed(0)
    x = (torch.randn(64, 64, requires_grad=True, dtype=torch.float64)).to(dtype)
    x.retain_grad()
    h = view(x * 2)
    if session is None:
        y = torch.relu(h) * h.sin()
    else:
        with session:
            y = torch.relu(h) * h.sin()
    saved = y.grad_fn._saved_self
    y.abs().sum().backward()
    return x.grad, saved


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("preset", ["exact", "affine:8:nearest", "default"])
def test_views(view, dtype, preset):
    expected, saved = run(view, dtype)
    session = actzip.Session(preset=preset, min_elems=0)
    actual, restored = run(view, dtype, session)
    assert (restored.shape, restored.dtype) == (saved.shape, saved.dtype)
    if preset == "exact" or dtype == torch.float64 or expected.count_nonzero() == 0:
        assert torch.equal(actual, expected)
    else:
        limit = {"affine:8:nearest": 0.05, "default": 0.5}[preset]
        assert float((actual - expected).double().norm()) < limit * float(expected.double().norm())
    assert session.live_bytes == 0


@pytest.mark.parametrize("view", ["whole", "transposed", "permuted", "channels last", "channels last 3d", "6-d"])
def test_dense_strides_come_back(view):
    x = VIEWS[view](torch.randn(64, 64, requires_grad=True) * 2)
    with actzip.Session(min_elems=0):
        y = F.gelu(x)
    assert y.grad_fn._saved_self.stride() == x.stride()


def test_expanded_elements_are_kept_once():
    x = torch.randn(1024, 1, requires_grad=True) * 2
    session = actzip.Session()
    with session:
        y = F.gelu(x.expand(1024, 64))
    (site,) = session.report().sites
    assert site.codec == "rotated:3" and site.bytes_before == 4 * 1024 and site.bytes_after < 600
    y.sum().backward()


@pytest.mark.parametrize("dtype", [torch.complex128, torch.float64], ids=str)
def test_types_that_pass(dtype):
    x = torch.randn(64, 64, requires_grad=True, dtype=dtype)

    def gradient(session):
        with session:
            y = (x * 2).tanh() * x
        return torch.autograd.grad(y.abs().sum(), x)[0]

    session = actzip.Session()
    assert torch.equal(gradient(session), gradient(torch.enable_grad()))
    sites = [s for s in session.report().sites if s.slot == "result"]
    assert sites and all(s.codec == "as is" and ("complex" in s.reason or "f64" in s.reason) for s in sites), sites


def test_other_layouts_pass():
    dense = torch.randn(64, 64, requires_grad=True)
    sparse = torch.eye(64).to_sparse()
    session = actzip.Session(min_elems=0)
    with session:
        y = torch.sparse.mm(sparse, dense * 2)
    y.sum().backward()
    assert torch.equal(dense.grad, torch.full((64, 64), 2.0))
    assert any("not a dense tensor" in s.reason for s in session.report().sites)


def test_subclasses_pass():
    class Mine(torch.Tensor):
        pass

    x = torch.randn(64, 64, requires_grad=True)
    with actzip.Session(preset="exact", min_elems=0):
        y = (x * 2).as_subclass(Mine).sin()
    y.sum().backward()
    assert torch.equal(x.grad, 2 * (2 * x.detach()).cos())


@pytest.mark.parametrize("preset", ["exact", "default", "affine:8:nearest"])
def test_zeros_without_memory_pass(preset):
    """Forward-mode differentiation stands for tangents that are zero with tensors that have no memory."""
    def gradients(session=None):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.LayerNorm(64))
        x, tangent = torch.randn(32, 64), torch.randn(32, 64)
        with session or torch.enable_grad():
            y, derivative = torch.func.jvp(model, (x,), (tangent,))
            loss = (y * x + derivative * tangent).mean()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    actual, expected = gradients(actzip.Session(preset=preset, min_elems=0)), gradients()
    if preset == "exact":
        assert torch.equal(actual, expected)
    assert torch.linalg.norm(actual - expected) <= 0.2 * torch.linalg.norm(expected)


def test_freed_memory_is_left_alone():
    """As sharded training does: what a storage held is freed after forward and put back for backward."""
    x = torch.randn(64, 64, requires_grad=True)
    weight = torch.randn(64, 64)
    memory, values = weight.untyped_storage(), weight.clone()
    memory.resize_(0)
    session = actzip.Session(min_elems=0)

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(weight)
            return x * values

        @staticmethod
        def backward(ctx, gradient):
            return gradient * ctx.saved_tensors[0]

    actzip.register(Scaled, aux0="linear_input")
    with session:
        y = Scaled.apply(x * 2)
    memory.resize_(values.nbytes)
    with torch.no_grad():
        weight.data.copy_(values)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * values)


def jagged_gradients(session=None):
    """Returns the gradients of a model with a nested input, a subclass that dispatches to Python, of uneven rows."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128),
                                torch.nn.Linear(128, 64))
    rows = [torch.randn(length, 64) for length in (3, 50, 17)]
    with session or torch.enable_grad():
        inputs = torch.nested.nested_tensor(rows, layout=torch.jagged)
        loss = torch.nested.to_padded_tensor(model(inputs), 0.0).square().mean()
    loss.backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("preset", ["exact", "default", "affine:8:nearest"])
def test_jagged_tensors_pass(preset):
    expected = jagged_gradients()
    session = actzip.Session(preset=preset, min_elems=0)
    for _ in range(3):
        actual = jagged_gradients(session)
        for a, e in zip(actual, expected):
            assert torch.equal(a, e) if preset == "exact" else torch.linalg.norm(a - e) <= 0.1 * torch.linalg.norm(e)
    assert any(site.reason == "a tensor subclass" for site in session.report().sites)
    assert session.live_bytes == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_casts_of_nested_tensors_pass():
    def gradient(session=None):
        leaf = torch.nested.nested_tensor([torch.ones(3, 64), torch.ones(50, 64)], requires_grad=True)
        with session or torch.enable_grad():
            loss = torch.nested.to_padded_tensor(leaf.to(torch.float16).to(torch.float32), 0.0).square().sum()
        return torch.nested.to_padded_tensor(torch.autograd.grad(loss, leaf)[0], 0.0)

    assert torch.equal(gradient(actzip.Session(preset="exact", min_elems=0)), gradient())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("preset", ["default", "exact"])
def test_integers_are_exact(dtype, preset):
    index = torch.randint(200, (64, 64), dtype=dtype)
    weight = torch.randn(200, 8, requires_grad=True)
    expected = torch.autograd.grad(F.embedding(index, weight).square().sum(), weight)[0]
    session = actzip.Session(preset=preset, min_elems=0)
    with session:
        loss = F.embedding(index, weight * 1).square().sum()
    sites = {f"{s.op}.{s.slot}": s.codec for s in session.report().sites}
    assert sites["embedding.indices"] == "index:bound=200"
    actual = torch.autograd.grad(loss, weight)[0]
    if preset == "exact":
        assert torch.equal(actual, expected)
    assert torch.equal(actual != 0, expected != 0)


def test_integers_without_bound_pass():
    x = torch.randn(64, 64, requires_grad=True)
    index = torch.randint(64, (2048,)), torch.randint(64, (2048,))
    session = actzip.Session()
    with session:
        y = (x * 2)[index]
    y.sum().backward()
    assert torch.equal(x.grad, 2 * torch.zeros(64, 64).index_put_(index, torch.ones(2048), accumulate=True))


@pytest.mark.parametrize("shape", [(), (1,), (7,), (64, 33)])
def test_booleans_are_exact(shape):
    x, condition = torch.randn(shape, requires_grad=True), torch.rand(shape) > 0.5
    with actzip.Session(min_elems=0):
        y = torch.where(condition, x * 2, x * 3)
    y.sum().backward()
    assert torch.equal(x.grad, torch.where(condition, 2.0, 3.0))


@pytest.mark.parametrize("shape", [(0,), (0, 64), (64, 0), (4, 0, 8, 8)])
@pytest.mark.parametrize("preset", ["default", "exact", "affine:2"])
def test_empty(shape, preset):
    x = torch.randn(shape, requires_grad=True)
    with actzip.Session(preset=preset, min_elems=0):
        y = F.gelu(x * 2).relu() * x.exp()
    y.sum().backward()
    assert x.grad.shape == shape


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh, lambda x: x * x.detach(), lambda x: x.softmax(-1),
                                      lambda x: F.linear(x, torch.eye(64, requires_grad=True))])
@pytest.mark.parametrize("preset", ["default", "affine:4", "rotated:2"])
def test_what_is_no_number_stays_visible(value, function, preset):
    """Where torch's gradient is not finite, ours is not either, so that a gradient scaler still sees the overflow."""

    def gradient(session):
        torch.manual_seed(0)
        x = torch.randn(64, 64, requires_grad=True)
        with session:
            h = x * 2
            h.data[5, 7] = value
            y = function(h)
        y.nan_to_num().square().sum().backward() if value != value else y.sum().backward()
        return x.grad

    bad = ~gradient(torch.enable_grad()).isfinite()
    assert not gradient(actzip.Session(preset=preset)).isfinite()[bad].any()


@pytest.mark.parametrize("preset", ["default", "exact", "affine:4"])
def test_the_number_of_threads_changes_nothing(preset):
    """torch's threads share the groups of a tensor, but the random numbers depend only on the group."""
    x = torch.randn(512, 1024, requires_grad=True)
    threads, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            with actzip.Session(preset=preset):
                y = F.gelu(x * 2).relu()
            results.append(torch.autograd.grad(y.sum(), x)[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
