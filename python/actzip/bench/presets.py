"""What a benchmark calls a preset: one of actzip.Session's, or options of it, as in ``bits=1.5,adapt=layer``.

With ``convert:`` before it the model's layers are converted, and nothing else is compressed; with ``convert+scope:`` the
rest is, too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn

from ..convert import convert, session_of
from ..session import Session
from .errors import BenchError

OPTIONS = {"preset": str, "bits": float, "adapt": str, "interval": int, "min_elems": int, "codec": str,
           "max_bits": int}
LAYERS, LAYERS_IN_SCOPE = "convert:", "convert+scope:"


def converts(preset: str) -> bool:
    return preset.startswith((LAYERS, LAYERS_IN_SCOPE))


def begin(model: nn.Module, preset: str, **options: Any) -> tuple[Session, AbstractContextManager]:
    """The session for ``model``, and what to enter around forward. Converts the model if that is asked for."""
    options |= options_of(preset)
    if not converts(preset):
        session = Session(model, **options)
        return session, session
    session = session_of(convert(model, **options))
    return session, session if preset.startswith(LAYERS_IN_SCOPE) else nullcontext()


def options_of(preset: str) -> dict[str, Any]:
    """For :class:`actzip.Session`."""
    preset = preset.removeprefix(LAYERS).removeprefix(LAYERS_IN_SCOPE)
    first = preset.split(",")[0]
    if "=" not in first or first.split("=")[0] not in OPTIONS:
        return {"preset": preset}  # a codec may have an = in it, but not before its first colon
    options = {}
    for part in preset.split(","):
        name, _, value = part.partition("=")
        if name not in OPTIONS:
            raise BenchError(f"--preset {preset}: option '{name}' (allowed: {', '.join(OPTIONS)})")
        try:
            options[name] = OPTIONS[name](value)
        except ValueError:
            raise BenchError(f"--preset {preset}: '{value}' is no {OPTIONS[name].__name__}") from None
    return options


def check(preset: str) -> None:
    """Refuses what no session takes."""
    try:
        Session(**options_of(preset))
    except ValueError as error:
        raise BenchError(f"--preset {preset}: {error}") from None
