"""Sessions: the scope around forward, with a model or without."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

import torch

from . import _C
from .compiled.hand_over import hand_over, refuse_compiled
from .decorated import check_can_run_in_scope
from .levels import warn_of_level
from .measure import measure
from .notices import look_back
from .options import canonical, check, check_model
from .report import Report, bytes_text

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Session:
    """Compresses what autograd saves while it is entered.

    It can be entered again for each step, nested, and dropped before backward. Leave it before ``backward()``. As a
    decorator it is entered around each call of a function: see :func:`compress`.

    Args:
        model: names the sites by module, and makes certain that no parameter is taken for an activation. Optional.
        preset: ``"default"`` (each operator as its gradient needs), ``"exact"`` (only what changes no gradient), or a
            codec for all floating tensors alike, such as ``"affine:2"`` or ``"rotated:4"``; or a level of ActNN or
            GACT, such as ``"actnn:L3"``: see docs/levels.md.
        bits: instead of the default's 2: 1, 2, 3, 4 or 8; what has 3 bits keeps one more. Any other number from 1 to 8
            is an average, and sites get more or less as they matter (``adapt="layer"``).
        min_numel: tensors with fewer elements are kept as they are; 1,024 unless given. Also spelled ``min_elems``.
        seed: of the random signs; torch's generators are never touched.
        dry_run: compress nothing; ``report()`` says what would be done. Also spelled ``dry``.
        rules: what to do at some sites instead: a pattern, as the shell has them, and a codec, ``"none"`` (not
            compressed; also spelled ``"as is"``) or ``"default"``. The first that matches holds. A pattern is compared
            with ``operator.slot`` (``"gelu.*"``) and with the whole name of a site as the report gives it,
            ``module: operator.slot``: ``"layers.0: *"`` is what the module ``layers.0`` saves itself,
            ``"layers.0.*"`` what modules inside it save, and ``"layers.0[.:]*"`` both. So
            ``{"layers.0[.:]*": "none", "gelu.*": "rotated:2"}``.
        adapt: ``"layer"``: bits go where they matter, ``bits`` (2) on average over all sites that have few bits, by
            what a step tells that is observed now and then; ``"measured"``: the same, by what ``closure`` shows when it
            is run again with other noise. See docs/plan.md.
            ``"sample"``: the bits of a site go to those samples of its tensor that matter, by their size and, with
            ``use_gradient``, by their gradients; ``"sample+layer"``, ``"sample+measured"``: both.
        use_gradient: samples matter as their gradients did when they were last seen. Call ``samples()`` before each
            step; see :mod:`actzip.data`.
        num_samples: of the data set, for ``use_gradient``: 4 bytes each on the device.
        interval: steps from one adaptation to the next; 200, or 1,000 if measured.
        closure: for ``"measured"``: a function that makes a step of training without its optimizer, the forward inside
            the session. May be set later: it mostly needs the session.
        codec: a codec's name, groups and rounding, as in ``"affine:nearest:group=64"``, in place of ``rotated``
            wherever policy and plan take that; they say the bits.
        max_bits: the most that a plan gives a site; 0: no limit.
        guard: whether each site is looked at once, in the first steps: if a gradient that is made of its few bits has
            little in common with the exact one, the site is kept as it is from then on, with a warning. None: unless
            the preset is one codec for everything, or a level of another system. See docs/policy.md.
        only: name of the one site that is compressed, as the report gives it; everything else is kept exactly.

    >>> import torch, actzip
    >>> session = actzip.Session(preset="exact")
    >>> x = torch.randn(64, 64, requires_grad=True)
    >>> with session:
    ...     y = torch.relu(x).sum()
    >>> y.backward()
    >>> [site.codec for site in session.report().sites]
    ['mask']
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
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
        min_elems: int | None = None,
        dry: bool | None = None,
    ) -> None:
        if model is not None:
            check_model(model, "Session")
        if rules is not None:
            check({"rules": rules})
        named_twice = canonical({"min_numel": min_numel, "min_elems": min_elems, "dry_run": dry_run, "dry": dry})
        #: What ``Session(**options)`` makes again; options that have two names are under the new one.
        self.options: dict[str, Any] = {
            "preset": preset, "bits": bits, "min_numel": 1024, "seed": seed, "dry_run": False, "only": only,
            "rules": dict(rules or {}), "adapt": adapt, "interval": interval, "use_gradient": use_gradient,
            "num_samples": num_samples, "codec": codec, "max_bits": max_bits, "guard": guard, **named_twice}
        check(self.options)
        self._core = self._make_core()
        warn_of_level(preset)
        self._pack, self._unpack = self._core.hook_pair()
        self._model = None if model is None else weakref.ref(model)
        self.closure = closure
        self._adapts = self._core.adapts()
        self._lacks_samples = use_gradient
        self._is_measuring = self._has_warned = False
        self._steps_seen = 0
        self._turns: Counter[str] = Counter()

    def _make_core(self) -> _C.Session:
        options = dict(self.options)
        min_numel, dry_run, rules = (options.pop(name) for name in ("min_numel", "dry_run", "rules"))
        return _C.Session(min_elems=min_numel, dry=dry_run, rules=list(rules.items()), **options)

    def __deepcopy__(self, _: dict) -> Session:
        """Copies of a model that has a session share it."""
        return self

    def __reduce__(self) -> tuple:
        """Pickled, it is made anew with its options; it knows no model then, and has learned nothing."""
        return _remade, (self.options,)

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
        return f"<actzip.Session({', '.join(parts + self._unusual_options())}): {self._last_step()}>"

    def _unusual_options(self) -> list[str]:
        usual = _usual_options()
        return [f"{name}={value!r}" for name, value in self.options.items() if value != usual[name]]

    def _last_step(self) -> str:
        report = self.report()
        if not report.sites:
            return "nothing kept yet"
        return (f"step {report.steps} {'would hold' if report.dry else 'held'} {bytes_text(report.bytes_before)} -> "
                f"{bytes_text(report.bytes_after)}, {len(report.sites)} sites")

    # Written in C++, which asks for the methods below: an interrupt between two lines would leave half a scope behind.
    __enter__ = _C.enter
    __exit__ = _C.leave

    def _prepare(self) -> None:
        """Before a step begins. Nothing has to be undone if it raises."""
        self._steps_seen += 1
        if self._steps_seen == 2:
            look_back(self.report(), self.options["rules"], stacklevel=3)
        if self._adapts and not self._is_measuring and self._core.wants_measurement():
            if self.closure is not None:
                self.measure(self.closure)
            elif not self._has_warned:
                self._warn("adapt='measured' without a closure: set session.closure, or call session.measure()")
        if self._lacks_samples and not self._has_warned:
            self._warn("use_gradient without samples: call session.samples(indices) before each step")

    def _has_begun(self) -> None:
        """After a step began, which may have learned from those before."""
        if notice := self._core.take_notice():
            warnings.warn(notice, stacklevel=2)
        if self._adapts and not self._has_warned and self._core.adds_much():
            self._warn("compression adds more than 10 % to the gradient's own variance; give it more bits "
                       "(Session(bits=...)) or larger batches, and see session.report() for the sites")

    def _living_model(self) -> torch.nn.Module | None:
        return self._model and self._model()

    def _begin_layers(self) -> None:
        """Begins a step of layers that compress their own activations; inside a scope that has happened."""
        self._prepare()
        _C.begin_step(self._core)
        self._has_begun()

    def samples(self, indices: torch.Tensor | Sequence[int], learn: bool = True) -> None:
        """Names the samples of the coming step: where the rows of its batch stand in the data set.

        With ``use_gradient`` each is known by its index from epoch to epoch. Without, the session learns how many
        samples the batch has, which it cannot see where a batch of texts comes as a batch of tokens. Unless it is to
        ``learn``, what is known of them serves the step, and stays as it is.
        """
        is_tensor = isinstance(indices, torch.Tensor)
        self._core.set_samples(indices if is_tensor else torch.tensor(list(indices), device="cpu"), learn)
        self._lacks_samples = False

    def measure(self, closure: Callable[[], Any]) -> None:
        """Measures which sites matter, and plans anew; the session must have a model and ``adapt``.

        Takes up to 18 steps of ``closure``, which runs forward inside the session, and backward, on one batch.
        Gradients, buffers, random states and parameters are afterwards what they were; no optimizer may step in it.
        No more memory is used on the device than in a step; one gradient is kept on the host.
        """
        model = self._living_model()
        if model is None or not self._adapts:
            raise ValueError("measure: allowed with a model and adapt, as in Session(model, adapt='measured')")
        self._is_measuring = True
        try:
            measure(self, model, closure, self._turns)
        finally:
            self._is_measuring = False

    def _warn(self, text: str) -> None:
        """Once in a session, at the line that enters it."""
        self._has_warned = True
        warnings.warn(f"actzip: {text}", stacklevel=3)

    def report(self) -> Report:
        """What the last step kept, by site."""
        return Report.from_json(self._core.report_json())

    @property
    def live_bytes(self) -> int:
        """Encoded bytes that wait for backward now."""
        return self._core.live_bytes()


