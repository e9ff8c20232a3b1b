"""Activation-compressed training for PaddlePaddle: tensors saved for backward are stored in 2 to 4 bits per element.

>>> import paddle
>>> import actzip.paddle as actzip
>>> model = paddle.nn.Sequential(paddle.nn.Linear(64, 256), paddle.nn.ReLU(), paddle.nn.Linear(256, 10))
>>> with actzip.compress(model) as session:
...     loss = model(paddle.randn([512, 64])).square().mean()
>>> loss.backward()
>>> report = session.report()
>>> report.bytes_after < report.bytes_before / 4
True
"""

from . import _paddle_check  # noqa: F401  (first: _C is linked against Paddle's libraries)
from . import nn
from .._paddle_C import version as __version__
from ..report import Report, SiteReport
from ..verification import Verification
from .convert import Converted, convert, converted, restore, session_of
from .session import Attachment, Session, attach, compress
from .verify import verify

__all__ = [
    "Attachment", "Converted", "Report", "Session", "SiteReport", "Verification", "attach", "compress", "convert",
    "converted", "nn", "restore", "session_of", "verify", "__version__",
]
