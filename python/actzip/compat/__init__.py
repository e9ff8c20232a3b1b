"""ActNN's and GACT's own programs on actzip, unchanged.

``actzip.compat.actnn`` and ``actzip.compat.gact`` have the names of both libraries. After ``install()`` a script that
says ``import actnn`` gets them; ``python -m actzip.compat script.py`` runs one that knows nothing of actzip.
"""

from .imports import install, uninstall

__all__ = ["install", "uninstall"]
