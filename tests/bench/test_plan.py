"""`plan`: the whole command on small models, its arithmetic, and presets that stand for several options."""

import json

import pytest
import torch
from actzip.bench import plan, presets
from actzip.bench.__main__ import main
from actzip.bench.errors import BenchError
from actzip.bench.fidelity.training import train
from small_data import RECIPES, write_all

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


def test_the_command(tmp_path, capsys):
    file = tmp_path / "plan.json"
    arguments = ["plan", "--model", "gcn", "--batch", "400", "--train", "5", "--draws", "2", "--device", "cpu"]
    assert main([*arguments, "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["model"] == "gcn" and len(row["sites"]) == 5
    for kept in ("uniform", "planned"):
        assert 0.3 < row[f"{kept}_predicted"] / row[kept] < 3
    assert row["planned"] < row["uniform"] and row["planned"] < row["planned_low"]
    assert all(site["observed"] > 0 and site["measured"] > 0 for site in row["sites"])
    output = capsys.readouterr().out
    assert "Spearman" in output and "2 bits planned" in output and row["sites"][0]["name"] in output


def test_samples_are_planned_for_too(tmp_path, capsys):
    write_all(tmp_path)
    arguments = ["plan", "--model", "resnet18", "--batch", "8", "--width", "8", "--train", "2", "--draws", "1",
                 "--device", "cpu", "--data", str(tmp_path), "--json", str(tmp_path / "plan.json"), "--samples"]
    assert main(arguments) == 0
    (row,) = json.loads((tmp_path / "plan.json").read_text())["rows"]
    assert row["by_sample"] > 0 and row["by_gradient"] > 0
    assert "for samples by their gradients, too" in capsys.readouterr().out
    assert main(["plan", "--model", "gcn", "--train", "1", "--batch", "400", "--device", "cpu", "--samples"]) == 2
    assert "gcn has one graph and no samples" in capsys.readouterr().err


def test_spearman_looks_at_ranks_alone():
    assert plan.spearman([1, 2, 3, 4], [1, 10, 1000, 1e9]) == pytest.approx(1)
    assert plan.spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert plan.spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)


def test_arguments_are_checked(capsys):
    assert main(["plan", "--model", "gcn", "--draws", "0", "--device", "cpu"]) == 2
    assert "--draws 0 (allowed: 1 or more)" in capsys.readouterr().err


def test_a_preset_may_be_options():
    assert presets.options_of("default") == {"preset": "default"}
    assert presets.options_of("affine:8:nearest:stats=f32") == {"preset": "affine:8:nearest:stats=f32"}
    assert presets.options_of("bits=1.5") == {"bits": 1.5}
    assert presets.options_of("bits=2,adapt=layer,interval=10") == {"bits": 2, "adapt": "layer", "interval": 10}
    assert presets.options_of("default,gelu.*=rotated:2,*.value=as is,gelu.*=affine:8") == {
        "preset": "default", "rules": {"gelu.*": "rotated:2", "*.value": "as is"}}
    assert presets.options_of("bits=2,*.value=affine:8:stats=f32") == {
        "bits": 2, "rules": {"*.value": "affine:8:stats=f32"}}
    presets.check("convert:default,gelu.*=rotated:2")
    presets.check("bits=1.25")
    presets.check("bits=2,adapt=sample+layer")
    for wrong, message in (("bits=2,colour=red", "option 'colour'"), ("bits=many", "'many' is no float"),
                           ("adapt=batch", "adapt 'batch'"), ("default,gelu.*=rotten:2", "rotten"), ("nonsense", "preset 'nonsense'")):
        with pytest.raises(BenchError, match=message):
            presets.check(wrong)


@pytest.mark.parametrize("preset", ["bits=2,adapt=layer", "actnn:L3", "gact:L2", "preset=actnn:L2,codec=affine:nearest"])
def test_a_task_trains_by_a_plan_or_a_level(tmp_path, preset):
    write_all(tmp_path)
    task = RECIPES["cifar10"]
    data = {name: torch.from_numpy(array) for name, array in task.load(tmp_path).items()}
    run = train(task, data, preset, 0, torch.device("cpu"))
    assert run["preset"] == preset and run["metric"] is not None and run["bytes_after"] > 0
