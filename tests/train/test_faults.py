"""Each file operation of a run fails in turn, in several ways. Files that were good must stay good, and a resumed run
must end like an undisturbed one."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from trainer import GRAPH, losses, metrics, run, trained

LIBRARY = os.environ.get("ACTZIP_FAILING_FILES", "")
OPTIONS = [*GRAPH, "--data", "rings:100", "--hidden", 8, "--epochs", 3, "--log-every", 1]
HOW = ["error", "full", "short", "kill", "torn"]
EVERY = os.environ.get("ACTZIP_EVERY_FAULT") == "1"  # each way at each operation takes minutes: by hand only

pytestmark = pytest.mark.skipif(not LIBRARY, reason="ACTZIP_FAILING_FILES names no library")


def failing(folder, log, at=0, how=""):
    return {**os.environ, "LD_PRELOAD": LIBRARY, "FAIL_FOLDER": str(folder.resolve()) + "/", "FAIL_LOG": str(log),
            "FAIL_AT": str(at), "FAIL_HOW": how}


def operations(folder, log, *more):
    """Returns what a run does to its files when nothing fails."""
    status, _, errors = run(*OPTIONS, "--output", folder, *more, env=failing(folder, log))
    assert status == 0, errors
    return [line.split(maxsplit=1)[1] for line in log.read_text().splitlines()]


def assert_same_end(folder, whole):
    assert losses(folder / "metrics.jsonl") == losses(whole / "metrics.jsonl")
    assert len(metrics(folder / "metrics.jsonl", "validation")) == 3
    assert len(metrics(folder / "metrics.jsonl", "summary")) == 1
    assert json.loads((folder / "report.json").read_text())["sites"]
    end, expected = (torch.load(place / "weights.pt", weights_only=True) for place in (folder, whole))
    assert end.keys() == expected.keys()
    assert all(torch.equal(end[name], expected[name]) for name in end)
    assert not list(folder.glob("*.partial"))


def assert_whole(folder):
    """Checks that the files that exist are complete."""
    for path in folder.glob("*.pt"):
        for name, tensor in torch.load(path, weights_only=True).items():
            assert not tensor.is_floating_point() or torch.isfinite(tensor).all(), f"{path}: {name}"
    if (folder / "report.json").exists():
        json.loads((folder / "report.json").read_text())


def steps_of(folder):
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0
    return json.loads(bytes(torch.load(path, weights_only=True)["state"].tolist()))["step"]


def check_fault(folder, whole, stopped_at, at, how, operation):
    """Makes a run with one fault, and another that continues from what it left."""
    if stopped_at:
        trained(*OPTIONS, "--output", folder, "--stop-after", stopped_at)
    else:
        folder.mkdir()
    more = ["--resume"] if stopped_at else []
    status, _, errors = run(*OPTIONS, "--output", folder, *more,
                            env=failing(folder, folder.with_suffix(".log"), at, how))
    where = f"{how} at {at}, {operation}: status {status}, {errors}"
    assert status in {"kill": (-9,), "torn": (-9,), "short": (0,)}.get(how, (0, 1)), where
    if status == 1:
        assert "actzip train: " in errors and str(folder) in errors, where  # the file is named
        assert not list(folder.glob("*.partial")), where
    assert_whole(folder)
    assert steps_of(folder) >= stopped_at, where
    if status != 0:
        trained(*OPTIONS, "--output", folder, *(["--resume"] if steps_of(folder) else []))
    assert_same_end(folder, whole)
    return status


@pytest.mark.parametrize("stopped_at", [0, 1], ids=["begun", "resumed"])
def test_any_operation_may_fail(stopped_at, tmp_path):
    whole = tmp_path / "whole"
    if stopped_at:
        trained(*OPTIONS, "--output", whole, "--stop-after", stopped_at)
    else:
        whole.mkdir()
    done = operations(whole, tmp_path / "operations", *(["--resume"] if stopped_at else []))
    # The log shows all that may fail: checkpoints, lines, report, weights, each opened, written, flushed and moved.
    for words in ("write checkpoint.pt.partial", "flush checkpoint.pt.partial", "rename checkpoint.pt.partial",
                  "write metrics.jsonl", "flush metrics.jsonl", "rename report.json.partial",
                   "write weights.pt.partial"):
        assert words in done
    assert ("rename metrics.jsonl.partial" in done) == bool(stopped_at)
    faults = [(at, how) for at in range(1, len(done) + 1) for i, how in enumerate(HOW) if EVERY or at % len(HOW) == i]

    def check(fault):
        at, how = fault
        return check_fault(tmp_path / f"{how}{at}", whole, stopped_at, at, how, done[at - 1])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        statuses = list(pool.map(check, faults))
    print(f"{len(done)} operations, {len(faults)} faults: {statuses.count(0)} borne, {statuses.count(1)} reported, "
          f"{statuses.count(-9)} killed")
    assert -9 in statuses and 1 in statuses
