"""Packages the tree and trains a step elsewhere: an sdist, a wheel from the unpacked sdist, a new environment.

This compiles the whole extension, which takes minutes, or seconds with a filled ccache. It needs no network: the build
is not isolated, and the new environment sees torch through a .pth file instead of installing a second one.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

pytest.importorskip("setuptools", "77")
ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = shutil.ignore_patterns("build", ".venv", ".git", "*.egg-info", "__pycache__", ".cache")

STEP = """
import torch, actzip
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
with actzip.compress(model) as session:
    loss = model(torch.randn(512, 64)).square().mean()
loss.backward()
optimizer.step()
report = session.report()
assert report.bytes_after < report.bytes_before / 4, report
print(actzip.__file__)
"""


def run(*command, **options):
    """Runs a command that must succeed and returns its output and error output. The command inherits neither import
    paths nor numbers of jobs."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("PYTHON") and name not in ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")}
    done = subprocess.run([str(part) for part in command], env={**environment, **options.pop("env", {})}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    assert done.returncode == 0, done.stdout[-10_000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def sdist(folder):
    """Made from a copy of the tree, because setuptools leaves files behind, and includes files that it finds."""
    tree = shutil.copytree(ROOT, folder / "tree", ignore=NOT_OURS)
    run(sys.executable, "-c", "import setuptools.build_meta as b; b.build_sdist('dist')", cwd=tree)
    return next((tree / "dist").glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(folder, sdist):
    """The wheel and the output of its build."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    source = next((folder / "unpacked").iterdir())
    # MinSizeRel: the loops for each instruction set compile in a third of the time, and need not be fast here.
    log = run(sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "-w", folder / "wheels",
              ".", cwd=source, env={"CCACHE_BASEDIR": str(source), "CCACHE_NOHASHDIR": "1",
                                    "ACTZIP_CMAKE_ARGS": "-DCMAKE_BUILD_TYPE=MinSizeRel"})
    return next((folder / "wheels").glob("actzip-*.whl")), log


@pytest.fixture(scope="module")
def environment(folder, built):
    """A virtual environment with the wheel, which sees the running torch and is otherwise empty."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    site = next((folder / "venv/lib").glob("python*/site-packages"))
    (site / "torch_of_the_test.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    run(sys.executable, "-m", "pip", "--python", folder / "venv/bin/python", "install", "--no-deps", "--no-index",
        built[0])
    return folder / "venv"


def test_the_sdist_holds_what_a_build_needs_and_nothing_else(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for part in ("adapters", "cmake", "include", "src", "python/actzip"):
        for path in (ROOT / part).rglob("*"):
            if path.suffix in (".hpp", ".cpp", ".cu", ".cuh", ".cmake", ".in", ".py", ".pyi") or path.name in (
                    "CMakeLists.txt", "py.typed"):
                assert str(path.relative_to(ROOT)) in names
    for path in (ROOT / "apps/bench").rglob("*.py"):
        assert str(path.relative_to(ROOT)) in names
    assert {name.partition("/")[0] for name in names} - {""} == {
        "CMakeLists.txt", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "adapters", "apps", "cmake", "include",
        "pyproject.toml", "python", "setup.cfg", "setup.py", "src"}


def test_the_wheel_holds_the_extension_and_the_torch_it_is_for(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        assert f'TORCH = "{torch.__version__}"' in wheel.read("actzip/_built_for.py").decode()
    assert [name for name in names if re.fullmatch(r"actzip/_C\..*so", name)]
    assert {"actzip/py.typed", "actzip/_C.pyi", "actzip/bench/__main__.py", "actzip_script.py"} <= set(names)
    assert not [name for name in names if name.endswith((".cpp", ".hpp")) or name.startswith("tests")]


def test_the_number_of_compile_jobs_was_bounded(built):
    jobs, cores, free, each = re.search(
        r"actzip: (\d+) compile jobs \((\d+) cores, ([\d.]+) GiB free, ([\d.]+) GiB a job\)", built[1]).groups()
    assert int(cores) == len(os.sched_getaffinity(0))
    assert int(jobs) == max(1, min(int(cores), int(float(free) / float(each))))


def test_a_step_is_trained_from_another_folder(environment, tmp_path):
    package = run(environment / "bin/python", "-c", STEP, cwd=tmp_path).splitlines()[-1]
    assert environment in Path(package).parents


def test_the_installed_command_finds_everything_well(environment, tmp_path):
    text = run(environment / "bin/actzip", "doctor", cwd=tmp_path)
    assert "CPU step" in text and "broken" not in text


def test_another_torch_is_refused_with_what_to_do(environment, tmp_path):
    site = next((environment / "lib").glob("python*/site-packages"))
    shutil.copytree(site / "actzip", tmp_path / "actzip", symlinks=True)
    (tmp_path / "actzip/_built_for.py").write_text('TORCH = "2.11.0"\n')
    shutil.copy(site / "actzip_script.py", tmp_path)
    done = subprocess.run([environment / "bin/python", tmp_path / "actzip_script.py", "doctor"], capture_output=True,
                          text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "actzip was built against torch 2.11.0" in done.stderr and "install actzip again" in done.stderr
