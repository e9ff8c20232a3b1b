"""Eager sessions that are given a compiled model: return its session, or say what to write instead."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

from .api import CompiledSession, has_default_sessions, is_running, session_of_compiled

_WRITE = "write actzip.compile(model) in place of torch.compile(model): see docs/compile.md"


def is_compiled(model: torch.nn.Module) -> bool:
    """Whether torch.compile returned this model."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # None if nothing was compiled
    return dynamo is not None and isinstance(model, dynamo.OptimizedModule)


def hand_over(model: torch.nn.Module, options: dict[str, Any]) -> CompiledSession | None:
    """Returns the session of a model returned by actzip.compile(), and None for any other. Warns if torch.compile made
    the model."""
    session = session_of_compiled(model)
    if session is None:
        if is_compiled(model):
            warnings.warn("actzip: compress() was given a compiled model; sessions cannot look into its graphs, which "
                          f"keep what they keep without actzip. To compress them, {_WRITE}", stacklevel=3)
        return None
    other = {name: value for name, value in options.items() if session.options.get(name) != value}
    if other:
        raise TypeError(f"actzip: compress() of a model that was compiled without {other} (allowed: the same options "
                        "in actzip.compile(model, ...))")
    return session


def refuse_compiled(model: torch.nn.Module) -> None:
    """Refuses, or warns of, a compiled model in attach(), whose hooks cannot look into graphs."""
    if session_of_compiled(model) is not None:
        raise TypeError("actzip: attach() of a model that actzip.compile() gave, which is compressed already (allowed: "
                        "actzip.session_of(model).report())")
    if is_compiled(model):
        warnings.warn("actzip: attach() was given a compiled model; sessions cannot look into its graphs. To compress "
                      f"them, {_WRITE}", stacklevel=3)


def warn_of_converted() -> bool:
    """Runs while torch.compile traces a converted model. Returns a value because the tracer requires one."""
    if not is_running() and not has_default_sessions():
        warnings.warn("actzip: a converted model is compiled; in compiled graphs its layers are torch's own, and "
                      f"nothing is compressed. To compress the graphs, {_WRITE}", stacklevel=2)
    return True


# The same as torch.compiler.assume_constant_result, without loading the compiler. The tracer then calls the function.
warn_of_converted._dynamo_marked_constant = True
