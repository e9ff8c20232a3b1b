"""GACT's controller: hooks for everything that autograd saves on this thread, and adaptation between two steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ... import _C
from ...report import Report
from ...session import Session
from ..rehearsal import rehearsed
from . import conf
from .quantizer import Quantizer

_push_hooks = torch._C._autograd._push_saved_tensors_default_hooks
_pop_hooks = torch._C._autograd._pop_saved_tensors_default_hooks


class Controller:
    """Compresses what autograd saves from ``install_hook()`` to ``uninstall_hook()``, by ``gact.config``.

    A step begins with each forward of the model that is to be differentiated. The configuration is read when hooks are
    installed; if it is the same again, what the session has learned stays.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.quantizer = Quantizer()
        self._options = conf.session_options()
        self.session = Session(model, **self._options)
        self._has_hooks = self._is_listening = False
        self._iteration = self._seen_saves = 0
        self._forward = model.register_forward_pre_hook(self._before_forward, prepend=True)

    def install_hook(self) -> None:
        if self._has_hooks:
            return
        self._end_step()
        if self._options != conf.session_options():
            self._options = conf.session_options()
            self.session = Session(self.model, **self._options)
            self._seen_saves = 0
        self.quantizer.tell(self.session)
        _push_hooks(self.session._pack, self.session._unpack)
        self._has_hooks = True

    def uninstall_hook(self) -> None:
        """What was kept for a backward that is still to come stays valid."""
        self._end_step()
        if self._has_hooks:
            _pop_hooks()
            self._has_hooks = False

    def iterate(self, closure: Callable[[], Any] | None = None) -> None:
        """Called once for each step of training.

        If nothing was packed since the last call, `closure` is the step, and is run. Otherwise the script made its step
        by itself, and `closure` is run only to adapt: then gradients, statistics, random states, parameters, optimizer
        and scheduler are afterwards as they were, although it may step them.
        """
        self._iteration += 1
        if closure is not None and self.session._core.saves() == self._seen_saves:
            closure()
        self._end_step()
        if closure is not None and self._is_time_to_adapt():
            self._adapt(rehearsed(closure))
        self._seen_saves = self.session._core.saves()
        if conf.config.log_interval > 0 and self._iteration % conf.config.log_interval == 0:
            self._log()

    def quantize(self, tensor: torch.Tensor) -> Any:
        """A pack hook."""
        if not self._is_listening:  # operators are known from the next one on
            self.quantizer.tell(self.session)
            self._next_step()
        return self.session._pack(tensor)

    def dequantize(self, packed: Any) -> torch.Tensor:
        """An unpack hook for what ``quantize`` gave."""
        return self.session._unpack(packed)

    def report(self) -> Report:
        """What the last step kept."""
        return self.session.report()

    def _is_time_to_adapt(self) -> bool:
        has_kept = self.session._core.saves() > 0
        is_due = self._iteration == 1 or self._iteration % conf.config.adapt_interval == 0
        return is_due and has_kept and self._has_hooks and self.session._core.adapts()

    def _adapt(self, closure: Callable[[], None]) -> None:
        def step() -> None:
            closure()
            self._end_step()

        try:
            self.session.measure(step)
        finally:
            self._end_step()

    def _before_forward(self, *_: object) -> None:
        if (self._has_hooks or self._is_listening) and torch.is_grad_enabled():
            self._next_step()
            _C.is_in_forward(self.session, self.model)

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
        (folder / f"iteration-{self._iteration}.json").write_text(self.report().to_json())
