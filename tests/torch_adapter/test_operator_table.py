"""The operator table: its names exist in torch, its kernels are registered, and an fx graph can look up uses."""

import actzip
import operator
import pytest
import torch
from actzip import _C
from actzip.operators import use_of
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

ROWS = _C.operator_rows()
#: Operators of other packages, and names that depend on what surrounds an operator.
ELSEWHERE = {"torchvision::deform_conv2d", "torchvision::roi_align", "dropout.mul", "dropout.mul_", "softmax.bmm",
             "softmax.baddbmm"}
OUR_NODES = {"ActzipDropout"}


def matches(name, pattern):
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def test_every_operator_is_one_of_torchs():
    """Misspelt names would never match."""
    known = {name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    for row in ROWS:
        for pattern in row["names"].split():
            assert pattern in ELSEWHERE or any(matches(name, pattern) for name in known), pattern


def test_no_operator_has_two_rows():
    names = [name for row in ROWS for name in row["names"].split()]
    assert len(names) == len(set(names))


def test_every_node_is_one_of_torchs():
    known = set(dir(torch._C._functions))
    named = {node for row in ROWS for node in row["nodes"].split()}
    assert "ReluBackward0" in named and named - OUR_NODES <= known, named - known


def test_every_slot_is_an_argument():
    """Except for patterns, and the names that actzip gives to outputs."""
    arguments = {argument.name for schema in torch._C._jit_get_all_schemas() for argument in schema.arguments}
    for row in ROWS:
        for slots, _ in row["slots"]:
            assert all(slot in ("*", "result") or slot.startswith("aux") or slot in arguments or "torchvision" in row["names"]
                       for slot in slots.split()), row


def test_kernels_for_encoded_tensors_are_those_of_the_table():
    actzip.Session()  # the first one registers with torch's dispatcher
    named = {row["encoded_backward"] for row in ROWS} - {""}
    assert len(named) >= 8
    for name in named:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse3"), name


@pytest.mark.parametrize(("target", "slot", "use"), [
    (torch.ops.aten.addmm.default, "mat1", "linear_input"),
    (torch.ops.aten.mm.default, "mat2", "linear_weight"),
    (torch.ops.aten.mul.Tensor, "other", "factor"),
    (torch.ops.aten._softmax.default, "result", "softmax_result"),
    (torch.ops.aten.gelu, "self", "gelu_input"),
    ("aten::convolution", "input", "convolution_input"),
    (torch.ops.aten.atan.default, "self", "unknown"),
    ("mylib::addmm", "mat1", "foreign"),
])
def test_use_of_a_target(target, slot, use):
    assert use_of(target, slot) == use


def test_uses_in_a_graph():
    """As a partitioner would do, by the targets of a traced graph."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8))
    graph = make_fx(model)(torch.randn(4, 8)).graph
    targets = [node.target for node in graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    uses = {use_of(target, argument.name) for target in targets for argument in target._schema.arguments}
    assert {"linear_input", "linear_weight", "gelu_input", "row_norm_input", "norm_statistics"} <= uses


@pytest.mark.parametrize("target", [operator.mul, 3, None])
def test_what_is_no_operator(target):
    with pytest.raises(TypeError, match="allowed: an operator of torch.ops, or the name of its schema"):
        use_of(target, "self")
