"""``actzip.compile`` and ``actzip.compile_options``."""

from __future__ import annotations

import functools
import json
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .. import _C
from ..options import canonical, check
from ..report import Report
from .plans import check_derive, planned_options
from .scopes import let_hooks_be_traced, outside_of_scopes

#: What a session takes, and graphs cannot: bits that change from step to step would be other graphs.
_NOT_COMPILED = {
    "adapt": "rules", "interval": "rules", "use_gradient": "rules", "num_samples": "rules", "closure": "rules",
    "max_bits": "rules", "guard": "verify", "dry_run": "verify", "budget": "rules", "offload": "eager",
}
_DEFAULTS: dict[str, Any] = {
    "preset": "default", "bits": None, "min_numel": 1024, "seed": 0, "rules": {}, "codec": "", "only": "", "derive": False,
    "adapt": "", "max_bits": 0, "plan": ""}
_HINTS = {
    "rules": "rules, as in actzip.compile(model, rules={'use:linear_input': 'rotated:4'}), or plan=session, a session "
             "that has made a plan",
    "eager": "a session around an eager model",
    "verify": "actzip.verify(model, batch) on the model before it is compiled",
}


class CompiledSession:
    """The session of compiled graphs: what it was made with, and what they kept in their last step.

    A step begins with each call of the model that :func:`compile` gave. Graphs that were compiled with
    :func:`compile_options` belong to one session for all that have the same options; there a step begins with the first
    graph that runs after a backward.
    """

    def __init__(self, **options: Any) -> None:
        self.options = _checked(options)
        self.key = _options_text(self.options)
        from .partitioner import make_core

        let_hooks_be_traced()
        self._was_looked_at = False  # whether it is known that graphs run at all
        by_plan = {"adapt": "", "bits": None, "max_bits": 0} if self.options["plan"] else {}  # it is made, not followed
        self._graphs = _C.GraphSession(self.key, make_core({**self.options, **by_plan}), self.options["seed"])
        if self.key not in _served:  # by a copy of the model, for instance, which has no session of its own
            _served.add(self.key)
            _C.set_default_graph_session(self._graphs)

    def report(self) -> Report:
        """What the last step kept, by site. What is kept as it is counts as large as it was when it was compiled."""
        return Report.from_json(self._graphs.report_json())

    def __repr__(self) -> str:
        unusual = [f"{name}={value!r}" for name, value in self.options.items() if value != _DEFAULTS[name]]
        return f"<actzip.CompiledSession({', '.join(unusual)}): step {self.report().steps}>"

    def run(self, function: Callable, *arguments: Any, **named: Any) -> Any:
        """Calls ``function``; graphs of these options that run in it belong to this session."""
        before = _C.exchange_current_graph_session(self._graphs)
        try:
            # What a checkpoint computes again, in backward, belongs to the step before.
            is_in_backward = torch._C._current_graph_task_id() != -1
            if torch.is_grad_enabled() and before is not self._graphs and not is_in_backward:
                self._graphs.begin_step()
            begun = self._graphs.graphs_begun
            if torch.cuda.is_initialized():  # memory for seeds has to be there before a CUDA graph is captured
                self._graphs.prepare(torch.device("cuda", torch.cuda.current_device()))
            with outside_of_scopes():
                result = function(*arguments, **named)
            self._look(result, self._graphs.graphs_begun > begun)
            return result
        finally:
            _C.exchange_current_graph_session(before)

    def _look(self, result: Any, has_graphs: bool) -> None:
        """At the first call that a backward may follow."""
        if self._was_looked_at or not _has_gradients(result):
            return
        self._was_looked_at = True
        if not has_graphs:
            warnings.warn("actzip.compile: no compiled graph of this model keeps anything for backward, so nothing is "
                          "compressed. Either there is nothing to keep, or torch.compile has left it to eager code: "
                          "TORCH_LOGS=graph_breaks,recompiles says why, and actzip.compress(model) compresses what eager "
                          "code keeps", stacklevel=4)

    def __enter__(self) -> CompiledSession:
        """For programs that have a scope around forward: compiled graphs need none."""
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Callable) -> Callable:
        return function


