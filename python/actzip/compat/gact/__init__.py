"""GACT's names on actzip: ``set_optimization_level``, ``Controller`` and whatever else scripts import.

>>> from actzip.compat import gact
>>> gact.set_optimization_level("L2.2")
>>> gact.config.bit
2
>>> gact.set_optimization_level("L2")
"""

from . import controller, ops, utils
from .conf import config, set_adapt_interval, set_optimization_level
from .controller import Controller

__all__ = ["Controller", "config", "controller", "ops", "set_adapt_interval", "set_optimization_level", "utils"]
