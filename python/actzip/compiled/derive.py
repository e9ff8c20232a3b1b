"""What backward computes again from something else that is kept: what comes out no worse than if it was kept itself.

torch computes nothing again that backward needs in memory as a whole, unless it is told to; then it does so wherever no
product of matrices is needed. Of two tensors one of which follows from the other one is then kept. That saves bytes,
and the time to encode and decode them. But what follows has the noise of what it follows from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from .nodes import VIEWS, base_of, is_backward, own_name
from .rewrite import Choice
from .torch_parts import functorch_config, min_cut_rematerialization_partition

#: Noise passes through them as it is, but for factors: a norm with its statistics known.
LINEAR = VIEWS | {"mul", "add", "sub", "rsub", "div", "neg"}
EXACT_BITS = 32

Choose = Callable[[GraphModule, GraphModule], dict[Node, Choice]]
Split = tuple[GraphModule, GraphModule]


def split(graph: GraphModule, inputs: Sequence[object], given: dict[str, Any], *, derive: bool) -> Split:
    """Forward and backward as torch cuts them."""
    with functorch_config.patch(ban_recompute_materialized_backward=not derive):
        return min_cut_rematerialization_partition(graph, inputs, **given)


def split_without_loss(graph: GraphModule, inputs: Sequence[object], given: dict[str, Any], choose: Choose) -> Split:
    """The same, with what comes out no worse computed again, and nothing else: tries both, and marks the rest.

    If more bytes would be kept in the end, nothing is computed again.
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
    """These are kept."""
    for node in graph.graph.nodes:
        if node.name in names:
            base_of(node).meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return graph


def _bytes(choices: Iterable[Choice]) -> int:
    return sum(choice.line.after for choice in choices)


def _is_as_good(choice: Choice, sources: set[str], is_linear: bool, kept: dict[str, Choice]) -> bool:
    """Whether it follows from what has as many bits as it would have; more, unless it follows linearly."""
    own, bits = _bits(choice), [_bits(kept[name]) for name in sources if name in kept]
    noisy = [count for count in bits if count < EXACT_BITS]
    return not noisy or (min(noisy) >= own and (is_linear or max(noisy) > own))


def _new_bytes(sources: set[str], before: dict[str, Choice], now: dict[str, Choice]) -> int:
    """Of what is kept only because something follows from it."""
    return sum(now[name].line.after for name in sources if name in now and name not in before)


def _bits(choice: Choice) -> int:
    name, *words = choice.line.codec.split(":")
    if not choice.is_encoded or name == "mask":  # a mask is exact
        return EXACT_BITS
    return 16 if name == "cast" else next((int(word) for word in words if word.isdigit()), EXACT_BITS)


def _origins(forward: Graph, backward: Graph) -> dict[str, tuple[set[str], bool]]:
    """For what backward computes again: the inputs of backward that it follows from, and whether linearly."""
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
    """With the names and what is known of the nodes; torch cuts in place."""
    copied = Graph()
    output = copied.output(copied.graph_copy(graph.graph, {}))
    output.meta.update(graph.graph.output_node().meta)
    return GraphModule(graph, copied)
