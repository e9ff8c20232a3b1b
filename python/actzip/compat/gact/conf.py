"""GACT's configuration and levels."""

from __future__ import annotations

from typing import Any

from ...levels import LEVELS
from ..config import GROUP_SIZES, Config, Field, codec_of_groups, is_flag, is_group_size

_BITS = (1, 2, 3, 4, 8)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


FIELDS = {
    "compress_activation": Field(True, is_flag, "True, False"),
    "bit": Field(4, lambda value: isinstance(value, (int, float)) and 1 <= value <= 8, "1 to 8"),
    "group_size": Field(256, is_group_size, GROUP_SIZES),
    "check_dup": Field(False, is_flag, "True, False", gone="memory that several operators save is always kept once"),
    "auto_prec": Field(True, is_flag, "True, False"),
    "max_bit": Field(32, lambda value: value in (*_BITS, 32), "1, 2, 3, 4, 8, 32"),
    "adapt_interval": Field(1000, _is_count, "1 or more"),
    "work_dir": Field("./log/", lambda value: isinstance(value, str), "a folder"),
    "log_interval": Field(-1, lambda value: isinstance(value, int), "steps between two reports, or -1"),
    "debug": Field(False, is_flag, "True, False", gone="controller.session.report() shows every saved tensor"),
    "swap": Field(False, is_flag, "True, False"),
    "prefetch": Field(False, is_flag, "True, False", gone="what swap has moved always comes back ahead of its use"),
}

#: The fields that each level sets. It sets no others.
_LEVELS: dict[str, dict[str, Any]] = {
    "L0": {"compress_activation": False},
    "L1": {"auto_prec": False, "bit": 4},
    "L1.1": {"auto_prec": False, "bit": 8},
    "L1.2": {"auto_prec": False, "bit": 2},
    "L2": {"auto_prec": True, "bit": 4},
    "L2.1": {"auto_prec": True, "bit": 3},
    "L2.2": {"auto_prec": True, "bit": 2},
    "L3": {"auto_prec": True, "bit": 4, "swap": True, "prefetch": True},
    "swap": {"compress_activation": False, "swap": True},
    "L4bit-swap": {"auto_prec": False, "bit": 4, "swap": True, "prefetch": True},
}
#: Levels that are another one with other bits.
_KINDS = {"L1.1": "L1", "L1.2": "L1", "L2.1": "L2", "L2.2": "L2"}

config = Config("gact", FIELDS)


def set_optimization_level(level: str) -> None:
    """Sets the fields of a level. Fields that the level before has set are reset, unless they were changed since."""
    if level not in _LEVELS:
        raise ValueError(f"gact level {level!r} (allowed: {', '.join(_LEVELS)})")
    config.set_level(level, _LEVELS[level])


def set_adapt_interval(interval: int) -> None:
    """Sets the number of iterations from one adaptation to the next."""
    config.adapt_interval = interval


def preset() -> str:
    """Returns the level that matches the fields, as a preset of actzip."""
    kind = _level_of_fields()
    return f"gact:{config.level if _KINDS.get(config.level, config.level) == kind else kind}"


def _level_of_fields() -> str:
    if not config.compress_activation:
        return "swap" if config.swap else "L0"
    if config.auto_prec:
        return "L3" if config.swap else "L2"
    return "L4bit-swap" if config.swap else "L1"


def session_options() -> dict[str, Any]:
    """Returns options for :class:`actzip.Session`."""
    options: dict[str, Any] = {"preset": preset()}
    if not LEVELS[options["preset"]].bits:
        return options
    options.update(bits=config.bit, codec=codec_of_groups(config.group_size))
    if config.auto_prec:
        options.update(interval=config.adapt_interval, max_bits=0 if config.max_bit == 32 else config.max_bit)
    return options


set_optimization_level("L2")
