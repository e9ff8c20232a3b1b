"""The rows of `train`, and files that collect rows over several runs."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import BenchError


@dataclasses.dataclass
class Row:
    """The figures of one way to run a step of one model.

    Ratios and cosine compare with the plain step of the same run, or with torch.compile alone in that run.
    """

    model: str
    preset: str  #: or plain, checkpointing, save_on_cpu, compiled
    dtype: str
    batch: int
    device: str
    run: str = ""
    step_ms: float | None = None  #: median
    held_bytes: int | None = None
    peak_bytes: int | None = None
    speed_ratio: float | None = None  #: above 1 is faster
    held_ratio: float | None = None  #: above 1 is smaller
    peak_ratio: float | None = None
    cosine: float | None = None  #: between the gradients of both
    repeats: int = 0
    note: str = ""  #: why there are no figures
    plain: dict[str, float | None] | None = None  #: the figures that the ratios compare with
    profile: dict[str, Any] | None = None
    against: str = "plain"  #: name of the way that the ratios compare with

    def compare(self, plain: Row) -> None:
        self.against = plain.preset
        self.plain = {name: getattr(plain, name) for name in ("step_ms", "held_bytes", "peak_bytes")}
        self.speed_ratio = ratio(plain.step_ms, self.step_ms)
        self.held_ratio = ratio(plain.held_bytes, self.held_bytes)
        self.peak_ratio = ratio(plain.peak_bytes, self.peak_bytes)


def ratio(plain: float | None, this: float | None) -> float | None:
    return plain / this if plain and this else None


def new_run() -> str:
    return secrets.token_hex(4)


@dataclasses.dataclass(frozen=True)
class ResultFile:
    """Collects rows over several runs. A new row replaces an earlier one of the same key."""

    path: Path
    format: str  #: identifies the command that wrote the file
    key: tuple[str, ...]  #: names of the fields that make up the key

    def read(self) -> dict[str, Any]:
        """Returns the content, or an empty one if there is no file. Refuses files that this command did not write."""
        if not self.path.parent.is_dir():
            raise BenchError(f"{self.path}: there is no folder {self.path.parent}")
        if not self.path.exists():
            return {"format": self.format, "runs": {}, "rows": []}
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError) as error:
            raise BenchError(f"{self.path} cannot be read as JSON, and is left as it is: {error}") from error
        if not isinstance(content, dict) or content.get("format") != self.format:
            raise BenchError(f'{self.path} has not the format "{self.format}", and is left as it is')
        return content

    def merge(self, run: str, facts: Mapping[str, Any], rows: Sequence[Any]) -> None:
        """Adds rows, which are dataclasses with the name of their run. Runs without any rows left are removed."""
        content = self.read()
        added = [dataclasses.asdict(row) for row in rows]
        replaced = {self._key_of(row) for row in added}
        content["rows"] = [row for row in content["rows"] if self._key_of(row) not in replaced] + added
        content["runs"][run] = dict(facts)
        used = {row["run"] for row in content["rows"]}
        content["runs"] = {name: known for name, known in content["runs"].items() if name in used}
        unfinished = self.path.with_name(self.path.name + ".part")
        unfinished.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(unfinished, self.path)  # so that the file is replaced as a whole or not at all

    def _key_of(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)


def train_file(path: Path) -> ResultFile:
    return ResultFile(path, "actzip.bench train, version 1", ("model", "preset", "batch", "dtype", "device"))
