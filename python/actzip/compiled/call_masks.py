"""Lets calls of ``scaled_dot_product_attention`` read no mask that says no more than ``is_causal`` does, or nothing.

This happens in the graph of the program, before torch chooses how to compute attention: with a mask it may choose
products of matrices and a softmax, which hold the probabilities.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .masks import Meaning, meaning_of
from .torch_parts import CustomGraphPass, disable_current_modes, make_fx

PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
ATTENTION = torch.nn.functional.scaled_dot_product_attention


class SimplerCalls(CustomGraphPass):
    """The pass as torch knows it. ``key`` is part of the keys of torch's cache."""

    def __init__(self, key: Any) -> None:
        self._key = key

    def uuid(self) -> Any:
        return self._key

    def __call__(self, graph: Graph) -> None:
        simplify_calls(graph)


def simplify_calls(graph: Graph) -> None:
    """Rewrites a graph that Dynamo has recorded."""
    meanings: dict[Node, Meaning | None] = {}
    for call in graph.find_nodes(op="call_function", target=ATTENTION):
        given = {**dict(zip(PARAMETERS, call.args)), **call.kwargs}
        mask = given.get("attn_mask")
        tensors = (given.get("query"), given.get("key"), mask)
        are_known = all(isinstance(tensor, Node) and "example_value" in tensor.meta for tensor in tensors)
        if not are_known or given.get("is_causal", False) is not False:
            continue
        if mask not in meanings:
            meanings[mask] = _meaning_of(mask)
        meaning = meanings[mask]
        if meaning is Meaning.NOTHING or (meaning is Meaning.CAUSAL and _has_length_of(mask, given)):
            is_causal = meaning is Meaning.CAUSAL
            call.args, call.kwargs = (), {**given, "attn_mask": None, "is_causal": is_causal}


def _has_length_of(mask: Node, given: dict[str, Any]) -> bool:
    """Whether there are as many queries and keys as the mask has positions. Symbols are not compared, because that
    would add a guard to the compiled graph."""
    sizes = [given[name].meta["example_value"].shape[-2] for name in ("query", "key")]
    length = mask.meta["example_value"].shape[-1]
    return all(isinstance(size, int) and size == length for size in sizes)


def _meaning_of(mask: Node) -> Meaning | None:
    made_of = _made_of(mask)
    if made_of is None or _may_be_written_to(made_of):
        return None
    try:
        with disable_current_modes():
            traced = make_fx(_alone(mask, made_of), tracing_mode="fake")()
    except Exception:  # what the program computes need not work outside of it
        return None
    [result] = traced.graph.output_node().all_input_nodes or [None]
    is_same = result is not None and _form(result.meta["val"]) == _form(mask.meta["example_value"])
    return meaning_of(result) if is_same else None


def _alone(mask: Node, made_of: set[Node]) -> GraphModule:
    graph, copies = Graph(), {}
    for node in mask.graph.nodes:
        if node in made_of:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[mask])
    return GraphModule({}, graph)


def _form(value: torch.Tensor) -> tuple:
    return value.shape, value.dtype, value.device


def _made_of(mask: Node) -> set[Node] | None:
    """Returns the calls that compute the mask. None if they depend on an input, a module or a level of vmap()."""
    found: set[Node] = set()
    waiting = [mask]
    while waiting:
        node = waiting.pop()
        if node.op not in ("call_function", "call_method") or "functorch" in _module_of(node.target):
            return None
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found


def _may_be_written_to(made_of: set[Node]) -> bool:
    """Whether anything that reads these tensors, or what follows from them, may write to its arguments: it could change
    the mask."""
    seen = set(made_of)
    waiting = list(made_of)
    while waiting:
        node = waiting.pop()
        if _may_write(node):
            return True
        new = node.users.keys() - seen
        seen |= new
        waiting += new
    return False


def _may_write(node: Node) -> bool:
    """Goes by torch's names: what writes to its arguments ends in an underscore, or has an argument that says so."""
    if node.op == "output":
        return False
    if node.kwargs.get("out") is not None:
        return True
    if node.op == "call_method":
        return node.target.endswith("_")
    if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if isinstance(node.target, torch._ops.OpOverloadPacket):
        return any(getattr(node.target, overload)._schema.is_mutable for overload in node.target.overloads())
    name, module = getattr(node.target, "__name__", "_"), _module_of(node.target)
    if module == "_operator":
        return name in ("setitem", "delitem") or (name.startswith("i") and hasattr(operator, name[1:]))
    is_known = module.split(".")[0] in ("torch", "math", "builtins")
    return not is_known or name.endswith("_") or _is_inplace(node.target, node.args, node.kwargs)


def _module_of(target: object) -> str:
    return getattr(target, "__module__", None) or "torch"  # many of torch's functions in C have none


def _is_inplace(function: Callable, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether a function such as ``torch.nn.functional.relu`` is asked to write to its argument."""
    try:
        given = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):  # written in C, where names say so
        return False
    return given.get("inplace", False) is not False
