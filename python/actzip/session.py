"""Sessions: the scope around forward, with a model or without."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from . import _C
from .report import Report

_push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
_pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks


class Session:
    """Compresses what autograd saves while it is entered.

    It can be entered again for each step, nested, and dropped before backward. Leave it before ``backward()``.

    Args:
        model: names the sites by module, and makes certain that no parameter is taken for an activation. Optional.
        preset: ``"default"`` (each operator as its gradient needs), ``"exact"`` (only what changes no gradient), or a
            codec for all floating tensors alike, such as ``"affine:2"`` or ``"rotated:4"``.
        bits: instead of the default's 2: 1, 2, 3, 4 or 8; what has 3 bits keeps one more.
        min_elems: smaller tensors are kept as they are.
        seed: of the random signs; torch's generators are never touched.
        dry: compress nothing; ``report()`` says what would be done.
        rules: what to do at some sites instead: a pattern (``*``) for ``operator.slot`` or for a whole site name, as the
            report gives them, and a codec, ``"as is"`` or ``"default"``. The first that matches holds:
            ``{"layers.0.*": "as is", "gelu.*": "rotated:2"}``.
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
        bits: int | None = None,
        min_elems: int = 1024,
        seed: int = 0,
        dry: bool = False,
        only: str = "",
        rules: Mapping[str, str] | None = None,
    ) -> None:
        self._core = _C.Session(preset=preset, bits=bits, min_elems=min_elems, seed=seed, dry=dry, only=only,
                                rules=list((rules or {}).items()))
        self._pack, self._unpack = self._core.hook_pair()
        self._model = None if model is None else weakref.ref(model)
        self._modules = self._core.module_hooks()

    def __enter__(self) -> Session:
        needs_modules = _C.start_listening(self._core)
        _push_hooks(self._pack, self._unpack)
        model = self._model and self._model()
        _entered.handles.append(() if model is None else self._look_at(model, needs_modules))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in _entered.handles.pop():
            handle.remove()
        _pop_hooks()
        _C.stop_listening()

    def _look_at(self, model: torch.nn.Module, needs_modules: bool) -> tuple[Any, ...]:
        """Learns the model's parameters, again for each step: they may have been replaced or moved.

        While sites are new, hooks tell their modules. They are global and last as long as the scope, so that nothing is
        left on the model.
        """
        if not needs_modules:
            self._core.look_at_model(model)
            return ()
        self._core.watch_model(self._modules, model)
        return (
            register_module_forward_pre_hook(self._modules.enter),
            register_module_forward_hook(self._modules.leave, always_call=True),
        )

    def report(self) -> Report:
        """What the last step kept, by site."""
        return Report._parse(self._core.report_text(), self._core.report_json())

    @property
    def live_bytes(self) -> int:
        """Encoded bytes that wait for backward now."""
        return self._core.live_bytes()


class _Entered(threading.local):
    """What the scopes of this thread have to take away again."""

    def __init__(self) -> None:
        self.handles: list[tuple[Any, ...]] = []


_entered = _Entered()


def compress(model: torch.nn.Module | None = None, **options: Any) -> Session:
    """A session to enter around forward; takes the options of :class:`Session`.

    With a model the same session is given out each time, as long as the options are the same: statistics and what was
    learned about its sites stay.

    >>> import torch, actzip
    >>> model = torch.nn.Linear(128, 128)
    >>> with actzip.compress(model):
    ...     loss = model(torch.randn(64, 128)).sum()
    >>> loss.backward()
    """
    if model is None:
        return Session(**options)
    known = _sessions.setdefault(model, {})
    key = tuple(sorted((name, tuple(value.items()) if isinstance(value, Mapping) else value)
                       for name, value in options.items()))
    if key not in known:
        known[key] = Session(model, **options)
    return known[key]


#: By model and options. The sessions hold their models weakly, so a model goes when its user lets it go.
_sessions: weakref.WeakKeyDictionary[torch.nn.Module, dict] = weakref.WeakKeyDictionary()


class Attachment:
    """A model whose every forward runs in a session; ``remove()`` takes it off again.

    Copies of the model share the session. A model is pickled without it: remove it before.
    """

    def __init__(self, model: torch.nn.Module, session: Session) -> None:
        self.session = session
        self._handles = [
            model.register_forward_pre_hook(self._enter, prepend=True),
            model.register_forward_hook(self._leave, always_call=True),
        ]

    def __deepcopy__(self, _: dict) -> Attachment:
        return self

    def _enter(self, *_: object) -> None:
        self.session.__enter__()

    def _leave(self, *_: object) -> None:
        self.session.__exit__()

    def remove(self) -> None:
        """The model is as it was before; what was kept for a pending backward stays valid."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def report(self) -> Report:
        """What the last forward kept."""
        return self.session.report()


def attach(model: torch.nn.Module, **options: Any) -> Attachment:
    """Compresses inside each forward of ``model``, with no scope to write; takes the options of :class:`Session`.

    What is computed outside the model, a loss for instance, is kept as torch keeps it.

    >>> import torch, actzip
    >>> model = torch.nn.Linear(128, 128)
    >>> handle = actzip.attach(model)
    >>> model(torch.randn(64, 128)).sum().backward()
    >>> handle.remove()
    """
    return Attachment(model, Session(model, **options))
