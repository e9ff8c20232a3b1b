"""GACT's programs on actzip: its usage example, a script with its own steps, levels, every field of its config."""

import copy
import json
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from actzip.compat import gact
from actzip.compat.gact.controller import Controller
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:actzip. compression adds")


class Net(nn.Module):
    """Layers that matter to very different degrees, statistics and dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Linear(128, 64)
        self.left, self.right, self.last = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x):
        h = F.relu(self.norm(self.first(x)))
        h = F.dropout(F.gelu(self.second(h)), 0.1)
        return self.last(0.01 * self.left(h) + self.right(h))


X, Y = torch.randn(512, 64, generator=torch.Generator().manual_seed(1)), torch.arange(512) % 8
X[:, :8] += 3 * F.one_hot(Y, 8)  # so that there is something to learn


@pytest.fixture(autouse=True)
def fresh_config():
    gact.config.reset()
    yield
    gact.config.reset()


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def step(net):
    net.zero_grad()
    loss = F.cross_entropy(net(X), Y)
    loss.backward()
    return loss.item()


def kept(net, **fields):
    """Returns the report of the second step with these fields."""
    for name, value in fields.items():
        setattr(gact.config, name, value)
    controller = Controller(net)
    controller.install_hook()
    step(net), step(net)
    controller.uninstall_hook()
    return controller.report()


def bits_of(report):
    """Bit widths of all sites with `rotated` or `affine`, by site."""
    return {site.site: int(site.codec.split(":")[1]) for site in report.sites
            if site.codec.startswith(("rotated", "affine"))}


def test_the_usage_example(net):
    """The program only calls iterate(), which runs the closure as the step."""
    gact.set_optimization_level("L2")
    model, optimizer = net, torch.optim.Adam(net.parameters(), lr=0.01)
    controller = Controller(model)
    controller.install_hook()
    losses = []
    for _ in range(12):
        def backprop():
            model.train()
            output = model(X)
            loss = F.cross_entropy(output, Y)
            optimizer.zero_grad()
            loss.backward()
            losses.append(loss.item())

        controller.iterate(backprop)
        assert all(parameter.grad is not None for parameter in model.parameters())
        optimizer.step()
    controller.uninstall_hook()
    assert 18 < len(losses) <= 12 + 26  # once per step, and those of one measurement
    assert losses[-1] < 0.7 * losses[0]
    report = controller.report()
    assert report.preset == "gact:L2" and report.plan.plans > 0
    assert len(set(bits_of(report).values())) > 1 and 3 < report.plan.average_bits <= 4
    assert report.bytes_before > 5 * report.bytes_after
    with torch.enable_grad():
        before = controller.session._core.saves()
        step(net)
    assert controller.session._core.saves() == before  # uninstalled


def test_a_script_that_steps_by_itself(net):
    """The script runs forward, backward and the optimizer. The closure, with a smaller batch, only adapts bits."""
    gact.set_adapt_interval(4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    controller, calls, losses = Controller(net), [], []
    controller.install_hook()
    for iteration in range(1, 9):
        losses.append(step(net))
        optimizer.step()

        def backprop():
            calls.append(iteration)
            loss = F.cross_entropy(net(X[:128]), Y[:128])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        controller.iterate(backprop)
    controller.uninstall_hook()
    assert set(calls) == {1, 4, 8} and losses[-1] < 0.7 * losses[0]
    assert controller.report().steps == len(losses) + len(calls)


def state_of(net, optimizer, scheduler, scaler):
    return ([p.grad.clone() for p in net.parameters()], [v.clone() for v in net.state_dict().values()],
            [module.training for module in net.modules()],
            torch.get_rng_state(), random.getstate(),
            repr(optimizer.state_dict()), repr(scheduler.state_dict()), repr(scaler.state_dict()),
            repr(getattr(scaler, "_per_optimizer_states", None)))


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_adaptation_leaves_everything_as_it_was(net, scaled, early):
    """Although the closure steps whatever can be stepped, with `early` a scheduler even before its optimizer."""
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 10)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    controller = Controller(net)
    controller.install_hook()
    step(net)
    optimizer.step(), scheduler.step()
    finished = []

    def backprop():
        net.train()
        random.random()
        if early:
            scheduler.step()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(net(X), Y)).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        finished.append(1)

    net.eval()
    before = state_of(net, optimizer, scheduler, scaler)
    controller.iterate(backprop)
    assert same(state_of(net, optimizer, scheduler, scaler), before)
    assert controller.report().plan.plans > 0 and not finished  # it adapted, and stopped the closure at the optimizer
    net.train()
    backprop()  # steps work again
    assert finished and not same(state_of(net, optimizer, scheduler, scaler), before)
    controller.uninstall_hook()


def test_evaluation_between_steps_costs_nothing_that_was_learned(net):
    controller = adapted(net)
    plans, session = controller.report().plan.plans, controller.session
    with torch.no_grad():
        net(X)
    controller.install_hook()
    with torch.no_grad():
        net(X)
    assert controller.session is session and controller.report().plan.plans == plans and controller.report().sites
    controller.uninstall_hook()
    gact.set_optimization_level("L1")
    controller.install_hook()
    assert controller.session is not session and controller.report().preset == "gact:L1"
    controller.uninstall_hook()


def test_nothing_is_run_twice_when_the_script_has_stepped(net):
    gact.set_optimization_level("L1")
    controller, calls = Controller(net), []
    controller.install_hook()
    step(net)
    controller.iterate(lambda: calls.append(1))
    assert not calls
    controller.iterate(None)
    controller.iterate(lambda: calls.append(1))
    assert calls == [1]
    controller.uninstall_hook()


def test_as_hooks_of_torch(net):
    """quantize and dequantize can be passed to torch as hooks. From the second step on, the operators are known."""
    gact.set_optimization_level("L1")
    controller = Controller(net)
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(controller.quantize, controller.dequantize):
            loss = F.cross_entropy(net(X), Y)
        loss.backward()
    report = controller.report()
    found = {site.site: site.codec for site in report.sites}
    assert found["relu.result"] == "rotated:4:mask" and found["first: addmm.mat1"] == "rotated:4", report.text
    controller.uninstall_hook()


@pytest.mark.parametrize("level, bits, adapts", [
    ("L0", None, False), ("L1", 4, False), ("L1.1", 8, False), ("L1.2", 2, False), ("L2", 4, True), ("L2.1", 3, True),
    ("L2.2", 2, True)])
def test_levels(net, level, bits, adapts):
    gact.set_optimization_level(level)
    report = kept(net)
    assert report.preset == f"gact:{level}" and not report.runs_as and (report.plan is not None) == adapts
    found = bits_of(report)
    if bits is None:
        assert not found and {s.codec.split(":")[0] for s in report.sites if s.op == "dropout.mul"} == {"mask"}
    else:
        assert found["norm: native_batch_norm.input"] == bits
        assert not adapts or report.plan.budget_bits == bits


@pytest.mark.parametrize("level, runs_as", [("L3", "L2"), ("swap", "L0"), ("L4bit-swap", "L1")])
def test_levels_with_a_host_part_say_what_runs(net, level, runs_as, monkeypatch):
    monkeypatch.setattr("actzip.levels._warned", set())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gact.set_optimization_level(level)
    with pytest.warns(UserWarning, match=f"'gact:{level}'.*runs as 'gact:{runs_as}'"):
        report = kept(net)
    assert report.preset == f"gact:{level}" and report.runs_as == f"gact:{runs_as}"
    assert f"run as 'gact:{runs_as}'" in report.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept(net)


def test_a_level_puts_back_what_another_has_set_and_nothing_else():
    gact.set_adapt_interval(5)
    gact.set_optimization_level("L4bit-swap")
    gact.config.group_size = 64
    gact.set_optimization_level("L2.2")
    config = gact.config
    assert (config.swap, config.prefetch, config.auto_prec, config.bit) == (False, False, True, 2)
    assert (config.group_size, config.adapt_interval) == (64, 5)  # the program's own
    with pytest.raises(ValueError, match="L2.5.*allowed: L0, L1, L1.1"):
        gact.set_optimization_level("L2.5")


def test_fields_count_whatever_level_is_set_after_them(net):
    gact.config.compress_activation = False
    gact.set_optimization_level("L2")
    assert kept(net).preset == "gact:L0"


def test_compress_activation_while_hooks_are_in(net):
    gact.set_optimization_level("L1")
    controller = Controller(net)
    controller.install_hook()
    found = []
    for compresses in (True, False, True):
        gact.config.compress_activation = compresses
        step(net)
        found.append(bool(bits_of(controller.report())))
    controller.uninstall_hook()
    assert found == [True, False, True]
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_compress_activation(net):
    assert kept(net, compress_activation=False).preset == "gact:L0"


def test_bit_and_auto_prec(net):
    assert set(bits_of(kept(net, auto_prec=False, bit=2)).values()) == {2, 3}
    assert kept(net, auto_prec=True, bit=3).plan.budget_bits == 3


def test_group_size(net):
    usual = kept(net, auto_prec=False)
    narrow = kept(net, auto_prec=False, group_size=128)
    assert narrow.bytes_after > usual.bytes_after
    assert {site.codec for site in narrow.sites if site.op == "addmm"} >= {"rotated:4:group=128"}
    assert "affine:4:group=64" in {site.codec for site in kept(net, auto_prec=False, group_size=64).sites}


def adapted(net, iterations=1):
    controller = Controller(net)
    controller.install_hook()
    for _ in range(iterations):
        step(net)
        controller.iterate(lambda: step(net))
    step(net)
    controller.uninstall_hook()
    return controller


def test_max_bit(net):
    gact.config.bit = 2
    assert max(bits_of(adapted(net).report()).values()) > 2
    gact.config.max_bit = 2
    assert max(bits_of(adapted(net).report()).values()) == 2


def test_adapt_interval(net):
    calls = []

    def closure():
        calls.append(1)
        step(net)

    gact.set_adapt_interval(3)
    controller = Controller(net)
    controller.install_hook()
    counts = []
    for _ in range(6):
        step(net)
        controller.iterate(closure)
        counts.append(len(calls))
    controller.uninstall_hook()
    assert 0 < counts[0] == counts[1] < counts[2] == counts[4] < counts[5]


def test_log_interval_and_work_dir(net, tmp_path):
    gact.set_optimization_level("L1")
    gact.config.work_dir, gact.config.log_interval = str(tmp_path / "log"), 2
    adapted(net, iterations=4)
    files = sorted(path.name for path in (tmp_path / "log").iterdir())
    assert files == ["iteration-2.json", "iteration-4.json"]
    assert json.loads((tmp_path / "log" / files[0]).read_text())["preset"] == "gact:L1"


def test_swap(net, monkeypatch):
    monkeypatch.setattr("actzip.levels._warned", set())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="runs as 'gact:L2'"):
        assert kept(net, swap=True).preset == "gact:L3"


@pytest.mark.parametrize("field", ["check_dup", "debug", "prefetch"])
def test_fields_whose_purpose_is_gone_say_so_once(field):
    config = gact.conf.Config("gact", gact.conf.FIELDS)
    with pytest.warns(UserWarning, match=f"gact.config.{field} has no effect"):
        setattr(config, field, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(config, field, True)
    assert getattr(config, field) is True


def test_wrong_fields_and_values_are_refused():
    with pytest.warns(UserWarning, match="'auto_precision': did you mean auto_prec.*compress_activation.*kept for the"):
        gact.config.auto_precision = True
    assert gact.config.auto_precision is True
    with pytest.raises(AttributeError, match="allowed: compress_activation"):
        gact.config.bits_per_element
    for name, value in [("group_size", 100), ("bit", 16), ("max_bit", 5), ("adapt_interval", 0)]:
        with pytest.raises(ValueError, match=f"{name} = {value} .allowed"):
            setattr(gact.config, name, value)


def test_filtered_tensors_are_kept_as_they_are():
    table = torch.randn(64, 64)
    model = nn.Linear(64, 64)
    gact.set_optimization_level("L1")
    for filtered in (False, True):
        controller = Controller(model)
        if filtered:
            controller.quantizer.filter_tensors([("table", table)])
        controller.install_hook()
        (model(torch.randn(64, 64)) * table).sum().backward()
        controller.uninstall_hook()
        site, = (site for site in controller.report().sites if site.op == "mul" and site.slot == "other")
        assert (site.codec == "as is") == filtered and (site.bytes_after == 0) == filtered


def test_what_a_controller_tells(net):
    gact.set_optimization_level("L2.2")
    controller = adapted(net, iterations=3)
    assert (controller.iter, controller.bit, controller.auto_prec) == (3, 2, True)
    ap = controller.ap
    assert ap.bits.keys() == ap.dims.keys() >= ap.C.keys() and len(set(ap.bits.values())) > 1 and ap.iter == 3
    assert ap.dims["first: addmm.mat1"] == 512 * 64 and min(ap.C.values()) >= 0
    plans = controller.report().plan.plans
    ap.refresh_bits()
    assert controller.report().plan.plans == plans + 1
    gact.set_optimization_level("L1")
    assert not hasattr(Controller(net), "ap")


def test_without_hooks_a_closure_is_never_the_step(net):
    """Scripts without --gact make their own steps, but call iterate() nevertheless."""
    optimizer, steps = torch.optim.SGD(net.parameters(), 0.01), []
    controller = Controller(net)

    def backprop():
        steps.append(1)
        optimizer.zero_grad()
        F.cross_entropy(net(X), Y).backward()
        optimizer.step()

    for _ in range(4):
        controller.iterate(backprop)
    assert not steps


def test_hooks_go_with_their_controller(net):
    controller = Controller(net)
    controller.install_hook()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    copied = copy.deepcopy(net)
    del controller
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None and not net._forward_pre_hooks
    step(copied)


def test_hooks_of_others_are_not_taken(net):
    controller = Controller(net)
    controller.install_hook()
    with torch.autograd.graph.save_on_cpu():
        with pytest.raises(RuntimeError, match="in the order opposite"):
            controller.uninstall_hook()
    controller.uninstall_hook()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
