"""Rewrites compiled graphs: what they save is encoded right after its producer, and decoded before its first reader."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable

import torch
from torch.fx import Graph, Node

from .. import _C
from .attention import AttentionAgain
from .fused import FusedGradients
from .interface import Interface, UnknownShape
from .nodes import (NAMES, base_of, depends_on_data, elements, first_of, is_decomposed, is_tensor, is_view, module_of,
                    own_name, schema_name, shape_hint, size_hint, stride_hint)
from .savers import Readers, Saver

MOST_DIMENSIONS = 8


@dataclasses.dataclass
class Line:
    """One line of the text by which a graph reports what it saves; see GraphSite in the extension."""

    module: str
    op: str
    slot: str
    use: str
    kind: str
    codec: str
    cause: str
    dtype: str
    shape: list[int]
    before: int
    after: int
    reason: str
    sizes: tuple[int | Node, ...] = ()  #: as computed in forward; only if it is not encoded and its shape changes

    def __str__(self) -> str:
        shape = ("~" if self.sizes else "") + "x".join(map(str, self.shape))
        return "\t".join(map(str, (self.module, self.op, self.slot, self.use, self.kind, self.codec, self.cause, self.dtype,
                                   shape, self.before, self.after, self.reason)))


@dataclasses.dataclass
class Choice:
    """How to keep a tensor."""

    line: Line
    segments: torch.types.IntLikeType = 1
    segments_in_forward: int | Node = 1

    @property
    def is_encoded(self) -> bool:
        return self.line.kind == "encoded"

    @property
    def is_asked_for(self) -> bool:
        """Whether a rule or a plan decided, and not the table."""
        return self.line.reason in ("a rule of the session", "as planned")

    @property
    def has_plane(self) -> bool:
        return self.line.codec.endswith(":mask")

    def type_in_codec(self, dtype: torch.dtype) -> torch.dtype:
        """Returns the type of what is encoded and decoded. Logarithms of probabilities have f16 instead of f32, which
        halves the largest tensors of a language model. Between 0 and the codec's floor, f16 is finer than 8 bits."""
        is_floored = self.line.use == "log_probabilities" and ":floor=" in self.line.codec and not self.is_asked_for
        return torch.float16 if is_floored and dtype is torch.float32 else dtype


@dataclasses.dataclass
class Code:
    """How one tensor is encoded, and where its seed is."""

    choice: Choice
    seeds: Node  #: in forward
    read_seeds: Node  #: in backward
    line: int  #: index of its line in the graph's text, and of its seed


