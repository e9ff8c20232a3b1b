"""Presets of the benchmarks: those of actzip.Session, or options of it, as in ``bits=1.5,adapt=layer``.

Rules for some sites may follow, as in ``default,gelu.*=rotated:2``, so that a preset names everything that a run
depends on. With ``convert:`` before it, the model's layers are converted, and nothing else is compressed; with
``convert+scope:`` everything else is, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from ..convert import convert, session_of
from ..session import Session
from .errors import BenchError

def on_or_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise ValueError(text)
    return text == "on"


OPTIONS = {"preset": str, "bits": float, "adapt": str, "interval": int, "min_numel": int, "min_elems": int,
           "codec": str, "max_bits": int, "budget": str, "offload": str, "guard": on_or_off}
LAYERS, LAYERS_IN_SCOPE = "convert:", "convert+scope:"


def converts(preset: str) -> bool:
    return preset.startswith((LAYERS, LAYERS_IN_SCOPE))


def begin(model: nn.Module, preset: str, **options: Any) -> tuple[Session, AbstractContextManager]:
    """Returns a session for ``model``, and the scope to enter around forward. Converts the model if the preset says
    so."""
    options |= options_of(preset)
    if not converts(preset):
        session = Session(model, **options)
        return session, session
    session = session_of(convert(model, **options))
    return session, session if preset.startswith(LAYERS_IN_SCOPE) else nullcontext()


def with_rules(preset: str, rules: Sequence[str]) -> str:
    """Returns the preset with these rules added after its own, which take precedence."""
    for rule in rules:
        if not _is_rule(rule):
            raise BenchError(f"--rule {rule} (allowed: PATTERN=CODEC, the pattern with a '.' or '*' and no ',' in it, "
                             "as in gelu.*=rotated:2)")
    return ",".join([preset, *rules])


def options_of(preset: str) -> dict[str, Any]:
    """Returns the options for :class:`actzip.Session`."""
    parts = preset.removeprefix(LAYERS).removeprefix(LAYERS_IN_SCOPE).split(",")
    options: dict[str, Any] = {}
    if parts[0].split("=")[0] not in OPTIONS:
        options["preset"] = parts.pop(0)  # a codec may have an = in it, but not before its first colon
    for part in parts:
        name, _, value = part.partition("=")
        if _is_rule(part):
            options.setdefault("rules", {}).setdefault(name, value)
        elif name in OPTIONS:
            options[name] = _value(preset, name, value)
        else:
            raise BenchError(f"--preset {preset}: option '{name}' (allowed: {', '.join(OPTIONS)}, or a rule as in "
                             "gelu.*=rotated:2)")
    return options


def _is_rule(text: str) -> bool:
    """Whether this is a rule. Patterns have a dot or a star, and names of options have neither."""
    pattern, separator, codec = text.partition("=")
    return bool(separator and codec) and any(mark in pattern for mark in ".*") and "," not in text


def _value(preset: str, name: str, text: str) -> Any:
    try:
        return OPTIONS[name](text)
    except ValueError:
        raise BenchError(f"--preset {preset}: '{text}' is no {OPTIONS[name].__name__.replace('_', ' ')}") from None


def check(preset: str) -> None:
    """Raises BenchError for a preset that no session allows."""
    try:
        Session(**options_of(preset))
    except ValueError as error:
        raise BenchError(f"--preset {preset}: {error}") from None
