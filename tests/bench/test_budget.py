"""`budget`: the whole command on a small model, with and without offloading to a file."""

import json

import pytest
from actzip.bench.__main__ import main

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")
ARGUMENTS = ["budget", "--model", "small:gcn", "--batch", "400", "--draws", "2", "--repeats", "1", "--device", "cpu"]


def test_the_command(tmp_path, capsys):
    file = tmp_path / "budget.json"
    assert main([*ARGUMENTS, "--json", str(file)]) == 0
    assert main([*ARGUMENTS, "--json", str(file), "--offload", str(tmp_path), "--budget", "1/40"]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [row["budget"] for row in rows] == ["1/2", "1/4", "1/8", "1/40"]
    assert all(0 < row["most_held"] <= row["limit"] for row in rows)
    assert [row["offloaded"] > 0 for row in rows] == [False, False, False, True]
    errors = [row["error"] for row in rows[:3]]
    assert errors == sorted(errors) and errors[-1] < 0.5
    output = capsys.readouterr().out
    assert "are held without" in output and "most held" in output


def test_blocks_that_run_again(tmp_path, capsys):
    file = tmp_path / "budget.json"
    deep = ["budget", "--model", "small:deep-gpt", "--batch", "2", "--draws", "2", "--repeats", "1", "--device", "cpu"]
    assert main([*deep, "--json", str(file), "--recompute", "affine:8", "--budget", "1/12", "--budget", "1/99"]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert 0 < row["blocks"] <= 8 and row["most_held"] <= row["limit"] and row["error"] < 0.5
    assert row["predicted_slowdown"] > 0
    output = capsys.readouterr().out
    assert "predicted time" in output and "small:deep-gpt, 1/99: session: a budget of" in output


@pytest.mark.parametrize("more, says", [
    (["--budget", "much"], "--budget much"), (["--budget", "1/0"], "--budget 1/0"), (["--draws", "0"], "--draws 0"),
    (["--offload", "/no/such/folder"], "/no/such/folder"),
    (["--offload", ".", "--recompute"], "--offload with --recompute")])
def test_messages(more, says, capsys):
    assert main([*ARGUMENTS, *more]) == 2
    assert says in capsys.readouterr().err
