"""Makes ``import actnn``, ``import gact`` and imports of DIVISION's modules find those of actzip.

This also works in child processes. The folder ``stand_ins`` has a package for each name. It is added to ``sys.path``,
and to ``PYTHONPATH`` for child processes, however they are started. Python prefers a package to a mere folder of the
same name, wherever that lies.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import site
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

#: The libraries of each framework, which `stand_ins` has, and the packages here that replace them.
PACKAGES = {
    "torch": {"actnn": "actnn", "gact": "gact", "fdmp": "fdmp"},
    "paddle": {"actnn": "actnn_paddle"},
}

#: The environment variable that tells child processes the framework.
_FRAMEWORK = "ACTZIP_COMPAT_FRAMEWORK"

#: Modules in DIVISION's folder ``fdmp``, which its programs add to ``sys.path``.
DIVISIONS = ("conf", "layers", "module", "utils")

_STAND_INS = Path(__file__).absolute().parent / "stand_ins"

#: PYTHONPATH before install(); empty if that was not called.
_before: list[str | None] = []


def install(framework: str | bool = "torch", force: bool = False) -> None:
    """Makes ``import actnn``, ``from gact.controller import Controller`` and the like import modules of actzip.

    This also applies to processes that are started from now on. ``uninstall()`` undoes it.

    Args:
        framework: ``"paddle"`` for programs of ActNN-PaddlePaddle, whose package is called ``actnn``, too.
        force: install even if a library of that name is installed or imported; otherwise ImportError is raised then.
            May also be given as the first argument.
    """
    if isinstance(framework, bool):
        framework, force = "torch", framework
    if framework not in PACKAGES:
        raise ValueError(f"actzip.compat.install: framework {framework!r} (allowed: {', '.join(PACKAGES)})")
    libraries = PACKAGES[framework]
    for library in libraries:
        if not force and _is_anothers(library):
            raise ImportError(f"actzip.compat.install: there is a package '{library}' already; allowed: to uninstall "
                              "it, or install(force=True) to import actzip's in its place")
    for library, package in libraries.items():
        _forget(library)
        sys.modules.update(_modules(library, package))
    os.environ[_FRAMEWORK] = framework
    if str(_STAND_INS) not in sys.path:
        sys.path.append(str(_STAND_INS))
    for_children, now = _folders_for_children(), os.environ.get("PYTHONPATH")
    if not _before:
        _before.append(now)
    others = [folder for folder in (now or "").split(os.pathsep) if folder and folder not in for_children]
    os.environ["PYTHONPATH"] = os.pathsep.join([*for_children, *others])


def uninstall() -> None:
    """Undoes :func:`install`."""
    for library in PACKAGES["torch"]:
        _forget(library)
    os.environ.pop(_FRAMEWORK, None)
    for name in DIVISIONS:
        if _is_ours(name):
            del sys.modules[name]
    sys.path[:] = [folder for folder in sys.path if folder != str(_STAND_INS)]
    if _before:
        before = _before.pop()
        os.environ.pop("PYTHONPATH", None)
        os.environ.update({} if before is None else {"PYTHONPATH": before})


def stand_in(name: str) -> None:
    """Replaces a module of `stand_ins`, which calls this while it is imported, by that of actzip.

    Many programs have modules of their own with DIVISION's names. If there is another module of that name, it is used.
    """
    packages = PACKAGES[os.environ.get(_FRAMEWORK, "torch")]
    if name in packages:
        sys.modules.update(_modules(name, packages[name]))
        return
    other = _spec_of_another(name)
    if other is None:
        sys.modules[name] = importlib.import_module(f"{__package__}.fdmp.{name}")
        return
    module = importlib.util.module_from_spec(other)
    sys.modules[name] = module
    other.loader.exec_module(module)


def _modules(library: str, own_name: str) -> dict[str, ModuleType]:
    """Returns the package and all its modules, by the names that a script imports."""
    own = f"{__package__}.{own_name}"
    package = importlib.import_module(own)
    names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{own}.")]
    return {library: package} | {library + name.removeprefix(own): importlib.import_module(name) for name in names}


def _forget(library: str) -> None:
    for entry in [entry for entry in sys.modules if entry == library or entry.startswith(f"{library}.")]:
        del sys.modules[entry]


def _is_ours(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and module.__name__.startswith(f"{__package__}.")


def _is_anothers(library: str) -> bool:
    if library in sys.modules:
        return not _is_ours(library) and sys.modules[library].__file__ is not None
    spec = importlib.util.find_spec(library)
    return _is_package(spec) and _STAND_INS not in Path(spec.origin).parents


def _is_package(spec: ModuleSpec | None) -> bool:
    """Whether this is a package or module, not a mere folder such as a repository, which has no ``__init__.py``."""
    return spec is not None and spec.origin is not None


def _spec_of_another(name: str) -> ModuleSpec | None:
    """Finds a module of that name outside DIVISION's folder."""
    others = [folder for folder in sys.path if folder != str(_STAND_INS)]
    spec = PathFinder.find_spec(name, [folder for folder in others if Path(folder or ".").resolve().name != "fdmp"])
    return spec if _is_package(spec) else None


def _folders_for_children() -> list[str]:
    """Returns the folders that child processes need in PYTHONPATH. Every process finds actzip itself if it is
    installed, but not if its folder was added to sys.path."""
    own = str(_STAND_INS.parents[2])
    is_installed = own in (*site.getsitepackages(), site.getusersitepackages())
    return [str(_STAND_INS)] if is_installed else [str(_STAND_INS), own]
