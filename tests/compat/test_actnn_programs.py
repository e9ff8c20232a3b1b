"""Programs like ActNN's, each run in this process: they train, and their report shows what their level promises."""

import warnings

import pytest
import torch
from actzip.compat import actnn

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds", "ignore:actnn.config has no field 'qat'",
                                        "ignore:actzip. level")


def falls(losses, part=0.7):
    """Whether the mean of the last quarter is below `part` times that of the first."""
    quarter = max(1, len(losses) // 4)
    return sum(losses[-quarter:]) < part * sum(losses[:quarter])


def widths(report):
    return {int(site.codec.split(":")[1]) for site in report.sites if site.codec.startswith(("rotated", "affine"))}


def test_classification_with_gradients_of_samples(program):
    names = program("actnn_classify", "--usegradient", "--epochs", 4)
    assert falls(names["losses"], 0.5)
    session = actnn.session_of(names["model_and_loss"])
    report = session.report()
    assert report.preset == "actnn:L3" and report.plan.plans > 0 and report.bytes_before > 5 * report.bytes_after
    assert len(widths(report)) > 1 and bool((session._core.sample_factors() >= 0).all())


def test_a_checkpoint_is_resumed(program):
    program("actnn_classify", "--epochs", 2, "--actnn-level", "L2")
    names = program("actnn_classify", "--epochs", 4, "--actnn-level", "L2", "--resume", "checkpoint.pth.tar")
    assert len(names["losses"]) == 8 and torch.load("checkpoint.pth.tar")["epoch"] == 4
    assert names["losses"][-1] < 0.3
    report = actnn.session_of(names["model_and_loss"]).report()
    assert report.preset == "actnn:L2" and widths(report) == {4}
    plain = program("actnn_classify", "--epochs", 4, "-c", "classic", "--resume", "checkpoint.pth.tar")
    assert plain["losses"] == []  # no epochs are left; torch's layers accept the checkpoint's names


@pytest.mark.parametrize("gradient", [False, True])
def test_the_variance_check(program, gradient, capsys):
    names = program("actnn_classify", "--epochs", 1, "--variance", *["--usegradient"] * gradient)
    found = names["variances"]
    assert len(found) == 6 and all(row["norm"] > row["var"] > 0 for row in found.values())
    assert sum(row["bias"] for row in found.values()) < sum(row["norm"] for row in found.values())
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines() if line.startswith("layer_")]
    bits = [float(row[1]) for row in rows]
    assert len(bits) == 6 and 1 <= min(bits) < max(bits) <= 8
    assert all(row[2:] == ["16" if gradient else "1", "True"] for row in rows) and "previous: True True" in text


def test_fields_of_the_program_warn_once(program):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program("actnn_classify", "--epochs", 1)
        program("actnn_classify", "--epochs", 1)
    assert len([warning for warning in caught if "no field 'qat'" in str(warning.message)]) <= 1


@pytest.mark.parametrize("level", ["exact", "swap", "actnn-L0", "actnn-L1", "actnn-L2", "actnn-L3", "actnn-L3.1",
                                   "actnn-L4", "actnn-L5"])
def test_the_benchmark_at_every_level(program, level):
    names = program("actnn_benchmark", "--alg", level, "-b", 16, "--steps", 10)
    assert falls(names["losses"], 0.9)
    if level == "exact":
        return
    report = actnn.session_of(names["model"]).report()
    assert report.preset == "actnn:" + level.removeprefix("actnn-")
    assert report.runs_as == {"L4": "actnn:L3", "L5": "actnn:L3", "swap": "actnn:L0"}.get(level.removeprefix("actnn-"), "")
    assert {"L0": widths(report) == set(), "swap": widths(report) == set(), "L1": widths(report) == {4},
            "L2": widths(report) == {4}}.get(level.removeprefix("actnn-"), len(widths(report)) > 0), report.text
    assert report.bytes_before > {"L0": 1, "swap": 1, "L1": 1.2}.get(level.removeprefix("actnn-"), 4) * report.bytes_after


def test_the_benchmark_writes_its_speed(program):
    with pytest.raises(SystemExit) as end:
        program("actnn_benchmark", "--alg", "actnn-L2", "-b", 16, "--steps", 10, "--get-speed")
    assert end.value.code == 0
    line = open("speed_results.json").read()
    assert '"algorithm": "actnn-L2"' in line and '"ips"' in line


def test_a_gan(program):
    names = program("actnn_dcgan")
    assert falls(names["D_losses"]) and names["G_losses"][-1] == names["G_losses"][-1]
    generator, critic = (actnn.session_of(names[name]).report() for name in ("netG", "netD"))
    assert widths(generator) and any(site.codec == "derived" for site in generator.sites if site.op == "convolution")
    assert generator.preset == critic.preset == "actnn:L3" and critic.bytes_before > 4 * critic.bytes_after
    assert "QConvTranspose2d" in str(names["netG"]) and "QBatchNorm2d" in str(names["netD"])
