"""The part of GACT's controller that knows which tensors are no activations."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ...session import Session


class Quantizer:
    """Scripts name such tensors before they train. The model's own parameters are known anyway."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []

    def filter_tensors(self, pairs: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Keeps these tensors as they are wherever they are saved. ``pairs`` are names and tensors."""
        self._tensors += [tensor for _, tensor in pairs]

    def tell(self, session: Session) -> None:
        session._core.register_parameters(self._tensors)
