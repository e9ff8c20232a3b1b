"""Lets fused attention in joint graphs read no mask that says no more than ``is_causal`` does, or nothing.

Whatever ``call_masks`` could not follow in the program is a plain chain of operators here.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import GraphModule, Node

from .masks import Meaning, meaning_of
from .nodes import named_arguments, own_name, set_arguments, without_aliases

MASKS = ("attn_bias", "attn_mask")


def simplify_masks(graph: GraphModule) -> None:
    """Rewrites the joint graph of forward and backward."""
    meanings: dict[Node, Meaning | None] = {}
    for call in graph.graph.nodes:
        mask = None if own_name(call).endswith("_backward") else _mask_of(call)
        if mask is None:
            continue
        if mask not in meanings:
            meanings[mask] = meaning_of(mask)
        meaning, gradients = meanings[mask], _gradients_of(call)
        if meaning is None or gradients is None or any(_mask_of(gradient) is not mask for gradient in gradients):
            continue
        if meaning is Meaning.NOTHING or _has_length(call, mask.meta["val"].shape[-1]):
            for node in (call, *gradients):
                name = next(name for name in MASKS if name in named_arguments(node))
                set_arguments(node, **{name: None, "is_causal": meaning is Meaning.CAUSAL})


def _mask_of(node: Node) -> Node | None:
    """Returns the mask of a call of fused attention or of its gradient, before its expansion to all heads. Returns None
    for other nodes, and if there is no mask or ``is_causal`` is set."""
    if not isinstance(node.target, torch._ops.OpOverload) or not own_name(node).startswith("_scaled_dot_product"):
        return None
    given = named_arguments(node)
    mask = next((given[name] for name in MASKS if given.get(name) is not None), None)
    while mask is not None and own_name(mask) == "expand":
        mask = mask.args[0]
    return None if given.get("is_causal") else mask


def _has_length(call: Node, length: int) -> bool:
    """Whether there are so many queries and as many keys. If the two differ, operators disagree about what causal
    means. Symbols are not compared, because that would add a guard to the compiled graph."""
    sizes = [named_arguments(call)[name].meta["val"].shape[-2] for name in ("query", "key")]
    return all(isinstance(size, int) and size == length for size in sizes)


def _gradients_of(call: Node) -> list[Node] | None:
    """Returns the gradients of the same operator that read results of the call, perhaps by an alias. Returns None if
    anything else reads what is there for gradients alone, such as a gradient that was replaced."""
    found: set[Node] = set()
    for part in call.users:
        readers = _readers(part)
        gradients = {reader for reader in readers if own_name(reader) == f"{own_name(call)}_backward"}
        if part.target is not operator.getitem or (part.args[1] != 0 and gradients != readers):
            return None
        found |= gradients
    return list(found)


def _readers(node: Node) -> set[Node]:
    """Returns the nodes that read the given one or an alias of it, without the aliases."""
    readers: set[Node] = set()
    for user in node.users:
        readers |= {user} if without_aliases(user) is user else _readers(user)
    return readers
