"""Nodes of fx graphs: what they compute, and which module they belong to."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from .torch_parts import run_and_save_rng_state, run_with_rng_state

#: Operators that return the same elements, perhaps in another order, type or number.
VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "permute", "t", "transpose", "squeeze", "unsqueeze", "expand", "select", "slice",
    "split", "split_with_sizes", "unbind", "alias", "detach", "clone", "as_strided", "_to_copy", "convert_element_type",
    "getitem", "_reshape_alias", "contiguous",
})
#: Operators through which an error passes unchanged: their gradients do not depend on what they read.
LINEAR = VIEWS | {"add", "sub", "rsub", "neg", "cat", "sum", "mean", "where", "constant_pad_nd", "roll", "flip", "relu",
                  "index", "index_select", "gather", "stack", "narrow", "chunk"}
#: The same, if all other arguments are numbers.
SCALED = frozenset({"mul", "div"})

#: Names in eager code of operators that the compiler has replaced.
EAGER_NAMES = {"aten::_native_batch_norm_legit_functional": "aten::native_batch_norm"}

NAMES = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.bool: "bool",
    torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
}


def is_tensor(node: object) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def is_symbol(node: object) -> bool:
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.SymInt)


def schema_name(node: Node) -> str:
    """Returns the name of the operator before decomposition, such as ``aten::native_layer_norm``."""
    target = node.meta.get("original_aten") or node.target
    if isinstance(target, torch._ops.OpOverload):
        return EAGER_NAMES.get(target._schema.name, target._schema.name)
    return getattr(target, "__name__", str(target))


def own_name(node: Node) -> str:
    """Returns the name of the operator that the node calls, without its library, such as ``mul``."""
    target, _ = operator_of(node)
    if isinstance(target, torch._ops.OpOverload):
        return target._schema.name.split("::")[-1]
    return "getitem" if target is operator.getitem else getattr(target, "__name__", str(target))


def operator_of(node: Node) -> tuple[Any, tuple]:
    """Returns the operator that the node calls, and its arguments. Looks through calls that record or set the
    generator's state."""
    if node.target is run_and_save_rng_state:
        return node.args[0], node.args[1:]
    if node.target is run_with_rng_state:
        return node.args[1], node.args[2:]
    return node.target, node.args


def named_arguments(node: Node) -> dict[str, Any]:
    """Returns the arguments that the operator was given, by the names of its schema."""
    return {**dict(zip((argument.name for argument in node.target._schema.arguments), node.args)), **node.kwargs}


def set_arguments(node: Node, **changes: Any) -> None:
    """Changes arguments of the operator, by the names of its schema."""
    schema, given = node.target._schema.arguments, {**named_arguments(node), **changes}
    positional = [argument for argument in schema if not argument.kwarg_only]
    while positional and positional[-1].name not in given:
        positional.pop()
    node.args = tuple(given.get(argument.name, argument.default_value) for argument in positional)
    node.kwargs = {argument.name: given[argument.name] for argument in schema
                   if argument.kwarg_only and argument.name in given}


def is_decomposed(node: Node) -> bool:
    original = node.meta.get("original_aten")
    return original is not None and str(original) != str(node.target)  # not `is`: the metadata may hold a copy


def is_view(node: Node) -> bool:
    return node.op == "call_function" and own_name(node) in VIEWS


def is_conversion(node: Node) -> bool:
    return node.op == "call_function" and own_name(node) in ("_to_copy", "convert_element_type")


def is_linear(node: Node) -> bool:
    """Whether the operator is linear, and, if it comes from a decomposition, the original operator, too: a difference
    inside a norm is not."""
    if node.op != "call_function" or (is_decomposed(node) and schema_name(node).split("::")[-1] not in LINEAR):
        return False
    name = own_name(node)
    return name in LINEAR or (name in SCALED and sum(isinstance(argument, Node) for argument in node.args) == 1)


def is_backward(node: Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward"


def base_of(node: Node) -> Node:
    """Returns the node at the start of a chain of views."""
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def without_aliases(node: Node | None) -> Node | None:
    """Returns the node of which this one is an alias, or the node itself."""
    while node is not None and node.op == "call_function" and own_name(node) in ("alias", "detach"):
        node = node.args[0]
    return node


def module_of(node: Node) -> str:
    """Returns the path of the module that a node belongs to, as in ``named_modules()``."""
    stack = node.meta.get("fwd_nn_module_stack") or node.meta.get("nn_module_stack") or {}
    path = next((entry[0] for entry in reversed(list(stack.values()))), "")
    path = re.sub(r"^[LG]\['\w+'\]\.?", "", path).replace("_orig_mod.", "")
    path = re.sub(r"\._modules\['([^']+)'\]", r".\1", path)
    return re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", path).lstrip(".")


def size_hint(size: int | torch.SymInt) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return 1 if hint is None else int(hint)


def shape_hint(value: torch.Tensor) -> list[int]:
    return [size_hint(size) for size in value.shape]


def stride_hint(value: torch.Tensor) -> list[int]:
    return [size_hint(stride) for stride in value.stride()]


def elements(value: torch.Tensor) -> int:
    count = 1
    for size in shape_hint(value):
        count *= size
    return count


def depends_on_data(graph: Graph, fixed: set[Node]) -> set[Node]:
    """Returns the nodes that depend on inputs that are not fixed. Tables, masks of positions and casts of parameters do
    not."""
    found: set[Node] = set()
    for node in graph.nodes:
        is_input = node.op == "placeholder" and node not in fixed and is_tensor(node)
        if is_input or any(source in found for source in node.all_input_nodes):
            found.add(node)
    return found


def first_of(nodes: Iterable[Node], graph: Graph) -> Node:
    """Returns the node that comes first in the graph."""
    wanted = set(nodes)
    return next(node for node in graph.nodes if node in wanted)


def value_of(argument: object) -> object:
    return argument.meta["val"] if isinstance(argument, Node) else argument
