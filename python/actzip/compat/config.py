"""Configuration as in the libraries: an object whose fields programs set, and levels that set several fields."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any



def _anything(_: Any) -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class Field:
    """One field. If it has no effect in actzip, `gone` says what to use instead, and setting it warns once."""

    default: Any
    takes: Callable[[Any], bool] = _anything
    allowed: str = ""
    gone: str = ""


class Config:
    """Fields with their defaults. Programs may add fields of their own, which have no effect; a warning says so.

    >>> config = Config("gact", {"group_size": Field(256)})
    >>> config.group_size = 128
    >>> config.groupsize
    Traceback (most recent call last):
        ...
    AttributeError: gact.config has no field 'groupsize': did you mean group_size? (allowed: group_size)
    """

    def __init__(self, library: str, fields: Mapping[str, Field]) -> None:
        vars(self).update(_library=library, _fields=dict(fields), _said=set())
        self.reset()

    def reset(self) -> None:
        """Sets all fields to their defaults."""
        values = {name: copy.copy(field.default) for name, field in self._fields.items()}
        vars(self).update(values, _level="", _changes={})

    def set_level(self, level: str, fields: Mapping[str, Any]) -> None:
        """Sets `fields`. Fields that the level before has set are reset, unless they were changed since.

        All other fields stay as they are.
        """
        for name, (before, value) in self._changes.items():
            if vars(self)[name] == value:
                vars(self)[name] = before
        changes = {name: (vars(self)[name], copy.copy(value)) for name, value in fields.items()}
        vars(self).update({name: copy.copy(value) for name, value in fields.items()}, _level=level, _changes=changes)

    @property
    def level(self) -> str:
        """The level that was set last; '' if any of its fields has been changed since."""
        is_whole = all(vars(self)[name] == value for name, (_, value) in self._changes.items())
        return self._level if is_whole else ""

    def snapshot(self, without: Collection[str] = ()) -> tuple[Any, ...]:
        """Returns all values except those in `without`, for comparison. Lists become tuples."""
        values = (vars(self)[name] for name in self._fields if name not in without)
        return tuple(tuple(value) if isinstance(value, list) else value for value in values)

    def __setattr__(self, name: str, value: Any) -> None:
        field = self._fields.get(name)
        if field is None:
            self._say(name, f"{self._unknown(name)}; it is kept for the program to read")
        elif not field.takes(value):
            raise ValueError(f"{self._library}.config.{name} = {value!r} (allowed: {field.allowed})")
        elif field.gone and value != field.default:
            self._say(name, f"{self._library}.config.{name} has no effect in actzip: {field.gone}")
        vars(self)[name] = value

    def _say(self, name: str, text: str) -> None:
        if name not in self._said:
            self._said.add(name)
            warnings.warn(text, stacklevel=3)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and pickle look for methods that need not exist
            raise AttributeError(name)
        raise AttributeError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._fields, n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        return f"{self._library}.config has no field '{name}'{hint} (allowed: {', '.join(self._fields)})"

    def __repr__(self) -> str:
        return f"{self._library}.config({', '.join(f'{name}={vars(self)[name]!r}' for name in self._fields)})"


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_group_size(value: Any) -> bool:
    return value in (32, 64, 128, 256, 512, 1024)


#: The sizes that is_group_size() allows.
GROUP_SIZES = "32, 64, 128, 256, 512, 1024"


def is_amount(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and value >= 0)


def codec_of_groups(group_size: int, rounding: str = "") -> str:
    """Returns the ``codec`` of :class:`actzip.Session` for groups of that size: `rotated` if possible."""
    if rounding or group_size not in (128, 256):
        return "affine" + (f":{rounding}" if rounding else "") + f":group={group_size}"
    return "" if group_size == 256 else f"rotated:group={group_size}"
