"""Which modules run again in backward: as few as a budget requires, and those that take the least time for what they
free."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set

#: How exactly the bits that fit are found.
_HALVINGS = 20


@dataclasses.dataclass
class Range:
    """Bytes that depend on the bits: with the fewest, and with those of the preset's table."""

    least: float = 0.0
    by_table: float = 0.0

    def at(self, bits: float) -> float:
        """Returns the bytes between the two; ``bits`` is 0 for the fewest and 1 for the table's."""
        return self.least + bits * (self.by_table - self.least)

    def add(self, least: float, by_table: float) -> None:
        self.least += least
        self.by_table += by_table

    def scaled(self, factor: float) -> Range:
        return Range(factor * self.least, factor * self.by_table)


@dataclasses.dataclass
class Known:
    """What a session knows of a marked module: sums over its calls in a step."""

    seconds: float = 0.0  #: of its forward
    bytes_given: int = 0  #: size of its arguments in its largest call
    bytes_input: int = 0  #: what is kept of its arguments if it runs again
    inside: Range = dataclasses.field(default_factory=Range)  #: what it keeps otherwise


@dataclasses.dataclass(frozen=True)
class Step:
    """A step in the order of its forward: each part is a marked module's path, or bytes that are always kept."""

    parts: Sequence[str | Range]
    modules: dict[str, Known]

    def paths(self) -> list[str]:
        return [part for part in self.parts if isinstance(part, str)]

    def seconds(self, again: Set[str]) -> float:
        return sum(self.modules[path].seconds for path in again)

    def most_held(self, again: Set[str], bits: float = 1.0) -> float:
        """Returns the bytes held at once if the modules ``again`` run again.

        When backward arrives at such a module, what came after it is freed, and its inside comes on top of what came
        before it.
        """
        held = most = 0.0
        for part in self.parts:
            if isinstance(part, Range):
                held += part.at(bits)
            elif part in again:
                held += self.modules[part].bytes_input
                most = max(most, held + self.modules[part].inside.at(bits))
            else:
                held += self.modules[part].inside.at(bits)
        return max(most, held)

    def bits_within(self, limit: float, again: Set[str]) -> float:
        """Returns the bits that fit into ``limit``: at most 1, the table's; below 0 if not even the fewest do."""
        if self.most_held(again) <= limit:
            return 1.0
        if (least := self.most_held(again, 0.0)) > limit:
            return (limit - least) / least
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.most_held(again, middle) <= limit else (low, middle)
        return low


def choose(step: Step, limit: float, before: Set[str]) -> frozenset[str]:
    """Returns the modules that run again so that ``limit`` bytes suffice for the bits of the table, or that leave the
    most bits if none do.

    Those that ran again ``before`` do so again: a step that is smaller now and then changes nothing.
    """
    again = frozenset(before)
    candidates = [again]
    while step.most_held(again) > limit:
        gains = {path: _gain(step, again, path) for path in step.paths() if path not in again}
        best = max(gains, key=gains.__getitem__, default="")
        if best not in gains or gains[best] <= 0.0:
            break
        again |= {best}
        candidates.append(again)
    most_bits = max(candidates, key=lambda candidate: step.bits_within(limit, candidate))
    return _without_needless(step, limit, most_bits, frozenset(before))


def _gain(step: Step, again: frozenset[str], path: str) -> float:
    """Returns how many bytes less are held for each second more."""
    fewer = step.most_held(again) - step.most_held(again | {path})
    return fewer / max(step.modules[path].seconds, 1e-9)


def _without_needless(step: Step, limit: float, again: frozenset[str], before: frozenset[str]) -> frozenset[str]:
    """Removes modules that were taken early and that later ones have made superfluous, the slowest first."""
    bits = step.bits_within(limit, again)
    for path in sorted(again - before, key=lambda path: -step.modules[path].seconds):
        if step.bits_within(limit, again - {path}) >= bits:
            again -= {path}
    return again
