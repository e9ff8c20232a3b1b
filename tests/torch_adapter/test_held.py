"""The report's bytes that wait for backward are those that torch's allocator counts."""

import ctypes
import gc
import os

import actzip
import pytest
import torch
import torch.nn.functional as F
from torch import nn


class Held:
    """Counts the bytes that torch's allocator gave out in a scope and did not get back, in ``bytes`` after its end."""

    def __enter__(self):
        gc.collect()  # frees what other tests have left
        self.profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        self.profile.__enter__()
        return self

    def __exit__(self, *error):
        gc.collect()
        self.profile.__exit__(*error)
        events = self.profile.profiler.kineto_results.events()
        self.bytes = sum(event.nbytes() for event in events if event.name() == "[memory]")


def held(forward, session=None, steps=1):
    """Runs steps. Returns the bytes that the last one holds between forward and backward, without its result."""
    for _ in range(steps):
        with Held() as count:
            if session is None:
                result = forward()
            else:
                with session:
                    result = forward()
        value = result.sum()
        value = value.abs() if value.is_complex() else value
        value.backward()
    return count.bytes - result.nbytes


def like_the_report(forward, session, slack=1024, steps=1):
    count = held(forward, session, steps)
    report = session.report()
    assert abs(count - report.bytes_after) <= slack, report.to_text(all=True)
    return report


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(512, 512, requires_grad=True)


def gradient_of(x, forward, session=None):
    x.grad = None
    held(forward, session)
    return x.grad.clone()


CUTS = {"rows": lambda h: h[3:5], "columns": lambda h: h[:, 7:9], "one row, many times": lambda h: h[5].expand(3, 512),
        "transposed": lambda h: h[:3].t(), "steps": lambda h: h[::300, ::2]}


@pytest.mark.parametrize("cut", CUTS)
def test_a_slice_does_not_hold_what_it_was_cut_from(x, cut):
    def forward():
        return CUTS[cut](x * 2).sin().cos()

    exact = gradient_of(x, forward)
    session = actzip.Session(preset="exact")
    assert torch.equal(gradient_of(x, forward, session), exact)
    assert like_the_report(forward, session).bytes_after < 16384


def test_a_slice_of_what_others_hold_is_not_copied(x):
    base = x.detach() * 2

    def forward():
        return (base[:2] + x[:2] * 0).sin()

    def cut():
        return (base[:2] * x[:2]).sum()

    assert held(cut) < 1024
    assert held(cut, actzip.Session()) < 1024  # x and base exist anyway
    assert held(forward, actzip.Session()) < 8192


def test_slices_that_together_are_the_whole_are_not_copied(x):
    def forward():
        return sum(part.sin() for part in (x * 2).chunk(4))

    session = actzip.Session(preset="exact")
    assert like_the_report(forward, session).bytes_after == x.nbytes


def test_many_slices_of_one_tensor(x):
    def forward():
        h = x * 2
        return sum(h[i, :64].sin() for i in range(8))

    session = actzip.Session(preset="exact")
    assert like_the_report(forward, session, slack=4096).bytes_after == 8 * 256


def test_a_slice_is_let_go_while_forward_still_runs(x):
    def forward():
        total = 0
        for i in range(8):
            total = total + (x * (2 + i))[:1].sin()
        return total

    with actzip.Session():
        with Held() as count:
            total = forward()
        assert count.bytes < 2 * x.nbytes  # all but the last of eight are freed
    total.sum().backward()


def test_a_slice_that_is_written_to_is_found_out(x):
    with actzip.Session():
        part = (x * 2)[:2]
        result = part.sin()
        (x * 3)[:2].sin()
    with torch.no_grad():
        part.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_weights_that_are_computed_count_once():
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(128, 128, bias=False))
    batch = torch.randn(4, 128)

    def forward():
        weight = layer.weight
        return F.linear(batch.clone().requires_grad_(), weight) + F.linear(batch.clone().requires_grad_() * 2, weight)

    session = actzip.Session(layer)
    report = like_the_report(forward, session, slack=8192)
    computed = [site for site in report.sites if site.cause == "parameter" and site.bytes_after]
    assert sum(site.bytes_after for site in computed) == 128 * 128 * 4
    assert all(site.bytes_before == site.bytes_after for site in computed)


def test_casts_of_weights_count():
    layer = nn.Linear(256, 256, bias=False)
    batch = torch.randn(4, 256, requires_grad=True)

    def forward():
        with torch.autocast("cpu", torch.bfloat16):
            return layer(batch)

    assert like_the_report(forward, actzip.Session(layer), slack=1024).bytes_after >= 256 * 256 * 2


