"""Modules that a session with a byte budget may run again in backward, in place of keeping what they save."""

from __future__ import annotations

import dataclasses
import json
import threading
import warnings
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils import _pytree

from . import _C
from .compiled.hand_over import is_compiled
from .nn.binding import CompressedLayer
from .recompute_call import Call, CallAgain, seconds_between, top_hooks
from .recompute_plan import Known, Range, Step, choose
from .report import RecomputedModule
from .torch_models import check_model

if TYPE_CHECKING:
    from .session import Session

_Module = TypeVar("_Module", bound=torch.nn.Module)

#: The shares of a budget that a step may take: when it is decided what runs again, and later. A plan of bytes leaves
#: two percent unused. The rest keeps the decision if a step turns out a little larger.
_ROOM, _LATER_ROOM = 0.94, 0.98
#: Until sizes are known, modules run again as long as no more than this share of a budget is held.
_FIRST_ROOM = 0.5
#: The first step has times that are not typical. After the second one, other modules are chosen if they take this much
#: less time.
_WORTH_CHANGING = 0.8
#: Later, the session looks whether more modules must run again after powers of two, and after each of so many steps.
_LOOKS_EACH = 200
#: The same after a step in which the arguments of a module were larger than ever by this factor.
_GROWN = 1.02
_STATE = "actzip runs again "


def recomputable(module: _Module) -> _Module:
    """Marks a module that may run again in backward, and returns it.

    Inside a session with a ``budget`` and without ``offload``, the session decides which of the marked modules keep
    only their arguments in forward, and run again in backward: as few as the budget requires if bits are not to fall
    below those of the preset's table. Everywhere else the mark changes nothing. Good candidates are a network's blocks.
    A marked module inside another one is left to that one.

    The module must compute the same when it runs again. Its random state and autocast are set back, and its buffers,
    such as running statistics, are updated only once. See docs/plan.md.

    >>> import torch, actzip
    >>> block = actzip.recomputable(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU()))
    >>> session = actzip.Session(block, budget=0.1)
    """
    check_model(module, "recomputable")
    if why := _why_never(module):
        warnings.warn(f"actzip: recomputable() was given a {type(module).__name__} that {why}: it is left alone",
                      stacklevel=2)
    elif _begin not in module._forward_pre_hooks.values():
        module.register_forward_pre_hook(_begin, prepend=True, with_kwargs=True)
        module.register_forward_hook(_end, always_call=True)
    return module


def _why_never(module: torch.nn.Module) -> str:
    """Returns why a module cannot run again, as part of a sentence. Empty if it can."""
    for part in module.modules():
        if is_compiled(part) or part._compiled_call_impl is not None:
            return "torch.compile has compiled, which chooses itself what to compute again"
        if isinstance(part, torch.jit.ScriptModule):
            return "is scripted"
        if isinstance(part, CompressedLayer):
            return "actzip.convert() has converted, whose layers keep their activations themselves"
    return ""


class _Calls(threading.local):
    """The calls of marked modules that run on this thread, from the outermost, with the number of scopes that were open
    when they began. None: a call that changes nothing."""

    def __init__(self) -> None:
        self.running: list[tuple[torch.nn.Module, int, Call | None]] = []


_calls = _Calls()


def _begin(module: torch.nn.Module, given: tuple, named: dict[str, Any]) -> None:
    if torch.compiler.is_compiling():
        return
    recomputation = _of_this_scope()
    call = recomputation and recomputation.begin(module, (given, named))
    _calls.running.append((module, _C.open_scopes(), call))


def _end(module: torch.nn.Module, given: tuple, output: Any) -> None:
    """Runs after an exception, too."""
    if torch.compiler.is_compiling():
        return
    while _calls.running:
        other, _, call = _calls.running.pop()
        if other is module:
            if call is not None:
                call.end(output)
            return
        if call is not None:  # an interrupt has left it behind
            call.abandon()


def leave_calls() -> None:
    """Ends calls that an interrupt has left behind in a scope which is being left."""
    while _calls.running and _calls.running[-1][1] > _C.open_scopes():
        _, _, call = _calls.running.pop()
        if call is not None:
            call.abandon()


