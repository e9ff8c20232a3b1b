"""Reports: what a session did with each saved tensor, and why."""

from __future__ import annotations

import dataclasses
import json
import math

from . import _native
from .memory_picture import memory_picture


@dataclasses.dataclass(frozen=True)
class SampleBits:
    """How the bits of one tensor are distributed over its samples."""

    samples: int
    fewest: int
    mean: float
    most: int
    error: float  #: relative squared error, with samples weighted as they matter


@dataclasses.dataclass(frozen=True)
class SampleStatistics:
    """What is known of all samples of a data set."""

    samples: int
    bytes: int  #: that this takes on the device


@dataclasses.dataclass(frozen=True)
class SiteReport:
    """A site: one place of the step where a tensor is saved."""

    site: str  #: the name: "layers.0: addmm.mat1", with " #1" and so on for repetitions
    module: str  #: "" if unknown
    op: str
    slot: str  #: name of the operator's argument, or "result"
    ordinal: int  #: how often the same module, operator and slot came before in the step
    use: str  #: what the gradient needs of the tensor: "linear_input", "sign", ...
    shape: tuple[int, ...]
    dtype: str
    kind: str  #: "encoded", "shared", "derived", "recomputed", "shape only" or "as is"
    codec: str  #: for people: "rotated:2" if it is encoded, otherwise the kind
    kept_by: str  #: the site that keeps the bytes, if it is shared or derived
    bytes_before: int  #: what torch alone would keep; 0 if something else keeps it anyway
    bytes_after: int  #: what is kept
    bytes_offloaded: int  #: the part of bytes_after that left its GPU, or memory
    reason: str
    saves: int  #: number of tensors saved here since the session began
    #: Variance of the gradient, relative to its square, for a relative squared error of 1 in what this site keeps.
    sensitivity: float | None = None
    variance: float | None = None  #: sensitivity times the error of the codec: what this site adds
    sample_bits: SampleBits | None = None  #: if its samples have bits of their own, and the device has reported them
    #: Why it is kept as it is: "parameter", "small", "type" (no codec supports it), "rule" (of the session), "policy",
    #: "guard" (compressing it would spoil a gradient) or "caller" (who holds it anyway, so that it counts as 0 bytes);
    #: "" if it is not. ``reason`` says more.
    cause: str = ""
    #: When its bytes were kept and freed, in seconds since the step began. ``kept_at`` is None if the site keeps
    #: nothing, ``freed_at`` until the bytes are freed.
    kept_at: float | None = None
    freed_at: float | None = None


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """What a session that adapts has found out. Variances are relative to the square of the gradient."""

    budget_bits: float
    average_bits: float  #: over the elements of the planned sites; 0 before the first plan
    plans: int  #: number of plans so far
    predicted_bytes: int | None  #: that the step keeps according to the plan
    predicted_variance: float | None  #: that compression adds to the gradient
    measured_variance: float | None
    gradient_variance: float | None  #: the gradient's own variance over batches


@dataclasses.dataclass(frozen=True)
class BudgetReport:
    """What a session with a budget holds between forward and backward, including tensors that are kept exactly."""

    asked: str  #: the option ``budget``, as text
    bytes: int | None  #: the limit of the last step; None while it is unknown
    most_held: int  #: the maximum during the last step


@dataclasses.dataclass(frozen=True)
class RecomputedModule:
    """A module that :func:`actzip.recomputable` has marked, and that runs again in backward. Figures are sums over its
    calls in a step."""

    module: str
    calls: int
    seconds: float  #: of its forward, when the session decided: about what the step takes longer; 0 before
    bytes_input: int  #: what is kept of its arguments, when the session decided
    bytes_inside: int  #: what it would keep otherwise, with the bits of the preset's table


@dataclasses.dataclass(frozen=True)
class OffloadReport:
    """What a session that offloads has done since it began."""

    copied_out: int  #: bytes from a GPU to pinned memory; writing into a file copies nothing
    copied_in: int  #: bytes from pinned memory back to a GPU
    passed_over: int  #: bytes that stayed because copies were behind or pinned memory was used up
    fetches: int  #: fetches of bytes that were put away
    waits: int  #: fetches that had to start a copy, or to wait for the disk
    host_waits: int  #: how often forward waited for a GPU
    pinned_bytes: int  #: pinned host memory that the session occupies now


