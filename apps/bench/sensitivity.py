"""What each row of the policy contributes: bytes and the gradient's error, with fewer and with more bits.

Trains small models of every kind for some steps. Then, for each row of the policy that a model uses, replaces its codec
by others, while everything else stays as the policy has it. The error is |g - exact|^2 / |exact|^2 over the whole
gradient, as the mean over draws of the random signs. The row's own error is that with everything else kept exactly.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from .. import _C
from ..report import Report, SiteReport
from ..session import Session
from . import devices, machine, small_models
from .errors import BenchError
from .results import ResultFile, new_run
from .steps import Bench, cosine, free_memory
from .table import table

TRAINING_STEPS = 40
LEARNING_STEPS = 2  # steps in which a session learns which sites share memory
CODECS = ("rotated:1", "rotated:2", "rotated:3", "rotated:4", "affine:4", "affine:8:nearest", "cast:bf16", "as is")
FINE_CODECS = ("affine:8:nearest", "cast:bf16")  # for what the policy keeps as it is
LOSSY = ("rotated", "affine", "cast")  # codecs that lose something, and that others may replace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = " ".join(__doc__.split("\n\n", 1)[1].split())
    parser.add_argument("--model", required=True, metavar="NAME", help=f"all, {', '.join(small_models.SMALL_MODELS)}")
    parser.add_argument("--draws", type=int, default=4, metavar="N", help="steps to average over (4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="adds the rows to FILE; a model's old ones go")
    devices.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    device, specs = devices.chosen(options.device), small_models.named(options.model)
    if options.draws < 1:
        raise BenchError(f"--draws {options.draws} (allowed: 1 or more)")
    file = options.json and ResultFile(options.json, "actzip.bench sensitivity, version 1", ("model", "device"))
    if file:
        file.read()
    facts, run_id = machine.describe(device), new_run()
    print(machine.heading(facts))
    for name, spec in specs.items():
        print(f"{name}: training", file=sys.stderr, flush=True)
        bench = small_models.trained(spec, device, TRAINING_STEPS)
        lines = [dataclasses.replace(line, model=name, device=facts["device"], run=run_id)
                 for line in Sensitivity(name, bench, options.draws).lines()]
        print(f"\n{name}\n{text(lines)}", flush=True)
        if file:
            file.merge(run_id, facts, lines)
        del bench
        free_memory()
    return 0


@dataclasses.dataclass(frozen=True)
class Line:
    """One codec in one row of the policy."""

    row: str  #: what the model uses of the row: operator.slot, separated by spaces
    codec: str
    is_default: bool  #: whether this is the policy's codec
    held_bytes: int  #: of the whole step
    error: float
    cosine: float
    own_error: float  #: if only this row loses anything
    reason: str = ""  #: of the row
    model: str = ""
    device: str = ""
    run: str = ""


@dataclasses.dataclass(frozen=True)
class PolicyRow:
    """A row of the policy, as far as a model uses it."""

    reason: str
    operators: str  #: operator.slot, separated by spaces
    sites: tuple[str, ...]
    codecs: tuple[str, ...]  #: that the policy gives the sites; none if it keeps them as they are

    def all_by(self, codec: str) -> dict[str, str]:
        """Returns rules for a session that give all sites this codec. They use whole names, since an operator may also
        have sites that are kept as they are."""
        return dict.fromkeys(self.sites, codec)


class Sensitivity:
    """The lines of one trained model."""

    def __init__(self, name: str, bench: Bench, draws: int) -> None:
        self._name, self._bench, self._draws = name, bench, draws
        torch.manual_seed(0)
        self._exact = bench.gradients(nullcontext())
        self._energy = sum(float(g.double().square().sum()) for g in self._exact)

    def lines(self) -> list[Line]:
        """Returns the line for the whole policy, then those of each row, which begin with the policy's own codec."""
        whole = self._measure({})
        lines = [Line("all", "default", True, *whole, own_error=whole[1])]
        rows = rows_in_use(self._report({}), self._report({"*": "rotated:4"}))
        for i, row in enumerate(rows):
            print(f"{self._name}: row {i + 1} of {len(rows)}", file=sys.stderr, flush=True)
            others = {site: "as is" for other in rows if other is not row and other.codecs for site in other.sites}
            own = self._measure(others)[1] if row.codecs else 0.0
            text_of_default = ", ".join(row.codecs) or "as is"
            lines.append(Line(row.operators, text_of_default, True, *whole, own, row.reason))
            for codec in CODECS if row.codecs else FINE_CODECS:
                if codec != text_of_default:
                    lines.append(self._line(row, codec, others))
        return lines

    def _line(self, row: PolicyRow, codec: str, others: dict[str, str]) -> Line:
        own = 0.0 if codec == "as is" else self._measure({**row.all_by(codec), **others})[1]
        return Line(row.operators, codec, False, *self._measure(row.all_by(codec)), own, row.reason)

    def _measure(self, rules: dict[str, str]) -> tuple[int, float, float]:
        """Returns bytes held, error and cosine."""
        session = Session(self._bench.model, rules=rules)
        for _ in range(LEARNING_STEPS):
            self._bench.step(session)
        error = alike = 0.0
        for _ in range(self._draws):
            found = self._bench.gradients(session)
            error += sum(float((g.double() - e.double()).square().sum()) for g, e in zip(found, self._exact))
            alike += cosine(found, self._exact)
        return session.report().bytes_after, error / self._draws / self._energy, alike / self._draws

    def _report(self, rules: dict[str, str]) -> Report:
        session = Session(self._bench.model, rules=rules, dry_run=True)
        self._bench.step(session)
        return session.report()


