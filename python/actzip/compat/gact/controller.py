"""GACT's controller: hooks for everything that autograd saves on this thread, and adaptation between steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ... import _C
from ...report import Report
from ...session import Session
from ..rehearsal import rehearsed
from . import conf
from .autoprec import AutoPrecision
from .quantizer import Quantizer

_push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
_pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks


class _BeforeForward:
    """A model's hook, which does not keep the controller alive. Copies of the model share it; unpickled, it does
    nothing."""

    def __init__(self, controller: Controller | None = None) -> None:
        self._controller = None if controller is None else weakref.ref(controller)

    def __call__(self, model: torch.nn.Module, *_: object) -> None:
        controller = self._controller and self._controller()
        if controller is not None:
            controller._before_forward(model)

    def __deepcopy__(self, _: dict) -> _BeforeForward:
        return self

    def __reduce__(self) -> tuple:
        return _BeforeForward, ()


class Controller:
    """Compresses what autograd saves from ``install_hook()`` to ``uninstall_hook()``, according to ``gact.config``.

    Each forward of the model with gradients begins a step. The configuration is read when hooks are installed, and
    before each step; if it has changed, a new session begins. A controller removes its hooks when it is destroyed.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.quantizer = Quantizer()
        self.iter, self.bit, self.auto_prec = 0, conf.config.bit, conf.config.auto_prec
        self._options = conf.session_options()
        self.session = Session(model, **self._options)
        if self.auto_prec:
            self.ap = AutoPrecision(self)
        self._has_hooks = self._is_listening = False
        self._seen_saves = 0
        self._forward = model.register_forward_pre_hook(_BeforeForward(self), prepend=True)

    def __del__(self) -> None:
        if hasattr(self, "_forward"):  # __init__ may have failed before
            self._forward.remove()
            self._end_step()
            self._take_hooks()

    def install_hook(self) -> None:
        if self._has_hooks:
            return
        self._end_step()
        self._read_config()
        self._put_hooks()

    def uninstall_hook(self) -> None:
        """Removes the hooks. A pending backward still works."""
        self._end_step()
        if self._has_hooks and not self._take_hooks():
            raise RuntimeError("gact: uninstall_hook while hooks that were installed later are there (allowed: to take "
                               "hooks away in the order opposite to that in which they came, on the same thread)")

    def iterate(self, closure: Callable[[], Any] | None = None) -> None:
        """Must be called once for each step of training.

        If hooks are installed and nothing was packed since the last call, `closure` is the step, and is run. Otherwise
        the script has run its step itself, and `closure` is run only to adapt: steps of an optimizer or a scheduler in
        it are not taken, and gradients, statistics and random states are restored afterwards.
        """
        self.iter += 1
        if closure is not None and self._has_hooks and self.session._core.saves() == self._seen_saves:
            closure()
        self._end_step()
        if closure is not None and self._is_time_to_adapt():
            self._adapt(rehearsed(closure))
        self._seen_saves = self.session._core.saves()
        if conf.config.log_interval > 0 and self.iter % conf.config.log_interval == 0:
            self._log()

    def quantize(self, tensor: torch.Tensor) -> Any:
        """Serves as a pack hook."""
        if not self._is_listening:  # from now on, the session knows which operator runs
            self._read_config()
            self.quantizer.tell(self.session)
            self._next_step()
        return self.session._pack(tensor)

    def dequantize(self, packed: Any) -> torch.Tensor:
        """Serves as the unpack hook for the results of ``quantize``."""
        return self.session._unpack(packed)

    def report(self) -> Report:
        """Returns what the last step kept."""
        return self.session.report()

    def _is_time_to_adapt(self) -> bool:
        has_kept = self.session._core.saves() != self._seen_saves
        is_due = self.iter == 1 or self.iter % conf.config.adapt_interval == 0
        return is_due and has_kept and self.session._core.adapts()

    def _adapt(self, closure: Callable[[], None]) -> None:
        def step() -> None:
            closure()
            self._end_step()

        try:
            self.session.measure(step)
        finally:
            self._end_step()

    def _before_forward(self, model: torch.nn.Module) -> None:
        if not (self._has_hooks or self._is_listening) or not torch.is_grad_enabled():
            return
        self._end_step()
        if self._options != conf.session_options() and self._take_hooks():
            self._read_config()
            self._put_hooks()
        self._next_step()
        _C.is_in_forward(self.session, model)

    def _read_config(self) -> None:
        if self._options != conf.session_options():
            self._options = conf.session_options()
            self.session = Session(self.model, **self._options)
            self._seen_saves = 0

    def _put_hooks(self) -> None:
        self.quantizer.tell(self.session)
        _push_hooks(self.session._pack, self.session._unpack)
        self._has_hooks = True

    def _take_hooks(self) -> bool:
        """Removes the hooks if they are the latest ones of this thread. Returns whether it did."""
        top = _top_hooks(True) if self._has_hooks else None
        if top is None or top[0] is not self.session._pack:
            return False
        _pop_hooks()
        self._has_hooks = False
        return True

    def _next_step(self) -> None:
        self._end_step()
        _C.listen(self.session)
        self._is_listening = True

    def _end_step(self) -> None:
        if self._is_listening:
            self._is_listening = False
            _C.stop_listening(self.session)

    def _log(self) -> None:
        folder = Path(conf.config.work_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"iteration-{self.iter}.json").write_text(self.report().to_json())
