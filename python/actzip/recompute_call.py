"""Calls of modules that will run again in backward.

torch.utils.checkpoint does the work. What it keeps of a module while the module's backward runs goes to the session
instead: it is compressed, and counted in the budget.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree
from torch.utils.checkpoint import _checkpoint_without_reentrant_generator

from . import _C

if TYPE_CHECKING:
    from .recompute import Recomputation
    from .session import Session


class _Kept:
    """What the session keeps of a tensor of a module that has run again. It takes the tensor's place in the checkpoint,
    which only moves it and compares the attributes."""

    requires_grad = False

    def __init__(self, session: Session, tensor: torch.Tensor) -> None:
        self.packed, self._unpack = session._pack(tensor), session._unpack
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device

    def detach(self) -> _Kept:
        return self

    def restore(self) -> torch.Tensor:
        return self._unpack(self.packed)


class _Reusable:
    """A context that is made anew each time it is entered: with a retained graph, a module runs again several times."""

    def __init__(self, make: Callable[[], AbstractContextManager]) -> None:
        self._make = make

    def __enter__(self) -> None:
        self._open = self._make()
        self._open.__enter__()

    def __exit__(self, *exception: Any) -> bool | None:
        return self._open.__exit__(*exception)


class _Inside:
    """What must be known of a module's forward when it runs again."""

    def __init__(self, module: torch.nn.Module, arguments: list[Any]) -> None:
        self._arguments = arguments
        self._buffers = list(_buffers(module))
        self._saved: list[StorageWeakRef | None] = []
        self.changed: list[tuple[torch.nn.Module, str]] = []  #: buffers that forward has changed
        self.shared: set[int] = set()  #: positions of saved tensors that are the module's arguments or results

    def note_saved(self, tensor: torch.Tensor) -> None:
        self._saved.append(_storage_of(tensor))

    def end(self, output: Any) -> None:
        for owner, name, buffer, version in self._buffers:
            now = owner._buffers.get(name)
            # Norms write to their statistics without a new version.
            is_norm = getattr(owner, "track_running_stats", False)
            if now is not None and (is_norm or now is not buffer or _version(now) != version):
                self.changed.append((owner, name))
        given = [value for value in (*self._arguments, *_pytree.tree_leaves(output)) if isinstance(value, torch.Tensor)]
        alive = {storage.cdata for storage in map(_storage_of, given) if storage is not None}
        self.shared.update(i for i, storage in enumerate(self._saved)
                           if storage is not None and not storage.expired() and storage.cdata in alive)
        self._arguments, self._buffers, self._saved = [], [], []


def _storage_of(tensor: torch.Tensor) -> StorageWeakRef | None:
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):  # it has none, for example because it is sparse
        return None


@contextmanager
def _in_forward(inside: _Inside) -> Iterator[None]:
    """Inside the checkpoint's hooks in forward: restores what those return in backward."""
    keep, take = top_hooks()

    def pack(tensor: torch.Tensor) -> Any:
        inside.note_saved(tensor)
        return keep(tensor)

    with saved_tensors_hooks(pack, lambda held: take(held).restore()):
        yield


@contextmanager
def _in_backward(session: Session, inside: _Inside) -> Iterator[None]:
    """Inside the checkpoint's hooks while a module runs again: hands them what the session keeps. The module changes
    copies of the buffers that it has changed before."""
    keep, _ = top_hooks()
    position = itertools.count()

    def pack(tensor: torch.Tensor) -> Any:
        kept = _Kept(session, tensor)
        if next(position) in inside.shared:
            session._core.note_counted(kept.packed)
        return keep(kept)

    buffers = [(owner, name, owner._buffers[name]) for owner, name in inside.changed]
    _C.resume(session)
    try:
        for owner, name, buffer in buffers:
            owner._buffers[name] = buffer.clone()
        with saved_tensors_hooks(pack, _Kept.restore):
            yield
    finally:
        for owner, name, buffer in buffers:
            owner._buffers[name] = buffer
        _C.stop_listening(session)


def top_hooks() -> tuple[Any, Any] | None:
    return torch._C._autograd._top_saved_tensors_default_hooks(False)


def stamp(values: list[Any]) -> float | torch.cuda.Event:
    """Returns the time, of the device on which the values are."""
    if not any(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return end - begin
    end.synchronize()
    return begin.elapsed_time(end) / 1000


class Call:
    """A call of a marked module in a session that measures it."""

    def __init__(self, owner: Recomputation, path: str, values: list[Any]) -> None:
        self._owner, self._path, self._values = owner, path, values
        self._began = stamp(values)

    def end(self, output: Any) -> None:
        self._owner.note_time(self._path, self._began, stamp(self._values))

    def abandon(self) -> None:
        pass


class CallAgain(Call):
    """A call of a marked module that will run again."""

    def __init__(self, owner: Recomputation, path: str, module: torch.nn.Module, values: list[Any], spec: Any) -> None:
        session = owner.session()
        self._inside = inside = _Inside(module, values)

        def run(*values: Any) -> Any:
            given, named = _pytree.tree_unflatten(values, spec)
            return module(*given, **named)

        again = _Reusable(lambda: _in_backward(session, inside))
        # Flat, because the checkpoint saves only those tensors that are arguments by themselves.
        self._checkpoint = _checkpoint_without_reentrant_generator(
            run, True, lambda: (_in_forward(inside), again), "default", False, True, *values)
        next(self._checkpoint)
        super().__init__(owner, path, values)

    def end(self, output: Any) -> None:
        super().end(output)
        self._inside.end(output)
        next(self._checkpoint, None)

    def abandon(self) -> None:
        self._checkpoint.close()


def _buffers(module: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor, int]]:
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None:
                yield owner, name, buffer, _version(buffer)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version
