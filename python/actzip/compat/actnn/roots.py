"""Where a step begins in a program whose layers compress by themselves: with the outermost module that has such layers.

ActNN's layers have no scope around them, and a program may be built of them without ``QModule``. So a pair of torch's
global module hooks looks for the outermost module whose forward runs; a session of its own is entered around it.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ... import _C
from ...convert import Conversion
from ...nn.binding import Binding, CompressedLayer, is_compiling
from ...session import Session
from .conf import config, session_options
from .qscheme import QScheme


#: Fields that a session need not know.
_READ_LATER = ("training", "cudnn_benchmark_conv2d", "empty_cache_threshold", "debug_memory_model", "debug_speed")


class Root:
    """An outermost module's session, made anew when the configuration changes."""

    def __init__(self, module: torch.nn.Module) -> None:
        from .layers import LAYERS  # which need roots themselves

        self._module = weakref.ref(module)
        self.has_layers = any(isinstance(child, LAYERS) for child in module.modules())
        self._session: Session | None = None
        self._made_for: Any = None

    @property
    def session(self) -> Session:
        made_for = (config.snapshot(without=_READ_LATER), QScheme.num_samples)
        if self._session is None or self._made_for != made_for:
            self._made_for = made_for
            self._session = self._make_session(self._module())
        return self._session

    def _make_session(self, module: torch.nn.Module) -> Session:
        """And tells the layers, which keep with it."""
        layers = {name: child for name, child in module.named_modules() if isinstance(child, CompressedLayer)}
        groups = {name: child.group for name, child in layers.items() if getattr(child, "group", 0)}
        session = Session(module, **session_options(groups, QScheme.num_samples))
        conversion = Conversion(session, derive=True, pipeline_threshold=int(config.pipeline_threshold or 0))
        for name, child in layers.items():
            child._actzip = Binding(conversion, name)
        return session


class _Running(threading.local):
    """The forward that runs on this thread."""

    def __init__(self) -> None:
        self.depth = 0  #: of modules in each other
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
    """From now on outermost modules are looked for. Layers call it when they are made."""
    if not _handles:
        _handles.extend((register_module_forward_pre_hook(_enter),
                         register_module_forward_hook(_count_down, always_call=True)))


def forget(model: torch.nn.Module) -> None:
    """Its layers have changed."""
    for module in model.modules():
        _roots.pop(module, None)


def root_of(module: torch.nn.Module) -> Root:
    if module not in _roots:
        _roots[module] = Root(module)
        # A hook of its own: to leave a session takes global hooks away, which must not happen among them.
        if _roots[module].has_layers and _leave not in module._forward_hooks.values():
            module.register_forward_hook(_leave, always_call=True)
    return _roots[module]


def session_of(module: torch.nn.Module) -> Session:
    """The session of an outermost module: its ``report()`` shows what the last step kept."""
    return root_of(module).session


def sessions() -> list[Session]:
    """All that are in use."""
    return [root.session for root in _roots.values() if root.has_layers]


def _enter(module: torch.nn.Module, _: Any) -> None:
    if is_compiling():  # which makes torch's own layers of them
        return
    if _running.outermost is not None and _running.outermost() is module:
        _running.end()  # an interrupt, such as Ctrl-C, has ended its last forward without a word
    _running.depth += 1
    if _running.depth > 1:
        return
    _running.outermost = weakref.ref(module)
    if not config.training or not torch.is_grad_enabled() or _is_in_backward():
        return
    if getattr(module, "_is_replica", False) or hasattr(module, "_orig_mod"):
        return  # DataParallel's, whose layers know their session; or compiled
    root = root_of(module)
    if not root.has_layers:
        return
    session = root.session
    if config.use_gradient and QScheme.batch is not None:
        session.samples(torch.as_tensor(QScheme.batch).cpu(), learn=QScheme.update_scale)
    torch._C._set_cudnn_benchmark(config.cudnn_benchmark_conv2d)  # also where flags may be set by contexts alone
    session.__enter__()
    _C.is_in_forward(session, module)
    _running.session = session


def _count_down(*_: Any) -> None:
    if not is_compiling():
        _running.depth = max(0, _running.depth - 1)  # watching may have begun inside of a forward


def _leave(module: torch.nn.Module, *_: Any) -> None:
    if not is_compiling() and _running.depth == 0 and _running.session is not None:
        _running.end()
        _give_memory_back()


def _is_in_backward() -> bool:
    """Checkpointing runs parts of a forward again in backward: that is no step."""
    return torch._C._current_graph_task_id() != -1


def _give_memory_back() -> None:
    """If torch holds much more than tensors need, as ``empty_cache_threshold`` says."""
    if not config.empty_cache_threshold or not torch.cuda.is_available():
        return
    reserved = torch.cuda.memory_reserved()
    if reserved and torch.cuda.memory_allocated() < config.empty_cache_threshold * reserved:
        torch.cuda.empty_cache()
