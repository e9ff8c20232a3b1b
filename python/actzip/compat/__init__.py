"""Programs of ActNN, GACT and DIVISION on actzip, unchanged.

``actzip.compat.actnn``, ``actzip.compat.gact`` and ``actzip.compat.fdmp`` have the names of the libraries, and
``actzip.compat.actnn_paddle`` those of ActNN-PaddlePaddle. After ``install()``, or ``install("paddle")``, a script that
says ``import actnn`` gets them; ``python -m actzip.compat script.py`` runs one that knows nothing of actzip.
"""

from .imports import install, uninstall

__all__ = ["install", "uninstall"]