def _remade(options: dict[str, Any]) -> Session:
    return Session(**options)


@functools.cache
def _usual_options() -> dict[str, Any]:
    return Session().options


def compress(model: torch.nn.Module | None = None, **options: Any) -> Session:
    """A session to enter around forward; takes the options of :class:`Session`.

    With a model the same session is given out each time, as long as the options are the same: statistics and what was
    learned about its sites stay.

    >>> import torch, actzip
    >>> model = torch.nn.Linear(128, 128)
    >>> with actzip.compress(model):
    ...     loss = model(torch.randn(64, 128)).sum()
    >>> loss.backward()

    It is a decorator as well, for a function or method that runs forward and leaves ``backward()`` to its caller. Each
    call runs in the scope. Generators and async functions are refused: a scope must not stay open across a ``yield``.

    >>> @actzip.compress(model)
    ... def loss_of(batch):
    ...     return model(batch).square().mean()
    >>> loss_of(torch.randn(64, 128)).backward()
    >>> actzip.compress(model).report().steps
    2
    """
    if model is None:
        return Session(**options)
    check_model(model, "compress")
    if (compiled := hand_over(model, options)) is not None:
        return compiled
    options = canonical(options)
    known = _sessions.setdefault(model, {})
    key = tuple(sorted((name, tuple(value.items()) if isinstance(value, Mapping) else value)
                       for name, value in options.items()))
    if key not in known:
        known[key] = Session(model, **options)
    return known[key]


