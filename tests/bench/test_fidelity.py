"""`fidelity`: runs repeat bit for bit, a record is continued where it ended, and the figures are right."""

import argparse
import dataclasses
import json
import math
import os

import numpy as np
import pytest
import torch
from actzip.bench import fidelity
from actzip.bench.errors import BenchError
from actzip.bench.fidelity import picture
from actzip.bench.fidelity.processes import Job, run_all
from actzip.bench.fidelity.summary import summary
from actzip.bench.fidelity.training import make_repeatable, train
from actzip.bench.tasks import Task, learning_rate
from actzip.bench.tasks.cora import Cora
from actzip.bench.tasks.task import Trial
from small_data import RECIPES, write_all

pytest.importorskip("PIL")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_all(path)
    return path


@pytest.fixture(autouse=True)
def repeatable():
    threads = torch.get_num_threads()
    make_repeatable()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


def tensors(task, folder):
    return {name: torch.from_numpy(array) for name, array in task.load(folder).items()}


def command(*arguments):
    parser = argparse.ArgumentParser()
    fidelity.add_arguments(parser)
    return fidelity.run(parser.parse_args([*map(str, arguments)]))


@pytest.mark.parametrize("name", RECIPES)
def test_a_seed_gives_the_same_bits_again(folder, name):
    task = RECIPES[name]
    data = tensors(task, folder)
    first, again, other = (train(task, data, "plain", seed, CPU) for seed in (1, 1, 2))
    assert math.isfinite(first["metric"]) and len(first["curve"]["loss"]) == 3
    assert (first["curve"], first["metric"]) == (again["curve"], again["metric"])
    assert first["curve"] != other["curve"]


@pytest.mark.parametrize("name", RECIPES)
def test_sessions_change_gradients_and_nothing_else(folder, name):
    """All presets train with the same weights, order and dropout: `exact` equals plain PyTorch bit for bit."""
    task = RECIPES[name]
    data = tensors(task, folder)
    plain, exact, default = (train(task, data, preset, 0, CPU) for preset in ("plain", "exact", "default"))
    assert exact["curve"] == plain["curve"] and exact["metric"] == plain["metric"]
    assert default["curve"]["loss"][0] == plain["curve"]["loss"][0]
    assert default["curve"]["loss"] != plain["curve"]["loss"]
    assert default["bytes_before"] > 2 * default["bytes_after"] > 0


