"""What setup.py decides before CMake runs: compile jobs, which frameworks, what is missing."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools", "77")
ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30


@pytest.fixture(scope="module")
def setup_py():
    spec = importlib.util.spec_from_file_location("actzip_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_torch(folder, cuda="None"):
    """Creates the parts of a torch that setup.py and CMake look for."""
    (folder / "include/ATen").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "version.py").write_text(f"__version__ = '2.13.0'\ncuda: str | None = {cuda}\nhip: str | None = None\n")
    return folder


def make_paddle(folder):
    """The same for Paddle."""
    (folder / "include/paddle/phi").mkdir(parents=True)
    (folder / "version").mkdir()
    (folder / "version/__init__.py").write_text("full_version = '3.3.1'\n")
    return folder


# ---- compile jobs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cores, free_gib, environment, expected", [
    (4, 64, {}, 4),  # cores are the limit
    (64, 8, {}, 3),  # memory is the limit: 2.5 GiB each
    (64, 1, {}, 1),  # at least one
    (8, None, {}, 8),  # free memory is unknown
    (2, 1, {"MAX_JOBS": "5"}, 5),
    (2, 1, {"CMAKE_BUILD_PARALLEL_LEVEL": "3", "MAX_JOBS": "5"}, 3),
    (2, 64, {"MAX_JOBS": ""}, 2),
])
def test_jobs_are_bounded_by_cores_and_memory_unless_the_user_says(setup_py, cores, free_gib, environment, expected):
    free_bytes = None if free_gib is None else free_gib * GIB
    assert setup_py.compile_jobs(cores, free_bytes, environment)[0] == expected


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
def test_a_wrong_number_of_jobs_is_named(setup_py, given):
    with pytest.raises(SystemExit, match=f"MAX_JOBS is '{given}' .allowed: a number from 1"):
        setup_py.compile_jobs(2, GIB, {"MAX_JOBS": given})


def test_free_memory_is_what_the_kernel_calls_available(setup_py):
    assert setup_py.available_bytes("MemTotal:   100 kB\nMemFree:   3 kB\nMemAvailable:     42 kB\n") == 42 * 1024
    assert setup_py.available_bytes("MemTotal:   100 kB\n") is None


# ---- which torch -----------------------------------------------------------------------------------------------------


@pytest.fixture
def environment_with_torch(tmp_path):
    """A virtual environment whose site-packages hold something that looks like torch."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    site = next((tmp_path / ".venv/lib").glob("python*/site-packages"))
    make_torch(site / "torch")
    return tmp_path / ".venv"


def test_torch_is_found_though_the_build_is_isolated(setup_py, environment_with_torch, tmp_path, monkeypatch):
    hiding = tmp_path / "hiding"  # hides site-packages as pip does
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text("import sys\nsys.path = [p for p in sys.path if 'site-' not in p]\n")
    monkeypatch.setenv("PYTHONPATH", str(hiding))
    found = setup_py.torch_of(environment_with_torch / "bin/python")
    assert found == next(environment_with_torch.glob("lib/python*/site-packages/torch"))


def test_torch_behind_a_pth_file_is_found(setup_py, environment_with_torch, tmp_path):
    other = make_torch(tmp_path / "elsewhere/torch")
    site = next(environment_with_torch.glob("lib/python*/site-packages"))
    (site / "torch").rename(tmp_path / "not torch")
    (site / "other.pth").write_text(f"{other.parent}\n")
    assert setup_py.torch_of(environment_with_torch / "bin/python") == other


def test_a_tool_that_builds_elsewhere_gets_the_torch_of_the_folders_venv(setup_py, environment_with_torch, monkeypatch):
    monkeypatch.chdir(environment_with_torch.parent)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert environment_with_torch in setup_py.find_torch({}).resolve().parents
    with pytest.raises(SystemExit):  # pip runs the interpreter it installs for: another environment's torch is wrong
        setup_py.find_torch({"PIP_BUILD_TRACKER": "1"})


def test_an_interpreter_of_another_version_is_no_match(setup_py, environment_with_torch, monkeypatch):
    monkeypatch.setattr(setup_py, "FIND_TORCH", setup_py.FIND_TORCH.replace(str(sys.version_info[:2]), "(3, 1)"))
    assert setup_py.torch_of(environment_with_torch / "bin/python") is None


