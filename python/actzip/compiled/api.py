"""``actzip.compile`` and ``actzip.compile_options``."""

from __future__ import annotations

import contextlib
import functools
import json
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from .. import _C
from ..options import canonical, check
from ..report import Report
from .plans import check_derive, planned_options
from .scopes import let_hooks_be_traced, outside_of_scopes

if TYPE_CHECKING:
    from ..session import Session

#: Options of sessions that graphs do not support, since other bits would need another graph; with the hint to give.
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
    """The session of compiled graphs: their options, and the report of their last step.

    A model returned by :func:`compile` has a session of its own, and each of its calls with gradients is a step. All
    graphs with equal :func:`compile_options` share one session; there a step begins with the first graph that runs
    after a backward.
    """

    def __init__(self, **options: Any) -> None:
        self.options = _checked(options)
        self.key = _options_text(self.options)
        from .partitioner import make_core

        let_hooks_be_traced()
        self._was_looked_at = False  # whether _look() has checked that graphs run
        self._model: weakref.ref[torch.nn.Module] | None = None
        self._eager: Session | None = None  # if torch leaves the model to eager code
        self._is_left_out = False
        by_plan = {"adapt": "", "bits": None, "max_bits": 0} if self.options["plan"] else {}  # graphs contain the plan
        self._graphs = _C.GraphSession(self.key, make_core({**self.options, **by_plan}), self.options["seed"])
        if self.key not in _served:  # the default session serves, for example, copies of the model, which have none
            _served.add(self.key)
            _C.set_default_graph_session(self._graphs)

    def report(self) -> Report:
        """Returns what the last step kept, by site.

        A tensor that is kept as it is may be listed with the size that it had when the graph was compiled.
        """
        if self._eager is not None:
            return self._eager.report()
        return Report.from_json(self._graphs.report_json())

    def __repr__(self) -> str:
        unusual = [f"{name}={value!r}" for name, value in self.options.items() if value != _DEFAULTS[name]]
        return f"<actzip.CompiledSession({', '.join(unusual)}): step {self.report().steps}>"

    def run(self, function: Callable, *arguments: Any, **named: Any) -> Any:
        """Calls ``function``. Graphs with the options of this session that run in it belong to this session."""
        before = _C.exchange_current_graph_session(self._graphs)
        try:
            # What a checkpoint recomputes in backward belongs to the step that has begun already.
            is_in_backward = torch._C._current_graph_task_id() != -1
            if torch.is_grad_enabled() and before is not self._graphs and not is_in_backward:
                self._graphs.begin_step()
            begun = self._graphs.graphs_begun
            if torch.cuda.is_initialized():  # memory for seeds must exist before a CUDA graph is captured
                self._graphs.prepare(torch.device("cuda", torch.cuda.current_device()))
            with (not self._is_left_out and self._eager) or outside_of_scopes():
                result = function(*arguments, **named)
            self._look(result, self._graphs.graphs_begun > begun)
            return result
        finally:
            _C.exchange_current_graph_session(before)

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Lets the model run as eager code, without compression, for the duration of a block."""
        self._is_left_out = True
        try:
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            self._is_left_out = False

    def _look(self, result: Any, has_graphs: bool) -> None:
        """At the first call that a backward may follow, checks whether graphs run. If not, an eager session takes over."""
        if has_graphs:
            self._eager = None
        if self._was_looked_at or self._is_left_out or not (nodes := _nodes_of(result)):
            return
        if not has_graphs and any(type(node).__name__ == "CompiledFunctionBackward" for node in nodes):
            return  # a graph that keeps nothing
        self._was_looked_at = True
        if has_graphs:
            return
        what_happens = "nothing is compressed"
        if not self.options["plan"]:
            self._eager = self._eager_session()
            what_happens = "from the next call on, an eager session compresses what it keeps"
        warnings.warn("actzip.compile: torch.compile has left this model to eager code (TORCH_LOGS=graph_breaks,recompiles "
                      f"says why); {what_happens}", stacklevel=4)

    def _eager_session(self) -> Session:
        from ..session import Session

        model = self._model() if self._model is not None else None
        options = {name: self.options[name] for name in ("preset", "bits", "min_numel", "rules", "codec", "seed", "only")}
        return Session(model, **options)

    def __enter__(self) -> CompiledSession:
        """Does nothing: compiled graphs need no scope, but a program may have one around forward."""
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, function: Callable) -> Callable:
        return function


def compile(model: Any, *, fullgraph: bool = False, dynamic: bool | None = None, mode: str | None = None,
            options: dict[str, Any] | None = None, **session_options: Any) -> Any:
    """Compiles like ``torch.compile(model)``, but compresses what forward keeps for backward.

    Returns the compiled model or function. Its session is ``.session``; :func:`actzip.session_of` returns it, too.

    Args:
        model: a module or a function.
        fullgraph, dynamic, mode, options: as for ``torch.compile``. The backend is always Inductor.
        session_options: see docs/compile.md. Of :class:`actzip.Session`: ``preset``, ``bits``, ``rules``, ``codec``,
            ``min_numel``, ``seed`` and ``only``.

            ``derive=True``: do not keep tensors that follow from another kept one without a matrix product, such as the
            result of a norm from its input; backward computes them again. ``derive="auto"``: only where this makes the
            tensor no worse.

            ``plan``: an eager session that has made a plan. Its options apply, and each site gets the bits that the
            plan chose for it; only ``seed`` and ``derive`` may be given beside it.
    """
    session = CompiledSession(**session_options)
    compiled = torch.compile(model, fullgraph=fullgraph, dynamic=dynamic,
                             options=_graph_options(session.key, {**_mode_options(mode), **(options or {})}))
    if isinstance(model, torch.nn.Module):
        forward = compiled.forward
        compiled.forward = functools.wraps(forward)(functools.partial(session.run, forward))
        session._model = weakref.ref(model)
        object.__setattr__(compiled, "session", session)
        _sessions[compiled] = session
        return compiled
    result = functools.wraps(model)(functools.partial(session.run, compiled))
    result.session = session
    return result


def compile_options(**session_options: Any) -> dict[str, Any]:
    """Returns options for ``torch.compile(model, options=...)`` and ``module.compile(options=...)``.

    Use it to compile a model block by block. All graphs with equal options share one session, which
    :func:`compiled_session` returns.
    """
    return _graph_options(compiled_session(**session_options).key, {})


def compiled_session(**session_options: Any) -> CompiledSession:
    """Returns the session of all graphs compiled with ``compile_options`` of these options."""
    key = _options_text(_checked(session_options))
    if key not in _defaults:
        _defaults[key] = session = CompiledSession(**session_options)
        _C.set_default_graph_session(session._graphs)
    return _defaults[key]


_MOST_NODES = 10_000
_served: set[str] = set()
_defaults: dict[str, CompiledSession] = {}
_sessions: weakref.WeakKeyDictionary[torch.nn.Module, CompiledSession] = weakref.WeakKeyDictionary()


def session_of_compiled(model: object) -> CompiledSession | None:
    """Returns the session of a model returned by :func:`compile`, and None for anything else."""
    return _sessions.get(model) if isinstance(model, torch.nn.Module) else None


def _nodes_of(result: Any) -> set[Any]:
    """Returns nodes of the graph of a result, from its end on; none if no backward may follow."""
    found: set[Any] = set()
    todo = [leaf.grad_fn for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    while todo and len(found) < _MOST_NODES:
        node = todo.pop()
        if node is not None and node not in found:
            found.add(node)
            todo += [below for below, _ in node.next_functions]
    return found


def _graph_options(key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    from .partitioner import graph_options  # only here, since it loads the compiler

    return graph_options(key, given)


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
    """Whether compile_options() was used, so that graphs may be compressed that belong to no model of compile()."""
    return bool(_defaults)


def is_running() -> bool:
    """Whether a model returned by :func:`compile` is running on this thread."""
    current = _C.exchange_current_graph_session(None)
    _C.exchange_current_graph_session(current)
    return current is not None
