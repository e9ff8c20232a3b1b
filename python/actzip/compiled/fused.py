"""Gradients that kernels compute from encoded bytes, in the pass over memory that decodes them.

Backward graphs have no batch norms and no GELUs, only the sums and products that torch has made of their gradients. To
find such a gradient, torch is asked to make the same of the operator itself, and the result is compared with the graph,
node by node.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence

import torch
from torch.fx import Node

from .. import _C
from .interface import Interface
from .nodes import base_of, is_tensor, own_name
from .patterns import Form, Match, find, pattern

MOST_CHANNELS = 32768
ops = torch.ops.actzip


class FusedGradients:
    """Replaces gradients in one backward graph, in which everything is encoded and decoded already."""

    def __init__(self, between: Interface) -> None:
        self._between = between

    def run(self) -> None:
        graph = self._between.backward
        for decoded in graph.find_nodes(op="call_function", target=ops.decode.default):
            if has_kernels(decoded.meta["val"].device) and _is_readable(decoded):
                _ = self._fuse_activation(decoded) or self._fuse_batch_norm(decoded)
        graph.eliminate_dead_code()

    def _fuse_activation(self, decoded: Node) -> bool:
        given = _only_view(decoded)
        form = Form.of(given.meta["val"])
        for name, approximate in _C.activation_gradients():
            match = find(pattern(_activation_gradient(name, approximate), (form, form)), given)
            if match is not None and (last := self._place(match, decoded)):
                gradient, _ = match.inputs
                self._replace(match, self._call(last, ops.activation_backward.default,
                                                (*_code(decoded), gradient, name, approximate),
                                                f"{decoded.name}_gradient"), [None])
                return True
        return False

    def _fuse_batch_norm(self, decoded: Node) -> bool:
        value = decoded.meta["val"]
        if value.dim() < 2 or value.stride(1) != 1 or value.shape[1] % 8 != 0 or value.shape[1] > MOST_CHANNELS:
            return False
        form = Form.of(value)
        channels = Form((value.shape[1],), (1,), torch.float32, value.device)
        match = find(pattern(_batch_norm_gradient, (form, form, channels, channels, channels)), decoded)
        if match is None or not (last := self._place(match, decoded)):
            return False
        gradient, _, *numbers = match.inputs
        for i, number in enumerate(numbers):
            if number.meta["val"].dim() != 1:
                last = numbers[i] = self._call(last, torch.ops.aten.view.default, (number, [-1]), f"{number.name}_flat")
        relu, gradient = _behind_relu(gradient, match) or ((None, "", 0), gradient)
        self._replace(match, self._call(last, ops.batch_norm_backward.default,
                                        (*_code(decoded), *relu, gradient, *numbers),
                                        f"{decoded.name}_gradients"), [0, 1, 2])
        return True

    def _place(self, match: Match, decoded: Node) -> Node | None:
        """Returns the last input. None if something outside of the match reads a result before that."""
        readers = {user for result in match.results if result for user in result.users} - match.inside
        inputs = {node for node in match.inputs if base_of(node) is not decoded}
        last = None
        for node in self._between.backward.nodes:
            if node in inputs or node.op == "placeholder":
                last = node
                inputs.discard(node)
            elif node in readers and inputs:
                return None
        return last

    def _call(self, behind: Node, target: Callable, arguments: tuple, name: str) -> Node:
        with self._between.backward.inserting_after(behind):
            return self._between.call(self._between.backward, target, arguments, name)

    def _replace(self, match: Match, call: Node, indices: Sequence[int | None]) -> None:
        for index, result in zip(indices, match.results, strict=True):
            if result is None:
                continue
            new = call if index is None else self._call(call, operator.getitem, (call, index), f"{call.name}_{index}")
            result.replace_all_uses_with(new, delete_user_cb=lambda user: user not in match.inside)


def has_kernels(device: torch.device) -> bool:
    return device.type == "cuda"


def _is_readable(decoded: Node) -> bool:
    """Whether kernels can read the bytes: `rotated` in groups of 256 without a mask plane, in one segment."""
    _, codec, segments, *_ = decoded.args
    value, words = decoded.meta["val"], codec.split(":")
    has_fixed_shape = all(isinstance(size, int) for size in value.shape)
    return words[0] == "rotated" and len(words) == 2 and segments == 1 and has_fixed_shape and value.numel() % 8 == 0


def _only_view(decoded: Node) -> Node:
    """Returns the tensor with other sizes, if that is all that reads it and its memory order stays."""
    user = next(iter(decoded.users), decoded)
    is_view = len(decoded.users) == 1 and own_name(user) in ("view", "_unsafe_view", "reshape")
    is_ordered = is_view and all(node.meta["val"].is_contiguous() for node in (decoded, user))
    return user if is_ordered else decoded


def _code(decoded: Node) -> tuple[Node, str, Node, int]:
    data, codec, _, seeds, line, *_ = decoded.args
    return data, codec, seeds, line


@functools.cache
def _activation_gradient(name: str, approximate: str) -> Callable:
    called, named = getattr(torch.ops.aten, name).default, {"approximate": approximate} if approximate else {}
    return lambda gradient, values: [called(gradient, values, **named)]


def _batch_norm_gradient(gradient: torch.Tensor, values: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor,
                         inverse_deviation: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.ops.aten.native_batch_norm_backward.default(
        gradient, values, weight, None, None, mean, inverse_deviation, True, 1e-5, [True, True, True])


def _behind_relu(gradient: Node, match: Match) -> tuple[tuple[Node, str, int], Node] | None:
    """If the gradient is that of a ReLU's input, and only the match reads it, returns bytes with the mask of the ReLU,
    their codec and line, and the gradient of its result."""
    if own_name(gradient) != "where" or not set(gradient.users) <= match.inside:
        return None
    stopped, zero, above = gradient.args
    if not is_tensor(above) or Form.of(above.meta["val"]) != Form.of(gradient.meta["val"]) or not _is_zero(zero):
        return None
    if own_name(stopped) != "logical_not":
        return None
    [passed] = stopped.args
    if passed.target is not ops.decode.default or passed.args[2] != 1:
        return None
    data, codec, _, _, line, *_ = passed.args
    is_mask = codec == "mask" or (codec.startswith("rotated:") and codec.endswith(":mask"))
    return ((data, codec, line), above) if is_mask else None


def _is_zero(node: object) -> bool:
    if not isinstance(node, Node):
        return node == 0
    number = {"scalar_tensor": 0, "full": 1}.get(own_name(node))
    return number is not None and node.meta["val"].numel() == 1 and node.args[number] == 0
