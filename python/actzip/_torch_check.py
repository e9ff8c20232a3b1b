"""The running torch must be the one that the extension was built against: it overrides classes of torch's inside."""

from __future__ import annotations

import torch

from ._built_for import TORCH


def problem(running: str, built_for: str) -> str:
    """What is wrong with a torch, and what to do; empty if nothing is.

    Builds of one release differ in their local part (2.13.0+cpu, 2.13.0+cu130) and in nothing that matters here; builds
    of a source tree have a commit there.
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
