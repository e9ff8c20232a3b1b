"""Marked modules run again in backward if a byte budget requires it, and compute the same as if they were kept."""

import copy
import pickle
import warnings

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.recompute_plan import Known, Range, Step, choose
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")

#: Keeps every tensor as it is, so that running again is the only way to hold less.
EXACT = {"*": "none"}
#: Steps until it is decided what runs again, and bits follow a plan.
SETTLED = 4


class Block(nn.Module):
    def __init__(self, width=64, dropout=0.0):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.down(self.dropout(F.gelu(self.up(self.norm(x)))))


class Convolutions(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())


def blocks(make=Block, count=6, marked=True):
    torch.manual_seed(0)
    model = nn.Sequential(*(make() for _ in range(count)))
    if marked:
        for block in model:
            actzip.recomputable(block)
    return model


def rows():
    return torch.randn(256, 64, generator=torch.Generator().manual_seed(1))


def images():
    return torch.randn(8, 8, 16, 16, generator=torch.Generator().manual_seed(1))


def gradients(model, x, session=None, backward=torch.Tensor.backward):
    model.zero_grad()
    torch.manual_seed(2)
    if session is None:
        loss = model(x).square().mean()
    else:
        with session:
            loss = model(x).square().mean()
    backward(loss)
    return [parameter.grad.clone() for parameter in model.parameters()]


def settled(model, x, **options):
    session = actzip.Session(model, **options)
    for _ in range(SETTLED):
        gradients(model, x, session)
    return session


def names(session):
    return [module.module for module in session.report().recomputed]


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def error(gradient, exact):
    squares = [(float((a - b).square().sum()), float(b.square().sum())) for a, b in zip(gradient, exact, strict=True)]
    return sum(difference for difference, _ in squares) / sum(square for _, square in squares)


@pytest.mark.parametrize("make, x, budget", [
    (Block, rows(), 0.6), (lambda: Block(dropout=0.2), rows(), 0.6), (Convolutions, images(), 0.8)])
def test_gradients_are_those_of_torch(make, x, budget):
    model, plain = blocks(make), blocks(make, marked=False)
    session = actzip.Session(model, budget=budget, rules=EXACT)
    for _ in range(SETTLED):
        assert equal(gradients(model, x, session), gradients(plain, x))
        if session.report().budget.bytes:
            assert session.report().budget.most_held <= session.report().budget.bytes
    assert 0 < len(names(session)) < len(model)
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(ours, theirs), "running statistics are updated once"


@pytest.mark.parametrize("make, x", [(Block, rows()), (Convolutions, images())])
@pytest.mark.parametrize("rules", [{}, EXACT, {"checkpoint.input": "affine:8"}])
def test_shares_are_of_what_torch_would_hold(make, x, rules):
    """A result may be kept by the module that makes it and by the next one: only one of both counts."""
    kept = settled(blocks(make, marked=False), x, budget=2.0**30).report()
    model = blocks(make)
    session = actzip.Session(model, budget=0.5, rules=rules)
    gradients(model, x, session)
    report = session.report()
    assert len(report.recomputed) == 6 and report.bytes_before == pytest.approx(kept.bytes_before, rel=0.01)


def test_report_counts_what_torch_would_hold():
    model, x = blocks(), rows()
    kept = settled(blocks(marked=False), x, budget=2.0**30, rules=EXACT).report()
    session = settled(model, x, budget=0.4, rules=EXACT)
    report = session.report()
    assert report.bytes_before == kept.bytes_before
    assert report.budget.most_held <= 0.4 * kept.bytes_before < report.bytes_after
    assert report.plan.predicted_bytes is None or report.recomputed
    for module in report.recomputed:
        assert module.calls == 1 and module.seconds > 0.0 and module.bytes_inside > module.bytes_input > 0
    assert actzip.Report.from_json(report.to_json()) == report
    assert f"run again in backward: {', '.join(names(session))}" in str(report)


def test_bits_stay_above_those_of_the_table():
    """Without running again, so small a budget leaves one or two bits to each site."""
    x = rows()
    exact = gradients(blocks(marked=False), x)
    rules = {"checkpoint.input": "affine:8"}
    with_mark, without = blocks(), blocks(marked=False)
    again = settled(with_mark, x, budget=1 / 16, rules=rules)
    kept = settled(without, x, budget=1 / 16)
    assert len(names(again)) > 0 and not names(kept)
    assert again.report().budget.most_held <= again.report().budget.bytes
    assert error(gradients(with_mark, x, again), exact) < 0.2 * error(gradients(without, x, kept), exact)


def test_as_few_modules_as_the_budget_requires():
    counts = [len(names(settled(blocks(), rows(), budget=budget, rules=EXACT))) for budget in (2.0**30, 0.7, 0.4)]
    assert counts[0] == 0 < counts[1] < counts[2], counts


