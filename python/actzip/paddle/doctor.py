"""Examines Paddle's part of an installation."""

from __future__ import annotations

from typing import Any

import paddle

from .._built_for_paddle import PADDLE
from ..doctor import OK, Finding, check_step
from ..verification import Verification
from .verify import verify


def examine() -> list[Finding]:
    return [Finding("Paddle", OK, f"{paddle.__version__} running, {PADDLE} built against; for tensors of the CPU"),
            check_step("Paddle step", verified)]


def verified(**options: Any) -> Verification:
    """Verifies the gradients of a small model."""
    model = paddle.nn.Sequential(paddle.nn.Linear(64, 256), paddle.nn.ReLU(), paddle.nn.Linear(256, 10))
    return verify(model, paddle.randn([512, 64]), **options)
