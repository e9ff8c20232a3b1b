"""What a mask of attention says, if it is made of constants and thus is the same in every step.

Models of Hugging Face write their masks out when they are compiled, even those that only make attention causal and
those that hide nothing. A fused operator takes three times as long if it reads a mask, and attention runs again in
backward.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import torch
from torch.fx import Node

from .torch_parts import disable_current_modes

MOST_BYTES = 2**29  #: what may be held at once to compute a mask
#: Masks add at most this to hidden logits: -inf, the least number of a type, or what torch writes for cuDNN.
HIDDEN = torch.finfo(torch.float16).min


class Meaning(enum.Enum):
    """All that a mask may say for an operator to do without it."""

    NOTHING = enum.auto()  #: every query sees every key
    CAUSAL = enum.auto()  #: each query sees the keys up to its own position; there are as many of both


def meaning_of(mask: Node) -> Meaning | None:
    """Computes the mask's values, as there are many ways to write a mask. Returns None if it says more, or depends on
    more than constants. ``mask`` belongs to a graph of ATen operators that write to nothing."""
    try:
        made_of = _made_of(mask)
        value = None if made_of is None else _computed(made_of)
        return None if value is None else _said_by(value)
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


def _said_by(value: torch.Tensor) -> Meaning | None:
    with disable_current_modes():
        seen = value if value.dtype is torch.bool else value == 0
        if bool(seen.all()):
            return Meaning.NOTHING
        length = value.shape[-1]
        if value.shape[-2:] != (length, length):
            return None
        causal = torch.ones(length, length, dtype=torch.bool, device=value.device).tril()
        hidden = ~seen if value.dtype is torch.bool else value <= HIDDEN
        return Meaning.CAUSAL if bool(torch.where(causal, seen, hidden).all()) else None
