"""Sessions: the scope around forward, with or without a model."""

from __future__ import annotations

import dataclasses
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import _C
from .base_session import BaseSession, Sessions
from .compiled.hand_over import hand_over, refuse_compiled
from .measure import measure
from .recompute import Recomputation, leave_calls, split_state
from .report import Report
from .torch_models import check_model


class Session(BaseSession):
    """Compresses the tensors that autograd saves while the session is entered.

    Enter the session around each forward (``with session:``), and leave it before ``backward()``. Sessions may be
    nested, and a session may be dropped before backward. As a decorator, it is entered around each call of a function:
    see :func:`compress`.

    A *site* is a place in the step where a tensor is saved. The report names it ``module: operator.slot``; the slot is
    the name of the operator's argument, or ``result``.

    Args:
        model: gives names to the sites, by module, and ensures that no parameter is mistaken for an activation.
            Optional, but recommended.
        preset: ``"default"`` (for each operator what its gradient needs), ``"exact"`` (only what changes no gradient),
            ``"division"`` (see docs/division.md), a codec for all floating-point tensors, such as ``"affine:2"`` or
            ``"rotated:4"``, or a level of ActNN or GACT, such as ``"actnn:L3"`` (see docs/levels.md).
        bits: replaces the 2 bits of the default by 1, 3 or 4; where the default has 3 bits, it becomes ``bits`` + 1, up
            to 4. With 8, every tensor in few bits gets 8. Any other number from 1 to 8 is an average, which a plan
            distributes (see ``adapt``).
        min_numel: smaller tensors are kept as they are; 1,024 elements by default. Also spelled ``min_elems``.
        seed: seed of the random signs and of dither. The session draws nothing from torch's generators. Attention that
            runs again in backward draws its dropout again, and puts the generator back.
        dry_run: compress nothing; ``report()`` says what would be done. Also spelled ``dry``.
        rules: a dict that overrides the preset at some sites; the first rule that matches a site applies. The keys are
            patterns as in the shell, the values a codec, ``"none"`` (not compressed; also spelled ``"as is"``) or
            ``"default"``. For example ``{"layers.0[.:]*": "none", "gelu.*": "rotated:2"}``. A pattern is matched
            against ``operator.slot`` (``"gelu.*"``) and against the whole name of the site: ``"layers.0: *"`` matches
            what the module ``layers.0`` saves itself, ``"layers.0.*"`` what modules inside it save, and
            ``"layers.0[.:]*"`` both. A pattern that begins with ``use:`` is matched against the site's use
            (``"use:linear_*"``).
        adapt: how bits are distributed; see docs/plan.md. ``"layer"``: a plan gives more bits to the sites that matter
            more, ``bits`` (2) on average. Now and then the session observes a step to find out which sites matter.
            ``"measured"``: the same, but the session measures it, by running ``closure`` again with other noise.
            ``"sample"``: within a site, more bits go to the samples that matter more, judged by their size and, with
            ``use_gradient``, by their gradients. ``"sample+layer"``, ``"sample+measured"``: both.
        use_gradient: weigh samples by their gradients when they were last seen. Call ``samples()`` before each step;
            see :mod:`actzip.data`.
        num_samples: size of the data set, for ``use_gradient``. Each sample takes 4 bytes on the device.
        interval: steps from one adaptation to the next; 0: 200, or 1,000 if measured.
        closure: for ``"measured"``: a function that runs one training step without the optimizer, its forward inside
            the session. As it usually needs the session, you can also set ``session.closure`` later.
        codec: name, groups and rounding of the codec to use in place of ``rotated``, as in
            ``"affine:nearest:group=64"``. The policy or the plan still chooses the number of bits.
        max_bits: the most bits that a plan gives a site; 0: no limit.
        guard: whether to check each site once, in one of the first steps. If the gradient computed from the compressed
            tensor has little in common with the exact one, the session warns, and keeps the site as it is from then on.
            None: yes, unless the preset is one codec for everything or a level of another system. See docs/policy.md.
        budget: limit on the memory held between forward and backward: bytes (``"4GiB"``, ``2**32``), a share of what
            torch alone would hold (``0.25``), or ``"auto"``, three quarters of what is free when the third step begins.
            Bits go where they matter, as many as fit, up to keeping a tensor as it is. In the first two steps, while
            the session learns sizes, every site gets the fewest bits. The limit holds at any time, for everything that
            is kept; if even the fewest bits do not fit, ``backward()`` raises, and says how much is missing. See
            docs/plan.md.
        offload: where compressed bytes wait for backward. ``"host"``: those of GPU tensors wait in pinned host memory;
            copies overlap with kernels, and what is kept last, or cannot be copied fast enough, stays on the GPU. A
            folder on a disk (write ``"./host"`` for one of that name): those of CPU tensors wait in a file there, which
            has no name and disappears with the session; GPU tensors are refused. With a ``budget``, only what does not
            fit is moved, and bits remain those of the preset.
        only: name of the only site to compress, as the report gives it; everything else is kept exactly.

    >>> import torch, actzip
    >>> session = actzip.Session(preset="exact")
    >>> x = torch.randn(64, 64, requires_grad=True)
    >>> with session:
    ...     y = torch.relu(x).sum()
    >>> y.backward()
    >>> [site.codec for site in session.report().sites]
    ['mask']
    """

    _check_model = staticmethod(check_model)

    @functools.cached_property
    def _recomputation(self) -> Recomputation | None:
        has_budget = self.options["budget"] is not None and not self.options["offload"]
        return Recomputation(self) if has_budget else None

    def _core_of(self, **options: Any) -> _C.Session:
        return _C.Session(**options)

    @staticmethod
    def _why_not_to_host() -> str:
        return "" if torch.cuda.is_available() else "there is no GPU here"

    # These are C++ functions, which call the methods below. In Python, an interrupt between two lines could leave a
    # scope half entered.
    __enter__ = _C.enter
    __exit__ = _C.leave

    def _prepare(self) -> None:
        if self._recomputation and not self._is_measuring:
            self._recomputation.prepare()
        super()._prepare()

    @staticmethod
    def _is_leaving() -> None:
        """Runs before a scope is left."""
        leave_calls()

    def report(self) -> Report:
        report = super().report()
        return dataclasses.replace(report, recomputed=self._recomputation.rows()) if self._recomputation else report

    def save_state(self) -> str:
        return (self._recomputation.save() if self._recomputation else "") + super().save_state()

    def load_state(self, state: str) -> None:
        saved, rest = split_state(state) if self._recomputation and isinstance(state, str) else (None, state)
        super().load_state(rest)
        if saved is not None:
            self._recomputation.load(saved)

    def _has_begun(self) -> None:
        if notice := self._core.take_notice():
            warnings.warn(notice, stacklevel=2)
        super()._has_begun()

    def _begin_layers(self) -> None:
        """Begins a step for layers that compress their own activations. Inside a scope, its step continues."""
        self._prepare()
        _C.begin_step(self._core)
        self._has_begun()

    def samples(self, indices: torch.Tensor | Sequence[int], learn: bool = True) -> None:
        """Names the samples of the coming step. Call it before the step.

        With ``use_gradient``, the indices identify samples from epoch to epoch. Without it, only their number counts:
        it says how many samples the batch has, which the session cannot see if a batch of texts arrives as a batch of
        tokens.

        Args:
            indices: position in the data set of each sample of the batch.
            learn: whether the step updates what is known of these samples. What is known is used in any case.
        """
        is_tensor = isinstance(indices, torch.Tensor)
        self._core.set_samples(indices if is_tensor else torch.tensor(list(indices), device="cpu"), learn)
        self._lacks_samples = False

    @property
    def is_guarding(self) -> bool:
        """Whether the guard still has sites to check. Steps in which it checks take longer."""
        return self._core.is_guarding()

    def measure(self, closure: Callable[[], Any]) -> None:
        """Measures how much each site matters, and makes a new plan. Requires a model and ``adapt``.

        Runs ``closure`` up to 18 times. This takes no more device memory than a step; one gradient is kept on the host.
        Afterwards gradients, buffers and random states are what they were before.

        Args:
            closure: runs forward inside the session, and backward, on the same batch each time. It must not step an
                optimizer.
        """
        model = self._living_model()
        if model is None or not self._adapts:
            raise ValueError("measure: allowed with a model and adapt, as in Session(model, adapt='measured')")
        self._is_measuring = True
        try:
            measure(self, model, closure, self._turns)
        finally:
            self._is_measuring = False


