"""What a session leaves unchanged: parameters, classes, hooks, random numbers, results of forward."""

import copy
import io
import os
import random
import subprocess
import sys
import textwrap

import actzip
import numpy as np
import pytest
import torch
from models import MODELS, CNN, gradients, loss_of, make

PRESETS = ["default", "exact", "affine:2"]
#: What a process needs that loads an extension built with a sanitizer.
SANITIZER = {"LD_PRELOAD", "ASAN_OPTIONS", "TSAN_OPTIONS"}


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_state_dict_and_classes(model_class, preset):
    model, batch = make(model_class)
    twin = copy.deepcopy(model)
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    before = [(name, type(m), m.forward.__func__, sorted(vars(m))) for name, m in model.named_modules()]
    gradients(twin, batch)
    gradients(model, batch, actzip.Session(model, preset=preset))
    assert [(n, type(m), m.forward.__func__, sorted(vars(m))) for n, m in model.named_modules()] == before
    state = model.state_dict()
    assert list(state) == list(expected)
    for name, value in state.items():
        assert torch.equal(value, twin.state_dict()[name]), name  # running statistics moved as without a session
    assert twin.load_state_dict(state, strict=True).missing_keys == []
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks and not module._backward_hooks


@pytest.mark.parametrize("preset", PRESETS)
def test_random_streams(preset):
    model, batch = make(CNN)
    draws = []
    for session in (None, actzip.Session(model, preset=preset)):
        random.seed(3), np.random.seed(3)
        gradients(model, batch, session)  # seeds torch itself
        draws.append((torch.rand(4).tolist(), random.random(), np.random.rand(), torch.get_rng_state().tolist()))
    assert draws[0] == draws[1]


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("preset", PRESETS)
def test_forward_is_bitwise(model_class, preset):
    model, batch = make(model_class)
    torch.manual_seed(1)
    expected = loss_of(model, batch)
    torch.manual_seed(1)
    with actzip.Session(model, preset=preset, min_elems=0):
        actual = loss_of(model, batch)
    assert torch.equal(expected, actual)


@pytest.mark.parametrize("preset", PRESETS)
def test_inputs_are_not_written(preset):
    model, batch = make(CNN)
    expected = batch.clone()
    gradients(model, batch, actzip.Session(model, preset=preset, min_elems=0))
    assert torch.equal(batch, expected) and batch._version == 0


def train(model, batch, optimizer, session, steps):
    result = []
    for _ in range(steps):
        with session:
            loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append((loss.item(), session.report().bytes_after))
    return result


def fresh(preset, seed):
    model, batch = make(CNN)
    return model, batch, torch.optim.SGD(model.parameters(), 0.1), actzip.Session(model, preset=preset, seed=seed)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_seed_gives_the_same_training(preset):
    runs = []
    for _ in range(2):
        model, batch, optimizer, session = fresh(preset, 5)
        torch.manual_seed(2)
        runs.append((train(model, batch, optimizer, session, 4), [p.detach().clone() for p in model.parameters()]))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1]))


def test_resume_from_a_checkpoint():
    """Two runs that resume from one file are equal, and with `exact` equal to the run that never stopped."""
    ends = {}
    for preset in ("exact", "default"):
        model, batch, optimizer, session = fresh(preset, 5)
        train(model, batch, optimizer, session, 2)
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}, file)
        straight = train(model, batch, optimizer, session, 2)
        ends[preset] = []
        for _ in range(2):
            model, batch, optimizer, session = fresh(preset, 6)
            file.seek(0)
            state = torch.load(file)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            torch.set_rng_state(state["rng"])
            ends[preset].append([loss for loss, _ in train(model, batch, optimizer, session, 2)])
        assert ends[preset][0] == ends[preset][1]
        if preset == "exact":
            assert ends[preset][0] == [loss for loss, _ in straight]


def test_import_needs_no_gpu_and_no_compiler():
    code = "import actzip, torch; x = torch.randn(64, 64, requires_grad=True)\n" \
           "with actzip.Session() as s: y = torch.relu(x).sum()\n" \
           "y.backward(); assert s.report().sites[0].codec == 'mask'; print(actzip.__version__)"
    found = ":".join(path for path in sys.path if path)
    environment = {"PATH": "", "CUDA_VISIBLE_DEVICES": "", "CC": "/none", "CXX": "/none", "CUDA_HOME": "/none", "HOME": "/",
                   "PYTHONPATH": found, **{name: os.environ[name] for name in SANITIZER & os.environ.keys()}}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and result.stdout.strip() == actzip.__version__, result.stderr


def in_a_process(code):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300)


def test_importing_changes_nothing_in_torch():
    """actzip registers with torch's engine and dispatcher when the first session is made."""
    done = in_a_process("""
        import actzip, torch
        kernels = lambda: torch._C._dispatch_has_kernel_for_dispatch_key("aten::threshold_backward", "PrivateUse3")
        assert not kernels()
        actzip.Session()
        assert kernels()
    """)
    assert done.returncode == 0, done.stderr


def test_a_private_backend_that_is_taken_is_an_error_that_says_so():
    done = in_a_process("""
        import torch, actzip
        library = torch.library.Library("_", "IMPL", "PrivateUse3")
        library.fallback(lambda op, *args, **kwargs: None, "PrivateUse3")
        try:
            actzip.Session()
        except RuntimeError as error:
            assert "another library in this process has taken" in str(error) and "PrivateUse3" in str(error), error
        else:
            raise AssertionError("no error")
    """)
    assert done.returncode == 0, done.stderr
