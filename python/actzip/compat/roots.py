"""Finds the steps of a program whose layers compress by themselves: each forward of the outermost module is one.

Such layers have no scope around them, and need no wrapper. So a pair of global module hooks finds the outermost module
whose forward runs. If it contains such layers, its own session is entered around its forward.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from .. import _C
from ..convert import Conversion
from ..nn.binding import Binding, CompressedLayer, is_compiling
from ..session import Session

#: How many configurations a module keeps sessions for. Programs switch between a few, to compare them.
_REMEMBERED = 4


class Library:
    """What the configuration of a library says about steps. Each of its layers refers to it as ``library``."""

    def is_training(self) -> bool:
        raise NotImplementedError

    def key(self) -> Hashable:
        """Returns a key of the configuration. Equal keys can use the same session."""
        raise NotImplementedError

    def session_options(self, layers: Mapping[str, torch.nn.Module]) -> dict[str, Any]:
        raise NotImplementedError

    def pipeline_threshold(self) -> int:
        return 0

    def begin(self, session: Session) -> None:
        """Runs before a step."""

    def end(self, output: Any) -> None:
        """Runs after the step's forward."""


class Root:
    """An outermost module and its sessions, one for each configuration."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = weakref.ref(module)
        found = (getattr(type(child), "library", None) for child in module.modules())
        self.library: Library | None = next((library for library in found if library is not None), None)
        self._conversions: OrderedDict[Hashable, Conversion] = OrderedDict()
        self._now: Hashable = None

    @property
    def session(self) -> Session:
        key = self.library.key() if self.library else None
        if key not in self._conversions:
            self._conversions[key] = self._make(self._module())
        if self._now != key:
            self._bind(self._module(), self._conversions[key])
            self._conversions.move_to_end(key)
            self._now = key
        if len(self._conversions) > _REMEMBERED:
            self._conversions.popitem(last=False)
        return self._conversions[key].session

    def sessions(self) -> list[Session]:
        """Returns all sessions, the latest last."""
        return [conversion.session for conversion in self._conversions.values()]

    def has(self, layer: torch.nn.Module) -> bool:
        module = self._module()
        return module is not None and any(child is layer for child in module.modules())

    def _make(self, module: torch.nn.Module) -> Conversion:
        if self.library is None:
            return Conversion(Session(module), derive=True, pipeline_threshold=0)
        session = Session(module, **self.library.session_options(dict(_layers(module))))
        return Conversion(session, derive=True, pipeline_threshold=self.library.pipeline_threshold())

    def _bind(self, module: torch.nn.Module, conversion: Conversion) -> None:
        """Gives the layers their session."""
        for name, child in _layers(module):
            child._actzip = Binding(conversion, name)


def _layers(module: torch.nn.Module) -> Iterator[tuple[str, CompressedLayer]]:
    return ((name, child) for name, child in module.named_modules() if isinstance(child, CompressedLayer))


class _Running(threading.local):
    """The forward that runs on this thread."""

    def __init__(self) -> None:
        self.depth = 0  #: how many forwards of modules are running, one inside the other
        self.outermost: Any = None  #: a weak reference to the module
        self.session: Session | None = None

    def end(self) -> None:
        self.depth, self.outermost = 0, None
        if self.session is not None:
            session, self.session = self.session, None
            session.__exit__()


_running = _Running()
_roots: weakref.WeakKeyDictionary[torch.nn.Module, Root] = weakref.WeakKeyDictionary()
_handles: list[Any] = []


def watch() -> None:
    """Installs the global hooks. Layers call it when they are created."""
    if not _handles:
        _handles.extend((register_module_forward_pre_hook(_enter),
                         register_module_forward_hook(_count_down, always_call=True)))


def forget(model: torch.nn.Module) -> None:
    """Forgets the sessions of a model whose layers have changed."""
    for module in model.modules():
        _roots.pop(module, None)


def root_of(module: torch.nn.Module) -> Root:
    if module not in _roots:
        _roots[module] = Root(module)
        # Not a global hook: leaving a session removes global hooks, which must not happen while they run.
        if _roots[module].library and _leave not in module._forward_hooks.values():
            module.register_forward_hook(_leave, always_call=True)
    return _roots[module]


def roots() -> list[Root]:
    """Returns all roots that have layers of a library."""
    return [root for root in _roots.values() if root.library is not None]


def session_of(module: torch.nn.Module) -> Session:
    """Returns the session of an outermost module. Its ``report()`` shows what the last step kept."""
    return root_of(module).session


def is_in_step() -> bool:
    """Whether a forward that is a step is running on this thread."""
    return _running.session is not None


def _enter(module: torch.nn.Module, _: Any) -> None:
    if is_compiling():  # compiled layers are torch's own
        return
    if _running.outermost is not None and _running.outermost() is module:
        _running.end()  # its last forward was interrupted, for instance by Ctrl-C, and no hook ran
    _running.depth += 1
    if _running.depth > 1:
        return
    _running.outermost = weakref.ref(module)
    if not torch.is_grad_enabled() or _is_in_backward():
        return
    if getattr(module, "_is_replica", False) or hasattr(module, "_orig_mod"):
        return  # a replica of DataParallel, whose layers have their session, or a compiled module
    root = root_of(module)
    if root.library is None or not root.library.is_training():
        return
    session = root.session
    root.library.begin(session)
    session.__enter__()
    _C.is_in_forward(session, module)
    _running.session = session


def _count_down(*_: Any) -> None:
    if not is_compiling():
        _running.depth = max(0, _running.depth - 1)  # not below 0: watch() may have been called inside a forward


def _leave(module: torch.nn.Module, _: Any, output: Any) -> None:
    if not is_compiling() and _running.depth == 0 and _running.session is not None:
        _running.end()
        root_of(module).library.end(output)


def _is_in_backward() -> bool:
    """Whether backward is running. Checkpointing runs parts of a forward again then, which is no step."""
    return torch._C._current_graph_task_id() != -1
