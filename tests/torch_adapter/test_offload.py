"""Offloading to a file: gradients are bit for bit the same as without, and a budget says how much stays in memory."""

import os
from xml.etree import ElementTree

import actzip
import pytest
import torch
import torch.nn.functional as F
from actzip.console import main
from test_budget import error, make, step


def resident_file_bytes():
    """Bytes of the file's mapping that are in memory."""
    with open("/proc/self/smaps") as maps:
        lines = maps.read().splitlines()
    found, inside = 0, False
    for line in lines:
        if "-" in line.split(" ")[0]:
            inside = "(deleted)" in line and "zero" not in line
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


@pytest.mark.parametrize("kind", ["images", "text"])
@pytest.mark.parametrize("options", [{}, {"preset": "exact"}, {"bits": 4}, {"preset": "affine:4"}])
def test_changes_no_gradient(kind, options, tmp_path):
    model, *batch = make(kind)
    with_file, without = actzip.Session(model, offload=tmp_path, **options), actzip.Session(model, **options)
    for _ in range(3):
        assert torch.equal(step(model, batch, with_file), step(model, batch, without))
    report = with_file.report()
    assert report.bytes_offloaded > 0.5 * report.bytes_after, report
    assert "offloaded" in str(report)
    assert with_file.live_bytes == 0 and without.report().bytes_offloaded == 0
    assert os.listdir(tmp_path) == [], "the file has no name"


def test_a_recurrent_layer_runs_again_on_an_input_in_the_file(tmp_path):
    torch.manual_seed(0)
    model, inputs = torch.nn.LSTM(64, 128, 2, batch_first=True), torch.randn(8, 64, 64)

    def gradient(session):
        model.zero_grad()
        with session:
            loss = model(inputs.clone())[0].square().mean()
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    with_file, without = actzip.Session(model, offload=tmp_path), actzip.Session(model)
    for _ in range(3):
        assert torch.equal(gradient(with_file), gradient(without))
    report = with_file.report()
    assert report.bytes_after == without.report().bytes_after < report.bytes_before / 10
    assert report.bytes_offloaded > 0


def test_leaves_memory_in_forward(tmp_path):
    model, *batch = make("text")
    session = actzip.Session(model, preset="exact", offload=tmp_path)
    with session:
        loss = F.cross_entropy(model(batch[0]), batch[1])
    assert session.live_bytes > 6 << 20
    assert resident_file_bytes() < 1 << 20
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    loss.backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(first, model.parameters()))


def test_steps_without_backward_and_out_of_order(tmp_path):
    model, *batch = make("images")
    exact = step(model, batch)
    session = actzip.Session(model, offload=tmp_path)
    losses = []
    for _ in range(4):
        with session:
            losses.append(F.cross_entropy(model(batch[0]), batch[1]))
    del losses[1]  # never comes back
    for loss in (losses[1], losses[0], losses[2]):
        model.zero_grad()
        loss.backward()
        assert error(torch.cat([p.grad.flatten() for p in model.parameters()]), exact) < 0.2
    del loss, losses
    assert session.live_bytes == 0


@pytest.mark.parametrize("kind", ["images", "text"])
def test_a_budget_says_what_stays(kind, tmp_path):
    model, *batch = make(kind)
    without = actzip.Session(model)
    expected = [step(model, batch, without) for _ in range(4)]
    offloaded = []
    for budget in (1 / 16, 1 / 32, "20KiB"):
        session = actzip.Session(model, offload=tmp_path, budget=budget)
        for gradient in expected:
            assert torch.equal(step(model, batch, session), gradient), "bits are those of the preset"
            report = session.report()
            assert report.budget.bytes is None or report.budget.most_held <= report.budget.bytes, report
        offloaded.append(report.bytes_offloaded)
        assert report.budget.most_held > 0.5 * report.budget.bytes, "what fits stays"
    assert offloaded == sorted(offloaded) and offloaded[0] < offloaded[2]


def test_the_first_are_offloaded(tmp_path):
    """What is kept first is needed last."""
    model, *batch = make("text")
    session = actzip.Session(model, offload=tmp_path, budget="300KiB")
    for _ in range(3):
        step(model, batch, session)
    large = [site for site in session.report().sites if site.bytes_after >= 1 << 14]
    places = [site.bytes_offloaded > 0 for site in large]
    assert places == sorted(places, reverse=True), [(site.site, site.bytes_offloaded) for site in large]


def test_the_picture_shows_when_and_where(tmp_path, capsys):
    model, *batch = make("text")
    session = actzip.Session(model, offload=tmp_path, budget="300KiB")
    for _ in range(3):
        step(model, batch, session)
    report = session.report()
    kept = [site for site in report.sites if site.kept_at is not None]
    assert {site.site for site in kept} == {site.site for site in report.sites if site.bytes_after > 0}
    assert all(0 <= site.kept_at <= site.freed_at for site in kept)
    first, last = kept[1], kept[-2]
    assert first.kept_at < last.kept_at and first.freed_at > last.freed_at, "what is kept first is freed last"
    root = ElementTree.fromstring(report.to_svg())
    bars = [part for part in root.iter("{http://www.w3.org/2000/svg}rect") if len(part)]
    assert len(bars) == 40, "of the largest sites"
    colours = {part.get("fill") for part in bars}
    assert len(colours) == 2

    (tmp_path / "report.json").write_text(report.to_json())
    assert main(["report", str(tmp_path / "report.json"), "--picture", str(tmp_path / "held.svg")]) == 0
    assert (tmp_path / "held.svg").read_text() == report.to_svg()
    assert main(["report", str(tmp_path / "report.json"), "--picture", str(tmp_path / "none/held.svg")]) == 1
    assert "none/held.svg" in capsys.readouterr().err
    assert ElementTree.fromstring(actzip.Session().report().to_svg()) is not None, "of nothing, too"


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no folder in memory")
def test_a_folder_in_memory_is_said():
    with pytest.warns(UserWarning, match="/dev/shm' lies in memory"):
        actzip.Session(offload="/dev/shm")


def test_without_a_gpu_nothing_goes_to_the_host_and_that_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, *batch = make("text")
    with pytest.warns(UserWarning, match="offload='host' moves what is kept on a GPU, and there is no GPU here"):
        session = actzip.Session(model, offload="host")
    assert torch.equal(step(model, batch, session), step(model, batch, actzip.Session(model)))
    report = session.report()
    assert report.bytes_offloaded == 0 == report.offload.copied_out == report.offload.pinned_bytes


def test_a_folder_may_be_called_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host").mkdir()
    model, *batch = make("text")
    session = actzip.Session(model, offload="./host")
    step(model, batch, session)
    assert session.report().bytes_offloaded > 0


@pytest.mark.parametrize("options, says", [
    ({"offload": "/no/such/folder"}, "/no/such/folder"), ({"offload": 4}, "offload=4 .allowed: 'host', a folder"),
    ({"offload": "/dev/null"}, "/dev/null")])
def test_messages(options, says):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=says):
        actzip.Session(**options)
