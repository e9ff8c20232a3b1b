"""Runs the trainer as a user would, on data and networks small enough to take a second."""

import json
import os
import subprocess
from pathlib import Path

PROGRAM = os.environ.get("ACTZIP_PROGRAM", str(Path(__file__).resolve().parents[2] / "build" / "bin" / "actzip"))

TEXT = "the quick brown fox jumps over the lazy dog; " * 60
GRAPH = ["--model", "gcn", "--data", "rings:2000", "--hidden", "32", "--optimizer", "adam", "--lr", "0.01",
         "--epochs", "6"]
IMAGES = ["--model", "resnet18", "--data", "shapes:24", "--batch", "4", "--epochs", "1"]


def text_options(folder):
    """A GPT of one layer on a sentence that repeats."""
    path = folder / "text.txt"
    path.write_text(TEXT)
    return ["--model", "gpt", "--data", path, "--hidden", "32", "--heads", "2", "--layers", "1", "--length", "32",
            "--batch", "4", "--optimizer", "adamw", "--lr", "0.003"]


def command(*options):
    return [PROGRAM, "train", "--device", "cpu", "--threads", "1", *map(str, options)]


def run(*options, **how):
    done = subprocess.run(command(*options), capture_output=True, text=True, timeout=300, **how)
    return done.returncode, done.stdout, done.stderr


def trained(*options):
    """Runs the trainer, which must succeed, and returns its output."""
    status, output, errors = run(*options)
    assert status == 0, errors
    return output


def metrics(path, kind="train"):
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def losses(path):
    return [(line["step"], line["loss"]) for line in metrics(path)]