_of_hook: weakref.WeakValueDictionary[int, Recomputation] = weakref.WeakValueDictionary()


def _of_this_scope() -> Recomputation | None:
    """Returns the recomputation of the session that would keep what is saved now. None inside a module that runs again,
    or of other hooks."""
    if not torch.is_grad_enabled() or not torch._C._autograd._saved_tensors_hooks_is_enabled():
        return None
    top = top_hooks()
    return _of_hook.get(id(top[0])) if top else None


class Recomputation:
    """Decides for one session which modules run again."""

    def __init__(self, session: Session) -> None:
        self.session = weakref.ref(session)
        self._core = session._core
        self._paths: weakref.WeakKeyDictionary[torch.nn.Module, str | None] = weakref.WeakKeyDictionary()
        self._modules: dict[str, Known] = {}
        self._again: frozenset[str] | None = None  # None: not decided yet
        self._steps = 0
        self._ran: Counter[str] = Counter()  # calls in this step of modules that run again
        self._times: list[tuple[str, Any, Any]] = []
        self._has_warned = self._is_told = self._has_grown = False
        _of_hook[id(session._pack)] = self

    def begin(self, module: torch.nn.Module, arguments: tuple) -> Call | None:
        path = self._path_of(module)
        if path is None:
            return None
        values, spec = _pytree.tree_flatten(arguments)
        if not self._runs_again(path, self._note_size(path, values)):
            return Call(self, path, values) if self._is_timing() else None
        if not self._is_told:
            self._is_told = True
            self._core.set_runs_again(True, False)
        self._ran[path] += 1
        return CallAgain(self, path, module, values, spec)

    def _note_size(self, path: str, arguments: list[Any]) -> int:
        known, size = self._modules[path], sum(value.nbytes for value in arguments if isinstance(value, torch.Tensor))
        known.bytes_input = known.bytes_input or size
        if size > _GROWN * known.bytes_given:
            known.bytes_given = size
            self._has_grown = True
        return size

    def _runs_again(self, path: str, bytes_given: int) -> bool:
        if self._again is not None:
            return path in self._again
        held, limit = self._core.held()
        return limit is None or held + bytes_given <= _FIRST_ROOM * limit

    def _is_timing(self) -> bool:
        return self._again is None or self._steps <= 2

    def note_time(self, path: str, began: Any, ended: Any) -> None:
        if self._is_timing():
            self._times.append((path, began, ended))

    def _path_of(self, module: torch.nn.Module) -> str | None:
        """Returns None for a module that must be kept."""
        if module in self._paths:
            return self._paths[module]
        session = self.session()
        model = session and session._living_model()
        path = None
        if model is None:
            self._warn("recomputable() modules run in a session without a model, and are kept (allowed: "
                       "Session(model, budget=...))")
        elif why := _why_never(module):
            self._warn(f"a recomputable() {type(module).__name__} {why}: it is kept")
        else:
            path = next((name for name, part in model.named_modules() if part is module), None)
        if path and self._marked(path.rpartition(".")[0]) is not None:
            path = None  # left to the module around it
        self._paths[module] = path
        if path is not None:
            self._modules.setdefault(path, Known())
        return path

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"actzip: {text}", stacklevel=2)

    def prepare(self) -> None:
        """Decides between two steps, while nothing is known and now and then afterwards. What runs again continues to,
        so that no decision is taken back."""
        if _C.open_scopes() > 0:
            return
        if self._modules and self._is_due():
            self._decide()
        self._steps += 1
        self._ran.clear()
        self._times.clear()

    def _is_due(self) -> bool:
        if self._again is None or self._has_grown:
            return self._steps > 0
        return self._steps & (self._steps - 1) == 0 or self._steps % _LOOKS_EACH == 0

    def _decide(self) -> None:
        step, limit = self._last_step(), self._limit()
        again = self._again
        if step is not None and limit is not None:
            again = self._chosen(step, limit)
        elif self._has_grown:
            again = None  # the step may have failed because too little runs again
        self._has_grown = False
        if again != self._again:
            self._again = again
            self._core.set_runs_again(again is None or bool(again), True)

    def _chosen(self, step: Step, limit: float) -> frozenset[str]:
        if self._again is not None and self._steps > 2:
            return choose(step, _LATER_ROOM * limit, self._again)
        again = choose(step, _ROOM * limit, frozenset())
        if self._again is None:
            return again
        is_enough = step.bits_within(_LATER_ROOM * limit, self._again) >= step.bits_within(_ROOM * limit, again)
        is_quick = step.seconds(again) >= _WORTH_CHANGING * step.seconds(self._again)
        return self._again if is_enough and is_quick else again

    def _limit(self) -> float | None:
        """Returns None while the limit of the next step is unknown."""
        report = self.session().report()
        if report.budget.bytes is not None:
            return report.budget.bytes
        try:
            return float(report.budget.asked) * report.bytes_before
        except ValueError:  # no share
            return None

    def _last_step(self) -> Step | None:
        """Returns None if not all marked modules have saved something: no backward has run, or one was left out."""
        parts: list[str | Range] = []
        inside: dict[str, Range] = {}
        before: Counter[str] = Counter()
        inputs: Counter[str] = Counter()
        for module, operator, without, least, by_table in self._core.site_bytes():
            path = self._marked(module)
            if path is None:
                parts.append(Range(least, by_table))
                continue
            if path not in inside:
                parts.append(path)
                inside[path] = Range()
            if operator == "checkpoint" and module == path and path in self._ran:
                inputs[path] += by_table
            else:
                inside[path].add(least, by_table)
                before[path] += without
        is_whole = all(path in inside and inside[path].by_table > 0 for path in self._modules)
        if not is_whole:
            return None
        for path in self._ran:
            # If it is kept, its arguments are kept like the rest of its inside.
            inside[path] = inside[path].scaled(1 + self._modules[path].bytes_given / max(before[path], 1))
        self._learn(inside, inputs)
        return Step(parts, self._modules)

    def _learn(self, inside: dict[str, Range], inputs: Counter[str]) -> None:
        seconds: Counter[str] = Counter()
        for path, begin, end in self._times:
            seconds[path] += seconds_between(begin, end)
        for path, known in self._modules.items():
            known.inside = inside[path]
            known.seconds = seconds.get(path, known.seconds)
            if path in self._ran:
                known.bytes_input = inputs[path]

    def _marked(self, path: str) -> str | None:
        """Returns the marked module that has the module of that path inside."""
        while path not in self._modules:
            if not path:
                return None
            path = path.rpartition(".")[0]
        return path

    def rows(self) -> tuple[RecomputedModule, ...]:
        """Returns what runs again in the last step, for its report."""
        return tuple(RecomputedModule(path, calls, self._modules[path].seconds, self._modules[path].bytes_input,
                                      int(self._modules[path].inside.by_table)) for path, calls in self._ran.items())

    def save(self) -> str:
        """Returns a line for a saved state; empty if there are no marked modules."""
        if not self._modules:
            return ""
        modules = {path: dataclasses.asdict(known) for path, known in self._modules.items()}
        again = None if self._again is None else sorted(self._again)
        return _STATE + json.dumps({"again": again, "steps": self._steps, "modules": modules}) + "\n"

    def load(self, saved: Saved) -> None:
        self._again, self._steps, self._modules = saved.again, saved.steps, saved.modules
        self._is_told = True
        self._core.set_runs_again(self._again is None or bool(self._again), False)


@dataclasses.dataclass(frozen=True)
class Saved:
    """What Recomputation.save() has written."""

    again: frozenset[str] | None
    steps: int
    modules: dict[str, Known]


def split_state(text: str) -> tuple[Saved | None, str]:
    """Returns what Recomputation.save() has written, if it has, and the rest."""
    if not text.startswith(_STATE):
        return None, text
    line, _, rest = text.removeprefix(_STATE).partition("\n")
    try:
        saved = json.loads(line)
        modules = {path: Known(**known | {"inside": Range(**known["inside"])})
                   for path, known in saved["modules"].items()}
        again = None if saved["again"] is None else frozenset(saved["again"])
        return Saved(again, int(saved["steps"]), modules), rest
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"actzip: load_state was given {line[:40]!r} (allowed: the text of save_state())") from error
