"""Every differentiable operator of torch's own list of operators, with the inputs that torch tests it with."""

import itertools

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves, tree_map

pytest.importorskip("expecttest")  # torch's list needs it
op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

SAMPLES = 6  # of each operator
# Operators whose gradients cannot be computed this way: sparse inputs, storages of another size, complex phases.
LEFT_OUT = {"sparse.sampled_addmm", "sparse.mm", "as_strided", "to_sparse", "linalg.eig", "empty_strided"}
# Gradients without a direction: of few numbers, of a randomly chosen basis, and with masks that leave one key.
TOO_FEW_ELEMENTS = 16
WITHOUT_DIRECTION = {"pca_lowrank", "svd_lowrank", "nn.functional.scaled_dot_product_attention"}

OPERATORS = [op for op in op_db if op.supports_autograd and torch.float32 in op.supported_dtypes("cpu")
             and op.name not in LEFT_OUT]


def seed(value):
    torch.default_generator.manual_seed(value)  # torch.manual_seed() formats the stack for devices that are not there


def gradients(op, sample, session=None):
    """Returns the gradients of a random weighting of the outputs, or None if there is nothing to differentiate. Inputs
    are no leaves, so that they count as activations."""
    leaves = []

    def as_activation(value):
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            return value
        leaves.append(value.detach().clone().requires_grad_())
        return leaves[-1].relu() - (-leaves[-1]).relu()

    first, args, kwargs = tree_map(as_activation, (sample.input, sample.args, sample.kwargs))
    seed(3)
    if session is None:
        results = op(first, *args, **kwargs)
    else:
        with session:
            results = op(first, *args, **kwargs)
    results = [r for r in tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad]
    if not results or not leaves:
        return None
    seed(4)
    weights = [torch.randn_like(result) for result in results]
    found = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    return [g for g in found if g is not None and g.layout == torch.strided]


def pairs(op, preset):
    """Yields torch's gradient, ours, and the session, for every sample whose gradient torch reproduces."""
    samples = op.sample_inputs_func(op, "cpu", torch.float32, True)  # without the bookkeeping of op.sample_inputs()
    for sample in itertools.islice(samples, SAMPLES):
        expected = gradients(op, sample)
        if expected is None:
            continue
        again = gradients(op, sample)
        session = actzip.Session(preset=preset, min_elems=0)
        actual = gradients(op, sample, session)
        assert session.live_bytes == 0
        for a, b, c in zip(expected, again, actual, strict=True):
            if torch.equal(a.nan_to_num(), b.nan_to_num()):
                yield a, c, session


def test_the_list_is_long():
    assert len(OPERATORS) > 400


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}{op.variant_test_name and '-' + op.variant_test_name}")
def test_exact_is_bitwise(op):
    for expected, actual, session in pairs(op, "exact"):
        assert torch.equal(expected.isnan(), actual.isnan()), session.report().text
        assert torch.equal(expected.nan_to_num(), actual.nan_to_num()), session.report().text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}{op.variant_test_name and '-' + op.variant_test_name}")
def test_default_keeps_the_direction(op):
    for expected, actual, session in pairs(op, "default"):
        if not expected.isfinite().all():
            continue
        assert actual.isfinite().all(), session.report().text
        if expected.numel() >= TOO_FEW_ELEMENTS and expected.norm() > 1e-6 and op.name not in WITHOUT_DIRECTION:
            a, b = (torch.view_as_real(g.resolve_conj()) if g.is_complex() else g for g in (expected, actual))
            assert F.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.8, session.report().text
