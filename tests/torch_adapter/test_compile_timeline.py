"""When compiled graphs keep and free what they report."""

import actzip
import pytest
import torch
from actzip import _C
from compile_cases import MLP, gradient, graphs_alone, make, mean_square


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def test_the_picture_of_a_step():
    model, batch = make(MLP)
    forward = graphs_alone(model)
    for _ in range(2):
        gradient(model, forward, batch)
    report = actzip.compiled_session().report()
    encoded = [site for site in report.sites if site.kind == "encoded"]
    assert len(encoded) >= 3 and all(0 < site.kept_at < site.freed_at for site in encoded)
    first, last = encoded[0], encoded[-1]
    assert first.kept_at < last.kept_at and first.freed_at > last.freed_at  # backward runs in reverse order
    assert report.to_svg().count("<rect") >= len(encoded)


def test_the_picture_is_of_the_last_run():
    """What was kept by an earlier run at the same sites is freed later."""
    model, batch = make(MLP)
    forward, session = graphs_alone(model, bits=5), actzip.compiled_session(bits=5)
    first = session.run(forward, batch)
    last = session.run(forward, batch)
    mean_square(last).backward()
    held = [(site.kept_at, site.freed_at) for site in session.report().sites if site.kind == "encoded"]
    mean_square(first).backward()
    assert len(held) >= 3
    assert [(site.kept_at, site.freed_at) for site in session.report().sites if site.kind == "encoded"] == held


def test_many_graphs_between_forward_and_backward():
    """Seeds that are allocated where those of an earlier graph were count as new: this graph ran lately."""
    session, x = actzip.CompiledSession(seed=5), torch.randn(2048)
    size = _C.encoded_bytes("rotated:4", "f32", x.numel(), 1)
    text = "\t".join(("up", "addmm", "mat1", "linear_input", "encoded", "rotated:4", "", "f32", "2048", "8192",
                      str(size), ""))

    def graph():
        seeds = torch.ops.actzip.begin(session.key, text, torch.device("cpu"))
        return seeds, torch.ops.actzip.encode(x, "rotated:4", 1, seeds, 0)

    def step():
        over, held = [graph() for _ in range(100)], [graph() for _ in range(250)]
        addresses = {seeds.data_ptr() for seeds, _ in over}
        over.clear()
        while len(held) < 400 and (len(held) == 250 or held[-1][0].data_ptr() not in addresses):
            held.append(graph())
        seeds, data = held[-1]
        held += [graph() for _ in range(250)]
        torch.ops.actzip.decode(data, "rotated:4", 1, seeds, 0, x.shape, x.stride(), x.dtype)
        return seeds.data_ptr() in addresses

    if not session.run(step):
        pytest.skip("the allocator used no address again")
    assert sum(site.freed_at is not None for site in session.report().sites) == 1
