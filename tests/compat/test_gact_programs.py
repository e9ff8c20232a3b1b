"""Programs like GACT's, each run in this process: they train, and their report shows what their level promises."""

import copy

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


def falls(losses, part=0.7):
    """Whether the mean of the last quarter is below `part` times that of the first."""
    quarter = max(1, len(losses) // 4)
    return sum(losses[-quarter:]) < part * sum(losses[:quarter])


def bits_of(report):
    return [int(site.codec.split(":")[1]) for site in report.sites if site.codec.startswith(("rotated", "affine"))]


def no_hooks_are_left():
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is None


@pytest.mark.parametrize("level, bits", [("L1", {4}), ("L1.2", {2, 3}), ("L2", None), ("L2.2", None)])
def test_vision(program, level, bits):
    names = program("gact_vision", "--alg", level)
    report = names["controller"].report()
    assert falls(names["losses"]) and no_hooks_are_left()
    assert report.preset == f"gact:{level}" and report.bytes_before > 4 * report.bytes_after
    found = bits_of(report)
    assert set(found) == bits if bits else (report.plan.plans > 0 and len(set(found)) > 1)
    assert '"ips"' in open("speed_results.json").read()


def test_vision_without_gact(program):
    assert falls(program("gact_vision", "--benchmark", "exact")["losses"])


@pytest.mark.parametrize("gact", [False, True])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gcn2"])
def test_graphs(program, model, gact):
    pytest.importorskip("torch_geometric")
    names = program("gact_gnn", "--model", model, *["--gact"] * gact)
    assert falls(names["losses"]) and names["test_acc"] > 0.6 and no_hooks_are_left()
    report = names["controller"].report()
    if gact:
        assert report.preset == "gact:L2.2" and report.plan.plans > 0 and bits_of(report)
        assert report.bytes_before > 4 * report.bytes_after
    else:
        assert not report.sites
    assert isinstance(copy.deepcopy(names["best_model"]), type(names["model"]))


@pytest.mark.parametrize("options", [["--opt_level", "L1"], ["--opt_level", "L2"], ["--opt_level", "L1", "--ckpt"]])
def test_text(program, options):
    pytest.importorskip("transformers"), pytest.importorskip("accelerate")
    names = program("gact_glue", "--gact", *options)
    report = names["controller"].report()
    assert falls(names["losses"], 0.8) and report.preset == f"gact:{options[1]}" and no_hooks_are_left()
    assert bits_of(report) and report.bytes_before > 2 * report.bytes_after


def test_swin_in_one_process(program):
    pytest.importorskip("transformers")
    names = program("gact_swin", "--level", "L2")
    assert falls(names["losses"], 0.8) and names["scheduler"].calls == 16 and no_hooks_are_left()
    report = names["report"]
    assert report.preset == "gact:L2" and report.plan.plans > 0 and len(set(bits_of(report))) > 1
