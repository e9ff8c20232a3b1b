"""Functions with which ActNN's benchmarks measure memory."""

from ..memory import *  # noqa: F403
from ..memory import __all__ as __all__
