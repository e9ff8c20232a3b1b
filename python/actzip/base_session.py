"""What the sessions of all frameworks have in common: options, reports and warnings."""

from __future__ import annotations

import functools
import os
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from . import _native
from .decorated import check_can_run_in_scope
from .levels import warn_of_level
from .notices import look_back
from .options import budget_text, canonical, check
from .report import Report, bytes_text

#: The value of ``offload`` that names no folder but pinned memory.
TO_HOST = "host"

#: The step at whose beginning a session looks back once more: scripted modules are fused after some calls.
_LOOKS_BACK_AGAIN = 8

_P = ParamSpec("_P")
_R = TypeVar("_R")


class BaseSession:
    """A scope around forward. Subclasses create the core of their framework, and define entering and leaving."""

    #: Name of the package in messages.
    _package = "actzip"
    #: Whether to warn after the first step about tensors left uncompressed and rules that matched nothing.
    _looks_back = True

    def __init__(
        self,
        model: Any = None,
        *,
        preset: str = "default",
        bits: float | None = None,
        min_numel: int | None = None,
        seed: int = 0,
        dry_run: bool | None = None,
        only: str = "",
        rules: Mapping[str, str] | None = None,
        adapt: str = "",
        interval: int = 0,
        use_gradient: bool = False,
        num_samples: int = 0,
        closure: Callable[[], Any] | None = None,
        codec: str = "",
        max_bits: int = 0,
        guard: bool | None = None,
        budget: str | float | None = None,
        offload: str | os.PathLike[str] | None = None,
        min_elems: int | None = None,
        dry: bool | None = None,
    ) -> None:
        if model is not None:
            self._check_model(model, "Session")
        if rules is not None:
            check({"rules": rules})
        named_twice = canonical({"min_numel": min_numel, "min_elems": min_elems, "dry_run": dry_run, "dry": dry})
        #: ``Session(**options)`` makes the same session again. Options with two names are listed under the new one.
        self.options: dict[str, Any] = {
            "preset": preset, "bits": bits, "min_numel": 1024, "seed": seed, "dry_run": False, "only": only,
            "rules": dict(rules or {}), "adapt": adapt, "interval": interval, "use_gradient": use_gradient,
            "num_samples": num_samples, "codec": codec, "max_bits": max_bits, "guard": guard, "budget": budget,
            "offload": offload, **named_twice}
        check(self.options)
        self._core = self._make_core()
        self._warn_of_offload(preset, os.fspath(offload or ""))
        self._pack, self._unpack = self._core.hook_pair()
        self._model = None if model is None else weakref.ref(model)
        self.closure = closure
        self._adapts = self._core.adapts()
        self._lacks_samples = use_gradient
        self._is_measuring = self._has_warned = self._has_looked_back = False
        self._steps_seen = 0
        self._turns: Counter[str] = Counter()  # how often each site was measured

    def _warn_of_offload(self, preset: str, offload: str) -> None:
        """Warns if offloading saves nothing here, or if a level would need it."""
        if not offload:
            warn_of_level(preset, self._why_not_to_host())
        elif offload == TO_HOST and (why := self._why_not_to_host()):
            warnings.warn(f"actzip: offload='host' moves what is kept on a GPU, and {why}: everything stays where it is",
                          stacklevel=4)
        elif offload != TO_HOST and _native.is_in_memory(offload):
            warnings.warn(f"actzip: offload={offload!r} lies in memory, so that offloading saves none; give a folder on "
                          "a disk, or 'host' for tensors on a GPU", stacklevel=4)

    @staticmethod
    def _check_model(model: Any, call: str) -> None:
        raise NotImplementedError

    def _core_of(self, **options: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def _why_not_to_host() -> str:
        """Returns why ``offload="host"`` moves nothing here, as part of a sentence. Empty if it does."""
        raise NotImplementedError

    def measure(self, closure: Callable[[], Any]) -> None:
        raise NotImplementedError

    def _make_core(self) -> Any:
        options = dict(self.options)
        min_numel, dry_run, rules = (options.pop(name) for name in ("min_numel", "dry_run", "rules"))
        options["budget"] = budget_text(options["budget"])
        options["offload"] = os.fspath(options["offload"] or "")
        return self._core_of(min_elems=min_numel, dry=dry_run, rules=list(rules.items()), **options)

    def __deepcopy__(self, _: dict) -> BaseSession:
        """Returns the session itself: copies of a model share its session."""
        return self

    def __reduce__(self) -> tuple:
        """Pickles the options alone: the unpickled session has no model, and has learned nothing."""
        return _remade, (type(self), self.options)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorates ``function``: each call runs inside the session."""
        check_can_run_in_scope(function)

        @functools.wraps(function)
        def in_session(*arguments: _P.args, **named: _P.kwargs) -> _R:
            with self:
                return function(*arguments, **named)

        return in_session

    def __repr__(self) -> str:
        model = self._living_model()
        parts = [] if model is None else [type(model).__name__]
        return f"<{self._package}.Session({', '.join(parts + self._unusual_options())}): {self._last_step()}>"

    def _unusual_options(self) -> list[str]:
        usual = _usual_options(type(self))
        return [f"{name}={value!r}" for name, value in self.options.items() if value != usual[name]]

    def _last_step(self) -> str:
        report = self.report()
        if not report.sites:
            return "nothing kept yet"
        return (f"step {report.steps} {'would hold' if report.dry else 'held'} {bytes_text(report.bytes_before)} -> "
                f"{bytes_text(report.bytes_after)}, {len(report.sites)} sites")

    def _prepare(self) -> None:
        """Runs before a step begins. Leaves nothing to undo if it raises."""
        self._steps_seen += 1
        if self._looks_back:
            self._look_back()
        if self._adapts and not self._is_measuring and self._core.wants_measurement():
            if self.closure is not None:
                self.measure(self.closure)
            elif not self._has_warned:
                self._warn("adapt='measured' without a closure: set session.closure, or call session.measure()")
        if self._lacks_samples and not self._has_warned:
            self._warn("use_gradient without samples: call session.samples(indices) before each step")

    def _look_back(self) -> None:
        """Warns once of tensors left uncompressed: after the first step, or later if only then there are some."""
        if self._steps_seen == 2:
            self._has_looked_back = look_back(self.report(), self.options["rules"], stacklevel=3)
        elif self._steps_seen == _LOOKS_BACK_AGAIN and not self._has_looked_back:
            look_back(self.report(), {}, stacklevel=3)

    def _has_begun(self) -> None:
        """Runs after a step has begun. The session may have learned from an observed step then."""
        if self._adapts and not self._has_warned and self._core.adds_much():
            self._warn("compression adds more than 10 % to the gradient's own variance; give it more bits "
                       "(Session(bits=...)) or larger batches, and see session.report() for the sites")

    def _living_model(self) -> Any:
        return self._model and self._model()

    def _warn(self, text: str) -> None:
        """Warns at the line that enters the session. Callers do so only once per session."""
        self._has_warned = True
        warnings.warn(f"actzip: {text}", stacklevel=3)

    def report(self) -> Report:
        """Returns what the last step kept, by site."""
        return Report.from_json(self._core.report_json())

    def save_state(self) -> str:
        """Returns, as text for a checkpoint, what the session has learned and how far its seeds have advanced.

        A session with the same options continues from it as this one would, after :meth:`load_state`: with the same
        plan, the same shared tensors, and the same sites that the guard keeps exactly. What ``use_gradient`` has
        learned of single samples is not included. Call it between two steps, after backward.
        """
        return self._core.save_state()

    def load_state(self, state: str) -> None:
        """Continues from the text that :meth:`save_state` returned. Call it before the first step.

        Raises ValueError, and changes nothing, if the text is anything else or a step has begun.
        """
        if not isinstance(state, str):
            raise TypeError(f"actzip: load_state was given a {type(state).__name__} (allowed: the text of save_state())")
        self._core.load_state(state)

    @property
    def live_bytes(self) -> int:
        """Encoded bytes that currently wait for backward."""
        return self._core.live_bytes()


def _remade(session: type[BaseSession], options: dict[str, Any]) -> BaseSession:
    return session(**options)


@functools.cache
def _usual_options(session: type[BaseSession]) -> dict[str, Any]:
    return session().options


class Sessions:
    """The sessions that ``compress()`` has returned, by model and options. Models are held weakly, so they can be
    freed."""

    def __init__(self, session: type[BaseSession]) -> None:
        self._session = session
        self._known: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()

    def of(self, model: Any, options: Mapping[str, Any]) -> Any:
        options = canonical(options)
        known = self._known.setdefault(model, {})
        key = tuple(sorted((name, tuple(value.items()) if isinstance(value, Mapping) else value)
                           for name, value in options.items()))
        try:
            found = known.get(key)
        except TypeError:  # no option allows an unhashable value: the session says which one it was given
            return self._session(model, **options)
        if found is None:
            found = known[key] = self._session(model, **options)
        return found
