"""Compiled graphs inside of a scope: they encode for themselves, and cannot be traced through what a scope puts up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.modules.module as torch_modules

_HOOKS = ("actzip_enter", "actzip_leave")


@contextlib.contextmanager
def outside_of_scopes() -> Iterator[None]:
    """What scopes of this thread have put up is taken down, and afterwards put up again."""
    if not _is_in_scope():
        yield
        return
    pairs = []
    while _is_in_scope():
        pairs.append(torch._C._autograd._top_saved_tensors_default_hooks(True))
        torch._C._autograd._pop_saved_tensors_default_hooks()
    tables = [torch_modules._global_forward_pre_hooks, torch_modules._global_forward_hooks,
              torch_modules._global_forward_hooks_always_called]
    before = [dict(table) for table in tables]
    watchers = {key for table in before for key, hook in table.items() if getattr(hook, "__name__", "") in _HOOKS}
    for table in tables:
        for key in watchers & set(table):
            del table[key]
    try:
        yield
    finally:
        for table, entries in zip(tables, before):
            added = {key: value for key, value in table.items() if key not in entries}
            table.clear()
            table.update({**entries, **added})  # in their order
        for pair in reversed(pairs):
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)


def _is_in_scope() -> bool:
    """Whether the innermost hooks for what autograd saves are a scope's."""
    pair = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return pair is not None and getattr(pair[0], "__name__", "") == "actzip_pack"
