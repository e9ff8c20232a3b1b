"""The two graphs of a compiled function, and what forward hands to backward.

Forward returns its own outputs, then tensors, then symbols; backward takes the symbols, then the tensors, then
gradients. Tensors and symbols are matched by position, since states of generators have different names in the two
graphs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from .nodes import is_backward, is_symbol, is_tensor, own_name, value_of


class UnknownShape(Exception):
    """A size that backward cannot compute from the symbols it has."""


def factors_of(expression: Any) -> tuple:
    """Returns the factors of a product. The square of a length, as in attention's probabilities, is such a product."""
    factors: tuple = ()
    for part in expression.args if expression.is_Mul else (expression,):
        is_power = part.is_Pow and part.exp.is_Integer and part.exp > 0
        factors += (part.base,) * int(part.exp) if is_power else (part,)
    return factors


class Interface:
    """What forward hands to backward; ``close()`` writes the changed outputs."""

    def __init__(self, forward: Graph, backward: Graph, outputs: int) -> None:
        self.forward, self.backward = forward, backward
        given = list(forward.output_node().args[0])
        self._own, handed = given[:outputs], given[outputs:]
        inputs = backward.find_nodes(op="placeholder")
        tensors = [node for node in handed if is_tensor(node)]
        symbols = [node for node in handed if is_symbol(node)]
        #: Nodes of forward, with the inputs of backward that receive them, in the order in which they are handed over.
        self.tensors = dict(zip(tensors, (node for node in inputs if is_tensor(node))))
        self._symbols = dict(zip(symbols, (node for node in inputs if is_symbol(node))))
        #: Whether only tensors and symbols are handed over. Other objects have fixed positions, which must not change.
        self.is_plain = len(tensors) + len(symbols) == len(handed) and len(set(handed)) == len(handed)
        self._new: dict[Node, Node] = {}
        self._sizes = {node.meta["val"].node.expr: node for node in self._symbols.values()}
        self._computed: set[Node] = set()  # calls that compute sizes, before all others of backward
        self.fake_mode = next(node.meta["val"].fake_mode for node in forward.nodes if is_tensor(node))

    def call(self, graph: Graph, target: Callable, arguments: tuple, name: str, named: dict | None = None) -> Node:
        """Adds a node at the graph's insertion point, with the metadata of its result."""
        node = graph.call_function(target, arguments, named or {})
        node._rename(name)
        with self.fake_mode:
            node.meta["val"] = target(*torch.fx.node.map_aggregate(arguments, value_of),
                                      **torch.fx.node.map_aggregate(named or {}, value_of))
        return node

    def hand_over(self, node: Node) -> Node:
        """Hands over one more tensor, before all others: those that torch does not check for writes must stay last."""
        with self.backward.inserting_before(self._first_tensor()):
            reader = self.backward.placeholder(node.name)
        reader.meta["val"] = node.meta["val"]
        self._new[node] = reader
        return reader

    def keep_back(self, node: Node) -> None:
        """Stops handing over this tensor, which must have no reader in backward."""
        self.backward.erase_node(self.tensors.pop(node))

    def drop_unread(self) -> None:
        self.backward.eliminate_dead_code()
        left = set(self.backward.nodes)
        self._computed &= left
        self._sizes = {expression: node for expression, node in self._sizes.items() if node in left}
        for node in [node for node, reader in self.tensors.items() if not reader.users]:
            self.keep_back(node)
        for node in [node for node, reader in self._new.items() if not reader.users]:
            self.backward.erase_node(self._new.pop(node))

    def remove_aliases(self) -> None:
        """Lets backward read tensors themselves instead of aliases, as Inductor does, too."""
        for node in self.backward.nodes:
            if node.op == "call_function" and own_name(node) in ("alias", "detach"):
                node.replace_all_uses_with(node.args[0])
                self.backward.erase_node(node)

    def compute_early(self) -> None:
        """Moves what forward computes for backward alone right behind what it is computed from. torch computes it at the
        end of forward, and what is encoded there would stay in memory until then."""
        inputs = set(self.forward.find_nodes(op="placeholder"))
        for node in list(self.forward.nodes):
            sources = set(node.all_input_nodes) - inputs
            if node.op == "call_function" and is_backward(node) and sources and not node.is_impure():
                max(sources).append(node)

    def size(self, size: Any) -> Any:
        """Returns a size as a number, or as a node of backward that computes it. Raises UnknownShape if none can."""
        return size if isinstance(size, int) else self._expression(size.node.expr)

    def compute_sizes(self) -> None:
        """Computes sizes that backward reads off a tensor from symbols, so that nobody needs the tensor for its size."""
        saved = set(self.tensors.values())
        for node in self.backward.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int):
            if node.args[0] not in saved or not is_symbol(node):
                continue
            try:
                size = self.size(node.meta["val"])
            except UnknownShape:
                continue
            if isinstance(size, Node):
                node.replace_all_uses_with(size)
                self.backward.erase_node(node)

    def size_in_forward(self, size: Any, after: Node) -> Any:
        """Does the same in forward. Nodes that compute the size are added behind ``after``."""
        if isinstance(size, int):
            return size
        inputs = {node.meta["val"].node.expr: node for node in self.forward.find_nodes(op="placeholder")
                  if is_symbol(node)}
        factors = factors_of(size.node.expr)
        if not all(factor.is_Integer or factor in inputs for factor in factors):
            raise UnknownShape(str(size))
        total, *others = (int(factor) if factor.is_Integer else inputs[factor] for factor in factors)
        for other in others:
            with self.forward.inserting_after(after):
                node = self.forward.call_function(operator.mul, (total, other))
            node.meta["val"] = value_of(total) * value_of(other)
            total = after = node
        return total

    def _expression(self, expression: Any) -> Any:
        if expression.is_Integer:
            return int(expression)
        if expression in self._sizes:
            return self._sizes[expression]
        if expression.is_Symbol:
            node = self._new_symbol(expression)
        elif expression.is_Add:
            node = self._combination(operator.add, expression.args)
        elif len(factors := factors_of(expression)) > 1:
            node = self._combination(operator.mul, factors)
        else:
            raise UnknownShape(str(expression))
        self._sizes[expression] = node
        return node

    def _combination(self, function: Callable, parts: tuple) -> Node:
        total, *others = (self._expression(part) for part in parts)
        for other in others:
            with self.backward.inserting_before(self._first_call()):
                node = self.backward.call_function(function, (total, other))
            node.meta["val"] = function(value_of(total), value_of(other))
            self._computed.add(node)
            total = node
        return total

    def _new_symbol(self, symbol: Any) -> Node:
        found = next((node for node in self.forward.nodes
                      if is_symbol(node) and node.meta["val"].node.expr == symbol), None)
        if found is None:
            raise UnknownShape(str(symbol))
        with self.backward.inserting_before(next(iter(self.backward.nodes))):
            reader = self.backward.placeholder(found.name)
        reader.meta["val"] = found.meta["val"]
        self._symbols = {found: reader, **self._symbols}
        return reader

    def _first_tensor(self) -> Node:
        return next(node for node in self.backward.nodes if node.op == "placeholder" and is_tensor(node))

    def _first_call(self) -> Node:
        return next(node for node in self.backward.nodes if node.op != "placeholder" and node not in self._computed)

    def close(self) -> None:
        newest_first = list(reversed(self._new))
        outputs = (*self._own, *newest_first, *self.tensors, *self._symbols)
        output = self.forward.output_node()
        output.args = (outputs,)
        output.meta.pop("desc", None)  # it describes the former outputs
