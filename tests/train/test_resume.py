"""Checkpoints: exact resume, interruption, killed processes, full disks."""

import random
import resource
import signal
import subprocess
import time

import pytest
import torch
from trainer import GRAPH, IMAGES, command, losses, run, text_options, trained


def options_of(name, folder):
    return {
        "graph": GRAPH,
        "images": [*IMAGES, "--accumulate", 2, "--augment", "cifar10", "--nesterov", "--weight-decay", 5e-4],
        "division": [*IMAGES, "--preset", "division"],
        "text": [*text_options(folder), "--steps", 8, "--dropout", 0.1, "--bits", 1.5, "--interval", 3, "--clip", 1,
                 "--amp", "bf16"],
        "fp16": [*GRAPH, "--amp", "fp16", "--preset", "rotated:2"],
        "scope": [*GRAPH, "--keep", "scope", "--adapt", "sample+layer"],
        "budget": [*IMAGES, "--steps", 6, "--budget", "10%"],
        "offload": [*GRAPH, "--budget", "100KiB", "--offload", folder],
    }[name]


def weights(folder):
    return torch.load(folder / "weights.pt", weights_only=True)


def assert_same_run(one, other):
    assert losses(one / "metrics.jsonl") == losses(other / "metrics.jsonl")
    before, after = weights(one), weights(other)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


@pytest.mark.parametrize("name", ["graph", "images", "division", "text", "fp16", "scope", "budget", "offload"])
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(name, tmp_path):
    options = [*options_of(name, tmp_path), "--log-every", 1]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trained(*options, "--output", whole)
    trained(*options, "--output", parts, "--stop-after", 2)
    assert len(losses(parts / "metrics.jsonl")) == 2
    trained(*options, "--output", parts, "--resume")
    assert_same_run(whole, parts)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    trained(*GRAPH, "--output", tmp_path)
    status, _, errors = run(*GRAPH, "--output", tmp_path)
    assert status == 2 and "--resume" in errors
    status, _, errors = run(*GRAPH, "--output", tmp_path, "--resume", "--lr", "0.02", "--hidden", "16")
    assert status == 2 and "--lr is 0.02 and was 0.01" in errors and "--hidden is 16 and was 32" in errors
    status, _, errors = run(*GRAPH, "--output", tmp_path / "nowhere", "--resume")
    assert status == 2 and "not there" in errors


def test_data_may_move_but_not_change(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    options, place, text = text_options(first), "--data", "".join(random.Random(0).choices("abcdefgh ", k=9000))
    at = options.index(place) + 1
    (first / "own.txt").write_text("a" + text)
    (first / "other.txt").write_text("b" + text)
    options += ["--output", tmp_path / "run"]

    def with_data(path):
        return [*options[:at], path, *options[at + 1:]]

    trained(*with_data(first / "own.txt"), "--stop-after", 2)
    first.rename(second)
    status, _, errors = run(*with_data(second / "other.txt"), "--resume")
    assert status == 2 and "9001 characters" in errors and "the same data, wherever it lies" in errors
    trained(*with_data(second / "own.txt"), "--resume")


@pytest.mark.parametrize(("options", "other"), [(GRAPH, "rings:2001"), (IMAGES, "shapes:9")], ids=["graph", "images"])
def test_other_data_is_refused(options, other, tmp_path):
    trained(*options, "--output", tmp_path, "--stop-after", 1)
    status, _, errors = run(*options, "--data", other, "--output", tmp_path, "--resume")
    assert status == 2 and "the same data, wherever it lies" in errors


def start(*options):
    return subprocess.Popen(command(*options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(path, process):
    for _ in range(600):
        if path.exists() and path.stat().st_size > 0:
            return
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    raise AssertionError(f"{path} was not written")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_a_checkpoint_to_go_on_from(number, tmp_path):
    options = [*GRAPH, "--epochs", 400, "--evaluate-every", 100, "--checkpoint-every", 1000]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    process = start(*options, "--output", parts, "--log-every", 1)
    wait_for(parts / "metrics.jsonl", process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "interrupted after step" in errors and "--resume" in errors
    trained(*options, "--output", parts, "--resume", "--log-every", 1)
    trained(*options, "--output", whole, "--log-every", 1)
    assert_same_run(whole, parts)


def test_a_kill_at_any_moment_leaves_a_checkpoint(tmp_path):
    """Writes checkpoints of 16 MiB after each step, so that most kills happen while one is written."""
    options = [*GRAPH, "--hidden", 1024, "--layers", 3, "--epochs", 100000, "--evaluate-every", 100000,
               "--checkpoint-every", 1, "--output", tmp_path]
    rng, last, resume = random.Random(0), 0, []
    for _ in range(4):
        process = start(*options, *resume)
        before = (tmp_path / "checkpoint.pt").stat().st_mtime_ns if resume else 0
        for _ in range(600):
            path = tmp_path / "checkpoint.pt"
            if path.exists() and path.stat().st_mtime_ns != before:
                break
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.5))
        process.kill()
        process.communicate()
        state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
        step = int(state["optimizer/step." + next(n for n in state if n.startswith("model/"))[len("model/"):]])
        assert step > last
        last, resume = step, ["--resume"]


def test_a_full_disk_is_an_error_and_keeps_the_checkpoint(tmp_path):
    def no_large_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    options = [*GRAPH, "--epochs", 4, "--output", tmp_path]
    trained(*options, "--stop-after", 2)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    assert len(before) > 20000
    status, _, errors = run(*options, "--resume", preexec_fn=no_large_files)
    assert status == 1
    assert "checkpoint.pt" in errors and "File too large" in errors
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    assert sorted(path.name for path in tmp_path.glob("checkpoint*")) == ["checkpoint.pt"]
    trained(*options, "--resume")
