"""Examines PyTorch's part of an installation: what works, and on which devices."""

from __future__ import annotations

from typing import Any

import torch

from ._built_for import TORCH
from .doctor import BROKEN, MISSING, OK, Finding, check_step
from .verification import Verification
from .verify import verify


def examine(backends: dict) -> list[Finding]:
    cuda = check_cuda(backends, torch.version.cuda, torch.cuda.is_available())
    findings = [Finding("torch", OK, f"{torch.__version__} running, {TORCH} built against"), cuda,
                check_step("CPU step", lambda **options: verified("cpu", **options))]
    if torch.cuda.is_available() and cuda.state == OK:
        findings.append(check_step("CUDA step", lambda **options: verified("cuda", **options)))
    return findings


def check_cuda(backends: dict, torch_cuda: str | None, is_available: bool) -> Finding:
    """Checks the three things that CUDA requires: a torch for CUDA, a GPU, and kernels in the extension."""
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


def verified(device: str, **options: Any) -> Verification:
    """Verifies the gradients of a small model."""
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
        batch = torch.randn(512, 64)
    return verify(model, batch, **options)
