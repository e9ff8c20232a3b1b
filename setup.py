"""Builds actzip's extensions with CMake, against the frameworks in the environment that actzip is installed into: _C
for torch, _paddle_C for PaddlePaddle, or both.

Environment variables: ACTZIP_TORCH_DIR (torch's folder), ACTZIP_PADDLE_DIR (Paddle's folder), ACTZIP_CMAKE_ARGS (more
CMake options, which override those chosen here), CMAKE_BUILD_PARALLEL_LEVEL or MAX_JOBS (number of compile jobs), CXX
(the compiler).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = Path(__file__).resolve().parent
GIB = 1 << 30
JOB_BYTES = 5 * GIB // 2  # memory that the compiler needs for a source that includes torch


def fail(text: str) -> SystemExit:
    """Returns the exception that ends the build with one message and no traceback."""
    return SystemExit(f"actzip: {text}")


def version() -> str:
    text = (ROOT / "include/actzip/version.hpp").read_text()
    return re.search(r'ACTZIP_VERSION_STRING "([^"]+)"', text)[1]


# ---- how many compile jobs -------------------------------------------------------------------------------------------


def available_bytes(meminfo: str) -> int | None:
    """Memory available to new processes, according to the text of /proc/meminfo; None if it does not say."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return found and int(found[1]) * 1024


