"""What a benchmark calls a preset: one of actzip.Session's, or options of it, as in ``bits=1.5,adapt=layer``."""

from __future__ import annotations

from typing import Any

from ..session import Session
from .errors import BenchError

OPTIONS = {"preset": str, "bits": float, "adapt": str, "interval": int, "min_elems": int, "codec": str,
           "max_bits": int}


def options_of(preset: str) -> dict[str, Any]:
    """For :class:`actzip.Session`."""
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
