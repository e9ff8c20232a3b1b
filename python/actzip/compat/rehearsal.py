"""Closures that are run for their gradients alone, although some of them step an optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.optimizer import register_optimizer_step_pre_hook


class _GradientsAreThere(BaseException):
    """Ends a closure that is about to step its optimizer; no user's ``except Exception`` holds it up."""


def _end(*_: object, **__: object) -> None:
    raise _GradientsAreThere


def _nothing(*_: object, **__: object) -> None:
    pass


@contextlib.contextmanager
def _no_steps() -> Iterator[None]:
    """Optimizers and gradient scalers end the closure before they change anything; schedulers stand still."""
    handle = register_optimizer_step_pre_hook(_end)
    scaler = torch.amp.GradScaler
    try:
        with mock.patch.multiple(scaler, step=_end, unscale_=_end, update=_nothing), \
                mock.patch.object(LRScheduler, "step", _nothing), \
                mock.patch.object(ReduceLROnPlateau, "step", _nothing):
            yield
    finally:
        handle.remove()


def rehearsed(closure: Callable[[], Any]) -> Callable[[], None]:
    """`closure` up to its first step of an optimizer."""
    def run() -> None:
        with _no_steps(), contextlib.suppress(_GradientsAreThere):
            closure()
    return run
