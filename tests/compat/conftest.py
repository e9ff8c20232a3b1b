"""Fixtures: initial configurations for each test, and a way to run a program in this process."""

import runpy
import sys
from pathlib import Path

import actzip.compat
import pytest
import torch
from actzip.compat import actnn, fdmp, gact

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(autouse=True)
def fresh():
    def reset():
        for library in (actnn, gact, fdmp):
            library.config.reset()
        actnn.QScheme.num_samples, actnn.QScheme.batch, actnn.QScheme.update_scale = 1, None, True
        actnn.exp_recorder.clear()

    reset()
    torch.manual_seed(0)
    yield
    reset()


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Returns a function that runs a program with arguments in a temporary folder and returns its global names."""
    def run(name, *arguments):
        path = PROGRAMS / f"{name}.py"
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [path.name, *map(str, arguments)])
        monkeypatch.setattr(sys, "path", [str(PROGRAMS), *sys.path])
        monkeypatch.setenv("PYTHONPATH", "")
        actzip.compat.install()
        try:
            return runpy.run_path(str(path), run_name="__main__")
        finally:
            actzip.compat.uninstall()

    return run
