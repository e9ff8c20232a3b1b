"""Runs the code of docs/integrations.md unchanged."""

import contextlib
import re
from pathlib import Path

import actzip
import torch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"


def sections():
    """Returns the page's text by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(heading):
    """Returns the Python code blocks of a section."""
    return re.findall(r"^```python\n(.*?)^```$", sections()[heading], flags=re.MULTILINE | re.DOTALL)


def run(heading, names, number=0):
    """Runs block ``number`` of a section with ``names`` as its globals, which then contain what it defined."""
    exec(compile(blocks(heading)[number], f"{PAGE.name}, {heading}, {number}", "exec"), names)


class Compressing:
    """Stands in for the package in the page's code: makes its calls with further options, and records the sessions."""

    def __init__(self, **options):
        self.options, self.sessions = options, []

    def attach(self, model, **options):
        handle = actzip.attach(model, **options, **self.options)
        self.sessions.append(handle.session)
        return handle

    def compress(self, model, **options):
        self.sessions.append(actzip.compress(model, **options, **self.options))
        return self.sessions[-1]


class Plain:
    """Stands in for the package and does nothing."""

    sessions = ()

    def attach(self, *_, **__):
        return self

    def compress(self, *_, **__):
        return contextlib.nullcontext(self)

    def report(self):
        return ""

    def remove(self):
        pass


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def are_same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def check(train, times_smaller=2.0):
    """Checks what must hold for every integration. ``train(actzip)`` runs the page's code from a fixed seed and returns
    weights or gradients by name. Returns the report of the default options."""
    plain, exact, default = Plain(), Compressing(preset="exact", min_elems=0), Compressing()
    expected = train(plain)
    assert are_same(expected, train(exact))
    assert not are_same(expected, train(default))  # compression has an effect, which the comparison detects
    for one in (exact, default):
        assert one.sessions and all(session.live_bytes == 0 for session in one.sessions)
        assert one.sessions[-1].report().sites
    report = default.sessions[-1].report()
    assert report.bytes_before > times_smaller * report.bytes_after, report.text
    return report
