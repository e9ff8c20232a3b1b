"""What the port's programs set about samples."""

from __future__ import annotations

from typing import Any


class QScheme:
    """Set on the class. Bits of samples go by their size here: no gradient of theirs is known, and the first step with
    ``config.use_gradient`` says so."""

    num_samples = 1
    batch: Any = None
    update_scale = True

    @staticmethod
    def allocate_perlayer() -> None:
        """Nothing: Paddle has no bits by layer."""


class QBNScheme(QScheme):
    """For batch norms there is no other scheme."""
