"""Checks that the running Paddle is the one that the extension was built against. The extension uses its internals."""

from __future__ import annotations

import paddle

from .._built_for_paddle import PADDLE


def problem(running: str, built_for: str) -> str:
    """Returns what is wrong with the running Paddle, and what to do; empty if nothing is wrong."""
    if running == built_for:
        return ""
    return (f"actzip.paddle was built against paddlepaddle {built_for}, and {running} is running. Its extension relies on "
            f"the inside of Paddle, which differs between versions: install actzip again beside this Paddle "
            f"(pip install --force-reinstall --no-deps --no-cache-dir, from its source), or install "
            f"paddlepaddle=={built_for}.")


if _found := problem(paddle.__version__, PADDLE):
    raise ImportError(_found)
