"""ActNN has a scheme of its own for batch norms. Here their bits come from the same plan as all others."""

from __future__ import annotations

import torch

from .qscheme import QScheme


class QBNScheme(QScheme):
    """Reads and serves as :class:`QScheme`; its ``layers`` are the batch norms."""

    def __init__(self, group: int = 0, layer: torch.nn.Module | None = None) -> None:
        super().__init__(layer, group)
        #: Of the layer before, whose bits a batch norm takes over in ActNN.
        self.prev_linear = QScheme.layers[-1] if QScheme.layers else None
