"""ActNN's loader, which yields the indices of the samples before each batch, for ``QScheme.batch``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset, default_collate, get_worker_info

from ... import data

__all__ = ["DataLoader", "default_collate", "get_worker_info"]


class _AsList:
    """Turns the indices into a list. It is a class, so that spawned workers can unpickle it."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, samples: Any) -> tuple[list[int], Any]:
        indices, batch = self._collate(samples)
        return indices.tolist(), batch


class DataLoader(data.DataLoader):
    """:class:`actzip.data.DataLoader` with indices as a list, since programs copy and join them."""

    def __init__(self, dataset: Dataset, *arguments: Any, **options: Any) -> None:
        super().__init__(dataset, *arguments, **options)
        self.collate_fn = _AsList(self.collate_fn)