def test_weights_themselves_count_nothing():
    layer = nn.Linear(256, 256)
    batch = torch.randn(4, 256, requires_grad=True)
    assert like_the_report(lambda: layer(batch), actzip.Session(layer)).bytes_after == 0
    assert like_the_report(lambda: layer(batch), actzip.Session()).bytes_after == 0


def test_what_is_dropped_before_backward_does_not_count(x):
    def forward():
        dropped = torch.sigmoid(x * 2).sum()
        del dropped
        return torch.sigmoid(x * 3)

    session = actzip.Session()
    report = like_the_report(forward, session)
    first, second = (site for site in report.sites if site.op == "sigmoid")
    assert (first.bytes_before, first.bytes_after, first.reason) == (0, 0, "freed before backward")
    assert second.bytes_before == x.nbytes


def test_what_is_kept_as_it_is_and_dropped_does_not_count(x):
    def forward():
        (x * 2).sin()
        return (x * 3).sin()

    report = like_the_report(forward, actzip.Session())
    assert [site.bytes_after for site in report.sites if site.op == "sin"] == [0, x.nbytes]


def test_forward_alone_still_has_a_report(x):
    session = actzip.Session()
    with session:
        torch.sigmoid(x * 2)
    assert session.report().bytes_before == x.nbytes


def test_complex_tensors_count_once_and_have_a_shape():
    z = torch.randn(64, 64, dtype=torch.complex128, requires_grad=True)

    def forward():
        h = z * 2
        return h.sin() + h.cos()

    report = like_the_report(forward, actzip.Session())
    sites = [site for site in report.sites if site.op in ("sin", "cos")]
    assert sorted(site.bytes_after for site in sites) == [0, z.nbytes]
    assert all(list(site.shape)[:2] == [64, 64] for site in sites)


def test_an_input_that_its_caller_holds_is_not_kept_twice():
    layer = nn.Linear(256, 256)
    batch = torch.randn(512, 256)
    session = actzip.Session(layer)
    assert like_the_report(lambda: layer(batch), session).bytes_after > 0  # not known yet
    report = like_the_report(lambda: layer(batch), session)
    (site,) = (site for site in report.sites if site.slot == "mat1")
    assert (site.codec, site.bytes_before, site.bytes_after) == ("as is", 0, 0)
    assert site.cause == "caller" and "1 caller" in report.text
    assert report.bytes_after == 0


def test_an_input_that_its_caller_drops_is_compressed():
    layer = nn.Linear(256, 256)
    session = actzip.Session(layer, guard=False)  # the guard would hold it in the first step
    for _ in range(3):
        report = like_the_report(lambda: layer(torch.randn(512, 256)), session)
        assert [site.codec for site in report.sites if site.slot == "mat1"] == ["rotated:3"]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_caller_who_begins_to_drop_its_input_is_found_out(layers):
    model = nn.ModuleList(nn.Linear(256, 256) for _ in range(layers))
    session = actzip.Session(model)
    batch = torch.randn(512, 256)

    def step(x):
        return sum(layer(x) for layer in model)

    held(lambda: step(batch), session)
    assert held(lambda: step(batch), session) < 1024
    assert held(lambda: step(torch.randn(512, 256)), session) == pytest.approx(batch.nbytes, abs=1024)
    report = like_the_report(lambda: step(torch.randn(512, 256)), session)
    assert [site.codec for site in report.sites if site.slot == "mat1"] == ["rotated:3"] + ["shared"] * (layers - 1)


def test_a_saved_session_knows_what_its_caller_holds():
    layer, batch = nn.Linear(256, 256), torch.randn(512, 256)
    session = actzip.Session(layer)
    held(lambda: layer(batch), session)
    again = actzip.Session(layer)
    again.load_state(session.save_state())
    assert held(lambda: layer(batch), again) < 1024


def test_indices_that_the_caller_holds():
    table, ids = nn.Embedding(500, 64), torch.randint(0, 500, (64, 64))
    session = actzip.Session(table, preset="exact")
    held(lambda: table(ids), session)
    assert like_the_report(lambda: table(ids), session).bytes_after == 0


class Arena(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                                                     "uordblks", "fordblks", "keepcost")]


def test_a_save_takes_little_memory_of_the_host():
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2") or "ASAN_OPTIONS" in os.environ:
        pytest.skip("needs glibc's allocator")
    libc.mallinfo2.restype = Arena
    x, count = torch.randn(1024, requires_grad=True), 500

    def used(session):
        for _ in range(3):
            gc.collect()
            before = libc.mallinfo2().uordblks
            with session or torch.enable_grad():
                y = x
                for _ in range(count):
                    y = y.sigmoid()
            after = libc.mallinfo2().uordblks
            y.sum().backward()
            del y
        kept = session.report().bytes_after if session else count * x.nbytes
        return (after - before - kept) / count

    assert used(actzip.Session(guard=False)) - used(None) < 1100
