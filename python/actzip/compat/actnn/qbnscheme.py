"""ActNN's scheme for batch norms. In actzip, their bits come from the same plan as all others."""

from __future__ import annotations

import torch

from .qscheme import QScheme


class QBNScheme(QScheme):
    """Like :class:`QScheme`, but its ``layers`` are the batch norms."""

    def __init__(self, group: int = 0, layer: torch.nn.Module | None = None) -> None:
        super().__init__(layer, group)
        #: The scheme of the layer before. In ActNN the batch norm takes over its bits.
        self.prev_linear = QScheme.layers[-1] if QScheme.layers else None
