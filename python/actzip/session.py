"""Sessions: the scope around forward, with a model or without."""

from __future__ import annotations

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
from .report import Report
from .torch_models import check_model


class Session(BaseSession):
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
        budget: how much may be held between forward and backward: bytes (``"4GiB"``, ``2**32``), a share of what torch
            alone would hold (``0.25``), or ``"auto"``, what the device has left from the third step on. Bits go where
            they matter, as many as fit, up to keeping a tensor as it is; the first two steps, in which sizes are
            learned, have the fewest. The limit holds at any time, for everything that is kept; if the fewest bits do
            not fit, ``backward()`` raises, and says what is missing. See docs/plan.md.
        offload: where what is kept waits for backward. ``"host"``: of tensors on a GPU, in pinned memory of the host;
            copies run beside the kernels, and what is kept last stays on the GPU, as does what cannot leave as fast as
            it is made. A folder on a disk (one that is called host is ``"./host"``): of tensors on the CPU, in a file
            without a name, which goes with the session; tensors on a GPU are refused. With a ``budget``, only what does
            not fit goes, and bits stay as they are without one.
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

    _check_model = staticmethod(check_model)

    def _core_of(self, **options: Any) -> _C.Session:
        return _C.Session(**options)

    @staticmethod
    def _has_gpu() -> bool:
        return torch.cuda.is_available()

    # Written in C++, which asks for the methods below: an interrupt between two lines would leave half a scope behind.
    __enter__ = _C.enter
    __exit__ = _C.leave

    def _has_begun(self) -> None:
        if notice := self._core.take_notice():
            warnings.warn(notice, stacklevel=2)
        super()._has_begun()

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

    @property
    def is_guarding(self) -> bool:
        """Whether there are sites that the guard has yet to look at. A step in which it looks takes longer."""
        return self._core.is_guarding()

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


def _remade(options: dict[str, Any]) -> Session:
    """Models that were pickled by earlier releases ask for it."""
    return Session(**options)


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
    return _sessions.of(model, options)


_sessions = Sessions(Session)


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