def test_decisions_stay():
    model, x = blocks(), rows()
    session = settled(model, x, budget=0.5, rules=EXACT)
    first = names(session)
    for _ in range(12):
        gradients(model, x, session)
        assert names(session) == first


def test_larger_steps_stay_within():
    model, x = blocks(), rows()
    session = actzip.Session(model, budget="128KiB", rules={"checkpoint.input": "affine:8"})
    for length in (64, 64, 64, 72, 80, 96, 32, 96, 64, 96):
        gradients(model, x[:length], session)
        assert session.report().budget.most_held <= 128 << 10, session.report()
    assert session.live_bytes == 0


@pytest.mark.parametrize("options", [{}, {"bits": 4}, {"preset": "exact"}])
def test_without_a_budget_nothing_changes(options):
    model, plain, x = blocks(), blocks(marked=False), rows()
    marked, unmarked = actzip.Session(model, **options), actzip.Session(plain, **options)
    for _ in range(2):
        assert equal(gradients(model, x, marked), gradients(plain, x, unmarked))
    assert marked.report().recomputed == ()
    assert equal(gradients(model, x), gradients(plain, x))


def test_offloading_needs_no_module_to_run_again(tmp_path):
    model, x = blocks(), rows()
    session = settled(model, x, budget=0.1, preset="exact", offload=tmp_path)
    assert names(session) == []
    assert equal(gradients(model, x, session), gradients(model, x))


def test_autocast_and_keyword_arguments():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x, *, parts):
            return self.block(x) * parts["scale"]

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.parts = nn.ModuleList(actzip.recomputable(Scaled()) for _ in range(4))

        def forward(self, x):
            for part in self.parts:
                x = part(x, parts={"scale": x.sigmoid()})
            return x

    model, x = Model(), rows()
    session = actzip.Session(model, budget=0.5, rules=EXACT)
    for _ in range(SETTLED):
        with torch.autocast("cpu", torch.bfloat16):
            ours = gradients(model, x, session)
            assert equal(ours, gradients(model, x))
    assert names(session)
    assert session.report().budget.most_held <= session.report().budget.bytes


def test_one_module_several_times_in_a_step():
    block = actzip.recomputable(Block())
    model, x = nn.Sequential(block, nn.Tanh(), block, nn.Tanh(), block), rows()
    session = settled(model, x, budget=0.6, rules=EXACT)
    assert [(module.module, module.calls) for module in session.report().recomputed] == [("0", 3)]
    assert equal(gradients(model, x, session), gradients(model, x))


def test_marks_inside_marked_modules_are_left_to_those():
    model, x = blocks(lambda: actzip.recomputable(nn.Sequential(actzip.recomputable(Block()), Block()))), rows()
    session = settled(model, x, budget=0.4, rules=EXACT)
    assert names(session) and all("." not in name for name in names(session))
    assert equal(gradients(model, x, session), gradients(model, x))


def test_retained_graphs_and_parts_of_gradients():
    model, x = blocks(), rows()
    session = settled(model, x, budget=2.0**30, rules=EXACT)
    session._recomputation._again = {"1", "3"}

    def twice(loss):
        loss.backward(retain_graph=True)
        loss.backward()

    assert equal(gradients(model, x, session, twice), gradients(model, x, backward=twice))
    with session:
        loss = model(x).square().mean()
    (gradient,) = torch.autograd.grad(loss, model[0].up.weight)
    assert torch.equal(gradient, gradients(model, x)[2])
    del loss
    assert session.live_bytes == 0


def test_evaluation_runs_once():
    model, x = blocks(), rows()
    session = settled(model, x, budget=0.5, rules=EXACT)
    with torch.no_grad(), session:
        result = model(x)
    assert names(session) == [] and torch.equal(result, model(x))


def test_errors_leave_nothing_behind():
    class Fails(nn.Module):
        error = None

        def forward(self, x):
            if self.error is not None:
                raise self.error
            return x.sin()

    model, x = blocks(), rows()
    model.insert(3, fails := nn.Sequential(Fails()))
    actzip.recomputable(fails)
    session = settled(model, x, budget=0.4, rules=EXACT)
    for error_in_forward in (ValueError("no"), KeyboardInterrupt()):
        fails[0].error = error_in_forward
        with pytest.raises(type(error_in_forward)):
            gradients(model, x, session)
        assert torch._C._autograd._top_saved_tensors_default_hooks(False) is None
        fails[0].error = None
        assert equal(gradients(model, x, session), gradients(model, x))
        assert session.live_bytes == 0


