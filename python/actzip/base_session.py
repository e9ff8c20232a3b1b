"""What sessions of all frameworks have in common: options, reports, and what they say."""

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

#: The ``offload`` that is no folder: pinned memory.
TO_HOST = "host"

_P = ParamSpec("_P")
_R = TypeVar("_R")


class BaseSession:
    """A scope around forward. A framework's session makes the core, and enters and leaves."""

    #: How users call the package.
    _package = "actzip"
    #: Whether it says after its first step what it left alone, and which rules met nothing.
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
        #: What ``Session(**options)`` makes again; options that have two names are under the new one.
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
        self._is_measuring = self._has_warned = False
        self._steps_seen = 0
        self._turns: Counter[str] = Counter()  # how often each site was measured

    @staticmethod
    def _has_gpu() -> bool:
        """Whether there is one that bytes could leave."""
        return False

    def _warn_of_offload(self, preset: str, offload: str) -> None:
        """Where it saves nothing."""
        if not offload:
            warn_of_level(preset)
        elif offload == TO_HOST and not self._has_gpu():
            warnings.warn("actzip: offload='host' moves what is kept on a GPU, and there is no GPU here: everything "
                          "stays where it is", stacklevel=4)
        elif offload != TO_HOST and _native.is_in_memory(offload):
            warnings.warn(f"actzip: offload={offload!r} lies in memory, so that offloading saves none; give a folder on "
                          "a disk, or 'host' for tensors on a GPU", stacklevel=4)

    @staticmethod
    def _check_model(model: Any, call: str) -> None:
        raise NotImplementedError

    def _core_of(self, **options: Any) -> Any:
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
        """Copies of a model that has a session share it."""
        return self

    def __reduce__(self) -> tuple:
        """Pickled, it is made anew with its options; it knows no model then, and has learned nothing."""
        return _remade, (type(self), self.options)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """As a decorator: each call of ``function`` runs inside the session."""
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
        """Before a step begins. Nothing has to be undone if it raises."""
        self._steps_seen += 1
        if self._steps_seen == 2 and self._looks_back:
            look_back(self.report(), self.options["rules"], stacklevel=3)
        if self._adapts and not self._is_measuring and self._core.wants_measurement():
            if self.closure is not None:
                self.measure(self.closure)
            elif not self._has_warned:
                self._warn("adapt='measured' without a closure: set session.closure, or call session.measure()")
        if self._lacks_samples and not self._has_warned:
            self._warn("use_gradient without samples: call session.samples(indices) before each step")

    def _has_begun(self) -> None:
        """After a step began, which may have learned from an observed one."""
        if self._adapts and not self._has_warned and self._core.adds_much():
            self._warn("compression adds more than 10 % to the gradient's own variance; give it more bits "
                       "(Session(bits=...)) or larger batches, and see session.report() for the sites")

    def _living_model(self) -> Any:
        return self._model and self._model()

    def _warn(self, text: str) -> None:
        """Once in a session, at the line that enters it."""
        self._has_warned = True
        warnings.warn(f"actzip: {text}", stacklevel=3)

    def report(self) -> Report:
        """What the last step kept, by site."""
        return Report.from_json(self._core.report_json())

    def save_state(self) -> str:
        """What the session has learned, and how far its noise has come, as text to put into a checkpoint.

        A session with the same options that is given it by :meth:`load_state` goes on as this one would: with its
        plan, what is shared, and what few bits would spoil. What ``use_gradient`` knows of single samples is not part
        of it. Call it between two steps, after backward.
        """
        return self._core.save_state()

    def load_state(self, state: str) -> None:
        """Goes on where :meth:`save_state` was called; before the first step. Another text changes nothing, and raises
        ValueError."""
        if not isinstance(state, str):
            raise TypeError(f"actzip: load_state was given a {type(state).__name__} (allowed: the text of save_state())")
        self._core.load_state(state)

    @property
    def live_bytes(self) -> int:
        """Encoded bytes that wait for backward now."""
        return self._core.live_bytes()


def _remade(session: type[BaseSession], options: dict[str, Any]) -> BaseSession:
    return session(**options)


@functools.cache
def _usual_options(session: type[BaseSession]) -> dict[str, Any]:
    return session().options


class Sessions:
    """Sessions that were given out, by model and options. They hold their models weakly, so a model goes when its user
    lets it go."""

    def __init__(self, session: type[BaseSession]) -> None:
        self._session = session
        self._known: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()

    def of(self, model: Any, options: Mapping[str, Any]) -> Any:
        options = canonical(options)
        known = self._known.setdefault(model, {})
        key = tuple(sorted((name, tuple(value.items()) if isinstance(value, Mapping) else value)
                           for name, value in options.items()))
        if key not in known:
            known[key] = self._session(model, **options)
        return known[key]
