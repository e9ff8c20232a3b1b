"""``import actnn``, ``import gact`` and DIVISION's modules that find actzip's, in this process and in those it starts.

The folder ``stand_ins`` has a package for each name. It is put on ``sys.path``, and into ``PYTHONPATH`` for processes
to come, however they are started. Python prefers a package to a mere folder of the same name, wherever that lies.
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

#: The libraries that there are for a framework, each in `stand_ins`, and the package here that stands for it.
PACKAGES = {
    "torch": {"actnn": "actnn", "gact": "gact", "fdmp": "fdmp"},
    "paddle": {"actnn": "actnn_paddle"},
}

#: For processes to come: the framework whose libraries are meant.
_FRAMEWORK = "ACTZIP_COMPAT_FRAMEWORK"

#: What DIVISION's programs import from inside of its folder ``fdmp``, which they add to ``sys.path``.
DIVISIONS = ("conf", "layers", "module", "utils")

_STAND_INS = Path(__file__).absolute().parent / "stand_ins"

#: PYTHONPATH as it was before install(), if that was called.
_before: list[str | None] = []


def install(framework: str | bool = "torch", force: bool = False) -> None:
    """Makes ``import actnn``, ``from gact.controller import Controller`` and the like import actzip's.

    Also in processes that are started from now on. ``install("paddle")`` is for programs of ActNN-PaddlePaddle, whose
    package is called ``actnn``, too. Refuses if a library of that name is installed or in use, unless ``force``, which
    may also be the first argument. ``uninstall()`` takes it back.
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
    """The names mean again what they meant before."""
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
    """Called by a module of `stand_ins` while it is imported: puts actzip's in its own place.

    DIVISION's names are those of many a program's own modules: where there is another such module, it is meant.
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
    """The package and all its modules, by the names that a script imports."""
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
    """And not a folder that only has its name, such as that of a repository: what holds setup.py, not __init__.py."""
    return spec is not None and spec.origin is not None


def _spec_of_another(name: str) -> ModuleSpec | None:
    """Of a module with that name outside of DIVISION's folder."""
    others = [folder for folder in sys.path if folder != str(_STAND_INS)]
    spec = PathFinder.find_spec(name, [folder for folder in others if Path(folder or ".").resolve().name != "fdmp"])
    return spec if _is_package(spec) else None


def _folders_for_children() -> list[str]:
    """Installed packages are found by every process; a folder that somebody put on sys.path is not."""
    own = str(_STAND_INS.parents[2])
    is_installed = own in (*site.getsitepackages(), site.getusersitepackages())
    return [str(_STAND_INS)] if is_installed else [str(_STAND_INS), own]
