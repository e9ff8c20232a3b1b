"""What works in this installation, and what to do about the rest."""

from __future__ import annotations

import dataclasses
import platform
import sys
from pathlib import Path

import torch

from . import _C
from ._built_for import TORCH
from .verify import verify

OK, MISSING, BROKEN = "ok", "missing", "broken"  # what is missing is no failure: the CPU needs none of it


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of what is printed."""

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
    backends = _C.backends()
    cuda = check_cuda(backends, torch.version.cuda, torch.cuda.is_available())
    findings = [
        Finding("actzip", OK, f"{_C.version}, byte format {_C.format_version}, in {Path(__file__).parent}"),
        Finding("Python", OK, f"{platform.python_version()}, {sys.executable}"),
        Finding("torch", OK, f"{torch.__version__} running, {TORCH} built against"),
        Finding("CPU levels", OK, f"{', '.join(backends['cpu_levels'])}; in use: {backends['cpu_level']}"),
        cuda,
        check_step("cpu"),
    ]
    if torch.cuda.is_available() and cuda.state == OK:
        findings.append(check_step("cuda"))
    return findings


def check_cuda(backends: dict, torch_cuda: str | None, is_available: bool) -> Finding:
    """The three that have to come together: torch for CUDA, a GPU, kernels in the extension."""
    kernels = "kernels are in the extension" if backends["cuda_built"] else "no kernels in the extension"
    if torch_cuda is None:
        return Finding("CUDA", MISSING, f"this torch is for the CPU; {kernels}",
                       "for a GPU: install a torch for CUDA, then actzip again")
    if not is_available:
        return Finding("CUDA", MISSING, f"torch for CUDA {torch_cuda} sees no GPU; {kernels}",
                       "for a GPU: see whether nvidia-smi finds one")
    if not backends["cuda_built"]:
        return Finding("CUDA", BROKEN, f"torch for CUDA {torch_cuda} sees a GPU; {kernels}",
                       "install the CUDA toolkit (nvcc on PATH), then actzip again "
                       "(pip install --force-reinstall --no-deps --no-cache-dir, from its source)")
    if backends["cuda_problem"]:
        return Finding("CUDA", BROKEN, f"torch for CUDA {torch_cuda} sees a GPU, and no kernel can run on it",
                       backends["cuda_problem"])
    return Finding("CUDA", OK, f"torch for CUDA {torch_cuda}, {torch.cuda.get_device_name()}; {kernels}")


def check_step(device: str) -> Finding:
    """A small step of training: `exact` must give torch's gradients, the default must come near them with less kept."""
    topic = f"{device.upper()} step"
    advice = "this is a fault of actzip or of the machine: please report it with this output"
    try:
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
            batch = torch.randn(512, 64)
        exact = verify(model, batch, draws=2, by_site=False, preset="exact")
        default = verify(model, batch, draws=2, by_site=False)
    except Exception as error:  # whatever it is, it belongs into the answer
        return Finding(topic, BROKEN, f"{type(error).__name__}: {error}", advice)
    smaller = default.report.bytes_before / max(1, default.report.bytes_after)
    text = (f"{smaller:.1f} times less kept, gradients at cosine {default.total.cosine:.3f}; 'exact' at error "
            f"{exact.total.error:.1g}")
    is_good = exact.total.error == 0.0 and default.total.cosine > 0.9 and smaller > 4
    return Finding(topic, OK, text) if is_good else Finding(
        topic, BROKEN, f"{text} (expected: more than 4 times, more than 0.9, 0)", advice)
