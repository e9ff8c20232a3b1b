"""Builds actzip._C with CMake, against the torch of the environment that actzip is installed into."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def version() -> str:
    text = (ROOT / "include/actzip/version.hpp").read_text()
    return re.search(r'ACTZIP_VERSION_STRING "([^"]+)"', text)[1]


def torch_dir() -> str:
    """torch's folder. pip builds in an environment of its own, which hides torch; it lies in the outer one."""
    given = os.environ.get("ACTZIP_TORCH_DIR")
    candidates = [given] if given else [Path(path) / "torch" for path in (*sys.path, sysconfig.get_path("purelib"))]
    for candidate in candidates:
        if (Path(candidate) / "include/ATen").is_dir():
            return str(candidate)
    raise SystemExit("actzip: no torch found: install torch first, or set ACTZIP_TORCH_DIR to the folder of its include/")


class CMakeBuild(build_ext):
    def build_extension(self, ext: Extension) -> None:
        build = Path(self.build_temp).resolve()
        target = Path(self.get_ext_fullpath(ext.name)).resolve()
        configure = [
            "cmake", "-S", str(ROOT), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release",
            "-DACTZIP_TORCH=ON", "-DACTZIP_PYTHON_EXTENSION=ON", "-DACTZIP_TESTS=OFF", "-DACTZIP_CLI=OFF",
            f"-DACTZIP_TORCH_DIR={torch_dir()}", f"-DPython3_EXECUTABLE={sys.executable}",
            *os.environ.get("ACTZIP_CMAKE_ARGS", "").split(),
        ]
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "actzip_python", "--parallel"], check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(build / "python/actzip/_C.so"), str(target))
        self.copy_file(str(build / "python/actzip/_built_for.py"), str(target.parent / "_built_for.py"))


setup(version=version(), ext_modules=[Extension("actzip._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
