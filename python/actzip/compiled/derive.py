"""The option ``derive``: backward computes some tensors again from others, instead of keeping them.

By default, torch recomputes nothing that backward needs in memory as a whole. With ``derive=True`` it does so wherever
no matrix product is needed. That saves bytes, and the time to encode and decode them, but a derived tensor has the
noise of what it is derived from. ``derive="auto"`` derives a tensor only if that makes it no worse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from .nodes import VIEWS, base_of, is_backward, own_name
from .rewrite import Choice
from .torch_parts import functorch_config, min_cut_rematerialization_partition

#: Operators through which noise passes unchanged but for factors. A norm with known statistics consists of them.
LINEAR = VIEWS | {"mul", "add", "sub", "rsub", "div", "neg"}
EXACT_BITS = 32

Choose = Callable[[GraphModule, GraphModule], dict[Node, Choice]]
Split = tuple[GraphModule, GraphModule]


def split(graph: GraphModule, inputs: Sequence[object], given: dict[str, Any], *, derive: bool) -> Split:
    """Returns forward and backward as torch cuts them."""
    with functorch_config.patch(ban_recompute_materialized_backward=not derive):
        return min_cut_rematerialization_partition(graph, inputs, **given)


def split_without_loss(graph: GraphModule, inputs: Sequence[object], given: dict[str, Any], choose: Choose) -> Split:
    """Does the same, but derives only tensors that come out no worse: cuts both ways, and marks all others as kept.

    Derives nothing if more bytes would be kept in the end.
    """
    kept = {node.name: choice for node, choice in choose(*split(_copy_of(graph), inputs, given, derive=False)).items()}
    forward, backward = split(_copy_of(graph), inputs, given, derive=True)
    origins = _origins(forward.graph, backward.graph)
    now = {node.name: choice for node, choice in choose(forward, backward).items()}
    lost = {name for name, choice in kept.items()
            if name not in now and name in origins
            and (choice.is_asked_for or not _is_as_good(choice, *origins[name], now)
                 or _new_bytes(origins[name][0], kept, now) > choice.line.after)}
    in_the_end = choose(*split(_marked(_copy_of(graph), lost), inputs, given, derive=True))
    if _bytes(in_the_end.values()) >= _bytes(kept.values()):
        return split(graph, inputs, given, derive=False)
    return split(_marked(graph, lost), inputs, given, derive=True)


def _marked(graph: GraphModule, names: set[str]) -> GraphModule:
    """Marks the nodes of these names as kept."""
    for node in graph.graph.nodes:
        if node.name in names:
            base_of(node).meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return graph


def _bytes(choices: Iterable[Choice]) -> int:
    return sum(choice.line.after for choice in choices)


def _is_as_good(choice: Choice, sources: set[str], is_linear: bool, kept: dict[str, Choice]) -> bool:
    """Whether all its sources have at least as many bits as it would have, and one of them more unless it is linear."""
    own, bits = _bits(choice), [_bits(kept[name]) for name in sources if name in kept]
    noisy = [count for count in bits if count < EXACT_BITS]
    return not noisy or (min(noisy) >= own and (is_linear or max(noisy) > own))


def _new_bytes(sources: set[str], before: dict[str, Choice], now: dict[str, Choice]) -> int:
    """Returns the bytes of sources that are kept only because something is derived from them."""
    return sum(now[name].line.after for name in sources if name in now and name not in before)


def _bits(choice: Choice) -> int:
    name, *words = choice.line.codec.split(":")
    if not choice.is_encoded or name == "mask":  # a mask is exact
        return EXACT_BITS
    return 16 if name == "cast" else next((int(word) for word in words if word.isdigit()), EXACT_BITS)


def _origins(forward: Graph, backward: Graph) -> dict[str, tuple[set[str], bool]]:
    """Returns, for each node that backward computes again, the inputs that it depends on, and whether linearly."""
    names = {node.name for node in forward.nodes}
    found: dict[str, tuple[set[str], bool]] = {}
    for node in backward.nodes:
        if node.op == "placeholder":
            found[node.name] = ({node.name}, True)
        elif node.op == "call_function" and node.name in names and not is_backward(node):
            parts = [found.get(source.name, (set(), False)) for source in node.all_input_nodes]
            found[node.name] = (set().union(*(sources for sources, _ in parts)),
                                own_name(node) in LINEAR and all(is_linear for _, is_linear in parts))
    return found


def _copy_of(graph: GraphModule) -> GraphModule:
    """Copies the graph with names and metadata of its nodes, since torch cuts in place."""
    copied = Graph()
    output = copied.output(copied.graph_copy(graph.graph, {}))
    output.meta.update(graph.graph.output_node().meta)
    return GraphModule(graph, copied)
