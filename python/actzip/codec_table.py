"""The registry of codecs as text and as JSON, like the output of the C++ program's `actzip codecs`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from . import _native


def as_json() -> str:
    return json.dumps({"version": _native.version, "format_version": _native.format_version, "codecs": _native.codecs()}, indent=2)


def as_text() -> str:
    codecs = _native.codecs()
    return "\n".join([
        _table(["codec", "bits", "takes", "gives", "what it is"], [
            [codec["name"], _widths(codec), _types(codec["encodes"]), _types(codec["decodes"]), codec["summary"]]
            for codec in codecs]),
        "",
        "Expected relative squared error on Gaussian data by bits, and what else may be relied upon:",
        _errors(codecs),
        "",
        "How a spec is written:",
        *(f"  {codec['grammar']}" for codec in codecs),
    ])


def _widths(codec: dict[str, Any]) -> str:
    """Returns the widths of a codec as text, such as "1-8" or "1,2,4,8,16,32". `copy` has those of the types."""
    if codec["name"] == "copy":
        return "type's"
    widths = sorted({variant["bits"] for variant in codec["variants"]})
    is_run = len(widths) > 2 and widths[-1] - widths[0] + 1 == len(widths)
    return f"{widths[0]}-{widths[-1]}" if is_run else ",".join(map(str, widths))


def _types(names: Sequence[str]) -> str:
    return "any" if len(names) > 6 else " ".join(names)


def _errors(codecs: list[dict[str, Any]]) -> str:
    """Returns the table of errors. Variants that differ only in their bits, or their bound, share a line."""
    families: dict[str, tuple[dict[int, float], str]] = {}
    for variant in (variant for codec in codecs for variant in codec["variants"]):
        spec = variant["spec"]
        name = "index:bound=N" if spec.startswith("index") else re.sub(r":\d+", ":B", spec, count=1)
        has = variant["traits"]
        traits = ", ".join(name.replace("byte_equal", "byte-equal").replace("_", " ") for name in has if has[name])
        errors, _ = families.setdefault(name, ({}, traits))
        if not has["exact"]:
            errors[variant["bits"]] = variant["expected_rel_sq_error"]
    widths = sorted({bits for errors, _ in families.values() for bits in errors})
    rows = [[name, *(f"{errors[bits]:.3g}" if bits in errors else "" for bits in widths), traits]
            for name, (errors, traits) in families.items()]
    return _table(["spec", *(f"B={bits}" for bits in widths), "traits"], rows, right=range(1, len(widths) + 1))


def _table(titles: list[str], rows: list[list[str]], right: Sequence[int] = ()) -> str:
    """Returns a table whose columns are as wide as their widest cell. Columns in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows)]
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" if i in right else f"{cell:<{width}}"
                  for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines)
