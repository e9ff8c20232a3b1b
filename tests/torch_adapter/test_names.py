"""Names in the public API: options and their old spellings, converted(), printed reports and sessions, decorators."""

import copy
import functools
import inspect
import math
import pickle

import pytest
import torch
from torch import nn

import actzip


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))


def run(model, session):
    with session:
        loss = model(torch.randn(256, 64)).square().mean()
    loss.backward()
    return session.report()


# Options.


def makers():
    """Everything that takes a session's options, as functions from a model and options to the session."""
    return {
        "Session": lambda model, **options: actzip.Session(model, **options),
        "compress": lambda model, **options: actzip.compress(model, **options),
        "attach": lambda model, **options: actzip.attach(model, **options).session,
        "convert": lambda model, **options: actzip.converted(actzip.convert(model, **options)).session,
    }


@pytest.mark.parametrize("options", [{"dry_run": True, "min_numel": 7}, {"dry": True, "min_elems": 7}])
@pytest.mark.parametrize("maker", makers())
def test_old_names_are_taken_for_the_new_ones(maker, options):
    session = makers()[maker](network(), **options)
    assert session.options["dry_run"] is True and session.options["min_numel"] == 7
    assert not {"dry", "min_elems"} & session.options.keys()


@pytest.mark.parametrize("options, message", [
    ({"dry_run": False, "dry": True}, "dry_run=False and dry=True"),
    ({"min_numel": 0, "min_elems": 1024}, "min_numel=0 and min_elems=1024"),
])
@pytest.mark.parametrize("maker", makers())
def test_both_names_at_once_are_refused(maker, options, message):
    with pytest.raises(TypeError, match=message):
        makers()[maker](network(), **options)


def test_a_name_that_is_none_was_not_given():
    options = actzip.Session(min_numel=5, min_elems=None, dry=None).options
    assert (options["min_numel"], options["dry_run"]) == (5, False)
    assert actzip.Session().options["min_numel"] == 1024


def test_options_make_the_same_session_again():
    session = actzip.Session(network(), bits=4, min_numel=3, dry=True, rules={"gelu.*": "as is"})
    assert actzip.Session(**session.options).options == session.options


def test_options_do_what_they_say():
    model = network()
    assert actzip.Session(model, dry_run=True).live_bytes == 0
    report = run(model, actzip.Session(model, dry_run=True))
    assert report.dry and report.bytes_after < report.bytes_before
    assert {site.codec for site in run(model, actzip.Session(model, min_numel=10**9)).sites} == {"as is", "shared"}
    with pytest.raises(ValueError, match=r"min_numel=-1 \(allowed: a whole number, 0 or more\)"):
        actzip.Session(min_elems=-1)


def test_compress_gives_out_one_session_for_both_names():
    model = network()
    assert actzip.compress(model, min_elems=0) is actzip.compress(model, min_numel=0)
    assert actzip.compress(model, dry=True) is actzip.compress(model, dry_run=True) is not actzip.compress(model)


def test_what_is_no_model_is_refused():
    for wrong in (actzip.Session, actzip.compress):
        with pytest.raises(TypeError, match=r"given a function for a model \(allowed: a torch.nn.Module.*@actzip.compress\(\)"):
            wrong(lambda: None)


# Rules.


@pytest.mark.parametrize("word", ["none", "as is"])
def test_rules_may_say_none(word):
    model = network()
    report = run(model, actzip.Session(model, rules={"0: *": word}))
    by_name = {site.site: site for site in report.sites}
    assert by_name["0: addmm.mat1"].codec == "as is" and by_name["0: addmm.mat1"].cause == "rule"
    assert by_name["2: addmm.mat1"].codec.startswith("rotated")


def test_a_wrong_rule_names_none():
    with pytest.raises(ValueError, match="allowed: none, as is, default"):
        actzip.Session(rules={"gelu.*": "nothing"})


@pytest.mark.parametrize("pattern, matched", [
    ("1[.:]*", {"1.fc", "1"}), ("1: *", {"1"}), ("1.*", {"1.fc"})])
