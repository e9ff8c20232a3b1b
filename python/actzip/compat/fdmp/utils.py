"""Functions with which DIVISION's benchmark measures memory."""

from ..memory import *  # noqa: F403
from ..memory import __all__ as __all__
