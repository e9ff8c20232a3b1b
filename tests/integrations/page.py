"""The code of docs/integrations.md, run as it stands there."""

import contextlib
import re
from pathlib import Path

import actzip
import torch

PAGE = Path(__file__).resolve().parents[2] / "docs" / "integrations.md"


def sections():
    """Text by heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(heading):
    """The Python code of a section, piece by piece."""
    return re.findall(r"^```python\n(.*?)^```$", sections()[heading], flags=re.MULTILINE | re.DOTALL)


def run(heading, names, number=0):
    """Runs a piece of a section's code with ``names``, which then hold what it made."""
    exec(compile(blocks(heading)[number], f"{PAGE.name}, {heading}, {number}", "exec"), names)


class Compressing:
    """Stands for the package in the page's code: the same calls, with further options, and their sessions known."""

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
    """Stands for the package, and does nothing."""

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
    """What holds for every integration. ``train(actzip)`` runs the page's code from a fixed seed and gives what came of
    it, weights or gradients by name. Gives the report of the default options."""
    plain, exact, default = Plain(), Compressing(preset="exact", min_elems=0), Compressing()
    expected = train(plain)
    assert are_same(expected, train(exact))
    assert not are_same(expected, train(default))  # it is compressed, and the comparison above sees that
    for one in (exact, default):
        assert one.sessions and all(session.live_bytes == 0 for session in one.sessions)
        assert one.sessions[-1].report().sites
    report = default.sessions[-1].report()
    assert report.bytes_before > times_smaller * report.bytes_after, report.text
    return report
