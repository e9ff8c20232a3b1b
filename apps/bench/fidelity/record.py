"""The runs of a comparison in a JSON file, so that it can be continued later and drawn elsewhere."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from ..errors import BenchError
from ..tasks import Task
from .processes import Job

FORMAT = "actzip fidelity 1"
SAME_MACHINE = ("device", "torch", "data")  # facts that must be equal for runs to be comparable


class Record:
    """The runs of one task and one recipe. Without a path they are kept only in memory."""

    def __init__(self, path: Path | None, task: Task) -> None:
        self.path = path
        self.recipe = json.loads(json.dumps({"task": task.name, **dataclasses.asdict(task)}))
        self.facts: dict[str, str] = {}
        self.runs: dict[Job, dict[str, Any]] = {}
        if path is not None:
            self._open(path)

    def _open(self, path: Path) -> None:
        if not path.exists():
            if not path.parent.is_dir():
                raise BenchError(f"--json {path}: no folder {path.parent}")
            return
        content = _read(path)
        theirs = content["recipe"]
        if theirs != self.recipe:
            keys = sorted(key for key in {*theirs, *self.recipe} if theirs.get(key) != self.recipe.get(key))
            differences = ", ".join(f"{key} {theirs.get(key)}, not {self.recipe.get(key)}" for key in keys)
            raise BenchError(f"--json {path}: has runs of another recipe: {differences} (allowed: a new file)")
        self.facts = content["machine"]
        self.runs = {Job(run["preset"], run["seed"]): run for run in content["runs"]}

    def begin(self, facts: dict[str, str]) -> None:
        """Must be called before add(). Raises BenchError if new runs would not be comparable with the present ones."""
        for key in SAME_MACHINE if self.runs else ():
            if self.facts.get(key) != facts[key]:
                raise BenchError(f"--json {self.path}: its runs have {key} {self.facts.get(key)}, and this would be "
                                 f"{facts[key]}: not comparable (allowed: a new file)")
        self.facts = facts

    def add(self, run: dict[str, Any]) -> None:
        self.runs[Job(run["preset"], run["seed"])] = {**run, "actzip": self.facts["actzip"]}
        if self.path is not None:
            self._write(self.path)

    def _write(self, path: Path) -> None:
        """Replaces the file as a whole, so that an interruption loses none of the earlier runs."""
        content = {"format": FORMAT, "machine": self.facts, "recipe": self.recipe,
                   "runs": [self.runs[job] for job in sorted(self.runs)]}
        unfinished = path.with_name(path.name + ".part")
        unfinished.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(unfinished, path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BenchError(f"--json {path}: is there and not readable as JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BenchError(f"--json {path}: is not a file of this command (expected: its \"format\" is {FORMAT!r})")
    return content
