"""The extension runs only with the torch that it was built against, and the two share one C++ runtime."""

import pathlib
import shutil
import subprocess
import sys

import actzip
import pytest
import torch
from actzip import _built_for, _torch_check

PACKAGE = pathlib.Path(actzip.__file__).parent


@pytest.mark.parametrize("running, built_for, is_right", [
    ("2.13.0", "2.13.0", True), ("2.13.0+cu130", "2.13.0+cpu", True), ("2.13.0", "2.13.0+cpu", True),
    ("2.13.1", "2.13.0", False), ("2.12.0+cpu", "2.13.0+cpu", False), ("2.14.0.dev20261101", "2.14.0.dev20261102", False),
    ("2.13.0a0+gitabc", "2.13.0a0+gitabc", True), ("2.13.0a0+gitabc", "2.13.0a0+gitdef", False)])
def test_versions(running, built_for, is_right):
    assert (_torch_check.problem(running, built_for) == "") == is_right


def test_it_was_built_for_this_torch():
    assert _built_for.TORCH == torch.__version__


def test_another_torch_is_refused_before_the_extension_is_loaded(tmp_path):
    """A copy of the package that says it was built for another torch, with an extension that could not be loaded."""
    copy = tmp_path / "actzip"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("_C.so", "bench", "__pycache__"))
    (copy / "_built_for.py").write_text('TORCH = "1.2.3"\n')
    (copy / "_C.so").write_bytes(b"no library")
    done = subprocess.run([sys.executable, "-c", "import actzip"], capture_output=True, text=True, cwd=tmp_path,
                          env={"PYTHONPATH": str(tmp_path), "PATH": ""})
    assert done.returncode == 1
    assert f"built against torch 1.2.3, and torch {torch.__version__} is running" in done.stderr
    assert "install actzip again" in done.stderr and "invalid ELF" not in done.stderr


def test_an_error_passes_through_autograd():
    """An error in a node passes through torch's engine as an exception. In a separate process, because it may crash."""
    script = """
import actzip, torch
x = torch.randn(64, 64, requires_grad=True)
for preset in ("default", "exact"):
    for convert in (False, True):
        layer = torch.nn.GELU()
        if convert:
            actzip.convert(layer, preset=preset)
        with actzip.Session(preset=preset, min_elems=0):
            h = x * 1.5
            y = layer(h)
        with torch.no_grad():
            h.add_(1)
        try:
            y.sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error
        else:
            raise AssertionError("no error")
print("caught")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "caught\n", done.stdout + done.stderr


def test_the_runtime_is_shared():
    needed = subprocess.run(["readelf", "-d", actzip._C.__file__], capture_output=True, text=True, check=True).stdout
    assert "libstdc++.so" in needed or "libc++.so" in needed
