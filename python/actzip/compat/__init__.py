"""Runs programs of ActNN, GACT and DIVISION on actzip, unchanged.

``actzip.compat.actnn``, ``actzip.compat.gact`` and ``actzip.compat.fdmp`` have the names of these libraries, and
``actzip.compat.actnn_paddle`` those of ActNN-PaddlePaddle. After ``install()``, or ``install("paddle")``,
``import actnn`` imports them. ``python -m actzip.compat script.py`` does that for a script which does not know actzip.
"""

from .imports import install, uninstall

__all__ = ["install", "uninstall"]
