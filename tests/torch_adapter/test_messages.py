"""Wrong arguments, and calls that would do nothing, give a message with what was given and what is allowed."""

import warnings

import actzip
import pytest
import torch
from torch import nn


def network():
    return nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))


@pytest.mark.parametrize(("options", "says"), [
    ({"bits": "4"}, "bits='4' (allowed: a number from 1 to 8, or None)"),
    ({"bits": [2]}, "bits=[2] (allowed: a number from 1 to 8, or None)"),
    ({"bits": True}, "bits=True (allowed: a number"),
    ({"preset": None}, "preset=None (allowed: a text such as 'default'"),
    ({"adapt": True}, "adapt=True (allowed: 'layer', 'measured'"),
    ({"rules": ["gelu.*"]}, "rules=['gelu.*'] (allowed: a dict of patterns and codecs"),
    ({"rules": {"gelu.*": 4}}, "rules={'gelu.*': 4} (allowed: a dict"),
    ({"min_numel": "1024"}, "min_numel='1024' (allowed: a whole number"),
    ({"interval": 2.5}, "interval=2.5 (allowed: a whole number of steps"),
    ({"seed": None}, "seed=None (allowed: a whole number"),
])
def test_options_of_another_type(options, says):
    for call in (lambda: actzip.Session(**options), lambda: actzip.compress(network(), **options)):
        with pytest.raises(TypeError) as caught:
            call()
        assert says in str(caught.value)


@pytest.mark.parametrize("options", [{"seed": -1}, {"min_numel": -1}, {"bits": 9}, {"bits": 0.5}, {"interval": -1}])
def test_options_out_of_range(options):
    with pytest.raises(ValueError, match="allowed: "):
        actzip.Session(**options)


@pytest.mark.parametrize("bits", [5, 6, 7, 2.5])
def test_other_numbers_of_bits_are_an_average(bits):
    session = actzip.Session(network(), bits=bits)
    assert session.report().plan.budget_bits == bits


@pytest.mark.parametrize("call", [actzip.compress, actzip.attach, actzip.convert, actzip.Session])
@pytest.mark.parametrize(("model", "given"), [(torch.zeros(3), "a Tensor"), (nn.Linear, "the class Linear")])
def test_what_is_no_model(call, model, given):
    with pytest.raises(TypeError, match=rf"given {given} for a model \(allowed: a torch.nn.Module"):
        call(model)


def test_a_preset_in_the_place_of_a_model():
    with pytest.raises(TypeError, match=r"a preset is Session\(preset='affine:2'\)"):
        actzip.Session("affine:2")


@pytest.mark.parametrize("call", [actzip.attach, actzip.convert])
def test_no_model(call):
    with pytest.raises(TypeError, match="given a NoneType for a model"):
        call(None)


def test_verify_with_a_target():
    batch = (torch.randn(256, 64), torch.randint(8, (256,)))
    with pytest.raises(TypeError, match=r"forward\(\) of Sequential does not take this batch.*lambda: loss_fn\(model\(x\), y\)"):
        actzip.verify(network(), batch)


def warnings_of(model, **options):
    session = actzip.Session(model, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            with session:
                loss = model(torch.randn(256, 64)).sum()
            loss.backward()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("pattern", "says"), [
    ("0.*", "for the module 0 and what is inside it: '0[.:]*'"),
    ("encoder.layers.7.*", "report().to_text(all=True) has the names"),
    ("use:convolution_*", "matched no site"),
])
def test_a_rule_that_matches_nothing_is_said_once(pattern, says):
    messages = warnings_of(network(), rules={pattern: "none"})
    assert len(messages) == 1 and f"the rule {pattern!r} matched no site of the first step" in messages[0]
    assert says in messages[0]


@pytest.mark.parametrize("pattern", ["0[.:]*", "gelu.*", "use:linear_*", "2: addmm.mat1", "*"])
def test_rules_that_match_are_not_spoken_of(pattern):
    assert warnings_of(network(), rules={pattern: "none"}) == []


def test_a_use_that_is_none():
    with pytest.raises(ValueError, match="'use:gelu', which no use is called .*gelu_input"):
        actzip.Session(rules={"use:gelu": "none"})


def test_an_empty_report_says_why():
    session = actzip.Session(network())
    assert "no step has begun" in str(session.report())
    with torch.no_grad(), session:
        network()(torch.randn(256, 64))
    assert "no tensor was saved inside the scope" in str(session.report())


def test_attaching_what_nobody_calls():
    class LightningModule(nn.Module):
        pass

    with pytest.warns(UserWarning, match=r"Lightning calls training_step\(\) instead: .*actzip.attach\(module.net\)"):
        actzip.attach(type("Mine", (LightningModule,), {})())


def test_converting_what_is_checkpointed():
    model = network()
    model.is_gradient_checkpointing = True
    with pytest.warns(UserWarning, match="gradient checkpointing on"):
        actzip.convert(model)
