"""Checks what a session decorates."""

from __future__ import annotations

import inspect


def check_can_run_in_scope(function: object) -> None:
    """Raises TypeError for anything whose body would not run inside the scope around its call."""
    if isinstance(function, (staticmethod, classmethod)):
        kind = type(function).__name__
        raise TypeError(f"actzip: a {kind} was decorated (allowed: the function inside it; write @{kind} above the "
                        "session)")
    if inspect.isclass(function) or not callable(function):
        what = f"class {function.__name__}" if inspect.isclass(function) else type(function).__name__
        raise TypeError(f"actzip: a {what} was decorated (allowed: a function that runs forward)")
    name = getattr(function, "__qualname__", type(function).__name__)
    for is_kind, kind in _KINDS:
        if is_kind(function) or is_kind(type(function).__call__):
            raise TypeError(f"actzip: {name} is {kind}: its body runs after the call has returned, and a scope must "
                            "not stay open across a yield or an await, where other code runs (allowed: a function; or "
                            "'with session:' inside, around forward alone)")


_KINDS = (
    (inspect.isasyncgenfunction, "an async generator"),
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isgeneratorfunction, "a generator"),
)
