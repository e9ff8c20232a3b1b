"""The options of a session under all their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: An option's name, and the one that it had before, which is taken as well.
OLD_NAMES = {"min_numel": "min_elems", "dry_run": "dry"}


def canonical(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with old names replaced; those that have two names and are None under both were not given."""
    result = {name: value for name, value in options.items() if name not in (*OLD_NAMES, *OLD_NAMES.values())}
    for name, old_name in OLD_NAMES.items():
        value, old_value = options.get(name), options.get(old_name)
        if value is not None and old_value is not None:
            raise TypeError(f"actzip: {name}={value!r} and {old_name}={old_value!r}, which are two names of one option "
                            f"(allowed: {name} alone)")
        if value is not None or old_value is not None:
            result[name] = old_value if value is None else value
    return result
