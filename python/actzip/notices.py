"""Warnings after the first step of a session: operators left uncompressed, and rules that matched nothing."""

from __future__ import annotations

import fnmatch
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from .report import Report, SiteReport, bytes_text

#: The name that reports give to what no operator saves.
OUTSIDE = "unknown"

#: From this many bytes on, a session warns of operators unknown to actzip.
WORTH_A_WARNING = 1 << 20


def look_back(report: Report, rules: Mapping[str, str], stacklevel: int) -> bool:
    """Warns of what the report of a step shows. Returns whether it named operators that are left uncompressed.

    ``stacklevel`` counts from the caller.
    """
    left_alone = tuple(_left_alone(report))
    for text in (*left_alone, *_idle_rules(report, rules)):
        warnings.warn(f"actzip: {text}", stacklevel=stacklevel + 1)
    return bool(left_alone)


def _left_alone(report: Report) -> Iterator[str]:
    """Names the operators that actzip does not know and therefore leaves uncompressed, if they keep many bytes."""
    left: Counter[str] = Counter()
    for site in report.sites:
        if site.cause == "policy" and site.use in ("unknown", "foreign") and site.dtype in ("f32", "bf16", "f16"):
            left[site.op] += site.bytes_after
    if sum(left.values()) < max(WORTH_A_WARNING, report.bytes_before / 20):
        return
    names = ", ".join(f"{name} ({bytes_text(count)})" for name, count in left.most_common(5))
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    yield (f"{names}{more} of {bytes_text(report.bytes_before)} are kept as they are, because actzip does not know what "
           f"these operators save for; {_what_helps(left)}")


def _what_helps(operators: Collection[str]) -> str:
    if any(name.endswith(".CompiledFunction") for name in operators):
        return "write actzip.compile(model) in place of torch.compile(model) (docs/compile.md)"
    if OUTSIDE in operators:
        return (f"{OUTSIDE!r} is what is saved outside of torch's operators, as scripted modules do: use the module that "
                "was scripted, or a rule")
    return "actzip.register() or a rule compresses them (docs/policy.md)"


def _idle_rules(report: Report, rules: Mapping[str, str]) -> Iterator[str]:
    for pattern in rules:
        if report.sites and not any(_matches(pattern, site) for site in report.sites):
            yield f"the rule {pattern!r} matched no site of the first step{_better_pattern(pattern, report)}"


def _matches(pattern: str, site: SiteReport) -> bool:
    """Compares pattern and site as the core does."""
    if pattern.startswith("use:"):
        return fnmatch.fnmatchcase(f"use:{site.use}", pattern)
    return fnmatch.fnmatchcase(f"{site.op}.{site.slot}", pattern) or fnmatch.fnmatchcase(site.site, pattern)


def _better_pattern(pattern: str, report: Report) -> str:
    """Returns a hint for a better pattern. After a module's name its own sites have a colon, its children a dot."""
    module = pattern.removesuffix(".*").removesuffix("*")
    if any(site.module == module for site in report.sites):
        return f" (for the module {module} and what is inside it: '{module}[.:]*')"
    return "; session.report().to_text(all=True) has the names of all sites"
