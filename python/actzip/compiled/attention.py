"""Makes fused attention run again in backward, on q, k and v as they are kept, so that errors cancel."""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch.fx import Node

from .interface import Interface
from .nodes import module_of, named_arguments, own_name, schema_name, set_arguments, without_aliases
from .savers import OTHER, RESULT, Readers, Saver
from .torch_parts import inductor_config, run_and_save_rng_state, run_with_rng_state

AGAIN = "actzip_again"
#: The results of attention among its gradient's arguments, with their slots in the operator table.
OUTPUTS = {"out": "result", "logsumexp": "aux0"}
OPERANDS = ("query", "key", "value", "out")

Decide = Callable[[torch.Tensor, list[Saver]], dict]


class AttentionAgain:
    """Rewrites the gradients of fused attention in one backward graph."""

    def __init__(self, between: Interface, decide: Decide, readers: Callable[[], Readers]) -> None:
        self._between, self._decide, self._readers = between, decide, readers
        #: Results that are no longer handed over, with their decisions.
        self.recomputed: dict[Node, dict] = {}
        #: Tensors of attention that cannot run again. In few bits, q and k would not match the exact sum of
        #: exponentials.
        self.exact: set[Node] = set()

    def run(self) -> None:
        for gradient in [node for node in self._between.backward.nodes
                         if own_name(node).startswith("_scaled_dot_product") and own_name(node).endswith("_backward")]:
            self._rewrite(gradient)
        self._between.drop_unread()

    def _rewrite(self, gradient: Node) -> None:
        given = named_arguments(gradient)
        readers = self._readers()
        outputs = {name: without_aliases(readers.forward_of(given[name])) for name in OUTPUTS if name in given}
        if len(outputs) != 2 or any(node is None or node.target is not operator.getitem for node in outputs.values()):
            return
        call = outputs["out"].args[0]
        decisions = {name: self._decide(node.meta["val"], [_saver(call, OUTPUTS[name])])
                     for name, node in outputs.items()}
        if decisions["out"]["keep"] != "recomputed":
            return
        again = self._call_again(call, gradient, given, readers)
        if again is None:
            self.exact |= {readers.forward_of(given[name]) for name in OPERANDS if name in given}
            return
        with self._between.backward.inserting_before(gradient):
            for name, node in outputs.items():
                part = self._between.call(self._between.backward, operator.getitem, (again, node.args[1]),
                                          f"{AGAIN}_{node.name}")
                set_arguments(gradient, **{name: part})
        self.recomputed |= {node: decisions[name] for name, node in outputs.items()}

    def _call_again(self, call: Node, gradient: Node, given: dict, readers: Readers) -> Node | None:
        """Adds the same call right before its gradient. Returns None if backward does not have all its arguments."""
        if not isinstance(call.target, torch._ops.OpOverload):  # a checkpoint records the generator's state around it
            return None
        names = [argument.name for argument in call.target._schema.arguments]
        by_name = named_arguments(call)
        in_backward = {readers.forward_of(node): node for node in given.values() if isinstance(node, Node)}
        mapped = {name: in_backward.get(value) if isinstance(value, Node) else value for name, value in by_name.items()}
        if any(isinstance(by_name[name], Node) and mapped[name] is None for name in by_name):
            return None
        arguments = tuple(mapped[name] for name in names[:len(call.args)])
        named = {name: mapped[name] for name in call.kwargs}
        target, name = call.target, f"{AGAIN}_{call.name}"
        if by_name.get("dropout_p", 0.0) != 0.0:
            if inductor_config.triton.cudagraphs:  # no generator's state can be set while a graph is captured
                return None
            arguments = (self._noted_state(call), target, *arguments)
            target = run_with_rng_state
        with self._between.backward.inserting_before(gradient):
            again = self._between.call(self._between.backward, target, arguments, name, named)
        again.meta["nn_module_stack"] = call.meta.get("nn_module_stack")  # its operands belong to the sites of the call
        return again

    def _noted_state(self, call: Node) -> Node:
        """Hands the generator's state before the call to backward, which draws the same dropout from it again."""
        forward, value = self._between.forward, call.meta["val"]
        now = torch.cuda.get_rng_state() if value[0].device.type == "cuda" else torch.get_rng_state()
        with self._between.fake_mode:
            state_value = torch.empty(now.shape, dtype=now.dtype)
        with forward.inserting_before(call):
            both = forward.call_function(run_and_save_rng_state, (call.target, *call.args), call.kwargs)
            state, result = (forward.call_function(operator.getitem, (both, i)) for i in range(2))
        both.meta.update(call.meta)
        result.meta.update(call.meta)
        both.meta["val"] = (state_value, value)
        state.meta["val"] = state_value
        state._rename(f"{AGAIN}_state_{call.name}")
        call.replace_all_uses_with(result)
        forward.erase_node(call)
        return self._between.hand_over(state)


def _saver(call: Node, slot: str) -> Saver:
    position = RESULT if slot == "result" else OTHER
    return Saver(module_of(call), schema_name(call), slot, position, [], [], recomputable=True)
