"""Splits a graph of torch.compile into forward and backward, and compresses what is handed from one to the other."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import _C
from ..operators import registered
from . import operators  # noqa: F401  (what the compiler has to know of them)
from .call_masks import SimplerCalls
from .derive import split, split_without_loss
from .joint_masks import simplify_masks
from .plans import state_of
from .rewrite import Rewrite
from .torch_parts import CustomPartitionerFn, inductor_config


@functools.cache
def revision() -> str:
    """Returns a hash of all code that decides about a graph. It is part of the keys of torch's cache on disk."""
    digest = hashlib.sha256(Path(_C.__file__).read_bytes())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


class Partitioner(CustomPartitionerFn):
    """The partitioner for the given options. It holds only their text, since torch compares, hashes and pickles it as
    part of cache keys."""

    def __init__(self, options: str) -> None:
        self.options = options

    def __reduce__(self) -> tuple:
        return Partitioner, (self.options,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitioner) and self.options == other.options

    def __hash__(self) -> int:
        return hash(self.options)

    def uuid(self) -> tuple:
        return ("actzip", _C.version, revision(), self.options, registered())

    def __call__(
        self, gm: torch.fx.GraphModule, joint_inputs: Sequence[object], **given: Any
    ) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        def rewrite_of(forward: torch.fx.GraphModule, backward: torch.fx.GraphModule) -> Rewrite:
            return Rewrite(forward.graph, backward.graph, given["num_fwd_outputs"],
                           given.get("static_lifetime_input_indices") or [], self.options, core_of(self.options))

        options = json.loads(self.options)
        if options["preset"] != "exact":  # "exact" computes exactly as torch does
            simplify_masks(gm)
        if options["derive"] == "auto" and options["preset"] != "exact":
            forward, backward = split_without_loss(gm, joint_inputs, given, lambda *graphs: rewrite_of(*graphs).choose())
        else:
            forward, backward = split(gm, joint_inputs, given, derive=options["derive"] is True)
        rewrite = rewrite_of(forward, backward)
        if rewrite.run():
            for module in (forward, backward):
                module.graph.lint()
                module.recompile()
        return forward, backward


def graph_options(options: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options of torch.compile for graphs of a session with these options. The user has ``given`` others."""
    # The estimate that Inductor uses to reorder nodes for the least peak would move all readers behind all decoders.
    own = {**given, "custom_partitioner_fn": Partitioner(options), "reorder_for_peak_memory": False}
    is_taken = "pre_grad_custom_pass" in given or inductor_config.pre_grad_custom_pass is not None
    if not is_taken and json.loads(options)["preset"] != "exact":
        own["pre_grad_custom_pass"] = SimplerCalls(("actzip", revision()))
    return own


@functools.lru_cache(maxsize=16)
def core_of(options: str) -> _C.Session:
    """Returns a session that decides for graphs. It never keeps anything."""
    given = json.loads(options)
    core = make_core({**given, "rules": dict(given["rules"])})
    if given["plan"]:
        core.load_state(state_of(given["plan"]))
    return core


def make_core(options: dict[str, Any]) -> _C.Session:
    return _C.Session(
        preset=options["preset"], bits=options["bits"], min_elems=options["min_numel"], seed=options["seed"], dry=False,
        only=options["only"], rules=list(options["rules"].items()), adapt=options["adapt"], interval=0,
        use_gradient=False, num_samples=0, codec=options["codec"], max_bits=options["max_bits"], guard=False)
