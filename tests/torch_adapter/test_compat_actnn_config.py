"""Every field of ActNN's config has an effect, or warns that it has none."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from actnn_model import Net, X, Y, codecs, converted, fresh_config, kept, spreads, step, widths  # noqa: F401  (a fixture)
from actzip.compat import actnn
from actzip.compat.actnn_config import ActNNConfig, from_environment
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


def test_compress_activation():
    found = codecs(kept(converted(compress_activation=False)))
    assert not [codec for codec in found.values() if codec.startswith(("rotated", "affine"))]
    assert found["pool: max_pool.aux0"] == "index:bound=4"  # the position in a window, for which ActNN takes 8 bits


def test_activation_compression_bits():
    assert codecs(kept(converted(activation_compression_bits=[8])))["bn1: batch_norm.input"] == "affine:8:dithered"
    assert codecs(kept(converted(activation_compression_bits=[2])))["bn1: batch_norm.input"] == "rotated:2"


@pytest.mark.parametrize("level", ["L2", "L3"])
def test_group_of_a_layer(level):
    actnn.set_optimization_level(level)
    actnn.config.activation_compression_bits = [2, 4, 8]
    for group, codec in [(1, "rotated:4"), (2, "affine:8:dithered"), (7, "affine:8:dithered")]:
        model = Net(actnn, group=group)
        step(model)
        assert codecs(actnn.session_of(model).report())["conv2: convolution.input"] == codec


def test_enable_quantized_bn():
    model = converted(enable_quantized_bn=False)
    assert type(model.model.bn1) is nn.BatchNorm2d and isinstance(model.model.conv1, actnn.QConv2d)
    found = codecs(kept(model))
    assert found["bn1: native_batch_norm.input"] == "as is" and "rotated:4" in found.values()


def test_perlayer():
    by_layer, not_by_layer = kept(converted("L3"), 6), kept(converted("L3", perlayer=False), 6)
    assert by_layer.preset == "actnn:L3" and by_layer.plan.plans > 0 and spreads(by_layer)
    assert not_by_layer.preset == "actnn:L2.5" and not_by_layer.plan is None and spreads(not_by_layer)


def test_initial_bits():
    """No site gets more bits than these."""
    assert max(widths(kept(converted("L3"), 6))) > 2
    assert max(widths(kept(converted("L3", initial_bits=2), 6))) <= 2


def test_adaptive_conv_scheme_and_adaptive_bn_scheme():
    report = kept(converted("L3", adaptive_conv_scheme=False), 6)
    planned = {site.op for site in report.sites if site.sensitivity is not None}
    assert planned == {"batch_norm"} and codecs(report)["conv1: convolution.input"] == "rotated:2"
    report = kept(converted("L3", adaptive_bn_scheme=False), 6)
    planned = {site.op for site in report.sites if site.sensitivity is not None}
    assert "batch_norm" not in planned and "convolution" in planned
    assert codecs(report)["bn1: batch_norm.input"] == "rotated:2"
    assert kept(converted("L3", adaptive_conv_scheme=False, adaptive_bn_scheme=False)).preset == "actnn:L2"


@pytest.mark.parametrize("fields", [{}, {"adaptive_conv_scheme": False}, {"adaptive_bn_scheme": False}])
def test_equal_seeds_give_equal_plans(fields):
    def plan():
        return [(site.site, site.codec, site.sensitivity) for site in kept(converted("L3", **fields), 6).sites]

    assert plan() == plan()


def test_swap(monkeypatch):
    monkeypatch.setattr("actzip.levels._warned", set())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = converted("L3", swap=True)
    with pytest.warns(UserWarning, match="'actnn:L4'.*runs as 'actnn:L3'"):
        report = kept(model)
    assert report.preset == "actnn:L4" and report.runs_as == "actnn:L3"


def test_group_size_pergroup_and_stochastic():
    def of_bn(**fields):
        return codecs(kept(converted(**fields)))["bn1: batch_norm.input"]

    assert of_bn() == "rotated:4"
    assert of_bn(group_size=128) == "rotated:4:group=128"
    assert of_bn(group_size=64) == "affine:4:group=64"
    assert of_bn(pergroup=False) == "affine:4:group=1024"
    assert of_bn(stochastic=False) == "affine:4:nearest"


def test_training():
    model = converted()
    model.eval()
    assert not actnn.config.training
    step(model)
    assert not actnn.session_of(model).report().sites
    model.train()
    assert actnn.config.training and kept(model, 1).sites


@pytest.mark.parametrize("wanted", [True, False])
def test_cudnn_benchmark_conv2d_is_for_backward_alone(wanted, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not wanted)
    model, seen = converted(cudnn_benchmark_conv2d=wanted), []
    model.model.conv1.weight.register_hook(lambda _: seen.append(torch.backends.cudnn.benchmark))
    model.model.bn1.register_forward_hook(lambda *_: seen.append(torch.backends.cudnn.benchmark))
    step(model)
    assert seen == [not wanted, wanted] and torch.backends.cudnn.benchmark is not wanted


def test_autotuning_is_put_back_after_an_error_in_backward(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    model = converted()

    def fail(_):
        raise RuntimeError("on purpose")

    handle = model.model.conv1.weight.register_hook(fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        step(model)
    handle.remove()
    step(model)
    assert not torch.backends.cudnn.benchmark


def test_empty_cache_threshold(monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 10)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 100)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    step(converted(empty_cache_threshold=0.05))
    assert not emptied
    step(converted(empty_cache_threshold=0.2))
    assert emptied == [1]


def test_pipeline_threshold():
    """Backward of a convolution runs in parts, with the same gradients."""
    def backward(**fields):
        model = converted("L2", **fields)
        torch.manual_seed(1)
        loss = F.cross_entropy(model(X), Y)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            loss.backward()
        count = sum(event.name == "aten::convolution_backward" for event in profile.events())
        return count, [p.grad.clone() for p in model.parameters()]

    whole, expected = backward()
    parts, found = backward(pipeline_threshold=2**18)
    assert parts > whole
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(expected, found))


def test_debug_fields_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("DEBUG_MEM", "True")
    assert from_environment("DEBUG_MEM") and not from_environment("DEBUG_SPEED")


@pytest.mark.parametrize("field", ["simulate", "debug_memory_op_forward", "debug_memory_op_backward", "debug_remove_bn",
                                   "debug_remove_relu"])
def test_fields_whose_purpose_is_gone_say_so_once(field):
    config = ActNNConfig()
    with pytest.warns(UserWarning, match=f"actnn.config.{field} has no effect"):
        setattr(config, field, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(config, field, True)


def test_wrong_fields_and_levels_are_refused():
    with pytest.raises(AttributeError, match="'perlayr': did you mean perlayer.*activation_compression_bits"):
        actnn.config.perlayr
    with pytest.raises(ValueError, match="group_size = 100 .allowed: 32"):
        actnn.config.group_size = 100
    with pytest.raises(ValueError, match="activation_compression_bits"):
        actnn.config.activation_compression_bits = 2
    with pytest.raises(ValueError, match="'L7' .allowed: L0, L1, L2, L2.5"):
        actnn.set_optimization_level("L7")


def test_fields_of_the_program_are_kept_for_it():
    config = ActNNConfig()
    with pytest.warns(UserWarning, match="no field 'qat'.*kept for the program to read"):
        config.qat = 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.qat = 4
    assert config.qat == 4


def test_a_level_puts_back_what_another_has_set():
    actnn.set_optimization_level("L4")
    config = actnn.config
    assert config.swap and config.pipeline_threshold is None and config.cudnn_benchmark_conv2d
    actnn.set_optimization_level("L3.1")
    assert not config.swap and config.pipeline_threshold == 3 * 2**30
    actnn.set_optimization_level("L2")
    assert (config.swap, config.pipeline_threshold, config.activation_compression_bits) == (False, None, [4])
    actnn.set_optimization_level("swap")
    assert config.activation_compression_bits == [2, 8, 8] and config.adaptive_conv_scheme and config.swap
    actnn.set_optimization_level("L3")
    assert not config.swap and config.compress_activation


def test_a_level_leaves_what_the_program_has_set():
    config = actnn.config
    config.use_gradient, config.group_size, config.stochastic = True, 128, False
    actnn.set_optimization_level("L3")
    assert (config.use_gradient, config.group_size, config.stochastic) == (True, 128, False)
    actnn.set_optimization_level("L2")
    config.activation_compression_bits = [8]
    actnn.set_optimization_level("L3")
    assert config.activation_compression_bits == [8]
    config.activation_compression_bits[0] = 4  # in place, which must not change the default
    config.reset()
    assert config.activation_compression_bits == [2, 8, 8]


def test_fields_count_whatever_level_is_set_after_them():
    actnn.config.compress_activation = False
    actnn.set_optimization_level("L3")
    assert kept(actnn.QModule(Net())).preset == "actnn:L0"
