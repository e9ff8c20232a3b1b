"""Replaces masks that are merely causal by ``is_causal``.

Models of Hugging Face write their mask out when they are compiled. Such a mask is made of constants and is the same in
every step. A fused operator takes three times as long if it reads a mask, and attention runs again in backward.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch.fx import GraphModule, Node

from .nodes import named_arguments, own_name, set_arguments, without_aliases
from .torch_parts import disable_current_modes

MASKS = ("attn_bias", "attn_mask")
MOST_BYTES = 2**29  #: what may be held at once to compute a mask
#: Masks add at most this to hidden logits: -inf, the least number of a type, or what torch writes for cuDNN.
HIDDEN = torch.finfo(torch.float16).min


def tell_causal(graph: GraphModule) -> None:
    """Rewrites the joint graph of forward and backward."""
    lengths: dict[Node, int | None] = {}
    for call in graph.graph.nodes:
        mask = None if own_name(call).endswith("_backward") else _mask_of(call)
        if mask is None:
            continue
        if mask not in lengths:
            lengths[mask] = _causal_length(mask)
        gradients = _gradients_of(call)
        if (lengths[mask] is not None and _has_length(call, lengths[mask]) and gradients is not None
                and all(_mask_of(gradient) is mask for gradient in gradients)):
            for node in (call, *gradients):
                name = next(name for name in MASKS if name in named_arguments(node))
                set_arguments(node, **{name: None, "is_causal": True})


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


def _causal_length(mask: Node) -> int | None:
    """Computes the mask's values, as there are many ways to write such a mask. Returns for how many positions it says
    no more than that attention is causal, or None if it is any other mask."""
    try:
        made_of = _made_of(mask)
        value = None if made_of is None else _computed(made_of)
        return None if value is None or not _says_causal(value) else value.shape[-1]
    except Exception:  # mostly out of memory; the operator then reads its mask as it would without actzip
        return None


def _made_of(mask: Node) -> list[Node] | None:
    """Returns the calls that compute the mask, in order, or None if they depend on more than constants."""
    found, waiting = set(), [mask]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        if not _is_pure(node):
            return None
        found.add(node)
        waiting.extend(node.all_input_nodes)
    return [node for node in mask.graph.nodes if node in found]


def _is_pure(node: Node) -> bool:
    """Whether the result is the same whenever the node is called. Operators of other libraries may read state."""
    value = node.meta.get("val")
    return (isinstance(node.target, torch._ops.OpOverload) and node.target.namespace in ("aten", "prims")
            and not node.target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in node.target.tags
            and isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in value.shape))


def _computed(nodes: list[Node]) -> torch.Tensor | None:
    """Returns the value of the last node, or None if that takes too much memory."""
    last_readers = {source: node for node in nodes for source in node.all_input_nodes}
    values: dict[Node, torch.Tensor] = {}
    with disable_current_modes():
        for node in nodes:
            if _bytes_of(values.values()) + node.meta["val"].untyped_storage().nbytes() > MOST_BYTES:
                return None
            values[node] = node.target(*torch.fx.node.map_arg(node.args, values.__getitem__),
                                       **torch.fx.node.map_arg(node.kwargs, values.__getitem__))
            for source in node.all_input_nodes:
                if last_readers[source] is node:
                    del values[source]
    return values[nodes[-1]]


def _bytes_of(values: Iterable[torch.Tensor]) -> int:
    """Returns how much memory the tensors take. Views share theirs."""
    memory = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in values}
    return sum(memory.values())


def _says_causal(value: torch.Tensor) -> bool:
    length = value.shape[-1]
    if value.shape[-2:] != (length, length):
        return False
    with disable_current_modes():
        allowed = torch.ones(length, length, dtype=torch.bool, device=value.device).tril()
        if value.dtype is torch.bool:
            return bool((value == allowed).all())
        return bool(torch.where(allowed, value == 0, value <= HIDDEN).all())
