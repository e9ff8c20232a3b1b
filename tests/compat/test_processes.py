"""The stand-ins in processes that programs start: spawned, forked, by a launcher, through the shell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

PROGRAMS = Path(__file__).parent / "programs"
needs_gloo = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo")


def run(folder, *command):
    """Runs Python in an environment in which `python3` is this interpreter, and returns what it prints."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *map(str, command)], cwd=folder, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def same_weights(folder):
    """Checks that both processes ended with the same weights, and returns what they saved."""
    first, second = (torch.load(folder / f"rank{rank}.pt") for rank in range(2))
    assert all(torch.equal(value, second[1][name]) for name, value in first[1].items() if "running" not in name)
    return first, second


@needs_gloo
def test_spawned_with_batch_norms_in_step(tmp_path):
    """Batch norms see both halves of a batch, so even their statistics are equal."""
    run(tmp_path, "-m", "actzip.compat", PROGRAMS / "actnn_classify.py", "-c", "qsyncbn", "--epochs", 3,
        "--multiprocessing-distributed", "--usegradient", "-b", 8)
    (losses, state, *_), (_, other, *_) = same_weights(tmp_path)
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4]) and torch.allclose(state["bn1.running_mean"], other["bn1.running_mean"])


@needs_gloo
def test_spawned_benchmark(tmp_path):
    run(tmp_path, "-m", "actzip.compat", PROGRAMS / "actnn_benchmark.py", "--alg", "actnn-L3",
        "--multiprocessing-distributed", "--steps", 12, "-b", 8)
    (losses, _, preset), _ = same_weights(tmp_path)
    assert sum(losses[-3:]) < sum(losses[:3]) and preset == "actnn:L3"


def test_started_by_the_shell(tmp_path):
    run(tmp_path, "-m", "actzip.compat", PROGRAMS / "actnn_launcher.py", "exact", "actnn-L3")
    rows = [json.loads(line) for line in (tmp_path / "speed_results.json").read_text().splitlines()]
    assert [row["algorithm"] for row in rows] == ["exact", "actnn-L3"] and all(row["ips"] > 0 for row in rows)


def test_workers_of_loaders(tmp_path):
    methods = ("spawn", "fork", "forkserver")
    output = run(tmp_path, "-m", "actzip.compat", PROGRAMS / "actnn_workers.py", *methods)
    assert output.split() == [word for method in methods for word in (method, "True")]


@needs_gloo
def test_torchrun(tmp_path):
    pytest.importorskip("transformers")
    run(tmp_path, "-m", "torch.distributed.run", "--nproc_per_node", 2, "-m", "actzip.compat", PROGRAMS / "gact_swin.py",
        "--level", "L1", "--epochs", 3, "--batch-size", 8)
    (losses, _, codecs), _ = same_weights(tmp_path)
    assert sum(losses[-4:]) < sum(losses[:4]) and "rotated:4" in codecs.values()


def test_options_before_the_script_are_its_own(tmp_path):
    """Such as torch.distributed.launch inserts."""
    (tmp_path / "main.py").write_text("import sys; print(sys.argv[1:])")
    assert run(tmp_path, "-m", "actzip.compat", "--local-rank=1", "main.py", "--lr", 2) == "['--local-rank=1', '--lr', '2']\n"


def test_a_folder_with_the_name_is_no_package(tmp_path):
    """As in ActNN's own repository, whose package is one folder deeper."""
    (tmp_path / "actnn" / "actnn").mkdir(parents=True)
    (tmp_path / "actnn" / "setup.py").touch()
    (tmp_path / "main.py").write_text("import actnn, subprocess, sys\nprint(actnn.QModule.__module__, flush=True)\n"
                                      "if len(sys.argv) == 1: subprocess.run(['python3', 'main.py', 'again'], check=True)")
    assert run(tmp_path, "-m", "actzip.compat", "main.py") == "actzip.compat.actnn.module\n" * 2


def test_the_environment_is_put_back(tmp_path):
    code = ("import os, sys, actzip.compat\nbefore = os.environ.get('PYTHONPATH', ''), list(sys.path)\n"
            "actzip.compat.install()\nactzip.compat.install()\nactzip.compat.uninstall()\n"
            "print((os.environ.get('PYTHONPATH', ''), sys.path) == before)")
    assert run(tmp_path, "-c", code) == "True\n"


def test_a_program_may_end_with_hooks_in(tmp_path):
    (tmp_path / "main.py").write_text("""
import torch, gact
from gact.controller import Controller
model = torch.nn.Linear(64, 64)
controller = Controller(model)
controller.install_hook()
model(torch.randn(64, 64)).sum().backward()
keeps = {"itself": controller}
keeps["all"] = keeps
""")
    done = subprocess.run([sys.executable, "-m", "actzip.compat", "main.py"], cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
