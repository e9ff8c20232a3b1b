"""Which frameworks this actzip supports: it has extensions for those that were present when it was installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def _has_extension(name: str) -> bool:
    return any(_FOLDER.glob(f"{name}.*so"))


def _is_installed(framework: str) -> bool:
    """Whether the framework is a package. A mere folder of that name on the path is none."""
    spec = importlib.util.find_spec(framework)
    return spec is not None and spec.origin is not None


def is_for_torch() -> bool:
    """Whether PyTorch's part can be used."""
    return _has_extension("_C") and _is_installed("torch")


def is_for_paddle() -> bool:
    """Whether Paddle's part can be used."""
    return _has_extension("_paddle_C") and _is_installed("paddle")


def is_for_paddle_alone() -> bool:
    """Whether only Paddle's part can be used. If neither can, importing PyTorch's part says why."""
    return is_for_paddle() and not is_for_torch()


def missing_torch(name: str) -> Any:
    """The package's ``__getattr__`` if PyTorch's part is missing. Python also calls it for submodules and dunder
    names."""
    from . import __all__ as names

    if name == "__version__":
        from ._native import version
        return version
    if name not in names:
        raise AttributeError(f"module 'actzip' has no attribute '{name}'")
    raise ImportError(f"actzip.{name} is for PyTorch, which this actzip was installed without (allowed: "
                      f"actzip.paddle.{name} for PaddlePaddle; or install torch, then actzip again)", name="torch")
