"""Checks models of PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from .options import refuse_model


def check_model(model: Any, call: str) -> None:
    """Raises TypeError unless the model is a ``torch.nn.Module``."""
    if not isinstance(model, torch.nn.Module):
        refuse_model(model, call, "torch.nn.Module")
