"""Checks that the running torch is the one that the extension was built against. The extension uses its internals."""

from __future__ import annotations

import torch

from ._built_for import TORCH


def problem(running: str, built_for: str) -> str:
    """Returns what is wrong with the running torch, and what to do; empty if nothing is wrong.

    Builds of one release differ only in their local part (2.13.0+cpu, 2.13.0+cu130), which does not matter here. Builds
    of a source tree have a commit there, which does.
    """
    def identity(version: str) -> str:
        return version if "+git" in version else version.partition("+")[0]

    if identity(running) == identity(built_for):
        return ""
    return (f"actzip was built against torch {built_for}, and torch {running} is running. Its extension relies on the inside of "
            f"torch, which differs between versions: install actzip again beside this torch "
            f"(pip install --force-reinstall --no-deps --no-cache-dir, from its source), or install torch=={built_for.partition('+')[0]}.")


if _found := problem(torch.__version__, TORCH):
    raise ImportError(_found)