class Rewrite:
    """Rewrites the two graphs of one compiled function, once."""

    def __init__(self, forward: Graph, backward: Graph, outputs: int, fixed: list[int], options: str,
                 session: _C.Session) -> None:
        self._forward, self._backward = forward, backward
        self._options, self._session = options, session
        self._between = Interface(forward, backward, outputs)
        inputs = forward.find_nodes(op="placeholder")
        self._fixed = {inputs[i] for i in fixed if i < len(inputs)}
        self._last_input = self._last_size = inputs[-1]
        self._data = depends_on_data(forward, self._fixed)
        self._device = self._main_device()
        self._attention = AttentionAgain(self._between, self._decide, self._readers)
        self._lines: dict[Node, Line] = {}
        self._made: set[Node] = set()

    def run(self) -> bool:
        """Returns whether the graphs were changed."""
        if not self._between.tensors:
            return False
        if not self._between.is_plain:
            warnings.warn("actzip: a compiled graph hands over to its backward what is neither a tensor nor a size, and "
                          "is left as it is: nothing of it is compressed", stacklevel=2)
            return False
        self._encode_all(self._choose_for_all())
        FusedGradients(self._between).run()
        self._between.close()
        return True

    def choose(self) -> dict[Node, Choice]:
        """Returns what run() would do, by nodes of forward. The graphs cannot be used afterwards."""
        return self._choose_for_all() if self._between.tensors and self._between.is_plain else {}

    def _choose_for_all(self) -> dict[Node, Choice]:
        self._between.remove_aliases()
        self._between.compute_sizes()
        self._between.compute_early()
        self._attention.run()
        self._lines = {node: self._line(node, decision, "recomputed")
                       for node, decision in self._attention.recomputed.items()}
        self._make_masks_in_forward()
        self._hand_over_results()
        readers = self._readers()
        return {node: self._choose(node, reader, readers) for node, reader in self._between.tensors.items()}

    def _main_device(self) -> torch.device:
        """Returns the device of the largest tensor. All seeds are there."""
        values = [node.meta["val"] for node in self._between.tensors]
        return max(values, key=elements).device if values else torch.device("cpu")

    def _readers(self) -> Readers:
        saved = {reader: node for node, reader in self._between.tensors.items()}
        return Readers(self._forward, self._backward, saved, self._fixed)

    # Masks

    def _make_masks_in_forward(self) -> None:
        """Moves comparisons of values from backward to forward, where values are exact. The result takes one bit per
        element."""
        readers = self._readers()
        for node in list(self._backward.nodes):
            if not self._is_comparison(node) or self._has_plane(node, readers):
                continue
            made = self._in_forward(node, readers)
            if made is None or made not in self._data:
                continue
            if own_name(node) == "le" and node.args[1] == 0:
                node, made = self._inverted(node, made)
            self._replace(node, made)
        self._between.drop_unread()

    @staticmethod
    def _is_comparison(node: Node) -> bool:
        if node.op != "call_function" or not is_tensor(node) or is_view(node):
            return False
        compared = [source.meta["val"].dtype for source in node.all_input_nodes if is_tensor(source)]
        return node.meta["val"].dtype is torch.bool and any(dtype.is_floating_point for dtype in compared)

    def _has_plane(self, node: Node, readers: Readers) -> bool:
        """Whether the node asks where a ReLU's result is 0, and that result is also read as values, which are encoded
        with a mask plane: the plane answers the question."""
        source = node.args[0]
        if own_name(node) != "le" or node.args[1] != 0 or source not in self._between.tensors.values():
            return False
        made = readers.forward_of(source)
        if own_name(made) != "relu" or len(source.users) == 1:
            return False
        return self._decide(made.meta["val"], readers.savers(source))["codec"].endswith(":mask")

    def _in_forward(self, node: Node, readers: Readers) -> Node | None:
        """Returns a node of forward that computes the same, adding it if necessary; None if forward lacks a value."""
        known = readers.forward_of(node)
        if known is not None:
            return known
        if node.op != "call_function":
            return None
        sources = {source: self._in_forward(source, readers) for source in node.all_input_nodes}
        if not sources or any(source is None for source in sources.values()):
            return None
        wanted = set(sources.values())
        last = next(other for other in reversed(self._forward.nodes) if other in wanted)
        with self._forward.inserting_after(self._last_input if last.op == "placeholder" else last):
            made = self._forward.node_copy(node, lambda source: sources[source])
        if any(source in self._data for source in made.all_input_nodes):
            self._data.add(made)
        return made

    def _inverted(self, node: Node, made: Node) -> tuple[Node, Node]:
        """Hands over where a ReLU lets values pass, as in eager mode, instead of where it stops them: kernels read masks
        that way."""
        with self._backward.inserting_after(node):
            again = self._between.call(self._backward, torch.ops.aten.logical_not.default, (node,), f"{node.name}_stopped")
        node.replace_all_uses_with(again, delete_user_cb=lambda user: user is not again)
        with self._backward.inserting_before(again):
            passed = self._between.call(self._backward, torch.ops.aten.logical_not.default, (node,), f"{node.name}_passed")
        again.args = (passed,)
        with self._forward.inserting_after(made):
            passed_in_forward = self._between.call(self._forward, torch.ops.aten.logical_not.default, (made,),
                                                   f"{made.name}_passed")
        for new, old in ((passed, node), (passed_in_forward, made)):
            new.meta = {**old.meta, "val": new.meta["val"]}
        self._data.add(passed_in_forward)
        return passed, passed_in_forward

    def _replace(self, node: Node, made: Node) -> None:
        reader = self._between.tensors.get(made) or self._hand_over_mask(node, made)
        node.replace_all_uses_with(reader)
        self._backward.erase_node(node)

    def _hand_over_mask(self, node: Node, made: Node) -> Node:
        with self._backward.inserting_before(first_of(self._between.tensors.values(), self._backward)):
            reader = self._backward.placeholder(f"{made.name}_mask")
        reader.meta.update(node.meta)
        self._between.tensors = {made: reader, **self._between.tensors}
        if node.meta.get("partitioner_tag") == "is_backward":
            self._made.add(made)  # counts 0 bytes before: torch keeps no mask, but compares again in backward
        return reader

    # Results

    def _hand_over_results(self) -> None:
        """Hands over the result of an operator such as softmax where torch hands over its input and recomputes the
        result in backward: the table knows only the result."""
        readers = self._readers()
        for node, reader in list(self._between.tensors.items()):
            if not node.meta["val"].dtype.is_floating_point or node not in self._data or not reader.users:
                continue
            if not any(_C.use_of(saver.schema, saver.slot) == "unknown" for saver in readers.savers(reader)):
                continue
            result = readers.only_result(reader)
            if result is not None and elements(result.meta["val"]) <= elements(node.meta["val"]):
                self._replace(result, readers.forward_of(result))
        self._between.drop_unread()

    # Choices

    def _choose(self, node: Node, reader: Node, readers: Readers) -> Choice:
        value = node.meta["val"]
        if why := self._why_exactly(node):
            return self._exactly(node, reader, *why)
        savers = [readers.maker(node)] if value.dtype is torch.bool else readers.savers(reader)
        if not savers:
            return self._exactly(node, reader, "nobody is known to read it", "policy")
        if base_of(node).op == "placeholder" and all(_is_weight(saver) for saver in savers):
            return self._exactly(node, reader, "a weight", "parameter")
        decision = self._decide(value, savers)
        if decision["use"] == "unknown":
            decision["reason"] = "it is not known what its gradient does with it"
        if (decision["keep"] == "shape only" and all(_is_own_gradient(user) for user in reader.users)
                and self._are_known((*value.shape, *value.stride()))):
            return Choice(self._line(node, decision, "shape only"))
        if decision["keep"] != "encoded":
            return Choice(self._line(node, {**decision, "cause": decision["cause"] or "policy"}, "as is"))
        if decision["codec"].startswith("dual") and any(not isinstance(size, int) for size in value.shape):
            return self._exactly(node, reader, "the size of its maps is not known before it runs", "type")
        segments = decision["segments"]
        if segments != 1 and any(not isinstance(size, int) for size in value.shape):
            segments = self._rows(value, segments)
            if segments is None:
                return self._exactly(node, reader, "its rows are not known before it runs", "type")
        if not self._are_known((*value.shape, *dense_strides(value), segments)):
            return self._exactly(node, reader, "backward cannot compute its shape", "type")
        try:
            return Choice(self._line(node, decision, "encoded"), segments, self._size_in_forward(segments))
        except UnknownShape:
            return self._exactly(node, reader, "forward cannot compute its rows", "type")

    def _why_exactly(self, node: Node) -> tuple[str, str] | None:
        """Returns reason and cause if the tensor must be kept exactly, and None if it may be compressed."""
        value = node.meta["val"]
        if base_of(node) in self._fixed:
            return "a parameter", "parameter"
        is_plain = type(value).__name__ == "FakeTensor" and not value.is_sparse
        if value.dtype not in NAMES or value.dim() > MOST_DIMENSIONS or not is_plain:
            return "of a kind that no codec takes", "type"
        if value.dtype is not torch.bool and not value.dtype.is_floating_point:
            return "integers are kept as they are in compiled graphs", "type"
        if value.dtype is not torch.bool and node not in self._data:
            return "does not depend on the data", "policy"
        if value.device != self._device:
            return "on another device than most", "type"
        if 0 in value.stride():
            return "an expanded view", "type"
        if node in self._attention.exact:
            return "of attention that cannot run again", "policy"
        if node.meta.get("saved_tensor_with_no_vc_check"):
            return "saved by an autograd function, for what only its author knows", "policy"
        return None

    def _are_known(self, sizes: Iterable[torch.types.IntLikeType]) -> bool:
        """Whether backward can compute these sizes."""
        try:
            for size in sizes:
                self._between.size(size)
        except UnknownShape:
            return False
        return True

    @staticmethod
    def _rows(value: torch.Tensor, count: int) -> object:
        """Returns the symbolic number of rows if there are ``count`` rows at the current sizes, otherwise None."""
        rows, now = 1, 1
        for size in value.shape[:-1]:
            rows, now = rows * size, now * size_hint(size)
        return rows if now == count else None

    def _decide(self, value: torch.Tensor, savers: list[Saver]) -> dict:
        return _C.decide(self._session, NAMES[value.dtype], (shape_hint(value), stride_hint(value)),
                         [saver.fields() for saver in savers])

    def _line(self, node: Node, decision: dict, kind: str) -> Line:
        value = node.meta["val"]
        shape, bytes_now = shape_hint(value), elements(value) * value.element_size()
        codec = decision["codec"] if kind == "encoded" else "copy"
        after = {"as is": bytes_now, "shape only": 0, "recomputed": 0}.get(kind)
        if decision["cause"] == "parameter":
            bytes_now = after = 0
        if after is None:
            after = _C.encoded_bytes(codec, NAMES[value.dtype], elements(value), decision["segments"])
        return Line(decision["module"], decision["op"], decision["slot"], decision["use"], kind, codec,
                    decision["cause"], NAMES.get(value.dtype, "u8"), shape, 0 if node in self._made else bytes_now,
                    after, decision["reason"])

    def _exactly(self, node: Node, reader: Node, reason: str, cause: str) -> Choice:
        source = base_of(node)
        op = "input" if source.op == "placeholder" else schema_name(source).removeprefix("aten::")
        module = module_of(source) or module_of(next(iter(reader.users), source))
        return Choice(self._line(node, {"module": module, "op": op, "slot": "result", "use": "unknown", "cause": cause,
                                        "reason": reason}, "as is"))

    # Codes

    def _encode_all(self, chosen: dict[Node, Choice]) -> None:
        """Encodes what was chosen, and adds the call that begins the graph. That call is added even if nothing is
        encoded, since it reports what the graph keeps."""
        lines = {**self._lines, **{node: choice.line for node, choice in chosen.items()}}
        in_order = [node for node in self._forward.nodes if node in lines]
        for node in in_order:
            if lines[node].kind != "encoded":
                lines[node].sizes = self._changing_sizes(node.meta["val"])
        sizes = [size for node in in_order for size in lines[node].sizes]
        text = "\n".join(str(lines[node]) for node in in_order)
        with self._forward.inserting_after(self._last_size):
            seeds = self._between.call(self._forward, torch.ops.actzip.begin.default,
                                       (self._options, text, self._device, sizes), "actzip_seeds")
        read_seeds = self._between.hand_over(seeds)
        for line, node in enumerate(in_order):
            if node in chosen and chosen[node].is_encoded:
                self._encode(node, Code(chosen[node], seeds, read_seeds, line))
            elif lines[node].kind == "shape only":
                self._keep_shape(node)
        self._backward.eliminate_dead_code()

    def _changing_sizes(self, value: torch.Tensor) -> tuple[int | Node, ...]:
        """Returns the sizes as forward computes them; none if they are fixed, or not known when the graph begins."""
        if all(isinstance(size, int) for size in value.shape) or value.dtype not in NAMES:
            return ()
        try:
            return tuple(self._size_in_forward(size) for size in value.shape)
        except UnknownShape:
            return ()

    def _size_in_forward(self, size: torch.types.IntLikeType) -> int | Node:
        found = self._between.size_in_forward(size, self._last_size)
        if isinstance(found, Node) and found.op != "placeholder":
            self._last_size = found
        return found

    def _keep_shape(self, node: Node) -> None:
        """Gives readers a tensor of the same shape that nobody has written to. Inductor allocates none for its kernels."""
        value, reader = node.meta["val"], self._between.tensors[node]
        sizes, strides = ([self._between.size(size) for size in part] for part in (value.shape, value.stride()))
        with self._backward.inserting_before(first_of(reader.users, self._backward)):
            empty = self._between.call(self._backward, torch.ops.aten.empty_strided.default, (sizes, strides),
                                       f"actzip_shape_{node.name}", {"dtype": value.dtype, "device": value.device})
        reader.replace_all_uses_with(empty)
        self._between.keep_back(node)

    def _encode(self, node: Node, code: Code) -> None:
        behind = code.seeds if node.op == "placeholder" else node
        values = self._converted(node, code.choice.type_in_codec(node.meta["val"].dtype), behind)
        with self._forward.inserting_after(behind if values is node else values):
            data = self._between.call(self._forward, torch.ops.actzip.encode.default,
                                      (values, code.choice.line.codec, code.choice.segments_in_forward, code.seeds,
                                       code.line),
                                      f"actzip_{node.name}")
        reader = self._between.tensors[node]
        data_reader = self._between.hand_over(data)
        if code.choice.has_plane:
            for comparison in [user for user in reader.users if own_name(user) == "le"]:
                with self._backward.inserting_before(comparison):
                    mask = self._decode(node, data_reader, code, torch.bool)
                    mask = self._between.call(self._backward, torch.ops.aten.logical_not.default, (mask,),
                                              f"actzip_zeros_{node.name}")
                comparison.replace_all_uses_with(mask)
                self._backward.erase_node(comparison)
        if reader.users:
            own_type = node.meta["val"].dtype
            with self._backward.inserting_before(first_of(reader.users, self._backward)):
                values = self._decode(node, data_reader, code, code.choice.type_in_codec(own_type))
            reader.replace_all_uses_with(self._converted(values, own_type, behind=values))
        self._between.keep_back(node)

    def _converted(self, node: Node, dtype: torch.dtype, behind: Node) -> Node:
        if node.meta["val"].dtype is dtype:
            return node
        with node.graph.inserting_after(behind):
            return self._between.call(node.graph, torch.ops.prims.convert_element_type.default, (node, dtype),
                                      f"{node.name}_{NAMES[dtype]}")

    def _decode(self, node: Node, data: Node, code: Code, dtype: torch.dtype) -> Node:
        value, segments = node.meta["val"], code.choice.segments
        sizes = [self._between.size(size) for size in value.shape]
        strides = [self._between.size(stride) for stride in dense_strides(value)]
        return self._between.call(
            self._backward, torch.ops.actzip.decode.default,
            (data, code.choice.line.codec, self._between.size(segments), code.read_seeds, code.line, sizes, strides,
             dtype),
            f"actzip_{'mask' if dtype is torch.bool else 'values'}_{node.name}")


def _is_own_gradient(node: Node) -> bool:
    """Whether the node is a gradient as the table knows it, and no operator of its decomposition."""
    return node.op == "call_function" and own_name(node).endswith("_backward") and not is_decomposed(node)


def _is_weight(saver: Saver) -> bool:
    return saver.slot == "weight" or _C.use_of(saver.schema, saver.slot) in ("linear_weight", "convolution_weight")


def dense_strides(value: torch.Tensor) -> list:
    """Returns dense strides in the same memory order, as the core uses them."""
    strides, run = [0] * value.dim(), 1
    hints = stride_hint(value)
    for dimension in sorted(range(value.dim()), key=lambda d: (hints[d], -d)):
        strides[dimension] = run
        run = run * value.shape[dimension]
    return strides
