"""Several threads in scopes of one session, of several, and of none, with one model."""

import gc
import pathlib
import subprocess
import sys
import threading

import actzip
import torch
from models import MLP, make
from torch import nn

STRESS = pathlib.Path(__file__).with_name("thread_stress.py")


def test_forward_and_backward_threads_share_a_model():
    """Runs in a process of its own, because it may crash."""
    done = subprocess.run([sys.executable, str(STRESS), "8", "8"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_backward_threads_share_a_graph():
    stress = STRESS.with_name("shared_graph_stress.py")
    done = subprocess.run([sys.executable, str(stress), "5"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def run_on_threads(*actions):
    errors = []

    def guarded(action):
        try:
            action()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_module_hooks_of_one_thread_pass_over_the_modules_of_others():
    """One thread's scope watches modules. Another thread runs them in a scope that knows no model."""
    model, batch = make(MLP)
    inside, go_on = threading.Event(), threading.Event()
    other = actzip.Session()

    class Waits(nn.Module):
        def forward(self, x):
            inside.set()
            assert go_on.wait(60)
            return x

    model = nn.Sequential(Waits(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    x = torch.randn(64, 64, requires_grad=True)

    def watching():
        session = actzip.Session(model)
        with session:
            model(x).sum().backward()

    def watched():
        assert inside.wait(60)
        with other:  # while the first thread's hooks are there
            loss = model[1:](x * 2).relu().sum()
        go_on.set()
        gc.collect()
        loss.backward()

    run_on_threads(watching, watched)
    gc.collect()  # the watching session is gone, and its paths with it
    assert {site.module for site in other.report().sites} == {""}
    with other:
        model[1:](x * 2).relu().sum().backward()


def test_a_scope_left_inside_of_a_module_leaves_no_path():
    """An inner session that knows the modules is left and freed inside a module, and the outer one continues."""
    outer = actzip.Session()

    class Leaves(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            y = self.linear(x)
            if self.session is not None:
                self.session.__exit__(None, None, None)
                self.session = None
                gc.collect()
            return (y * y).relu()

    model = Leaves()
    x = torch.randn(64, 64)
    for _ in range(5):
        with outer:
            model.session = actzip.Session(model)
            model.session.__enter__()
            loss = model(x).sum()
        loss.backward()
    assert {site.module for site in outer.report().sites} == {""}
