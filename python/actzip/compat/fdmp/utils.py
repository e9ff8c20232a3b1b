"""What DIVISION's benchmark measures with."""

from ..memory import *  # noqa: F403
from ..memory import __all__ as __all__
