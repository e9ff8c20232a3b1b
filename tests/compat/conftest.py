"""Configurations as they are at first, and a program run in this process."""

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
    """Calls one with arguments, in a folder of its own; gives the names that it has in the end."""
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