def rows_in_use(default: Report, coarse: Report) -> list[PolicyRow]:
    """Returns the rows that lose something, and those that would if all sites were kept in few bits, as in `coarse`."""
    in_few_bits = {site.site for site in coarse.sites if site.codec.startswith(LOSSY)}
    by_name = {site.site: site for site in default.sites}
    by_use: dict[str, list[SiteReport]] = defaultdict(list)
    for site in default.sites:
        if lossy_codec(site, by_name) or (site.kind == "as is" and site.site in in_few_bits):
            by_use[site.use].append(site)
    rows = []
    for use, reason in _C.policy_rows():
        if use not in by_use:
            continue
        changed = [site for site in by_use[use] if site.kind != "as is"] or by_use[use]
        operators = " ".join(dict.fromkeys(f"{site.op}.{site.slot}" for site in changed))
        codecs = tuple(dict.fromkeys(filter(None, (lossy_codec(site, by_name) for site in changed))))
        rows.append(PolicyRow(reason, operators, tuple(site.site for site in changed), codecs))
    return rows


def lossy_codec(site: SiteReport, by_name: dict[str, SiteReport]) -> str:
    """Returns the lossy codec of a site; empty if it loses nothing. A ReLU's result with a mask plane loses nothing;
    the layer that shares its values does."""
    if site.kept_by:
        keeper = by_name[site.kept_by]
        return keeper.codec if keeper.codec.startswith(LOSSY) else ""
    return site.codec if site.codec.startswith(LOSSY) and not site.codec.endswith(":mask") else ""


def text(lines: Sequence[Line]) -> str:
    """Returns a table. Each row's name is given once, and a star marks the policy's codec."""
    cells, before = [], ""
    for line in lines:
        name, codec = "" if line.row == before else line.row, line.codec + " *" * line.is_default
        cells.append((name, codec, f"{line.held_bytes / 1024:.1f}", f"{line.error:.3e}", f"{line.cosine:.5f}",
                      f"{line.own_error:.3e}"))
        before = line.row
    return table(("row", "codec", "held KiB", "error", "cosine", "own error"), cells)