def test_patterns_of_modules(pattern, matched):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(64, 64)

        def forward(self, x):
            return torch.nn.functional.gelu(self.fc(x))

    model = nn.Sequential(nn.Linear(64, 64), Block(), *(nn.Identity() for _ in range(8)), nn.Linear(64, 64))
    report = run(model, actzip.Session(model, rules={pattern: "none"}))
    assert {site.module for site in report.sites if site.cause == "rule"} == matched
    assert {site.module for site in report.sites if site.codec.startswith("rotated")} >= {"0", "10"}


# Converted models.


def test_converted_has_session_report_and_restore():
    model = actzip.convert(network(), bits=4)
    found = actzip.converted(model)
    assert isinstance(found, actzip.Converted) and found.session is actzip.session_of(model)
    assert found.conversion is actzip.conversion_of(model)
    model(torch.randn(256, 64)).sum().backward()
    assert found.report().bytes_after > 0 and "0: actzip.Linear" in str(found)
    assert repr(found).startswith("<actzip.converted(Sequential, bits=4): 3 layers converted, 0 left; step 1 held ")
    assert found.restore() is model and type(model[0]) is nn.Linear
    with pytest.raises(ValueError, match="converted"):
        actzip.converted(model)


def test_converted_is_of_the_model_that_was_given():
    model = actzip.convert(network())
    copied = copy.deepcopy(model)
    actzip.converted(copied).restore()
    assert type(copied[0]) is nn.Linear and type(model[0]) is actzip.nn.Linear


def test_a_model_without_layers_is_converted_all_the_same():
    model = actzip.convert(nn.Sequential(nn.Identity()), bits=4)
    assert actzip.converted(model).session.options["bits"] == 4 and not actzip.converted(model).conversion.converted


@pytest.mark.parametrize("ask", [actzip.converted, actzip.session_of, actzip.conversion_of])
def test_what_is_not_converted_says_what_to_call(ask):
    with pytest.raises(ValueError, match=r"no layer of this Sequential is converted \(call actzip.convert\(model\) first\)"):
        ask(network())
    with pytest.raises(TypeError, match=r"a dict was given \(allowed: a model that actzip.convert\(model\) has converted\)"):
        ask({})


# Reports.


def test_print_sums_up_and_shows_what_matters():
    model = network()
    report = run(model, actzip.Session(model))
    lines = str(report).splitlines()
    assert lines[0].startswith("preset 'default', step 1: held ") and "times smaller" in lines[0]
    assert f"{len(report.sites)} sites" in lines[0] and "parameter" in lines[0]
    shown = [line.split("  ")[0] for line in lines[2:-1]]
    by_name = {site.site: site for site in report.sites}
    assert shown and all(by_name[name].cause not in ("parameter", "small") for name in shown)
    assert [by_name[name].bytes_after for name in shown] == sorted((by_name[n].bytes_after for n in shown), reverse=True)
    hidden = len(report.sites) - len(shown)
    assert hidden > 0 and lines[-1].startswith(f"{hidden} site") and "to_text(all=True)" in lines[-1]


def test_all_shows_every_site():
    model = network()
    report = run(model, actzip.Session(model))
    lines = report.to_text(all=True).splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == [site.site for site in report.sites]
    assert report.text == report.to_text(all=True) and report.to_text() == str(report)


def test_report_has_a_ratio():
    model = network()
    report = run(model, actzip.Session(model))
    assert report.ratio == report.bytes_before / report.bytes_after > 4
    assert actzip.Session().report().ratio == 1.0
    x = torch.randn(2, 4, 64, 64, requires_grad=True)
    with actzip.Session() as session:
        nn.functional.avg_pool2d(x * 1, 2)
    shapes_alone = session.report()
    assert shapes_alone.bytes_before > 0 == shapes_alone.bytes_after and math.isinf(shapes_alone.ratio)
    assert "(nothing is kept)" in str(shapes_alone)


