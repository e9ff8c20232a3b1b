"""`link`: how it reads a trace, its picture, and which options it refuses. Copies themselves need a GPU."""

import argparse
from xml.etree import ElementTree

import pytest
from actzip.bench import copies_picture, link
from actzip.bench.errors import BenchError


def event(name, start, duration, bytes=0, cat="gpu_memcpy"):
    return {"name": name, "cat": cat, "ts": start, "dur": duration, "args": {"bytes": bytes}}


EVENTS = [
    event("gemm", 0, 900, cat="kernel"),
    event("Memcpy DtoH (Device -> Pinned)", 100, 100, 5_000_000),
    event("Memcpy DtoH (Device -> Pinned)", 300, 100, 5_000_000),
    event("Memcpy DtoH (Device -> Pinned)", 900, 1, 4),  # too small to be a saved tensor: loss.item()
    event("Memcpy HtoD (Pinned -> Device)", 500, 100, 4_000_000),
]


def test_rates_of_copies_in_a_trace():
    copies = link.copies_of(EVENTS)
    out, back = copies[link.OUT], copies[link.IN]
    assert (out.count, out.bytes, out.span_us, out.busy_us) == (2, 10_000_000, 300, 200)
    assert out.rate(out.busy_us) == pytest.approx(50) and out.rate(out.span_us) == pytest.approx(100 / 3)
    assert (back.count, back.bytes, back.span_us) == (1, 4_000_000, 100)
    shown = link.text(copies, {link.OUT: (50.0, 40.0), link.IN: (50.0, 40.0)})
    assert "0.67" in shown and "1.00" in shown and "0.80" in shown
    nothing = link.copies_of([])
    assert nothing[link.OUT].count == 0 and nothing[link.OUT].rate(0.0) == 0


def test_the_picture_has_a_row_for_kernels_and_for_each_direction():
    root = ElementTree.fromstring(copies_picture.draw("a & b", link.rows_of(EVENTS)))
    bars = [part.get("fill") for part in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert [bars.count(colour) for colour in copies_picture.COLOURS] == [1, 2, 1]
    assert ElementTree.fromstring(copies_picture.draw("nothing", link.rows_of([]))) is not None
    assert copies_picture.merged([(5, 6), (0, 1), (1.2, 3)]) == [(0, 3), (5, 6)]


@pytest.mark.parametrize("options, says", [
    (["--device", "cpu"], "link on cpu .allowed: --device cuda"),
])
def test_messages(options, says):
    parser = argparse.ArgumentParser()
    link.add_arguments(parser)
    with pytest.raises(BenchError, match=says):
        link.run(parser.parse_args(options))


@pytest.mark.parametrize("options, says", [
    (["--mib", "0"], "--mib 0 .allowed: 1 or more"),
    (["--trace", "trace.json"], "--trace trace.json .allowed: with --model"),
    (["--model", "gcn", "--trace", "trace.svg"], "--trace trace.svg .allowed"),
    (["--model", "gcn", "--trace", "/no/such/folder/trace.json"], "--trace /no/such"),
    (["--model", "no-such-model"], "no-such-model"),
    (["--model", "gcn", "--preset", "default,colour=red"], "option 'colour'"),
])
def test_what_is_refused_before_anything_is_measured(options, says):
    import torch

    parser = argparse.ArgumentParser()
    link.add_arguments(parser)
    with pytest.raises(BenchError, match=says):
        link.check(parser.parse_args(options), torch.device("cuda"))
