"""Finds out for which calls a graph saves a tensor: the calls of forward whose gradients read it in backward.

A node of backward has the sequence number of the forward call whose gradient it computes. So the reader of a saved
tensor identifies a call, and the tensor's position in that call is its slot. The operator table then gives its use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

from .. import _C
from .nodes import (base_of, elements, is_backward, is_conversion, is_decomposed, is_linear, is_tensor, is_view,
                    module_of, operator_of, own_name, schema_name, shape_hint)

#: Positions of tensors that are no arguments; see SlotCode in the extension.
RESULT, OTHER = 12, 13
#: Intermediate values of these, at full size, are their input, shifted and scaled.
NORMS = ("native_layer_norm", "_fused_rms_norm", "native_group_norm", "batch_norm")
#: Uses of operators whose slope, if forward computes it, is a factor like any other. The slope of a loss is not.
SLOPES = ("gelu_input", "slope_input")
#: Names of attention's outputs in backward, with their slots.
ATTENTION_OUTPUTS = {"out": "result", "logsumexp": "aux0"}


@dataclasses.dataclass(frozen=True)
class Saver:
    """One call that a tensor is saved for. The fields are those that the extension expects, in this order."""

    module: str
    schema: str
    slot: str
    position: int
    shapes: list[list[int]]  #: of the arguments; empty for those that are no tensors or no longer known
    numbers: list[float]
    meets_parameter: bool = False
    meets_itself: bool = False
    recomputable: bool = False
    after_model: bool = False

    def fields(self) -> tuple:
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self))


class Readers:
    """Finds the savers of what a graph saves."""

    def __init__(self, forward: Graph, backward: Graph, saved: dict[Node, Node], fixed: set[Node]) -> None:
        """``saved`` maps inputs of backward to nodes of forward; ``fixed`` are parameters and buffers."""
        self._saved, self._fixed = saved, fixed
        self._by_name = {node.name: node for node in forward.nodes}
        self._order = {node: i for i, node in enumerate(forward.nodes)}
        self._calls: dict[int, list[Node]] = {}
        for node in forward.nodes:
            if node.op == "call_function" and node.meta.get("seq_nr") is not None and not is_backward(node):
                self._calls.setdefault(node.meta["seq_nr"], []).append(node)
        self._model_end = max((self._order[node] for node in forward.nodes if self._has_parameter(node)), default=0)

    def savers(self, reader: Node) -> list[Saver]:
        """Returns the savers of an input of backward, including an unknown saver for each reader that is not
        recognised."""
        found: dict[tuple, Saver] = {}
        todo = [(reader, user, frozenset()) for user in reader.users]
        seen = set()
        while todo:
            value, user, inside = todo.pop()
            if (value, user) in seen:
                continue
            seen.add((value, user))
            if is_view(user):
                todo += [(user, next_user, inside) for next_user in user.users]
                continue
            computed_again = self._is_computed_again(user)
            number = user.meta.get("seq_nr")
            if not (number in inside or (computed_again and is_linear(user))):
                for saver in self._savers_at(value, user):
                    found[(saver.module, saver.schema, saver.slot)] = saver
            if computed_again:
                todo += [(user, next_user, inside | {number}) for next_user in user.users]
        return list(found.values())

    def only_result(self, reader: Node) -> Node | None:
        """If this input of backward is read only to compute one operator's result again, returns the node of that
        result."""
        results: set[Node] = set()
        todo, seen = list(reader.users), set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if not self._is_computed_again(node):
                return None
            if self._is_known_result(self._by_name[node.name]):
                results.add(node)
            else:
                todo += node.users
        return results.pop() if len(results) == 1 else None

    def _is_known_result(self, call: Node) -> bool:
        calls = self._calls.get(call.meta.get("seq_nr"), [])
        is_other_view = is_view(call) and not is_rounded_result(call)
        if is_other_view or not is_tensor(call) or not call.meta["val"].dtype.is_floating_point:
            return False
        savers = list(self._as_inside(call, calls))
        return any(saver.slot == "result" and _C.use_of(saver.schema, "result") != "unknown" for saver in savers)

    def maker(self, mask: Node) -> Saver:
        """Returns the call that a mask belongs to. Masks are exact, so it does not matter who reads them."""
        calls = [call for call in self._calls.get(mask.meta.get("seq_nr"), []) if not is_view(call) and call is not mask]
        call = calls[0] if calls else mask
        return Saver(module_of(call), schema_name(call), "result", RESULT, [], [])

    def forward_of(self, node: Node) -> Node | None:
        """The same value in forward, if it is one of forward."""
        if node in self._saved:
            return self._saved[node]
        return self._by_name.get(node.name) if self._is_computed_again(node) else None

    def _is_computed_again(self, node: Node) -> bool:
        return node.op == "call_function" and not is_backward(node) and node.name in self._by_name

    def _has_parameter(self, call: Node) -> bool:
        """Whether the call computes with a parameter. Views of parameters may stand anywhere, and writes to buffers at
        the end, so these do not count."""
        if call.op != "call_function" or is_view(call) or is_backward(call) or own_name(call) == "copy_":
            return False
        return any(base_of(argument) in self._fixed for argument in call.all_input_nodes)

    def _savers_at(self, value: Node, user: Node) -> Iterator[Saver]:
        if own_name(user).startswith("_scaled_dot_product"):
            yield self._attention_saver(value, user)
            return
        source = value
        while is_view(source) and self.forward_of(source) is None:
            source = source.all_input_nodes[0]
        source = self.forward_of(source)
        calls = self._calls.get(user.meta.get("seq_nr"), []) if source is not None else []
        if source is not None and is_backward(base_of(source)):
            savers = list(self._as_part_of_gradient(source, user))
        else:
            savers = [*self._as_argument(source, calls), *self._as_inside(source, calls)] if calls else []
        if not savers:
            savers = [unknown_saver(module_of(user), schema_name(user), "unknown")]
        yield from savers

    def _as_argument(self, source: Node, calls: list[Node]) -> Iterator[Saver]:
        """The tensor is an argument of these calls, perhaps as a view."""
        own = set(calls)
        base = base_of(source)
        for call in calls:
            if is_view(call):
                continue
            for argument in call.all_input_nodes:
                is_outside = argument not in own or is_view(argument)
                if is_outside and base_of(argument) is base and base not in own:
                    yield self._saver(call, argument, source)

    def _as_part_of_gradient(self, source: Node, user: Node) -> Iterator[Saver]:
        """The tensor belongs to the gradient, but forward computes it: a norm's input without its mean, or a slope."""
        calls = [call for call in self._calls.get(base_of(source).meta.get("seq_nr"), []) if not is_view(call)]
        norm = next((call for call in calls if any(name in schema_name(call) for name in NORMS)), None)
        shape = shape_hint(source.meta["val"])
        if norm is not None:
            is_large = elements(source.meta["val"]) == max(elements(call.meta["val"]) for call in calls if is_tensor(call))
            slot, position = ("input", 0) if is_large else ("aux0", OTHER)
            yield Saver(module_of(norm), schema_name(norm), slot, position, [shape], [])
        elif (own_name(user) == "mul" and user.meta["val"].shape == source.meta["val"].shape
              and any(_C.use_of(schema_name(call), "self") in SLOPES for call in calls)):
            yield Saver(module_of(user), "aten::mul", "other", 1, [shape, shape], [],
                        after_model=self._is_after_model(calls[0]))

    def _as_inside(self, source: Node, calls: list[Node]) -> Iterator[Saver]:
        """The tensor is a result of these calls, or an intermediate value."""
        call = base_of(source)
        if call not in calls:
            return
        schema = schema_name(call)
        largest = max((elements(node.meta["val"]) for node in calls if is_tensor(node)), default=0)
        is_large = is_tensor(source) and elements(source.meta["val"]) == largest
        last = source if is_rounded_result(source) else call
        is_last = any(user not in calls for user in last.users) or not last.users
        if any(name in schema for name in NORMS):
            slot, position = ("input", 0) if is_large else ("aux0", OTHER)
        elif is_last and is_large:
            slot, position = "result", RESULT
        else:
            yield unknown_saver(module_of(call), schema, "inside")
            return
        shapes = [shape_hint(source.meta["val"])] if position == 0 else []
        yield Saver(module_of(call), schema, slot, position, shapes, [], after_model=self._is_after_model(call))

    def _saver(self, call: Node, argument: Node, source: Node) -> Saver:
        schema, module = schema_name(call), module_of(call)
        after_model = self._is_after_model(call)
        if is_decomposed(call):
            value = source.meta["val"]
            names = _tensor_arguments(call.meta["original_aten"])
            is_first = bool(names) and not self._is_broadcast(call, argument)
            if not is_first and not any(name in schema for name in NORMS):
                return unknown_saver(module, schema, "other")
            slot, position = (names[0], 0) if is_first else ("other", OTHER)
            return Saver(module, schema, slot, position, [shape_hint(value)], [], after_model=after_model)
        names = [a.name for a in call.target._schema.arguments]
        position = next((i for i, a in enumerate(call.args) if a is argument or _holds(a, argument)), None)
        if position is None:  # a keyword argument
            return unknown_saver(module, schema, "named")
        others = [a for i, a in enumerate(call.args) if i != position and is_tensor(a)]
        return Saver(module, schema, names[position], position, [_shape(a) for a in call.args],
                     [float(a) if isinstance(a, (int, float)) else 0.0 for a in call.args],
                     meets_parameter=any(base_of(a) in self._fixed for a in others),
                     meets_itself=argument in others, after_model=after_model)

    @staticmethod
    def _is_broadcast(call: Node, argument: Node) -> bool:
        return is_tensor(call) and is_tensor(argument) and elements(argument.meta["val"]) < elements(call.meta["val"])

    def _attention_saver(self, value: Node, user: Node) -> Saver:
        """Attention is never decomposed, and the arguments of its gradient are named."""
        target, arguments = operator_of(user)
        names = [argument.name for argument in target._schema.arguments]
        position = next((i for i, a in enumerate(arguments) if a is value), None)
        slot = "attn_mask" if position is None else names[position]
        schema = target._schema.name.removesuffix("_backward")
        slot = ATTENTION_OUTPUTS.get(slot, slot)
        return Saver(module_of(user), schema, slot, OTHER if position is None else position, [], [])

    def _is_after_model(self, call: Node) -> bool:
        """Whether the call belongs to a loss: behind all calls with parameters, in no module but the model itself."""
        return self._order.get(call, 0) > self._model_end > 0 and module_of(call) == ""


def is_rounded_result(node: Node) -> bool:
    """Whether the node rounds the result of a decomposed operator to the type that the operator returns."""
    source = node.all_input_nodes[0] if is_conversion(node) else node
    return source is not node and is_decomposed(node) and source.meta.get("seq_nr") == node.meta.get("seq_nr") is not None


def unknown_saver(module: str, schema: str, slot: str) -> Saver:
    """Returns the saver for a reader that matches no slot of its operator. It has a name of its own, so that rows for
    all slots do not match it."""
    return Saver(module, f"aten::reader of {schema.split('::')[-1]}", slot, OTHER, [], [])


def _tensor_arguments(operator: torch._ops.OpOverload) -> list[str]:
    return [argument.name for argument in operator._schema.arguments if "Tensor" in str(argument.type)]


def _holds(argument: object, node: Node) -> bool:
    return isinstance(argument, (list, tuple)) and node in argument


def _shape(argument: object) -> list[int]:
    return shape_hint(argument.meta["val"]) if is_tensor(argument) else []
