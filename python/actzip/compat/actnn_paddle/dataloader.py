"""The port's loader, which yields the indices of the samples before each batch, for ``QScheme.batch``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle.io import DataLoader as _DataLoader
from paddle.io import Dataset, IterableDataset
from paddle.io.dataloader.collate import default_collate_fn

__all__ = ["DataLoader", "default_collate_fn"]


class _Indexed(Dataset):
    """A dataset whose items are ``(index, item)``."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        if isinstance(dataset, IterableDataset):
            raise TypeError(f"actnn.DataLoader: {type(dataset).__name__} is iterated and has no indices "
                            "(allowed: datasets with __getitem__)")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self.dataset[index]


class _Collate:
    """Makes one array of the indices, and collates items as the user wants. A class, since workers unpickle it."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, pairs: list[tuple[int, Any]]) -> list[Any]:
        indices, items = zip(*pairs)
        return [default_collate_fn(list(indices)), self._collate(list(items))]


class DataLoader(_DataLoader):
    """Paddle's loader, with the same arguments, but it yields ``(indices, batch)`` instead of ``batch``."""

    def __init__(self, dataset: Dataset, *arguments: Any, collate_fn: Callable[[list[Any]], Any] | None = None,
                 **options: Any) -> None:
        super().__init__(_Indexed(dataset), *arguments, collate_fn=_Collate(collate_fn or default_collate_fn), **options)

    def __iter__(self) -> Any:
        return ((indices.tolist(), batch) for indices, batch in super().__iter__())