#: By model and options. The sessions hold their models weakly, so a model goes when its user lets it go.
_sessions: weakref.WeakKeyDictionary[torch.nn.Module, dict] = weakref.WeakKeyDictionary()


class Attachment:
    """A model whose every forward with gradients runs in a session; ``remove()`` takes it off again.

    Copies of the model share the session. A pickled model has one of its own when it is loaded, with the same options.
    """

    def __init__(self, model: torch.nn.Module, session: Session) -> None:
        self.session = session
        self._calls = threading.local()
        self._handles = [
            model.register_forward_pre_hook(self._enter, prepend=True),
            model.register_forward_hook(self._leave, always_call=True),
        ]

    def __deepcopy__(self, _: dict) -> Attachment:
        return self

    def __reduce__(self) -> tuple:
        return Attachment._to_unpickled, (self.session.options,)

    @classmethod
    def _to_unpickled(cls, options: dict[str, Any]) -> Attachment:
        """Of a model that is being loaded, whose hooks are in their places; its first forward says which one it is."""
        attachment = cls.__new__(cls)
        attachment.session, attachment._calls, attachment._handles = Session(**options), threading.local(), []
        return attachment

    def _are_entered(self) -> list[bool]:
        """Of the calls of the model that this thread is in, whether each has entered the session. A forward may change
        the grad mode, so its end cannot tell."""
        return self._calls.__dict__.setdefault("are_entered", [])

    def _enter(self, model: torch.nn.Module, *_: object) -> None:
        # Evaluation keeps nothing: it is no step, and the report stays that of training.
        has_gradients = torch.is_grad_enabled()
        self._are_entered().append(has_gradients)
        if has_gradients:
            if self.session._model is None:
                self.session._model = weakref.ref(model)
            self.session.__enter__()
            _C.is_in_forward(self.session, model)

    def _leave(self, *_: object) -> None:
        calls = self._are_entered()
        if calls and calls.pop():  # empty if a hook that runs before ours has raised
            self.session.__exit__()

    def remove(self) -> None:
        """The model is as it was before; what was kept for a pending backward stays valid."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def report(self) -> Report:
        """What the last forward with gradients kept."""
        return self.session.report()


def attach(model: torch.nn.Module, **options: Any) -> Attachment:
    """Compresses inside each forward of ``model``, with no scope to write; takes the options of :class:`Session`.

    What is computed outside the model, a loss for instance, is kept as torch keeps it. A forward without gradients is no
    step of the session.

    >>> import torch, actzip
    >>> model = torch.nn.Linear(128, 128)
    >>> handle = actzip.attach(model)
    >>> model(torch.randn(64, 128)).sum().backward()
    >>> handle.remove()
    """
    check_model(model, "attach")
    refuse_compiled(model)
    if any(parent.__name__ == "LightningModule" for parent in type(model).__mro__):
        warnings.warn("actzip: attach() compresses inside forward(), and Lightning calls training_step() instead: "
                      "attach the network that it calls, as in actzip.attach(module.net)", stacklevel=2)
    return Attachment(model, Session(model, **options))
