"""ActNN's loader: gives the indices of the samples in front of each batch, for ``QScheme.batch``."""

from ...data import DataLoader

__all__ = ["DataLoader"]