def test_two_forwards_before_a_backward():
    model, x = blocks(), rows()
    session = actzip.Session(model, budget="1MiB", rules={"checkpoint.input": "affine:8"})
    for _ in range(6):
        losses = []
        for part in x.chunk(2):
            with session:
                losses.append(model(part).square().mean())
        sum(losses).backward()
        assert session.report().budget.most_held <= 1 << 20, session.report()
    assert session.live_bytes == 0


def test_attachments_and_sessions_that_end_early():
    model, x = blocks(), rows()
    handle = actzip.attach(model, budget=0.5, rules=EXACT)
    for _ in range(SETTLED):
        attached = gradients(model, x)
    assert handle.report().recomputed
    loss = model(x).square().mean()
    handle.remove()
    del handle
    model.zero_grad()
    loss.backward()
    assert equal([parameter.grad for parameter in model.parameters()], attached)


def test_copies_and_pickles_stay_marked():
    x = rows()
    for model in (copy.deepcopy(blocks()), pickle.loads(pickle.dumps(blocks()))):
        assert names(settled(model, x, budget=0.5, rules=EXACT))
    assert blocks().state_dict().keys() == blocks(marked=False).state_dict().keys()


def test_a_resumed_run_decides_the_same():
    model, x = blocks(), rows()
    first = settled(model, x, budget=1 / 12, rules={"checkpoint.input": "affine:8"})
    for _ in range(30):
        gradients(model, x, first)
    second = actzip.Session(model, budget=1 / 12, rules={"checkpoint.input": "affine:8"})
    second.load_state(first.save_state())
    for _ in range(3):
        assert equal(gradients(model, x, first), gradients(model, x, second))
        assert names(first) == names(second) != []


def test_a_damaged_state_is_refused():
    text = settled(blocks(), rows(), budget=0.5, rules=EXACT).save_state()
    for damaged in (text.replace('"inside"', '"within"', 1), text.replace('"steps"', '"stops"', 1), text[:60]):
        session = actzip.Session(blocks(), budget=0.5, rules=EXACT)
        with pytest.raises(ValueError, match="load_state was given .*allowed: the text of save_state"):
            session.load_state(damaged)
        session.load_state(text)


def test_what_cannot_run_again_is_said():
    for wrong in (3, Block, "block"):
        with pytest.raises(TypeError, match="recomputable was given .* for a model .allowed: a torch.nn.Module"):
            actzip.recomputable(wrong)
    compiled, converted, scripted = Block(), Block(), Block()
    compiled.compile()
    actzip.convert(converted)
    for module, why in ((compiled, "torch.compile has compiled"), (converted, r"actzip.convert\(\) has converted"),
                        (torch.jit.script(nn.Sequential(nn.ReLU())), "is scripted")):
        with pytest.warns(UserWarning, match=f"recomputable.. was given a .* that {why}.*: it is left alone"):
            assert actzip.recomputable(module) is module
    block = actzip.recomputable(Block())
    actzip.convert(block)
    with pytest.warns(UserWarning, match="a recomputable.. .*has converted.*: it is kept"):
        settled(nn.Sequential(block), rows(), budget=0.9)
    with pytest.warns(UserWarning, match=r"in a session without a model, and are kept .allowed: Session.model, budget"):
        gradients(blocks(), rows(), actzip.Session(budget=0.9))


def test_compiled_models_leave_marks_alone():
    model = nn.Sequential(actzip.recomputable(nn.Linear(8, 8)))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(torch.ones(2, 8)), model(torch.ones(2, 8)))


def step_of(*inside, inputs=10.0, loss=0.0, seconds=None):
    paths = [str(i) for i in range(len(inside))]
    seconds = seconds or [1.0] * len(inside)
    known = {path: Known(time, bytes_input=inputs, inside=Range(size / 4, size))
             for path, size, time in zip(paths, inside, seconds, strict=True)}
    return Step([*paths, Range(loss / 4, loss)], known)


def test_choices():
    even = step_of(100.0, 100.0, 100.0, 100.0)
    assert choose(even, 400.0, set()) == set()
    assert len(choose(even, 310.0, set())) == 1
    assert len(choose(even, 130.0, set())) == 3, "the last one's inside is held in any case"
    assert choose(even, 400.0, {"2"}) == {"2"}, "what runs again continues to"
    quick_second = step_of(100.0, 100.0, 100.0, seconds=[1.0, 0.5, 1.0])
    assert choose(quick_second, 220.0, set()) == {"1"}
    assert choose(step_of(100.0, 5.0, 100.0), 110.0, set()) == {"0"}, "small modules free nothing"
    assert choose(step_of(20.0, 20.0, 20.0, inputs=19.0), 20.0, set()) == set(), "fewer bits are better here"
