"""Calls `actzip train` as a user does."""

import json
import subprocess

import pytest
import torch
from trainer import PROGRAM, GRAPH, IMAGES, metrics, run, text_options, trained

RECIPES = {
    "resnet18-cifar10-division": 10,
    "resnet164-cifar10-division": 10,
    "densenet121-cifar100-division": 100,
    "resnet164-cifar100-division": 100,
    "resnet50-imagenet-division": 1000,
    "densenet161-imagenet-division": 1000,
}


@pytest.mark.parametrize("preset", ["division", "exact"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_two_steps_of_each_recipe(recipe, preset, tmp_path):
    path = tmp_path / "metrics"
    if preset == "exact" and "densenet161" in recipe:
        pytest.skip("the same network as with division, and slow")
    output = trained("--recipe", recipe, "--preset", preset, "--data", "shapes:4", "--classes", RECIPES[recipe],
                     "--batch", 2, "--accumulate", 1, "--steps", 2, "--log-every", 1, "--metrics", path)
    assert f"preset {preset}: 2 steps" in output
    assert len(metrics(path)) == 2
    held = metrics(path, "summary")[0]
    assert held["held_bytes"] < held["plain_bytes"] / (4 if preset == "division" else 1)


def test_a_network_learns_and_the_summary_says_so(tmp_path):
    output = trained(*GRAPH, "--epochs", 60, "--output", tmp_path)
    summary = metrics(tmp_path / "metrics.jsonl", "summary")[0]
    assert summary["best"] > 60 and summary["last"] > 60
    assert summary["plain_bytes"] > 5 * summary["held_bytes"] > 0
    assert summary["step_seconds"] > 0 and summary["peak_memory_bytes"] > 0
    for word in ("accuracy", "held", "times smaller", "ms", "memory"):
        assert word in output
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["bytes_after"] == summary["held_bytes"] and report["sites"]
    assert len(metrics(tmp_path / "metrics.jsonl", "validation")) == 60

    last = f"accuracy {summary['last']:.2f}"
    assert last in trained(*GRAPH, "--epochs", 60, "--evaluate", "--output", tmp_path)
    assert last in trained(*GRAPH, "--evaluate", "--weights", tmp_path / "weights.pt")


def test_the_best_epoch_of_a_graph_is_chosen_on_validation_nodes(tmp_path):
    output = trained(*GRAPH, "--epochs", 300, "--patience", 10, "--output", tmp_path)
    epochs = metrics(tmp_path / "metrics.jsonl", "validation")
    chosen_by = [epoch["chosen_by"] for epoch in epochs]
    best = chosen_by.index(max(chosen_by))
    summary = metrics(tmp_path / "metrics.jsonl", "summary")[0]
    assert summary["best"] == epochs[best]["accuracy"] and "(chosen on validation)" in output
    assert len(epochs) == best + 1 + 10 < 300
    # Otherwise the test could not tell which nodes were used.
    assert chosen_by != [epoch["accuracy"] for epoch in epochs]


@pytest.mark.parametrize("options", [GRAPH, [*IMAGES, "--batch", 8]], ids=["graph", "images"])
def test_exact_is_bitwise_plain_training(options, tmp_path):
    for preset in ("none", "exact"):
        trained(*options, "--preset", preset, "--output", tmp_path / preset, "--epochs", 1)
    plain, exact = (torch.load(tmp_path / preset / "weights.pt", weights_only=True) for preset in ("none", "exact"))
    for name, tensor in plain.items():
        assert torch.equal(tensor, exact[name]), name


def rates(tmp_path, *options):
    path = tmp_path / "metrics"
    trained(*GRAPH, "--log-every", 1, "--metrics", path, "--lr", 1, "--epochs", 10, *options)
    return [line["rate"] for line in metrics(path)]


def test_a_schedule_that_changes_once_an_epoch(tmp_path):
    path = tmp_path / "metrics"
    trained(*IMAGES, "--batch", 8, "--epochs", 3, "--lr", 0.5, "--schedule", "cosine-by-epoch", "--log-every", 1,
            "--metrics", path)
    assert [line["rate"] for line in metrics(path)] == pytest.approx([0.5] * 3 + [0.375] * 3 + [0.125] * 3)


def test_schedules(tmp_path):
    assert rates(tmp_path, "--schedule", "constant") == [1] * 10
    assert rates(tmp_path, "--schedule", "constant", "--warm-up", 0.2) == [0.5] + [1] * 9
    assert rates(tmp_path, "--schedule", "step") == pytest.approx([1] * 5 + [0.1] * 3 + [0.01] * 2)
    assert rates(tmp_path, "--schedule", "step", "--milestones", 0.2, "--step-factor", 0.5) == [1] * 2 + [0.5] * 8

    def of_torch(make):
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
        scheduler, result = make(optimizer), []
        for _ in range(10):
            result.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        return result

    lrs = torch.optim.lr_scheduler
    assert rates(tmp_path, "--schedule", "cosine") == pytest.approx(of_torch(lambda o: lrs.CosineAnnealingLR(o, 10)))
    expected = of_torch(lambda o: lrs.OneCycleLR(o, 1.0, total_steps=11))[:10]
    assert rates(tmp_path, "--schedule", "one-cycle", "--steps", 11)[:10] == pytest.approx(expected)


def test_a_level_is_a_preset(tmp_path):
    output = trained(*GRAPH, "--level", "L1.2", "--report", tmp_path / "report")
    assert "preset gact:L1.2" in output
    assert json.loads((tmp_path / "report").read_text())["preset"] == "gact:L1.2"


@pytest.mark.parametrize("name", ["text", "graph", "images"])
def test_the_report_of_every_kind_of_network_can_be_planned(name, tmp_path):
    options = {"text": text_options(tmp_path), "graph": GRAPH, "images": IMAGES}[name]
    trained(*options, "--steps", 1, "--report", tmp_path / "report.json")
    codecs = {site["codec"] for site in json.loads((tmp_path / "report.json").read_text())["sites"]}
    assert ("recomputed" in codecs) == (name == "text")
    done = subprocess.run([PROGRAM, "plan", tmp_path / "report.json", "--bits", "2"], capture_output=True, text=True)
    assert done.returncode == 0 and "predicted variance" in done.stdout, done.stderr


def test_what_is_given_beside_a_recipe_holds(tmp_path):
    output = trained("--epochs", 3, "--recipe", "gcn-cora", "--data", "rings", "--preset", "affine:4")
    assert "preset affine:4: 3 steps" in output


def test_patience_ends_a_training(tmp_path):
    output = trained(*GRAPH, "--lr", 0, "--epochs", 50, "--patience", 3)
    assert ": 4 steps" in output


def test_a_loss_that_is_not_finite_has_an_exit_code(tmp_path):
    status, _, errors = run(*text_options(tmp_path), "--optimizer", "sgd", "--lr", "1e6", "--steps", 30,
                            "--log-every", 1)
    assert status == 3 and "not finite" in errors


@pytest.mark.parametrize("options, words", [
    (["--data", "shapes"], "--model is missing"),
    (["--model", "gcn"], "--data is missing"),
    (["--model", "resnet9", "--data", "shapes"], "resnet18"),
    ([*GRAPH, "--preset", "rotated:9"], "allowed"),
    ([*GRAPH, "--preset", "gact:L7"], "gact:L2.2"),
    ([*GRAPH, "--recipe", "resnet"], "resnet18-cifar10-division"),
    ([*GRAPH, "--schedule", "linear"], "cosine"),
    ([*GRAPH, "--optimizer", "lion"], "adamw"),
    ([*GRAPH, "--amp", "fp8"], "bf16"),
    ([*GRAPH, "--device", "tpu"], "cuda"),
    ([*GRAPH, "--epochs", "0"], "--epochs"),
    ([*GRAPH, "--hidden", 2**40], "--hidden"),
    ([*GRAPH, "--threads", 2**32 + 1], "--threads"),
    ([*GRAPH, "--batch", 2**40], "--batch"),
    ([*IMAGES, "--input-size", 2**32 + 32], "--input-size"),
    (["--model", "resnet18", "--data", "shapes:100000000", "--batch", 1, "--epochs", 2**40], "too many to be counted"),
    ([*GRAPH, "--dropout", "2"], "--dropout"),
    ([*GRAPH, "--resume"], "--output"),
    ([*GRAPH, "--evaluate"], "--weights"),
    ([*GRAPH, "--preset", "none", "--bits", "2"], "none"),
    ([*GRAPH, "--preset", "none", "--budget", "1GiB"], "--budget"),
    ([*GRAPH, "--budget", "much"], "a share of what is held"),
    ([*GRAPH, "--budget", "0.5", "--preset", "exact"], "together with offload"),
    ([*GRAPH, "--nesterov"], "sgd"),
    ([*GRAPH, "--colour"], "--colour"),
])
def test_wrong_options_say_what_is_allowed(options, words):
    status, _, errors = run(*options)
    assert status == 2, errors
    assert words in errors and "actzip train --help" in errors


def test_a_budget_that_cannot_be_kept_is_said_in_the_first_step(tmp_path):
    status, _, errors = run(*IMAGES, "--budget", "1KiB", "--output", tmp_path / "run")
    assert status == 1 and "cannot be kept: this step would hold" in errors, errors


def test_what_cannot_be_loaded_is_a_failure(tmp_path):
    assert run("--model", "resnet18", "--data", tmp_path)[0] == 1
    status, _, errors = run(*GRAPH, "--weights", tmp_path / "nothing.pt")
    assert status == 1 and "nothing.pt" in errors


def test_help_and_list():
    text = trained("--help")
    for option in ("--recipe", "--preset", "--label-smoothing", "--resume", "Exit codes"):
        assert option in text
    text = trained("--list")
    for name in (*RECIPES, "densenet161", "gat", "gpt", "exact", "actnn:L3", "gact:L2.2"):
        assert name in text


def test_progress_from_the_first_step_on():
    """Progress is shown before the first line of the log, which comes after 1,000 steps here."""
    status, _, errors = run(*GRAPH, "--epochs", 3, "--log-every", 1000)
    assert status == 0, errors
    assert any("step 1/3" in line and "loss" not in line for line in errors.splitlines()), errors