def compile(model: Any, *, fullgraph: bool = False, dynamic: bool | None = None, mode: str | None = None,
            options: dict[str, Any] | None = None, **session_options: Any) -> Any:
    """``torch.compile(model)``, with what forward keeps for backward in few bits.

    Args:
        model: a module, or a function.
        fullgraph, dynamic, mode, options: of ``torch.compile``; the backend is Inductor.
        session_options: of :class:`actzip.Session`: ``preset``, ``bits``, ``rules``, ``codec``, ``min_numel``,
            ``seed``; and ``derive=True``: of two tensors one of which follows from the other without a product of
            matrices, such as a norm's result from its input, one is kept; ``derive="auto"``: where what follows is as
            good as if it was kept. Or ``plan``, an eager session that has made a
            plan: its options hold, and sites keep what it has chosen for them. See docs/compile.md.

    The result has its session as ``.session``; :func:`actzip.session_of` gives it, too.
    """
    session = CompiledSession(**session_options)
    compiled = torch.compile(model, fullgraph=fullgraph, dynamic=dynamic,
                             options={**_mode_options(mode), **(options or {}), **_graph_options(session.key)})
    if isinstance(model, torch.nn.Module):
        forward = compiled.forward
        compiled.forward = functools.wraps(forward)(functools.partial(session.run, forward))
        object.__setattr__(compiled, "session", session)
        _sessions[compiled] = session
        return compiled
    result = functools.wraps(model)(functools.partial(session.run, compiled))
    result.session = session
    return result


def compile_options(**session_options: Any) -> dict[str, Any]:
    """Options for ``torch.compile(model, options=...)`` and ``module.compile(options=...)``, block by block perhaps.

    Equal options share one session: :func:`compiled_session` gives it.
    """
    return _graph_options(compiled_session(**session_options).key)


def compiled_session(**session_options: Any) -> CompiledSession:
    """The session of all graphs that were compiled with ``compile_options`` of these options."""
    key = _options_text(_checked(session_options))
    if key not in _defaults:
        _defaults[key] = session = CompiledSession(**session_options)
        _C.set_default_graph_session(session._graphs)
    return _defaults[key]


_served: set[str] = set()
_defaults: dict[str, CompiledSession] = {}
_sessions: weakref.WeakKeyDictionary[torch.nn.Module, CompiledSession] = weakref.WeakKeyDictionary()


def session_of_compiled(model: object) -> CompiledSession | None:
    """Of what :func:`compile` gave; None for anything else."""
    return _sessions.get(model) if isinstance(model, torch.nn.Module) else None


def _has_gradients(result: Any) -> bool:
    """Whether a backward may follow."""
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(result))


def _graph_options(key: str) -> dict[str, Any]:
    from .partitioner import Partitioner

    # Inductor's order for the least peak goes by an estimate that postpones readers behind all decoders.
    return {"custom_partitioner_fn": Partitioner(key), "reorder_for_peak_memory": False}


def _mode_options(mode: str | None) -> dict[str, Any]:
    return torch._inductor.list_mode_options(mode) if mode not in (None, "default") else {}


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    given = canonical(options)
    if (plan := given.pop("plan", None)) is not None:
        return planned_options(plan, given, _DEFAULTS)
    for name in given:
        if name in _NOT_COMPILED:
            raise TypeError(f"actzip.compile: {name}={given[name]!r} is for sessions that are not compiled (allowed: "
                            f"{_HINTS[_NOT_COMPILED[name]]})")
        if name not in _DEFAULTS:
            allowed = ", ".join(option for option in _DEFAULTS if option not in _NOT_COMPILED)
            raise TypeError(f"actzip.compile: no option {name!r} (allowed: {allowed})")
    derive = check_derive(given.pop("derive", _DEFAULTS["derive"]))
    check(given)
    bits = given.get("bits")
    if bits is not None and float(bits) != int(bits):
        raise ValueError(f"actzip.compile: bits={bits!r} is an average, which a plan spends (allowed: 1, 2, 3, 4 or 8; "
                         "or plan=session, a session of that average that has made a plan)")
    return {**_DEFAULTS, **given, "derive": derive}


def _options_text(options: dict[str, Any]) -> str:
    return json.dumps({**options, "rules": list(options["rules"].items())}, sort_keys=True)


def has_default_sessions() -> bool:
    """Whether anybody has asked for options: graphs may be compressed without a model that is known here."""
    return bool(_defaults)


def is_running() -> bool:
    """Whether a model that :func:`compile` gave runs on this thread."""
    current = _C.exchange_current_graph_session(None)
    _C.exchange_current_graph_session(current)
    return current is not None