def _remade(options: dict[str, Any]) -> Session:
    """Unpickles sessions in models that were pickled by earlier releases."""
    return Session(**options)


def compress(model: torch.nn.Module | None = None, **options: Any) -> Session:
    """Returns a session to enter around forward; takes the options of :class:`Session`.

    With a model, each call with the same options returns the same session, so statistics and what the session has
    learned persist.

    >>> import torch, actzip
    >>> model = torch.nn.Linear(128, 128)
    >>> with actzip.compress(model):
    ...     loss = model(torch.randn(64, 128)).sum()
    >>> loss.backward()

    It also works as a decorator, for a function or method that runs forward and leaves ``backward()`` to its caller.
    Each call runs in the scope. Generators and async functions are refused, as a scope must not stay open across a
    ``yield``.

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
    return _sessions.of(model, options)


_sessions = Sessions(Session)


class Attachment:
    """Runs each forward of a model with gradients in a session, until ``remove()``; made by :func:`attach`.

    Copies of the model share the session, and ``remove()`` ends it for them, too. A model that was pickled gets a new
    session with the same options when it is loaded.
    """

    def __init__(self, model: torch.nn.Module, session: Session) -> None:
        self._begin(session)
        self._handles = [
            model.register_forward_pre_hook(self._enter, prepend=True),
            model.register_forward_hook(self._leave, always_call=True),
        ]

    def _begin(self, session: Session) -> None:
        self.session = session
        self._calls = threading.local()
        self._running, self._lock = 0, threading.Lock()  # calls on all threads
        self._is_removed = False
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __deepcopy__(self, _: dict) -> Attachment:
        return self

    def __reduce__(self) -> tuple:
        return Attachment._to_unpickled, (self.session.options, self._is_removed)

    @classmethod
    def _to_unpickled(cls, options: dict[str, Any], is_removed: bool = False) -> Attachment:
        """For a model that is being unpickled: its hooks are in place already, and its first forward tells the session
        which model it is."""
        attachment = cls.__new__(cls)
        attachment._begin(Session(**options))
        attachment._is_removed = is_removed
        return attachment

    def _are_entered(self) -> list[bool]:
        """For each call of the model that is running on this thread: whether it has entered the session. The grad mode
        cannot tell when the call ends, since forward may change it."""
        return self._calls.__dict__.setdefault("are_entered", [])

    def _enter(self, model: torch.nn.Module, *_: object) -> None:
        # Without gradients nothing is saved: this is no step, and the report remains that of training.
        with self._lock:
            self._running += 1
        has_gradients = torch.is_grad_enabled() and not self._is_removed
        self._are_entered().append(has_gradients)
        if has_gradients:
            if self.session._model is None:
                self.session._model = weakref.ref(model)
            self.session.__enter__()
            _C.is_in_forward(self.session, model)

    def _leave(self, *_: object) -> None:
        calls = self._are_entered()
        if not calls:  # a hook that runs before ours has raised
            return
        has_entered = calls.pop()
        with self._lock:
            self._running -= 1
        try:
            if has_entered:
                self.session.__exit__()
        finally:
            if self._is_removed:
                self._unhook()

    def remove(self) -> None:
        """Detaches the session from the model, and from its copies. A pending backward still works, and a forward that
        is running leaves the session when it ends."""
        self._is_removed = True
        self._unhook()

    def _unhook(self) -> None:
        """Removes the hooks, unless a call is running, which must still leave the session."""
        with self._lock:
            if self._running == 0:
                for handle in self._handles:
                    handle.remove()
                self._handles = []

    def report(self) -> Report:
        """Returns what the last forward with gradients kept."""
        return self.session.report()


def attach(model: torch.nn.Module, **options: Any) -> Attachment:
    """Compresses in each forward of ``model``, without a ``with`` statement; takes the options of :class:`Session`.

    What is computed outside the model, such as a loss, is not compressed. A forward without gradients is no step of the
    session.

    >>> import torch, actzip
    >>> model = torch.nn.Linear(128, 128)
    >>> handle = actzip.attach(model)
    >>> model(torch.randn(64, 128)).sum().backward()
    >>> handle.remove()
    """
    check_model(model, "attach")
    refuse_compiled(model)
    if _detach(model):
        warnings.warn("actzip: attach() was called for this model before; the new attachment takes the place of the "
                      "earlier one", stacklevel=2)
    if any(parent.__name__ == "LightningModule" for parent in type(model).__mro__):
        warnings.warn("actzip: attach() compresses inside forward(), and Lightning calls training_step() instead: "
                      "attach the network that it calls, as in actzip.attach(module.net)", stacklevel=2)
    return Attachment(model, Session(model, **options))


def _detach(model: torch.nn.Module) -> bool:
    """Removes the hooks of earlier attachments from this model alone, since copies may share them. Returns whether there
    were any."""
    found = [(hooks, key) for hooks in (model._forward_pre_hooks, model._forward_hooks) for key, hook in hooks.items()
             if isinstance(getattr(hook, "__self__", None), Attachment)]
    for hooks, key in found:
        del hooks[key]
        model._forward_hooks_always_called.pop(key, None)
    return bool(found)
