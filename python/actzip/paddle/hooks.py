"""A stack of hooks over the one pair that Paddle has, and what is refused inside of a scope."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import paddle
from paddle.base import core
from paddle.jit.dy2static.program_translator import ASTStaticFunction

from .. import _paddle_C as _C

#: Pairs that are entered, ours and those of others; Paddle has the last one.
_stack: list[tuple[Callable, Callable]] = []


def push(pack: Callable, unpack: Callable) -> None:
    """Paddle allows one pair at a time: the one before waits."""
    if _stack:
        core.eager.reset_saved_tensors_hooks()
    core.eager.register_saved_tensors_hooks(pack, unpack)
    _stack.append((pack, unpack))


def pop() -> None:
    """The pair before has its turn again. Paddle's own way out would clear that one, too."""
    core.eager.reset_saved_tensors_hooks()
    _stack.pop()
    if _stack:
        core.eager.register_saved_tensors_hooks(*_stack[-1])


def enter(pack: Callable, unpack: Callable) -> None:
    """The same for a session's pair, which is for this thread alone."""
    push(pack, unpack)
    _C.count_entered(1)


def leave() -> None:
    """A session's pair has had its turn."""
    _C.count_entered(-1)
    pop()


def is_entered() -> bool:
    """Whether a session is entered on this thread."""
    return _C.count_entered(0) > 0


def saves() -> bool:
    """Whether a session gets what is saved now: the innermost pair is its own. Others, such as recompute's, expect that
    the same is saved when a forward runs again outside of the session."""
    return is_entered() and getattr(_stack[-1][0], "__name__", "") == "actzip_pack"


def is_taken() -> bool:
    """Whether anybody gets what is saved now."""
    return bool(_stack)


def _refuse_static(perform: Callable) -> Callable:
    """A program that `to_static` has made saves its tensors unseen, uncompressed."""
    @functools.wraps(perform)
    def call(function: Any, *arguments: Any, **named: Any) -> Any:
        if saves() and paddle.in_dynamic_mode() and paddle.is_grad_enabled():
            raise RuntimeError("actzip.paddle: a function of paddle.jit.to_static runs in a session, and what its "
                               "program saves cannot be compressed (allowed: dynamic graphs, or "
                               "to_static(full_graph=False))")
        return perform(function, *arguments, **named)

    return call


def _with_mask(pool: Callable, format: str, dimensions: int) -> Callable:
    """A pooling function that asks Paddle for the positions of maxima, in sessions: same result, same gradient.

    Otherwise backward finds a maximum by comparing values, and then all of them have to be kept.
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
    """Once, when the first session is made: importing changes nothing in Paddle."""
    hooks = paddle.autograd.saved_tensors_hooks
    hooks.__enter__ = lambda pair: push(pair.pack_hook, pair.unpack_hook)
    hooks.__exit__ = lambda *_: pop()
    ASTStaticFunction._perform_call = _refuse_static(ASTStaticFunction._perform_call)
    functional = paddle.nn.functional
    functional.max_pool1d = _with_mask(functional.max_pool1d, "NCL", 1)
    functional.max_pool2d = _with_mask(functional.max_pool2d, "NCHW", 2)
    functional.max_pool3d = _with_mask(functional.max_pool3d, "NCDHW", 3)
