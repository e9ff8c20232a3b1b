"""Finds in a graph what torch makes of an operator when it decomposes it."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch.fx import Node

from .nodes import base_of
from .torch_parts import FakeTensorMode, make_fx, select_decomp_table

MOST_VISITED = 200  #: nodes between the input that is given and the first result


@dataclasses.dataclass(frozen=True)
class Form:
    """What a tensor looks like."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: torch.Tensor) -> Form:
        return cls(tuple(value.shape), tuple(value.stride()), value.dtype, value.device)


@dataclasses.dataclass(frozen=True)
class Pattern:
    """The nodes that torch makes of an operator."""

    inputs: tuple[Node, ...]
    results: tuple[Node, ...]


@functools.lru_cache(maxsize=256)
def pattern(function: Callable[..., Sequence[torch.Tensor]], forms: tuple[Form, ...]) -> Pattern:
    """Returns what torch makes of ``function``, called with such tensors."""
    with FakeTensorMode() as mode:
        values = [torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device=form.device) for form in forms]
        graph = make_fx(function, decomposition_table=select_decomp_table(), tracing_mode="real")(*values).graph
        del mode
    return Pattern(tuple(graph.find_nodes(op="placeholder")), tuple(graph.output_node().args[0]))


class Match:
    """A place in a graph that equals a pattern."""

    def __init__(self, of: Pattern, found: dict[Node, Node] | None = None) -> None:
        self._of, self._found = of, found or {}

    @property
    def inputs(self) -> list[Node]:
        """Small ones may be views with other sizes, which forward has handed over."""
        return [self._found[node] for node in self._of.inputs]

    @property
    def results(self) -> list[Node | None]:
        """None for results that the graph does not compute."""
        return [self._found.get(node) for node in self._of.results]

    @property
    def inside(self) -> set[Node]:
        """All nodes but the inputs."""
        return {found for node, found in self._found.items() if node.op != "placeholder"}

    def extended(self, node: Node, other: Node) -> Match | None:
        """Returns a match in which a node of the pattern equals a node of the graph; None if that cannot be."""
        longer = Match(self._of, dict(self._found))
        return longer if longer._unify(node, other) else None

    def extended_to_all_results(self) -> Match:
        """Returns a match with the results that the graph computes besides the first."""
        match = self
        for node in self._of.results:
            neighbours = (match._found[source] for source in node.all_input_nodes if source in match._found)
            candidates = (match.extended(node, user) for source in neighbours for user in source.users)
            if node not in match._found:
                match = next((longer for longer in candidates if longer is not None), match)
        return match

    def is_all_that_reads(self, source: Node) -> bool:
        """Whether nothing outside depends on this input, except through the results."""
        inside, results = self.inside, set(self.results)
        todo, seen = [source], set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if not set(node.users) <= inside:
                return False
            todo += [user for user in node.users if user not in results]
        return True

    def _unify(self, node: Node, other: Node) -> bool:
        if node in self._found:
            return self._found[node] is other
        if node.op == "placeholder":
            same = _is_alike(node, other)
        elif other.op == "placeholder":
            source = base_of(node)
            same = source.op == "placeholder" and source not in self._found and _is_alike(node, other)
            if same:
                self._found[source] = other
        else:
            same = (node.op == other.op and node.target is other.target
                    and self._equal(node.args, other.args) and self._equal(node.kwargs, other.kwargs))
        if same:
            self._found[node] = other
        return same

    def _equal(self, a: object, b: object) -> bool:
        if isinstance(a, Node):
            return isinstance(b, Node) and self._unify(a, b)
        if isinstance(a, (list, tuple)):
            return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(self._equal, a, b))
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(self._equal(a[key], b[key]) for key in a)
        return not isinstance(b, Node) and a == b


def find(of: Pattern, given: Node, position: int = 1) -> Match | None:
    """Returns a match whose input at ``position`` is ``given``, if nothing outside of it depends on ``given``."""
    [source], [first, *_] = of.inputs[position:position + 1], of.results
    start = Match(of).extended(source, given)
    if start is None:
        return None
    for end in _reached(given):
        match = start.extended(first, end)
        if match is not None and (whole := match.extended_to_all_results()).is_all_that_reads(given):
            return whole
    return None


def _is_alike(node: Node, other: Node) -> bool:
    value = other.meta.get("val")
    is_plain = isinstance(value, torch.Tensor) and all(isinstance(size, int) for size in (*value.shape, *value.stride()))
    return is_plain and Form.of(node.meta["val"]) == Form.of(value)


def _reached(source: Node) -> Iterator[Node]:
    """Yields nodes that depend on this one, the nearest first."""
    queue, seen = collections.deque([source]), {source}
    while queue and len(seen) < MOST_VISITED:
        for user in queue.popleft().users:
            if user not in seen:
                seen.add(user)
                queue.append(user)
                yield user
