"""The files that a run leaves in its folder are valid and from a single run."""

import json
import os
import signal
import subprocess

import pytest
import torch
from trainer import GRAPH, command, metrics, run, trained

# The rate is so high that weights overflow after some steps, between two lines of the log.
DIVERGING = [*GRAPH, "--optimizer", "sgd", "--lr", "1e6", "--schedule", "constant", "--epochs", 40, "--log-every", 1000]


def checkpoint(folder):
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def state(folder):
    return json.loads(bytes(checkpoint(folder)["state"].tolist()))


def assert_finite(tensors):
    for name, tensor in tensors.items():
        assert not tensor.is_floating_point() or torch.isfinite(tensor).all(), name


def test_weights_that_are_not_finite_never_replace_a_checkpoint(tmp_path):
    status, _, errors = run(*DIVERGING, "--output", tmp_path)
    assert status == 3
    assert_finite(checkpoint(tmp_path))
    assert f"checkpoint.pt is that of step {state(tmp_path)['step']}, and finite" in errors
    assert not (tmp_path / "weights.pt").exists()
    # The weights overflow before the loss does. A run that ends at that step must also leave the checkpoint before it.
    step = state(tmp_path)["step"] + 1
    status, _, errors = run(*DIVERGING, "--steps", step, "--log-every", 1, "--output", tmp_path / "short")
    assert status == 3 and f"is not finite after step {step}" in errors
    assert_finite(checkpoint(tmp_path / "short"))


def test_without_a_checkpoint_a_message_says_so(tmp_path):
    options = [*DIVERGING, "--evaluate-every", 100]
    status, _, errors = run(*options, "--checkpoint-every", 100, "--output", tmp_path)
    assert status == 3 and "; no checkpoint was written" in errors
    assert not (tmp_path / "checkpoint.pt").exists()
    status, _, errors = run(*options)
    assert status == 3 and "checkpoint" not in errors


def rewritten(folder, **changes):
    torch.save({**checkpoint(folder), **changes}, folder / "checkpoint.pt")