def test_reports_are_values():
    model = network()
    report = run(model, actzip.Session(model))
    assert pickle.loads(pickle.dumps(report)) == report
    assert not {"text", "_short_text"} & report.to_dict().keys() and "cause" in report.to_dict()["sites"][0]


# Sessions in print.


def test_repr_of_a_session():
    model = network()
    session = actzip.Session(model, bits=4, dry=True)
    assert repr(session) == "<actzip.Session(Sequential, bits=4, dry_run=True): nothing kept yet>"
    report = run(model, session)
    assert repr(session).startswith("<actzip.Session(Sequential, bits=4, dry_run=True): step 1 would hold ")
    assert repr(session).endswith(f", {len(report.sites)} sites>")
    del model
    assert repr(session).startswith("<actzip.Session(bits=4, dry_run=True): step 1")
    assert repr(actzip.Session()) == "<actzip.Session(): nothing kept yet>"


# Decorators.


def open_scopes():
    return actzip._C.open_scopes()


def test_each_call_runs_in_the_scope():
    model = network()
    session = actzip.compress(model)

    @actzip.compress(model)
    def loss_of(x, *, scale=1.0):
        """Of a batch."""
        assert open_scopes() == 1
        return model(x).square().mean() * scale

    assert (loss_of.__name__, loss_of.__doc__) == ("loss_of", "Of a batch.")
    assert list(inspect.signature(loss_of).parameters) == ["x", "scale"] and loss_of.__wrapped__
    assert session.report().steps == 0
    for step in (1, 2):
        loss = loss_of(torch.randn(256, 64), scale=2.0)
        assert open_scopes() == 0 and session.report().steps == step and session.live_bytes > 0
        loss.backward()
    assert session.live_bytes == 0


def test_a_decorator_needs_no_model():
    @actzip.compress()
    def inside():
        return open_scopes()

    assert inside() == 1 and open_scopes() == 0


def test_the_scope_ends_when_the_function_raises():
    @actzip.Session()
    def fails():
        raise KeyError("as it was")

    with pytest.raises(KeyError, match="as it was"):
        fails()
    assert open_scopes() == 0


def test_recursion_is_one_step():
    session = actzip.Session()

    @session
    def deeper(x, depth):
        return deeper(torch.tanh(x), depth - 1) if depth else (x.sum(), open_scopes())

    loss, depth = deeper(torch.randn(64, 64, requires_grad=True), 3)
    assert depth == 4 and open_scopes() == 0 and session.report().steps == 1
    loss.backward()
    assert session.live_bytes == 0 and sum(site.op == "tanh" for site in session.report().sites) == 3


def test_methods_of_all_kinds():
    class Trainer:
        @actzip.compress()
        def step(self):
            return self, open_scopes()

        @classmethod
        @actzip.compress()
        def of_class(cls):
            return cls, open_scopes()

        @staticmethod
        @actzip.compress()
        def of_nobody():
            return open_scopes()

    trainer = Trainer()
    assert trainer.step() == (trainer, 1) and Trainer.of_class() == (Trainer, 1) and trainer.of_nobody() == 1


def generator():
    yield


async def coroutine():
    pass


async def asynchronous_generator():
    yield


class Asynchronous:
    async def __call__(self):
        pass


@pytest.mark.parametrize("function, kind", [
    (generator, "generator is a generator"), (coroutine, "coroutine is an async function"),
    (asynchronous_generator, "is an async generator"), (functools.partial(generator), "a generator"),
    (Asynchronous(), "Asynchronous is an async function")])
def test_a_scope_does_not_stay_open_across_a_yield(function, kind):
    with pytest.raises(TypeError, match=f"{kind}.*must not stay open across a yield"):
        actzip.compress()(function)


def test_what_else_cannot_be_decorated():
    for wrong, message in ((staticmethod(open_scopes), "write @staticmethod above"), (nn.Linear, "a class Linear"),
                           (3, "a int was decorated")):
        with pytest.raises(TypeError, match=message):
            actzip.Session()(wrong)
