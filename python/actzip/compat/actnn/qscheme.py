"""What ActNN's programs set about samples: how many there are, and which ones the coming step has."""

from __future__ import annotations

from typing import Any


class QScheme:
    """Set on the class, for all layers.

    With ``config.use_gradient`` samples get bits by the gradients that they had when they were last seen;
    ``num_samples`` is the size of the training set, and ``batch`` the indices of the samples in the coming step.
    """

    num_samples = 1
    batch: Any = None
    update_scale = True  #: statistics of samples learn from each step

    @staticmethod
    def allocate_perlayer() -> None:
        """Plans the bits of all layers anew, now, by what is known of them. Steps do that by themselves."""
        from . import roots  # which needs this class

        for session in roots.sessions():
            if session._core.adapts():
                session._core.learn([])
