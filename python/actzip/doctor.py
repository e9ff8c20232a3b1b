"""Examines this installation: what works, and what to do about the rest."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _frameworks, _native
from .verification import Verification

OK, MISSING, BROKEN = "ok", "missing", "broken"  # missing parts are no failure: nothing on the CPU needs them


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the output."""

    topic: str
    state: str
    text: str
    advice: str = ""  #: what to do; empty if nothing needs to be done


def run() -> int:
    findings = examine()
    for finding in findings:
        print(f"{finding.state:<8} {finding.topic:<12} {finding.text}")
        if finding.advice:
            print(f"{'':<21} -> {finding.advice}")
    return int(any(finding.state == BROKEN for finding in findings))


def examine() -> list[Finding]:
    backends = _native.backends()
    findings = [
        Finding("actzip", OK, f"{_native.version}, byte format {_native.format_version}, in {Path(__file__).parent}"),
        Finding("Python", OK, f"{platform.python_version()}, {sys.executable}"),
        Finding("CPU levels", OK, f"{', '.join(backends['cpu_levels'])}; in use: {backends['cpu_level']}"),
    ]
    if _frameworks.is_for_torch():
        from . import torch_doctor
        findings += torch_doctor.examine(backends)
    if _frameworks.is_for_paddle():
        from .paddle import doctor as paddle_doctor
        findings += paddle_doctor.examine()
    return findings


def check_step(topic: str, step: Callable[..., Verification]) -> Finding:
    """Checks a small step of training: `exact` must give plain gradients, `default` similar ones with fewer bytes kept.

    Args:
        topic: name of the line in the output.
        step: verifies a small model, with the given options of a session.
    """
    advice = "this is a fault of actzip or of the machine: please report it with this output"
    usual: dict[str, Any] = {"draws": 2, "by_site": False}
    try:
        exact, default = step(preset="exact", **usual), step(**usual)
    except Exception as error:  # any error is a finding
        return Finding(topic, BROKEN, f"{type(error).__name__}: {error}", advice)
    smaller = default.report.bytes_before / max(1, default.report.bytes_after)
    text = (f"{smaller:.1f} times less kept, gradients at cosine {default.total.cosine:.3f}; 'exact' at error "
            f"{exact.total.error:.1g}")
    is_good = exact.total.error == 0.0 and default.total.cosine > 0.9 and smaller > 4
    return Finding(topic, OK, text) if is_good else Finding(
        topic, BROKEN, f"{text} (expected: more than 4 times, more than 0.9, 0)", advice)
