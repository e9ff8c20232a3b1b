"""What ActNN's benchmarks measure with."""

from ..memory import *  # noqa: F403
from ..memory import __all__ as __all__
