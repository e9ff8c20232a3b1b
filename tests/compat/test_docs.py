"""docs/levels.md lists every name, and says correctly whether it is provided."""

import importlib
import re
from pathlib import Path

import actzip.compat.fdmp  # noqa: F401
import pytest
from actzip.compat import actnn, gact

ROWS = re.findall(r"^\| (`(?:actnn|gact|fdmp)\..*?`) \| (.*) \|$", (Path(__file__).parents[2] / "docs/levels.md").read_text(),
                  re.MULTILINE)
NAMES = [(name, text.startswith("not provided")) for names, text in ROWS for name in re.findall(r"`([\w.]+)`", names)]


def is_there(name):
    try:
        found, rest = importlib.import_module(f"actzip.compat.{name}"), []
    except ImportError:
        head, _, last = name.rpartition(".")
        found, rest = None, [last]
        while found is None:
            try:
                found = importlib.import_module(f"actzip.compat.{head}")
            except ImportError:
                head, _, last = head.rpartition(".")
                rest.insert(0, last)
    for part in rest:
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("name, is_missing", NAMES, ids=[name for name, _ in NAMES])
def test_a_row(name, is_missing):
    assert is_there(name) != is_missing


def test_no_name_is_left_out():
    listed = {name for name, _ in NAMES}
    for library in (actnn, gact, actzip.compat.fdmp):
        own = library.__name__.rsplit(".", 1)[1]
        fields = {f"{own}.config.{field}" for field in library.config._fields}
        assert fields <= listed, fields - listed
        for name in library.__all__:
            spellings = {f"{own}.{name}", *(f"{own}.{part}.{name}" for part in ("layers", "module", "conf", "utils", "controller"))}
            is_module = name in ("config", "controller", "dataloader", "ops", "utils")
            is_class = any(other.startswith(f"{own}.{name}.") for other in listed)
            assert is_module or is_class or spellings & listed, name
