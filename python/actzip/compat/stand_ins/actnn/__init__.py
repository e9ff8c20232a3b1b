"""``import actnn`` in a process that :mod:`actzip.compat` has started."""

from actzip.compat.imports import stand_in

stand_in(__name__)
