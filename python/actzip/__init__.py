"""Activation-compressed training for PyTorch: the tensors that autograd saves between forward and backward are stored
in 2 to 4 bits per element. For PaddlePaddle use :mod:`actzip.paddle`, which needs no torch.

>>> import torch, actzip
>>> model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
>>> with actzip.compress(model) as session:
...     loss = model(torch.randn(512, 64)).square().mean()
>>> loss.backward()
>>> report = session.report()
>>> report.bytes_after < report.bytes_before / 4
True
"""

from . import _frameworks

__all__ = [
    "Attachment", "CompiledSession", "Conversion", "Converted", "Parts", "RecomputedModule", "Report", "Session",
    "SiteParts", "SiteReport", "Verification", "attach", "compile", "compile_options", "compiled_session", "compress",
    "conversion_of", "convert", "converted", "data", "nn", "operators", "parts", "recomputable", "register", "restore",
    "session_of", "site_parts", "verify", "__version__",
]

if _frameworks.is_for_paddle_alone():
    __getattr__ = _frameworks.missing_torch
else:
    from . import _torch_check  # noqa: F401  (first: _C is linked against torch's libraries, and relies on their inside)
    from . import data, nn, operators
    from ._C import version as __version__
    from .compiled import CompiledSession, compile, compile_options, compiled_session
    from .convert import Conversion, Converted, conversion_of, convert, converted, restore, session_of
    from .operators import register
    from .parts import Parts, SiteParts, parts, site_parts
    from .recompute import recomputable
    from .report import RecomputedModule, Report, SiteReport
    from .session import Attachment, Session, attach, compress
    from .verification import Verification
    from .verify import verify
