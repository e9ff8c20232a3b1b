"""``import actnn`` and ``import gact`` that find actzip's."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from types import ModuleType

LIBRARIES = ("actnn", "gact")


def install(force: bool = False) -> None:
    """Makes ``import actnn``, ``from gact.controller import Controller`` and the like import actzip's.

    Refuses if a library of that name is installed or in use, unless ``force``. ``uninstall()`` takes it back.
    """
    for library in LIBRARIES:
        if not force and not _is_ours(library) and _is_importable(library):
            raise ImportError(f"actzip.compat.install: there is a package '{library}' already; allowed: to uninstall "
                              "it, or install(force=True) to import actzip's in its place")
    for library in LIBRARIES:
        uninstall(library)
        sys.modules.update(_modules(library))


def uninstall(library: str | None = None) -> None:
    """The two names, or one of them, mean again what they meant before."""
    for name in (library,) if library else LIBRARIES:
        for entry in [entry for entry in sys.modules if entry == name or entry.startswith(f"{name}.")]:
            del sys.modules[entry]


def _modules(library: str) -> dict[str, ModuleType]:
    """The package and all its modules, by the names that a script imports."""
    own = f"{__package__}.{library}"
    package = importlib.import_module(own)
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {library: package} | {f"{library}.{name}": importlib.import_module(f"{own}.{name}") for name in names}


def _is_ours(library: str) -> bool:
    module = sys.modules.get(library)
    return module is not None and module is sys.modules.get(f"{__package__}.{library}")


def _is_importable(library: str) -> bool:
    return library in sys.modules or importlib.util.find_spec(library) is not None
