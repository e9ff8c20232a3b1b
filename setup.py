"""Builds actzip._C with CMake, against the torch of the environment that actzip is installed into.

Environment variables: ACTZIP_TORCH_DIR (torch's folder), ACTZIP_CMAKE_ARGS (further options of CMake, which win over
those chosen here), CMAKE_BUILD_PARALLEL_LEVEL or MAX_JOBS (compile jobs), CXX (the compiler).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.dist_info import dist_info

ROOT = Path(__file__).resolve().parent
GIB = 1 << 30
JOB_BYTES = 5 * GIB // 2  # what the compiler needs for a source that includes torch


def fail(text: str) -> SystemExit:
    """Ends the build with one message and no traceback."""
    return SystemExit(f"actzip: {text}")


def version() -> str:
    text = (ROOT / "include/actzip/version.hpp").read_text()
    return re.search(r'ACTZIP_VERSION_STRING "([^"]+)"', text)[1]


# ---- how many compile jobs -------------------------------------------------------------------------------------------


def available_bytes(meminfo: str) -> int | None:
    """Memory that is free for new processes, from the text of /proc/meminfo; None where it does not say."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.MULTILINE)
    return found and int(found[1]) * 1024


def compile_jobs(cores: int, free_bytes: int | None, environment: Mapping[str, str]) -> tuple[int, str]:
    """How many, and why: as many as cores and memory allow, unless the user says."""
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


# ---- which torch -----------------------------------------------------------------------------------------------------

#: Prints the folder of an interpreter's torch, without importing it. An interpreter of another version is no match.
FIND_TORCH = f"""
import importlib.util, sys
spec = importlib.util.find_spec("torch") if sys.version_info[:2] == {sys.version_info[:2]} else None
print(spec.submodule_search_locations[0] if spec else "")
"""


def is_torch(folder: Path) -> bool:
    return (folder / "include/ATen").is_dir() and (folder / "version.py").is_file()


def torch_of(python: Path) -> Path | None:
    """The torch that an interpreter imports when a user starts it.

    pip hides the packages of the environment from the build, by PYTHONPATH; the interpreter itself is that of the
    environment. Asking it anew, without the variables, finds what it finds: user sites, .pth files and all.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run([python, "-c", FIND_TORCH], env=environment, cwd="/", capture_output=True, text=True)
    except OSError:
        return None
    lines = done.stdout.splitlines()
    return Path(lines[-1]) if lines and lines[-1] and is_torch(Path(lines[-1])) else None


def interpreters(environment: Mapping[str, str]) -> Iterator[Path]:
    """Those whose torch may be meant, the likeliest first.

    pip builds with the interpreter of the environment it installs into. Other tools, uv for one, build with that of an
    environment which they make for the build: then torch is in the active one, or in .venv, where they install to.
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
    raise fail(f"no torch found, and actzip is built against the torch it will run with. Install torch first (pip "
               f"install 'torch>=2.11'), then actzip into the same environment, which has to be active for uv; or add "
               f"--no-build-isolation; or set ACTZIP_TORCH_DIR to the folder with torch's include/. "
               f"Asked: {', '.join(map(str, asked))}")


def has_cuda(torch: Path) -> bool:
    """Whether a torch can use CUDA; kernels for one that cannot would be built in vain."""
    return re.search(r"^cuda\b[^=]*=\s*None", (torch / "version.py").read_text(), re.MULTILINE) is None


# ---- CMake -----------------------------------------------------------------------------------------------------------


def missing_tool(environment: Mapping[str, str], include: str) -> str:
    """What has to be installed before anything can be compiled; empty if nothing."""
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


def cmake_arguments(build: Path, torch: Path, environment: Mapping[str, str]) -> list[str]:
    """Those of the user come last, so they win."""
    return [
        "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DACTZIP_WERROR=OFF",
        "-DACTZIP_TORCH=ON", "-DACTZIP_PYTHON_EXTENSION=ON", "-DACTZIP_TESTS=OFF", "-DACTZIP_CLI=OFF",
        "-DACTZIP_MODELS=OFF",
        f"-DACTZIP_CUDA={'NVCC' if has_cuda(torch) else 'OFF'}",
        f"-DACTZIP_TORCH_DIR={torch}", f"-DPython3_EXECUTABLE={sys.executable}",
        *shlex.split(environment.get("ACTZIP_CMAKE_ARGS", "")),
    ]


def run_cmake(what: str, *arguments: str) -> None:
    """Its output is the build's: `pip install -v .` shows it as it comes, pip alone only after a failure."""
    environment = {"CMAKE_GENERATOR": "Ninja", **os.environ}
    if status := subprocess.run(["cmake", *arguments], env=environment).returncode:
        raise fail(f"CMake could not {what} (status {status}); the first error above says why")


class CMakeBuild(build_ext):
    def build_extension(self, ext: Extension) -> None:
        if problem := missing_tool(os.environ, sysconfig.get_path("include")):
            raise fail(problem)
        torch = find_torch(os.environ)
        jobs, why = jobs_here()
        build = Path(self.build_temp).resolve()
        print(f"actzip: building against the torch in {torch}", flush=True)
        # It names tools of the last build's own environment, which is gone. What was compiled stays.
        (build / "CMakeCache.txt").unlink(missing_ok=True)
        run_cmake("configure the build", *cmake_arguments(build, torch, os.environ))
        print(f"actzip: {jobs} compile jobs ({why}); this takes minutes", flush=True)
        run_cmake("build actzip", "--build", str(build), "--target", "actzip_python", "--parallel", str(jobs))
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(build / "python/actzip/_C.so"), str(target))
        self.copy_file(str(build / "python/actzip/_built_for.py"), str(target.parent / "_built_for.py"))


class EarlyCheck(dist_info):
    """pip asks for the metadata before it downloads a torch, which would not be installed yet when actzip is built."""

    def run(self) -> None:
        if "PIP_BUILD_TRACKER" in os.environ:
            find_torch(os.environ)
        super().run()


if __name__ == "__main__":
    # actzip.bench lies in apps/bench; pyproject.toml says where.
    bench = ["actzip.bench", *(f"actzip.bench.{name}" for name in find_packages("apps/bench"))]
    setup(version=version(), packages=[*find_packages("python"), *bench],
          ext_modules=[Extension("actzip._C", sources=[])],
          cmdclass={"build_ext": CMakeBuild, "dist_info": EarlyCheck})
