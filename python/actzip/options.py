"""The options of a session: their names, and which values they allow."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

#: Options that were renamed, with their old names, which still work.
OLD_NAMES = {"min_numel": "min_elems", "dry_run": "dry"}


def canonical(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options under their current names. Leaves out those with two names that are None under both."""
    result = {name: value for name, value in options.items() if name not in (*OLD_NAMES, *OLD_NAMES.values())}
    for name, old_name in OLD_NAMES.items():
        value, old_value = options.get(name), options.get(old_name)
        if value is not None and old_value is not None:
            raise TypeError(f"actzip: {name}={value!r} and {old_name}={old_value!r}, which are two names of one option "
                            f"(allowed: {name} alone)")
        if value is not None or old_value is not None:
            result[name] = old_value if value is None else value
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_rules(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_text(part) for rule in value.items() for part in rule)


#: For each option, a check of its type and what is allowed. The core checks codecs and most ranges.
_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "preset": (_is_text, "a text such as 'default', 'exact', 'division', 'actnn:L3' or 'affine:2'"),
    "bits": (lambda value: value is None or _is_number(value), "a number from 1 to 8, or None"),
    "min_numel": (_is_count, "a whole number, 0 or more"),
    "seed": (_is_count, "a whole number, 0 or more"),
    "dry_run": (_is_flag, "True or False"),
    "only": (_is_text, "the name of a site as the report gives it, or ''"),
    "rules": (_are_rules, "a dict of patterns and codecs, as in {'gelu.*': 'rotated:4'}"),
    "adapt": (_is_text, "'layer', 'measured', 'sample', 'sample+layer', 'sample+measured', or ''"),
    "interval": (_is_count, "a whole number of steps, or 0"),
    "use_gradient": (_is_flag, "True or False"),
    "num_samples": (_is_count, "a whole number, 0 or more"),
    "codec": (_is_text, "a text such as 'affine:nearest:group=64', or ''"),
    "guard": (lambda value: value is None or _is_flag(value), "True, False or None"),
    "max_bits": (_is_count, "a whole number, 0 or more"),
    "offload": (lambda value: value is None or isinstance(value, (str, os.PathLike)), "'host', a folder, or None"),
    "budget": (lambda value: value is None or _is_text(value) or _is_number(value),
               "bytes such as '4GiB' or 2**32, a share of what is held without actzip such as 0.25, 'auto', or None"),
}


def budget_text(budget: Any) -> str:
    """Returns the budget as text for the core. A number up to 1 is a share, a larger one counts bytes."""
    if budget is None or _is_text(budget):
        return budget or ""
    return f"{budget}B" if budget > 1 else str(budget)


def check(options: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError for a wrong value, with a message that says what is allowed."""
    for name, value in options.items():
        is_allowed, allowed = _KINDS[name]
        if not is_allowed(value):
            raise TypeError(f"actzip: {name}={value!r} (allowed: {allowed})")
        if is_allowed is _is_count and not 0 <= value < 1 << 63:
            raise ValueError(f"actzip: {name}={value!r} (allowed: {allowed})")


def refuse_model(model: Any, call: str, allowed: str, package: str = "actzip") -> None:
    """Raises TypeError for a ``model`` that is none."""
    given = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
    hint = f"; a preset is {call}(preset={model!r})" if isinstance(model, str) else ""
    if inspect.isroutine(model):
        hint = f"; as a decorator without a model it is @{package}.compress()"
    raise TypeError(f"{package}: {call} was given {given} for a model (allowed: a {allowed}{hint})")