def text(value):
    return torch.tensor(list(value.encode()), dtype=torch.uint8)


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped after two steps, and its options."""
    options = [*GRAPH, "--output", tmp_path]
    trained(*options, "--stop-after", 2)
    return tmp_path, options


def test_a_checkpoint_that_is_not_finite_is_refused(stopped):
    folder, options = stopped
    name = next(name for name in checkpoint(folder) if name.startswith("optimizer/momentum."))
    rewritten(folder, **{name: checkpoint(folder)[name] * float("nan")})
    status, _, errors = run(*options, "--resume")
    assert status == 1 and f"checkpoint.pt: {name} is not finite" in errors


def test_a_tensor_of_any_size_is_refused_at_once(stopped):
    """A few bytes may claim to be 2^60 numbers."""
    folder, options = stopped
    name = next(name for name in checkpoint(folder) if name.startswith("model/"))
    rewritten(folder, **{name: torch.zeros(1).expand(1 << 60)})
    status, _, errors = run(*options, "--resume")
    assert status == 1 and f"of another shape: {name[len('model/'):]}" in errors


@pytest.mark.parametrize(("change", "says"), [
    (lambda _: torch.zeros(1, dtype=torch.uint8).expand(1 << 30), "it has no state"),  # one byte, read 2^30 times
    (lambda state: text(json.dumps(state)).float(), "it has no state"),
    (lambda _: text("[" * 500_000), "its state"),
    (lambda _: text("[" * 500_000 + "]" * 500_000), "nested deeper than 64"),
    (lambda _: text("3"), "is no JSON object"),
    (lambda state: text(json.dumps({**state, "format": 1})), "is not of format 2"),
    (lambda state: text(json.dumps({**state, "step": -1})), "has -1 as 'step' (allowed: 0 to"),
    (lambda state: text(json.dumps({**state, "step": 2**63 - 1})), "as 'step'"),
    (lambda state: text(json.dumps({**state, "step": 100})), "step 100 (allowed: 0 to 6)"),
    (lambda state: text(json.dumps({**state, "logged_step": 3})), "has 3 as 'logged_step' (allowed: 0 to 2)"),
    (lambda state: text(json.dumps({**state, "examples": "many"})), "has \"many\" as 'examples'"),
    (lambda state: text(json.dumps({**state, "seconds": None})), "has no number of 'seconds'"),
    (lambda state: text(json.dumps({**state, "data": 3})), "has 3 as 'data'"),
    (lambda state: text(json.dumps({key: state[key] for key in state if key != "session"})), "has no 'session'"),
], ids=range(14))
def test_a_state_that_is_none_is_refused(stopped, change, says):
    folder, options = stopped
    rewritten(folder, state=change(state(folder)))
    before = (folder / "checkpoint.pt").read_bytes()
    status, _, errors = run(*options, "--resume")
    assert status == 1, errors
    assert "checkpoint.pt" in errors and says in errors
    assert (folder / "checkpoint.pt").read_bytes() == before


def test_one_run_at_a_time_for_a_folder(tmp_path):
    options = [*GRAPH, "--epochs", 1_000_000, "--evaluate-every", 1_000_000, "--checkpoint-every", 10,
               "--output", tmp_path]
    first = subprocess.Popen(command(*options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "checkpoint.pt").exists():
            assert first.poll() is None, first.stderr.read()
        for second in (options, [*options, "--resume"]):
            status, _, errors = run(*second)
            assert status == 2
            assert f"process {first.pid} on {os.uname().nodename} trains there (allowed: one run at a time" in errors
        trained(*options, "--evaluate")  # only reads
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    trained(*options, "--resume", "--stop-after", 1)  # nothing has to be removed by hand


def test_a_finished_run_that_is_resumed_keeps_its_files(tmp_path):
    options = [*GRAPH, "--log-every", 1, "--output", tmp_path, "--save-weights", tmp_path / "first.pt"]
    trained(*options)
    files = {name: (tmp_path / name).read_bytes() for name in ("report.json", "weights.pt", "first.pt")}
    lines = metrics(tmp_path / "metrics.jsonl")
    trained(*options, "--resume")
    for name, content in files.items():
        assert (tmp_path / name).read_bytes() == content, name
    assert metrics(tmp_path / "metrics.jsonl") == lines
    assert len(metrics(tmp_path / "metrics.jsonl", "summary")) == 1


def test_what_a_killed_run_left_is_removed_and_nothing_else(stopped):
    folder, options = stopped
    for name in ("checkpoint.pt.partial", "weights.pt.partial", "of somebody else.partial"):
        (folder / name).write_text("half")
    trained(*options, "--resume")
    assert [path.name for path in folder.glob("*.partial")] == ["of somebody else.partial"]


def test_lines_that_are_not_the_runs_own_do_not_stop_it(stopped):
    folder, options = stopped
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": "two"}\n[1]\n' + "[" * 100_000 + '\n{"kind": "train", "st')
    trained(*options, "--resume", "--log-every", 1)
    assert [line["step"] for line in metrics(folder / "metrics.jsonl")] == [3, 4, 5, 6]


def test_nobody_has_to_read_along(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(command(*GRAPH, "--log-every", 1, "--output", tmp_path), stdout=subprocess.PIPE,
                              stderr=full)
    assert done.returncode == 0 and len(metrics(tmp_path / "metrics.jsonl")) == 6


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        trained(*GRAPH, "--report", pipe)
        assert json.loads(reader.communicate()[0])["sites"]
    assert pipe.is_fifo()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "target.json")
    (tmp_path / "target.json").write_text("old")
    trained(*GRAPH, "--report", link)
    assert link.is_symlink() and json.loads((tmp_path / "target.json").read_text())["sites"]
