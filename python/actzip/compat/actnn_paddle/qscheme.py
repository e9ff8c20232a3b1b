"""The class on which the port's programs set samples."""

from __future__ import annotations

from typing import Any


class QScheme:
    """Programs set attributes of the class. They have no effect: bits of samples follow their size, as their gradients
    are not known on Paddle. The first step with ``config.use_gradient`` warns."""

    num_samples = 1
    batch: Any = None
    update_scale = True

    @staticmethod
    def allocate_perlayer() -> None:
        """Does nothing: on Paddle there is no plan."""


class QBNScheme(QScheme):
    """The scheme of batch norms, which is the same."""
