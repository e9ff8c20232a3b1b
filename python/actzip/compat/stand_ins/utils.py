"""``import utils`` in a program of DIVISION's."""

from actzip.compat.imports import stand_in

stand_in(__name__)