def compile_jobs(cores: int, free_bytes: int | None, environment: Mapping[str, str]) -> tuple[int, str]:
    """Number of compile jobs, and the reason: as many as cores and memory allow, unless the user sets a number."""
    for name in ("CMAKE_BUILD_PARALLEL_LEVEL", "MAX_JOBS"):
        if given := environment.get(name):
            if not given.isdecimal() or int(given) < 1:
                raise fail(f"{name} is '{given}' (allowed: a number from 1)")
            return int(given), f"{name} says so"
    if free_bytes is None:
        return cores, f"{cores} cores, memory not known"
    why = f"{cores} cores, {free_bytes / GIB:.1f} GiB free, {JOB_BYTES / GIB} GiB a job"
    return max(1, min(cores, free_bytes // JOB_BYTES)), why


def jobs_here() -> tuple[int, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    meminfo = Path("/proc/meminfo")
    return compile_jobs(cores, available_bytes(meminfo.read_text()) if meminfo.exists() else None, os.environ)


# ---- which frameworks ------------------------------------------------------------------------------------------------

#: Prints the folder of an interpreter's torch, without importing it. Other Python versions than this one print nothing.
FIND_TORCH = f"""
import importlib.util, sys
spec = importlib.util.find_spec("torch") if sys.version_info[:2] == {sys.version_info[:2]} else None
print(spec.submodule_search_locations[0] if spec else "")
"""
FIND_PADDLE = FIND_TORCH.replace('"torch"', '"paddle"')


def is_torch(folder: Path) -> bool:
    return (folder / "include/ATen").is_dir() and (folder / "version.py").is_file()


def is_paddle(folder: Path) -> bool:
    return (folder / "include/paddle/phi").is_dir() and (folder / "version/__init__.py").is_file()


def torch_of(python: Path) -> Path | None:
    """The torch that an interpreter imports when a user starts it."""
    return package_of(python, FIND_TORCH, is_torch)


def package_of(python: Path, search: str, is_package: Callable[[Path], bool]) -> Path | None:
    """The folder of the package that an interpreter imports when a user starts it; None if there is none.

    During a build pip hides the environment's packages by setting PYTHONPATH, but the interpreter is the environment's
    own. Started without these variables, it finds all packages that it normally does, user sites and .pth files
    included.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run([python, "-c", search], env=environment, cwd="/", capture_output=True, text=True)
    except OSError:
        return None
    lines = done.stdout.splitlines()
    return Path(lines[-1]) if lines and lines[-1] and is_package(Path(lines[-1])) else None


def interpreters(environment: Mapping[str, str]) -> Iterator[Path]:
    """Interpreters whose torch may be the right one, the most likely first.

    pip builds with the interpreter of the environment that it installs into. Other tools, such as uv, create an
    environment for the build; they install into the active environment or .venv, so torch is there.
    """
    yield Path(sys.executable)
    if "PIP_BUILD_TRACKER" in environment:
        return
    for prefix in (environment.get("VIRTUAL_ENV"), environment.get("CONDA_PREFIX"), ".venv", ROOT / ".venv"):
        if prefix:
            yield Path(prefix).absolute() / "bin/python"
    for folder in environment.get("PATH", "").split(os.pathsep):
        if folder:
            yield Path(folder) / "python3"


def find_torch(environment: Mapping[str, str]) -> Path:
    if given := environment.get("ACTZIP_TORCH_DIR"):
        if not is_torch(Path(given)):
            raise fail(f"ACTZIP_TORCH_DIR is '{given}', which holds no torch (allowed: the folder with torch's "
                       f"include/ and version.py, as in site-packages/torch)")
        return Path(given).resolve()
    for path in sys.path:  # a build without isolation sees what the environment sees
        if path and is_torch(Path(path) / "torch"):
            return Path(path) / "torch"
    asked = dict.fromkeys(path for path in interpreters(environment) if path.exists())
    for python in asked:
        if found := torch_of(python):
            return found
    raise fail(f"no torch found, and no paddlepaddle; actzip is built against what it will run with. Install torch "
               f"first (pip install 'torch>=2.11'; or 'paddlepaddle>=3.0'), then actzip into the same environment, "
               f"which has to be active for uv; or add --no-build-isolation; or set ACTZIP_TORCH_DIR to the folder with "
               f"torch's include/. Asked: {', '.join(map(str, asked))}")


def find_paddle(environment: Mapping[str, str], torch: Path | None) -> Path | None:
    """The folder of the Paddle next to `torch`, or of any Paddle if torch is None; None if there is none."""
    if given := environment.get("ACTZIP_PADDLE_DIR"):
        if not is_paddle(Path(given)):
            raise fail(f"ACTZIP_PADDLE_DIR is '{given}', which holds no Paddle (allowed: the folder with Paddle's "
                       f"include/ and version/, as in site-packages/paddle)")
        return Path(given).resolve()
    if torch is not None:
        return torch.parent / "paddle" if is_paddle(torch.parent / "paddle") else None
    here = (Path(path) / "paddle" for path in sys.path if path)
    asked = (package_of(python, FIND_PADDLE, is_paddle) for python in interpreters(environment) if python.exists())
    return next((found for found in (*filter(is_paddle, here), *asked) if found), None)


def find_frameworks(environment: Mapping[str, str]) -> tuple[Path | None, Path | None]:
    """The folders of torch and Paddle; one of them may be missing. Ends the build if both are."""
    try:
        torch = find_torch(environment)
    except SystemExit:
        if "ACTZIP_TORCH_DIR" in environment or find_paddle(environment, None) is None:
            raise
        torch = None
    return torch, find_paddle(environment, torch)


def has_cuda(torch: Path) -> bool:
    """Whether this torch can use CUDA. If not, building kernels would be pointless."""
    return re.search(r"^cuda\b[^=]*=\s*None", (torch / "version.py").read_text(), re.MULTILINE) is None


# ---- CMake -----------------------------------------------------------------------------------------------------------


def missing_tool(environment: Mapping[str, str], include: str) -> str:
    """Says what has to be installed before anything can be compiled; empty if nothing."""
    def have(*names: str) -> bool:
        return any(shutil.which(name, path=environment.get("PATH")) for name in names)

    if not have("cmake"):
        return "cmake is not on PATH: pip install 'cmake>=3.22', or install it with the system's packages"
    if "CMAKE_GENERATOR" not in environment and not have("ninja"):
        return "ninja is not on PATH: pip install ninja, or install it with the system's packages (ninja-build)"
    if compiler := environment.get("CXX"):
        if not have(shlex.split(compiler)[0]):
            return f"CXX is '{compiler}', which is not on PATH (allowed: a C++20 compiler, such as g++ 11 or newer)"
    elif not have("c++", "g++", "clang++") and "CMAKE_CXX_COMPILER" not in environment.get("ACTZIP_CMAKE_ARGS", ""):
        return "no C++ compiler on PATH: install g++ 11 or newer (Debian, Ubuntu: apt install g++), or set CXX"
    if not Path(include, "Python.h").exists():
        return f"Python's headers are not in {include}: install them (Debian, Ubuntu: apt install python3-dev)"
    return ""


def cmake_arguments(build: Path, torch: Path | None, environment: Mapping[str, str],
                    paddle: Path | None = None) -> list[str]:
    """Arguments of CMake. The user's come last, so they take precedence."""
    for_torch = ["-DACTZIP_TORCH=ON", "-DACTZIP_PYTHON_EXTENSION=ON", f"-DACTZIP_TORCH_DIR={torch}"] if torch else []
    for_paddle = ["-DACTZIP_PADDLE=ON", f"-DACTZIP_PADDLE_DIR={paddle}", f"-DACTZIP_PADDLE_PYTHON={sys.executable}"]
    return [
        "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DACTZIP_WERROR=OFF",
        "-DACTZIP_TESTS=OFF", "-DACTZIP_CLI=OFF", "-DACTZIP_MODELS=OFF",
        f"-DACTZIP_CUDA={'NVCC' if torch and has_cuda(torch) else 'OFF'}",
        f"-DPython3_EXECUTABLE={sys.executable}",
        *for_torch, *(for_paddle if paddle else []),
        *shlex.split(environment.get("ACTZIP_CMAKE_ARGS", "")),
    ]


def run_cmake(what: str, *arguments: str) -> None:
    """Runs CMake and lets it print: `pip install -v .` shows its output at once, plain pip only after a failure."""
    environment = {"CMAKE_GENERATOR": "Ninja", **os.environ}
    if status := subprocess.run(["cmake", *arguments], env=environment).returncode:
        raise fail(f"CMake could not {what} (status {status}); the first error above says why")


class Part(NamedTuple):
    """What is built for one framework."""

    name: str
    target: str  #: CMake's name for it
    module: str
    built_for: str  #: the file next to it that says which release it was built against


TORCH = Part("torch", "actzip_python", "_C", "_built_for.py")
PADDLE = Part("Paddle", "actzip_paddle", "_paddle_C", "_built_for_paddle.py")


class CMakeBuild(build_ext):
    def build_extension(self, ext: Extension) -> None:
        """Builds the parts for all frameworks that are installed."""
        if problem := missing_tool(os.environ, sysconfig.get_path("include")):
            raise fail(problem)
        torch, paddle = find_frameworks(os.environ)
        found = {part: folder for part, folder in ((TORCH, torch), (PADDLE, paddle)) if folder}
        jobs, why = jobs_here()
        build = Path(self.build_temp).resolve()
        for part, folder in found.items():
            print(f"actzip: building against the {part.name} in {folder}", flush=True)
        # The cache names tools of the previous build's environment, which is gone. Compiled objects are kept.
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        run_cmake("configure the build", *cmake_arguments(build, torch, os.environ, paddle))
        print(f"actzip: {jobs} compile jobs ({why}); this takes minutes", flush=True)
        targets = [part.target for part in found]
        run_cmake("build actzip", "--build", str(build), "--target", *targets, "--parallel", str(jobs))
        for part in found:
            target = Path(self.get_ext_fullpath(f"actzip.{part.module}")).resolve()
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(build / f"python/actzip/{part.module}.so"), str(target))
            self.copy_file(str(build / "python/actzip" / part.built_for), str(target.parent / part.built_for))


class EarlyCheck(dist_info):
    """Looks for frameworks when pip asks for the metadata, so that a missing one is reported before any download."""

    def run(self) -> None:
        if "PIP_BUILD_TRACKER" in os.environ:
            find_frameworks(os.environ)
        super().run()


if __name__ == "__main__":
    # actzip.bench lies in apps/bench; pyproject.toml maps it.
    bench = ["actzip.bench", *(f"actzip.bench.{name}" for name in find_packages("apps/bench"))]
    setup(version=version(), packages=[*find_packages("python"), *bench],
          ext_modules=[Extension("actzip._C", sources=[])],
          cmdclass={"build_ext": CMakeBuild, "dist_info": EarlyCheck})