@dataclasses.dataclass(frozen=True)
class Report:
    """What the last step of a session kept.

    Prints as a summary in one line and a table of the sites that keep the most bytes; ``to_text(all=True)`` lists every
    site.

    >>> import torch, actzip
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
    >>> with actzip.compress(model) as session:
    ...     loss = model(torch.randn(512, 64)).sum()
    >>> print(session.report().to_text().splitlines()[0])
    preset 'default', step 1: held 256.0 KiB -> 25.0 KiB (10.2 times smaller); 2 sites
    """

    preset: str
    runs_as: str  #: the level that runs in place of the requested one; usually empty
    dry: bool  #: nothing was compressed; the report says what would be done
    steps: int
    bytes_before: int  #: what torch alone would keep: the sum over the sites
    bytes_after: int  #: what is kept
    bytes_offloaded: int  #: the part of bytes_after that left its GPU, or memory
    live_bytes: int  #: encoded bytes that currently wait for backward
    index_overflow: bool  #: an index was outside its operator's bound: a gradient was wrong
    sites: tuple[SiteReport, ...]  #: of the last step, in the order of their first save
    plan: PlanReport | None  #: if the session adapts
    budget: BudgetReport | None  #: if it has a budget
    offload: OffloadReport | None  #: if it offloads
    sample_statistics: SampleStatistics | None  #: if it has ``use_gradient``
    #: Modules that run again in backward. Their sites are in the report once backward has run; what these keep, they do
    #: not keep all at once, so that ``bytes_after`` may exceed ``budget.most_held``.
    recomputed: tuple[RecomputedModule, ...] = ()

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads what ``to_json()`` wrote, in Python or C++."""
        fields = json.loads(text)
        sites = tuple(
            SiteReport(**{**site, "shape": tuple(site["shape"]),
                          "sample_bits": site["sample_bits"] and SampleBits(**site["sample_bits"])})
            for site in fields.pop("sites"))
        recomputed = tuple(RecomputedModule(**module) for module in fields.pop("recomputed", ()))
        plan, budget, offload, statistics = (
            fields.pop(name) for name in ("plan", "budget", "offload", "sample_statistics"))
        return cls(sites=sites, plan=plan and PlanReport(**plan), budget=budget and BudgetReport(**budget),
                   offload=offload and OffloadReport(**offload),
                   sample_statistics=statistics and SampleStatistics(**statistics), recomputed=recomputed, **fields)

    @property
    def ratio(self) -> float:
        """How many times smaller: ``bytes_before / bytes_after``.

        1 if nothing was saved. Infinite if tensors were saved and nothing is kept of them, for example because backward
        needs only their shapes.
        """
        if self.bytes_after == 0:
            return math.inf if self.bytes_before else 1.0
        return self.bytes_before / self.bytes_after

    def to_dict(self) -> dict:
        """Returns the report as plain Python values."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """Returns the report as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def to_text(self, *, all: bool = False) -> str:
        """Returns the report as text for people, as ``print`` shows it.

        Args:
            all: list every site, in the order of the step. Otherwise the table has the 20 sites that keep the most
                bytes, without parameters and small tensors, and the last line says how many are left out.
        """
        text = _native.report_text(self.to_dict(), all).rstrip()
        if not self.recomputed:
            return text
        return f"{text}\nrun again in backward: {', '.join(module.module for module in self.recomputed)}"

    def to_svg(self) -> str:
        """Returns an SVG picture of the step: what was held when, in memory and offloaded.

        Each of the largest sites has a bar that shows how long it kept its bytes. Call it after backward.
        """
        return memory_picture(self)

    @property
    def text(self) -> str:
        """``to_text(all=True)``."""
        return self.to_text(all=True)

    def __str__(self) -> str:
        return self.to_text()


def bytes_text(count: float) -> str:
    """``1.5 KiB`` for 1536."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.1f} {units[0]}" if units[0] != "B" else f"{count} B"