def test_the_torch_that_the_user_names_wins(setup_py, tmp_path):
    torch = make_torch(tmp_path / "torch")
    assert setup_py.find_torch({"ACTZIP_TORCH_DIR": str(torch)}) == torch
    with pytest.raises(SystemExit, match="ACTZIP_TORCH_DIR is '/nowhere', which holds no torch"):
        setup_py.find_torch({"ACTZIP_TORCH_DIR": "/nowhere"})


def test_either_framework_is_enough(setup_py, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(setup_py, "interpreters", lambda environment: iter(()))
    with pytest.raises(SystemExit, match="no torch found, and no paddlepaddle"):
        setup_py.find_frameworks({})
    paddle = make_paddle(tmp_path / "paddle")
    assert setup_py.find_frameworks({}) == (None, paddle)
    torch = make_torch(tmp_path / "torch")
    assert setup_py.find_frameworks({}) == (torch, paddle)
    assert setup_py.find_frameworks({"ACTZIP_TORCH_DIR": str(make_torch(tmp_path / "other/torch"))})[1] is None


def test_what_is_built_is_what_was_found(setup_py, tmp_path):
    torch, paddle = make_torch(tmp_path / "torch"), make_paddle(tmp_path / "paddle")
    alone = setup_py.cmake_arguments(tmp_path, None, {}, paddle)
    assert "-DACTZIP_PADDLE=ON" in alone and "-DACTZIP_TORCH=ON" not in alone
    assert "-DACTZIP_PADDLE=ON" not in setup_py.cmake_arguments(tmp_path, torch, {})


def test_the_paddle_that_the_user_names_must_be_one(setup_py, tmp_path):
    with pytest.raises(SystemExit, match="ACTZIP_PADDLE_DIR is '/nowhere', which holds no Paddle"):
        setup_py.find_paddle({"ACTZIP_PADDLE_DIR": "/nowhere"}, None)
    paddle = make_paddle(tmp_path / "paddle")
    assert setup_py.find_paddle({"ACTZIP_PADDLE_DIR": str(paddle)}, None) == paddle


def test_without_torch_the_message_says_what_to_do(setup_py, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(setup_py, "interpreters", lambda _: iter(()))
    with pytest.raises(SystemExit) as failure:
        setup_py.find_torch({})
    for advice in ("Install torch first", "--no-build-isolation", "ACTZIP_TORCH_DIR"):
        assert advice in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("cuda, expected", [("None", "OFF"), ("'13.0'", "NVCC")])
def test_kernels_are_built_only_for_a_torch_with_cuda(setup_py, tmp_path, cuda, expected):
    arguments = setup_py.cmake_arguments(tmp_path, make_torch(tmp_path / "torch", cuda), {})
    assert f"-DACTZIP_CUDA={expected}" in arguments and "-DACTZIP_WERROR=OFF" in arguments


def test_options_of_the_user_come_last_and_may_hold_blanks(setup_py, tmp_path):
    given = {"ACTZIP_CMAKE_ARGS": "-DACTZIP_CUDA=ON '-DCMAKE_CXX_FLAGS=-O2 -g'"}
    arguments = setup_py.cmake_arguments(tmp_path, make_torch(tmp_path / "torch"), given)
    assert arguments[-2:] == ["-DACTZIP_CUDA=ON", "-DCMAKE_CXX_FLAGS=-O2 -g"]


# ---- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools, extra, expected", [
    ("", {}, "cmake is not on PATH: pip install"),
    ("cmake", {}, "ninja is not on PATH: pip install"),
    ("cmake ninja", {}, "no C++ compiler on PATH: install g++"),
    ("cmake ninja c++", {"CXX": "icpx -w"}, "CXX is 'icpx -w', which is not on PATH"),
    ("cmake ninja c++", {}, "Python's headers are not in"),
    ("cmake ninja g++ Python.h", {}, ""),
    ("cmake ninja Python.h", {"ACTZIP_CMAKE_ARGS": "-DCMAKE_CXX_COMPILER=/opt/g++"}, ""),
    ("cmake g++ Python.h", {"CMAKE_GENERATOR": "Unix Makefiles"}, ""),
])
def test_a_missing_tool_is_named_with_what_to_do(setup_py, tmp_path, tools, extra, expected):
    for name in tools.split():
        (tmp_path / name).touch(mode=0o755)
    found = setup_py.missing_tool({"PATH": str(tmp_path), **extra}, str(tmp_path))
    assert found.startswith(expected) and bool(found) == bool(expected)


def test_a_build_without_cmake_ends_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", tmp_path, "--build-lib", tmp_path], cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("actzip: cmake is not on PATH")
