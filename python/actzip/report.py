"""What a session did with everything that was saved, and why."""

from __future__ import annotations

import dataclasses
import json


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
    shape: tuple[int, ...]
    dtype: str
    codec: str  #: "rotated:2", or "as is", "shape only", "recomputed", "shared", "derived"
    bytes_before: int  #: what torch would keep; 0 if something else keeps it anyway
    bytes_after: int
    reason: str
    saves: int  #: since the session began
    #: Variance of the gradient, relative to its square, for a relative squared error of 1 in what this site keeps.
    sensitivity: float | None = None
    variance: float | None = None  #: that times the error of its codec
    sample_bits: SampleBits | None = None  #: if its samples have bits of their own, and the device has said which


@dataclasses.dataclass(frozen=True)
class PlanReport:
    """What a session that adapts has found. Variances are relative to the square of the gradient."""

    budget_bits: float
    average_bits: float  #: over the elements that the plan chose for; 0 before any
    plans: int  #: made so far
    predicted_variance: float | None  #: that compression adds to the gradient
    measured_variance: float | None
    gradient_variance: float | None  #: its own, over batches


@dataclasses.dataclass(frozen=True)
class Report:
    """What the last step of a session kept. Prints as a table."""

    preset: str
    runs_as: str  #: the level that runs in place of the one asked for; mostly empty
    dry: bool  #: nothing was compressed: the report says what would be done
    steps: int
    bytes_before: int
    bytes_after: int
    live_bytes: int  #: encoded bytes that wait for backward now
    index_overflow: bool  #: an index lay outside its operator's bound
    sites: tuple[SiteReport, ...]
    plan: PlanReport | None  #: of a session that adapts
    sample_statistics: SampleStatistics | None  #: of one that knows gradients by sample
    text: str = dataclasses.field(repr=False)

    @classmethod
    def _parse(cls, text: str, json_text: str) -> Report:
        fields = json.loads(json_text)
        sites = tuple(
            SiteReport(**{**site, "shape": tuple(site["shape"]),
                          "sample_bits": site["sample_bits"] and SampleBits(**site["sample_bits"])})
            for site in fields.pop("sites"))
        plan, statistics = fields.pop("plan"), fields.pop("sample_statistics")
        return cls(sites=sites, plan=plan and PlanReport(**plan),
                   sample_statistics=statistics and SampleStatistics(**statistics), text=text, **fields)

    def to_dict(self) -> dict:
        """The report as plain Python values."""
        fields = dataclasses.asdict(self)
        del fields["text"]
        return fields

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        return self.text
