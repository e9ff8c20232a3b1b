"""Compiled graphs inside a scope: they encode by themselves, and a scope's hooks would disturb tracing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import torch

from .. import _C


@contextlib.contextmanager
def outside_of_scopes() -> Iterator[None]:
    """Removes the hooks of this thread's scopes for the duration of a block. Those of other threads stay."""
    if not _is_in_scope():
        yield
        return
    pairs = []
    _C.hide_module_watches()
    try:
        while _is_in_scope():
            pairs.append(torch._C._autograd._top_saved_tensors_default_hooks(True))
            torch._C._autograd._pop_saved_tensors_default_hooks()
        yield
    finally:
        for pair in reversed(pairs):
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)
        _C.show_module_watches()


@functools.cache
def let_hooks_be_traced() -> None:
    """Lets graphs be traced through the module hooks of other threads' scopes, which do nothing on this thread."""
    enter, leave = _C.module_hooks()
    torch.compiler.substitute_in_graph(enter, skip_signature_check=True)(lambda module, arguments: None)
    torch.compiler.substitute_in_graph(leave, skip_signature_check=True)(lambda module, arguments, result: None)


def _is_in_scope() -> bool:
    """Whether the innermost saved-tensor hooks are those of a scope."""
    pair = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return pair is not None and getattr(pair[0], "__name__", "") == "actzip_pack"
