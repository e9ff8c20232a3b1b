"""A stack of saved-tensor hooks, as Paddle allows only one pair, and changes to what Paddle does inside a scope."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import paddle
from paddle.base import core
from paddle.jit.dy2static.program_translator import ASTStaticFunction

from .. import _paddle_C as _C

#: All pairs that are entered, ours and others'. The last one is registered with Paddle.
_stack: list[tuple[Callable, Callable]] = []


def push(pack: Callable, unpack: Callable) -> None:
    """Registers a pair. Paddle allows one pair at a time, so the one before is suspended."""
    if _stack:
        core.eager.reset_saved_tensors_hooks()
    core.eager.register_saved_tensors_hooks(pack, unpack)
    _stack.append((pack, unpack))


def pop() -> None:
    """Registers the pair before again, which Paddle's own ``__exit__`` would clear, too."""
    core.eager.reset_saved_tensors_hooks()
    _stack.pop()
    if _stack:
        core.eager.register_saved_tensors_hooks(*_stack[-1])


def enter(pack: Callable, unpack: Callable) -> None:
    """Registers a session's pair, which serves this thread alone."""
    push(pack, unpack)
    _C.count_entered(1)


def leave() -> None:
    """Removes a session's pair."""
    _C.count_entered(-1)
    pop()


def is_entered() -> bool:
    """Whether a session is entered on this thread."""
    return _C.count_entered(0) > 0


def saves() -> bool:
    """Whether a session gets what is saved now, since the innermost pair is its own. Inside other hooks, such as
    recompute's, nothing may change what is saved: the forward runs again later, outside the session."""
    return is_entered() and getattr(_stack[-1][0], "__name__", "") == "actzip_pack"


def is_taken() -> bool:
    """Whether any hooks get what is saved now."""
    return bool(_stack)


def _refuse_static(perform: Callable) -> Callable:
    """Refuses programs of `to_static` in a session, since their saved tensors pass no hooks and stay uncompressed."""
    @functools.wraps(perform)
    def call(function: Any, *arguments: Any, **named: Any) -> Any:
        if saves() and paddle.in_dynamic_mode() and paddle.is_grad_enabled():
            raise RuntimeError("actzip.paddle: a function of paddle.jit.to_static runs in a session, and what its "
                               "program saves cannot be compressed (allowed: dynamic graphs, or "
                               "to_static(full_graph=False))")
        return perform(function, *arguments, **named)

    return call


def _with_mask(pool: Callable, format: str, dimensions: int) -> Callable:
    """Makes a pooling function save the positions of maxima in sessions, with the same result and gradient.

    Otherwise backward finds a maximum by comparing values, so all of them would have to be kept.
    """
    signature = inspect.signature(pool)

    def can_have_mask(given: dict[str, Any]) -> bool:
        padding = given["padding"]
        is_even = isinstance(padding, int) or (len(padding) == dimensions and all(isinstance(p, int) for p in padding))
        return not given["return_mask"] and given.get("data_format", format) == format and is_even

    @functools.wraps(pool)
    def call(*arguments: Any, **named: Any) -> Any:
        if not saves():
            return pool(*arguments, **named)
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        if isinstance(bound.arguments["padding"], str) or not can_have_mask(bound.arguments):
            return pool(*arguments, **named)
        bound.arguments["return_mask"] = True
        return pool(*bound.args, **bound.kwargs)[0]

    return call


@functools.cache
def install() -> None:
    """Installs all this once, when the first session is made. Importing actzip changes nothing in Paddle."""
    hooks = paddle.autograd.saved_tensors_hooks
    hooks.__enter__ = lambda pair: push(pair.pack_hook, pair.unpack_hook)
    hooks.__exit__ = lambda *_: pop()
    ASTStaticFunction._perform_call = _refuse_static(ASTStaticFunction._perform_call)
    functional = paddle.nn.functional
    functional.max_pool1d = _with_mask(functional.max_pool1d, "NCL", 1)
    functional.max_pool2d = _with_mask(functional.max_pool2d, "NCHW", 2)
    functional.max_pool3d = _with_mask(functional.max_pool3d, "NCDHW", 3)