class Rectified(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()


@dataclasses.dataclass(frozen=True)
class Tiny(Task):
    """A task whose model compiles in seconds."""

    name, metric, digits, files = "tiny", "loss", 4, ()

    def load(self, folder):
        return {}

    def start(self, data, seed, device):
        model = Rectified(64, 64)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        batches = (torch.randn(64, 64) for _ in range(2))
        return Trial(model, optimizer, 2, None, batches, lambda x: model(x).square().mean(), lambda: 0.0)


def test_a_compiled_run(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")  # compile without optimisation, which is faster
    run = train(Tiny(), {}, "compile:default", 1, CPU)
    assert run["metric"] == 0 and run["bytes_after"] < run["bytes_before"] / 3


def test_a_run_that_diverges_says_where(folder):
    task = Cora(epochs=5, rate=math.inf)
    run = train(task, tensors(task, folder), "plain", 0, CPU)
    assert run["diverged_at"] == 2 and run["metric"] is None and len(run["curve"]["loss"]) == 1


def test_crops_are_pieces_of_their_images(folder):
    task = RECIPES["cifar10"]
    data = tensors(task, folder)
    images, labels = next(task.start(data, 0, CPU).batches)
    assert images.shape == (8, 32, 32, 3)
    for image, label in zip(images, labels):
        sources = data["train"][data["train_labels"] == label]
        pieces = sources.unfold(1, 32, 1).unfold(2, 32, 1).permute(0, 1, 2, 4, 5, 3)  # image, row, column of each piece
        same = (pieces == image).flatten(3).all(3) | (pieces.flip(4) == image).flatten(3).all(3)
        assert same.sum() == 1


def test_a_vit_decays_matrices_alone(folder):
    task = RECIPES["cifar10-vit"]
    trial = task.start(tensors(task, folder), 0, CPU)
    names = {parameter: name for name, parameter in trial.model.named_parameters()}
    decay = {names[one]: group["weight_decay"] for group in trial.optimizer.param_groups for one in group["params"]}
    assert len(decay) == len(names)
    for name, value in decay.items():
        assert value == (0 if name.endswith("bias") or "norm" in name else task.weight_decay), name


def test_every_sentence_comes_once_an_epoch_beside_others_of_its_length(folder):
    task = RECIPES["sst2"]
    data = tensors(task, folder)
    data["train_labels"] = torch.arange(48)  # identifies each sentence
    batches = task.start(data, 0, CPU).batches
    seen = [next(batches) for _ in range(3)]
    assert torch.cat([which for _, which in seen]).sort().values.tolist() == list(range(48))
    longest = sorted(sentences.shape[1] for sentences, _ in seen)
    assert longest[0] < longest[-1] == 12
    for sentences, which in seen:
        assert torch.equal(data["train"][which, :sentences.shape[1]], sentences)
        assert not data["train"][which, sentences.shape[1]:].any()


def test_learning_rate_rises_and_falls_to_zero(folder):
    trial = RECIPES["shakespeare"].start(tensors(RECIPES["shakespeare"], folder), 0, CPU)
    trial.steps, trial.warm_up = 10, 0.2
    schedule, rates = learning_rate(trial), []
    for _ in range(11):
        rates.append(schedule.get_last_lr()[0] / 1e-3)
        trial.optimizer.step()
        schedule.step()
    assert rates[:3] == [0.5, 1, 1] and rates[6] == pytest.approx(0.5) and rates[10] == pytest.approx(0)


class Fragile(Cora):
    """Ends the process with seed 0, raises with seed 1."""

    def start(self, data, seed, device):
        if seed == 0:
            os._exit(7)
        if seed == 1:
            raise ArithmeticError("of seed 1")
        return super().start(data, seed, device)


def test_a_crash_stops_no_other_run(folder, tmp_path):
    task, runs = Fragile(epochs=2), []
    for name, array in task.load(folder).items():
        np.save(tmp_path / f"{name}.npy", array)
    crashed = run_all(task, tmp_path, "cpu", [Job("plain", seed) for seed in range(3)], 3, runs.append)
    assert "exit code 7" in crashed[Job("plain", 0)] and "of seed 1" in crashed[Job("plain", 1)]
    assert [(run["seed"], math.isfinite(run["metric"])) for run in runs] == [(2, True)]


def test_a_record_goes_on_where_it_stopped(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ACTZIP_DATA", raising=False)
    file = tmp_path / "runs.json"
    options = ["--task", "cora", "--epochs", 3, "--json", file, "--jobs", 2, "--device", "cpu"]
    assert command(*options, "--data", folder, "--seeds", 1) == 0
    content = json.loads(file.read_text())
    assert [(run["preset"], run["seed"]) for run in content["runs"]] == [("default", 0), ("plain", 0)]
    assert content["recipe"]["epochs"] == 3 and "commit" in content["runs"][0]["actzip"]

    content["runs"][1]["metric"] = 12.34  # must stay: recorded runs are not repeated
    file.write_text(json.dumps(content))
    assert command(*options, "--data", folder, "--seeds", 2) == 0
    runs = {(run["preset"], run["seed"]): run for run in json.loads(file.read_text())["runs"]}
    assert len(runs) == 4 and runs["plain", 0]["metric"] == 12.34
    assert train(Cora(epochs=3), tensors(Cora(), folder), "default", 1, CPU)["curve"] == runs["default", 1]["curve"]

    capsys.readouterr()
    assert command(*options, "--seeds", 2, "--device", "cuda") == 0  # all recorded: no data or device is needed
    assert "plain" in capsys.readouterr().out
    with pytest.raises(BenchError, match="another recipe: epochs 3, not 200"):
        command("--task", "cora", "--json", file)


def test_rules_are_part_of_what_is_compared(folder, tmp_path):
    file, rule = tmp_path / "runs.json", "mm.*=as is"
    options = ["--task", "cora", "--epochs", 3, "--json", file, "--device", "cpu", "--data", folder, "--seeds", 1]

    def runs():
        return {run["preset"]: run for run in json.loads(file.read_text())["runs"]}

    assert command(*options, "--rule", rule) == 0
    assert set(runs()) == {"plain", f"default,{rule}"}
    assert command(*options, "--preset", f"default,{rule}", "--preset", "default") == 0
    assert set(runs()) == {"plain", f"default,{rule}", "default"}
    assert runs()[f"default,{rule}"]["bytes_after"] > runs()["default"]["bytes_after"]


def test_runs_of_another_machine_or_data_are_not_continued(folder, tmp_path):
    file = tmp_path / "runs.json"
    recipe = {"task": "cora", **vars(Cora())}
    for facts in ({"device": "other"}, {"data": "other"}):
        known = {**fidelity.machine.describe(CPU), "data": fidelity.fingerprint(folder, Cora.files), **facts}
        run = {"preset": "plain", "seed": 0, "metric": 1.0}
        content = {"format": "actzip fidelity 1", "machine": known, "recipe": recipe, "runs": [run]}
        file.write_text(json.dumps(content))
        with pytest.raises(BenchError, match=f"{next(iter(facts))} other.*not comparable"):
            command("--task", "cora", "--json", file, "--data", folder, "--device", "cpu")
        assert json.loads(file.read_text()) == content


@pytest.mark.parametrize("text", ["[]", "not JSON", '{"format": "another"}'])
def test_a_file_of_somebody_else_is_kept(folder, tmp_path, text):
    file = tmp_path / "theirs.json"
    file.write_text(text)
    with pytest.raises(BenchError, match="theirs.json"):
        command("--task", "cora", "--json", file, "--data", folder)
    assert file.read_text() == text


@pytest.mark.parametrize("arguments, message", [
    (["--preset", "afine:2"], "afine:2.*allowed"), (["--seeds", 0], "--seeds 0"), (["--jobs", -1], "--jobs -1"),
    (["--rule", "gelu.*"], "--rule gelu.*allowed: PATTERN=CODEC"), (["--rule", "gelu.*=afine:2"], "afine:2"),
    (["--rule", "bits=2"], "--rule bits=2 .allowed: PATTERN=CODEC"),
    (["--steps", 3], "allowed: --epochs"), (["--epochs", 0], "more than 0"), (["--epochs", 0.5], "without a fraction"),
    (["--device", "tpu"], "tpu.*allowed: cpu, cuda"), (["--picture", "loss.png"], "ends with .svg"),
    (["--picture", "/nowhere/loss.svg"], "no folder"), (["--json", "/nowhere/runs.json"], "no folder"),
    (["--data", "/nowhere"], "/nowhere: no cora.nodes"),
])
def test_what_is_not_allowed_ends_at_once(arguments, message):
    with pytest.raises(BenchError, match=message):
        command("--task", "cora", *arguments)


def runs_of(metrics):
    """Makes runs by preset and seed from their metrics; None stands for a run that diverged."""
    return {Job(preset, seed): {
        "metric": metric, "diverged_at": None if metric else 3, "seconds": 2.0, "bytes_before": 80,
        "bytes_after": None if preset == "plain" else 10, "curve": {"every": 2, "loss": [2.0, 1.0 + seed]},
    } for preset, values in metrics.items() for seed, metric in enumerate(values)}


def test_the_table_compares_seed_by_seed():
    runs = runs_of({"plain": [80.0, 82.0, 84.0], "default": [81.0, 82.0, 86.0], "affine:2": [70.0, None, 71.0]})
    del runs[Job("affine:2", 2)]
    lines = summary(Cora(), ["default", "affine:2"], 3, runs).splitlines()
    assert lines[0] == "cora: test accuracy, %"
    assert lines[3].split() == ["plain", "3", "82.00", "2.00", "-", "-", "2.0"]
    assert lines[4].split() == ["default", "3", "83.00", "2.65", "+1.00", "±", "0.58", "8.00", "2.0"]
    assert lines[5].split(maxsplit=7) == [
        "affine:2", "1", "70.00", "-", "-10.00", "8.00", "2.0", "seed 1 diverged at step 3, seed 2 crashed"]


def test_the_exit_code_tells_of_a_crash(folder, monkeypatch):
    monkeypatch.setattr(fidelity, "run_all", lambda *_: {Job("plain", 0): "because"})
    assert command("--task", "cora", "--data", folder, "--device", "cpu") == 1


def test_the_picture_is_the_same_for_the_same_runs(tmp_path):
    pytest.importorskip("matplotlib")
    runs = runs_of({"plain": [80.0, 82.0], "default": [81.0, None], "affine:2": [None, None]})
    for file in ("a.svg", "b.svg"):
        picture.draw(tmp_path / file, Cora(), ["default", "affine:2"], 2, runs)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert ">plain<" in text and ">default<" in text and ">affine:2<" not in text
