"""Runs closures for their gradients alone, even if they step an optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook


class _GradientsAreThere(BaseException):
    """Ends a closure that is about to step its optimizer. It passes a user's ``except Exception``."""


def _end(*_: object, **__: object) -> None:
    raise _GradientsAreThere


def _nothing(*_: object, **__: object) -> None:
    pass


@contextlib.contextmanager
def _no_steps() -> Iterator[None]:
    """Lets optimizers and gradient scalers end the closure before they change anything, and schedulers do nothing."""
    with contextlib.ExitStack() as stack:
        stack.callback(register_optimizer_step_pre_hook(_end).remove)
        stack.enter_context(mock.patch.multiple(torch.amp.GradScaler, step=_end, unscale_=_end, update=_nothing))
        for scheduler in _family(LRScheduler):
            if "step" in vars(scheduler):
                stack.enter_context(mock.patch.object(scheduler, "step", _nothing))
        yield


def _family(base: type) -> Iterator[type]:
    yield base
    for derived in base.__subclasses__():
        yield from _family(derived)


def rehearsed(closure: Callable[[], Any]) -> Callable[[], None]:
    """Returns a function that runs `closure` up to its first step of an optimizer."""
    def run() -> None:
        with _no_steps(), contextlib.suppress(_GradientsAreThere):
            closure()
    return run
