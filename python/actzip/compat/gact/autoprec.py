"""The object from which GACT's programs read planned bits."""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

from . import conf

if TYPE_CHECKING:
    from ...report import SiteReport
    from .controller import Controller


class AutoPrecision:
    """Bits, sensitivities and sizes, by site, of what a controller's last step kept in few bits."""

    def __init__(self, controller: Controller) -> None:
        self._reference = weakref.ref(controller)  # weak, as the controller owns this object
        self.avg_bits, self.max_bits = conf.config.bit, conf.config.max_bit
        self.adapt_interval = conf.config.adapt_interval

    @property
    def _controller(self) -> Controller:
        return self._reference()

    def _sites(self) -> list[SiteReport]:
        return [site for site in self._controller.report().sites if site.codec.startswith(("rotated", "affine"))]

    @property
    def iter(self) -> int:
        return self._controller.iter

    @property
    def bits(self) -> dict[str, int]:
        return {site.site: int(site.codec.split(":")[1]) for site in self._sites()}

    @property
    def C(self) -> dict[str, float]:  # noqa: N802  (GACT's name)
        """Sensitivities of the sites for which they are known: the variance of the gradient for a relative squared
        error of 1."""
        return {site.site: site.sensitivity for site in self._sites() if site.sensitivity is not None}

    @property
    def dims(self) -> dict[str, int]:
        """Numbers of elements."""
        return {site.site: math.prod(site.shape) for site in self._sites()}

    def refresh_bits(self) -> None:
        """Makes a new plan from what is known. ``Controller.iterate`` also does that when it has measured."""
        self._controller.session._core.learn([])
