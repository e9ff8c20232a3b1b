"""The commands of ``python -m actzip.bench`` for Paddle."""

import subprocess
import sys

import pytest


def run(*arguments):
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "actzip.bench", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_beside_full_precision():
    text = run("paddle-train", "--steps", "4", "--batch", "4", "--presets", "exact", "actnn:L3")
    exact, level = (next(line for line in text.splitlines()[::-1] if line.startswith(name)) for name in ("exact", "actnn:L3"))
    assert exact.endswith("yes") and not level.endswith("yes")


def test_memory_and_speed():
    text = run("paddle-memory", "--batches", "4", "--repeats", "1", "--presets", "default")
    plain, ours = (line.split() for line in text.splitlines()[-2:])
    assert (plain[0], ours[0]) == ("exact", "default") and int(plain[2]) > 5 * int(ours[2])


@pytest.mark.parametrize("wrong", [["paddle-train", "--steps", "0"], ["paddle-memory", "--repeats", "0"]])
def test_wrong_numbers_are_named(wrong):
    done = subprocess.run([sys.executable, "-W", "ignore", "-m", "actzip.bench", *wrong], capture_output=True, text=True)
    assert done.returncode == 2 and "allowed: 1 or more" in done.stderr
