"""What a session did with everything that was saved, and why."""

from __future__ import annotations

import dataclasses
import json
import math

from . import _native
from .memory_picture import memory_picture


@dataclasses.dataclass(frozen=True)
class SampleBits:
    """Bits of the samples of one tensor."""

    samples: int
    fewest: int
    mean: float
    most: int
    error: float  #: relative squared error, samples counted as they matter


@dataclasses.dataclass(frozen=True)
class SampleStatistics:
    """What is known of all samples of a data set."""

    samples: int
    bytes: int  #: that it takes on the device


@dataclasses.dataclass(frozen=True)
class SiteReport:
    """One place of the step where a tensor is saved."""

    site: str
    module: str
    op: str
    slot: str
    ordinal: int
    use: str  #: what its gradient needs of it: "linear_input", "sign", ...
    shape: tuple[int, ...]
    dtype: str
    kind: str  #: "encoded", "shared", "derived", "recomputed", "shape only" or "as is"
    codec: str  #: for people: "rotated:2" if it is encoded, else its kind
    kept_by: str  #: the site that keeps it, if it is shared or derived
    bytes_before: int  #: what torch would keep; 0 if something else keeps it anyway
    bytes_after: int
    bytes_offloaded: int  #: of that, what left its GPU, or memory
    reason: str
    saves: int  #: since the session began
    #: Variance of the gradient, relative to its square, for a relative squared error of 1 in what this site keeps.
    sensitivity: float | None = None
    variance: float | None = None  #: that times the error of its codec
    sample_bits: SampleBits | None = None  #: if its samples have bits of their own, and the device has said which
    #: Why it is kept as it is: "parameter", "small", "type" (no codec takes it), "rule" (of the session) or "policy";
    #: "" if it is not. ``reason`` says more.
    cause: str = ""
    #: When what it keeps was kept and freed, in seconds since the step began; None if it keeps nothing, and not freed yet.
    kept_at: float | None = None
    freed_at: float | None = None


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """What a session that adapts has found. Variances are relative to the square of the gradient."""

    budget_bits: float
    average_bits: float  #: over the elements that the plan chose for; 0 before any
    plans: int  #: made so far
    predicted_bytes: int | None  #: that the step keeps, by the plan
    predicted_variance: float | None  #: that compression adds to the gradient
    measured_variance: float | None
    gradient_variance: float | None  #: its own, over batches


@dataclasses.dataclass(frozen=True)
class BudgetReport:
    """What a session with a budget holds between forward and backward, tensors that are kept exactly included."""

    asked: str  #: as it was asked for
    bytes: int | None  #: of the last step; None while it is not known
    most_held: int  #: at any time of the last step


@dataclasses.dataclass(frozen=True)
class OffloadReport:
    """What a session that offloads has done since it began. Into a file nothing is copied."""

    copied_out: int  #: bytes, from a GPU to pinned memory
    copied_in: int  #: bytes, back
    passed_over: int  #: bytes that stayed, because copies were behind or there was no pinned memory
    fetches: int  #: of what was put away
    waits: int  #: of these, those that began a copy when backward asked, or waited for the disk
    host_waits: int  #: times that forward waited for a GPU
    pinned_bytes: int  #: of the host, taken for the session now


@dataclasses.dataclass(frozen=True)
class Report:
    """What the last step of a session kept.

    Prints as a summary in one line and a table of the sites that keep the most bytes; ``to_text(all=True)`` has every
    site.

    >>> import torch, actzip
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())
    >>> with actzip.compress(model) as session:
    ...     loss = model(torch.randn(512, 64)).sum()
    >>> print(session.report().to_text().splitlines()[0])
    preset 'default', step 1: held 256.0 KiB -> 25.0 KiB (10.2 times smaller); 2 sites
    """

    preset: str
    runs_as: str  #: the level that runs in place of the one asked for; mostly empty
    dry: bool  #: nothing was compressed: the report says what would be done
    steps: int
    bytes_before: int
    bytes_after: int
    bytes_offloaded: int  #: of that, what left its GPU, or memory
    live_bytes: int  #: encoded bytes that wait for backward now
    index_overflow: bool  #: an index lay outside its operator's bound
    sites: tuple[SiteReport, ...]
    plan: PlanReport | None  #: of a session that adapts
    budget: BudgetReport | None  #: of one that has a budget
    offload: OffloadReport | None  #: of one that offloads
    sample_statistics: SampleStatistics | None  #: of one that knows gradients by sample

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that ``to_json()`` of Python or C++ wrote."""
        fields = json.loads(text)
        sites = tuple(
            SiteReport(**{**site, "shape": tuple(site["shape"]),
                          "sample_bits": site["sample_bits"] and SampleBits(**site["sample_bits"])})
            for site in fields.pop("sites"))
        plan, budget, offload, statistics = (
            fields.pop(name) for name in ("plan", "budget", "offload", "sample_statistics"))
        return cls(sites=sites, plan=plan and PlanReport(**plan), budget=budget and BudgetReport(**budget),
                   offload=offload and OffloadReport(**offload), sample_statistics=statistics and SampleStatistics(**statistics), **fields)

    @property
    def ratio(self) -> float:
        """How many times smaller: ``bytes_before / bytes_after``, uncompressed by kept.

        1 where nothing was saved, and infinite where nothing is kept of what was, as where backward asks for shapes
        alone.
        """
        if self.bytes_after == 0:
            return math.inf if self.bytes_before else 1.0
        return self.bytes_before / self.bytes_after

    def to_dict(self) -> dict:
        """The report as plain Python values."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def to_text(self, *, all: bool = False) -> str:
        """The report for people, as ``print`` shows it.

        Without ``all``, parameters, small tensors and all but the 20 sites that keep the most bytes are left out, and
        the last line says how many that are; with it, every site is there, in the order of the step.
        """
        return _native.report_text(self.to_dict(), all).rstrip()

    def to_svg(self) -> str:
        """A picture of the step: what was held when, in memory and offloaded, and how long each site kept its bytes.

        Ask for it after backward. The largest sites have a bar each.
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
