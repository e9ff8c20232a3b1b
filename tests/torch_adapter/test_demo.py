"""`actzip demo`, with as few steps as possible."""

import re
import subprocess
import sys

import pytest
import torch
from actzip import demo


def run(*arguments):
    done = subprocess.run([sys.executable, "-m", "actzip.demo", "--device", "cpu", *map(str, arguments)],
                          capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def test_it_trains_both_and_compares():
    status, text, errors = run("--steps", 2, "--batch", 64)
    assert status == 0, errors
    assert re.search(r"step +1 of 2 +loss \d\.\d+ plain, \d\.\d+ compressed", text), text
    before, after = (float(n.replace(",", "")) for n in re.search(r"held.*?([\d,]+) MiB +([\d,]+) MiB", text).groups())
    assert before > 5 * after > 0
    assert "with actzip.compress(model):" in text


def test_the_first_step_is_the_same():
    """Both have the same weights and images, and compression changes only gradients."""
    plain, compressed = (demo.Training(is_compressed, "cpu", 2, 32).step(1) for is_compressed in (False, True))
    assert plain == compressed


def test_wrong_sizes_are_refused():
    status, _, errors = run("--steps", 0)
    assert status == 2 and "--steps 0" in errors and "allowed" in errors


def test_a_training_that_dies_is_noticed(monkeypatch):
    monkeypatch.setattr(demo, "serve", _die)
    with pytest.raises(SystemExit, match="ended before its time"):
        demo.train_both(1, 32, "cpu")


def _die(pipe, *_):
    pipe.close()


def test_shapes_are_of_every_kind_and_differ():
    images, labels = demo.draw_shapes(400, 3)
    assert images.shape == (400, 3, demo.PIXELS, demo.PIXELS) and set(labels.tolist()) == set(range(len(demo.SHAPES)))
    again, _ = demo.draw_shapes(400, 3)
    assert torch.equal(images, again)
