"""Data loaders that also yield the indices of samples, for ``Session(use_gradient=True)``.

>>> import torch, actzip
>>> from torch.utils.data import TensorDataset
>>> dataset = TensorDataset(torch.randn(10, 3), torch.arange(10))
>>> loader = actzip.data.DataLoader(dataset, batch_size=4, shuffle=False)
>>> for indices, (x, y) in loader:
...     print(indices.tolist(), y.tolist())
[0, 1, 2, 3] [0, 1, 2, 3]
[4, 5, 6, 7] [4, 5, 6, 7]
[8, 9] [8, 9]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader as _DataLoader
from torch.utils.data import Dataset, IterableDataset, default_collate, default_convert


class IndexedDataset(Dataset):
    """A dataset whose items are ``(index, item)``."""

    def __init__(self, dataset: Dataset) -> None:
        if isinstance(dataset, IterableDataset):
            raise TypeError(f"actzip.data: {type(dataset).__name__} is iterated and has no indices "
                            "(allowed: datasets with __getitem__)")
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """Attributes are those of the dataset: ``loader.dataset.classes``."""
        if name == "dataset" or name.startswith("__"):  # self.dataset does not exist yet during copying and unpickling
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getitem__(self, index: Any) -> tuple[Any, Any]:
        return index, self.dataset[index]

    def __getitems__(self, indices: list[Any]) -> list[tuple[Any, Any]]:
        """Fetches a batch at once if the dataset can do that."""
        fetch = getattr(self.dataset, "__getitems__", None)
        items = fetch(indices) if callable(fetch) else [self.dataset[index] for index in indices]
        return list(zip(indices, items, strict=True))


class _Collate:
    """Makes one tensor of the indices, and collates items as the user wants. It is a class, so that spawned workers can
    unpickle it."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self._collate = collate

    def __call__(self, pairs: list[tuple[int, Any]]) -> tuple[torch.Tensor, Any]:
        indices, items = zip(*pairs)
        return torch.tensor(indices, device="cpu"), self._collate(list(items))


class _Convert:
    """Does the same for items that are not batched."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def __call__(self, pair: tuple[int, Any]) -> tuple[torch.Tensor, Any]:
        index, item = pair
        return torch.tensor([index], device="cpu"), self._convert(item)


class DataLoader(_DataLoader):
    """torch's loader, with the same arguments, but it yields ``(indices, batch)`` instead of ``batch``.

    ``indices`` is a tensor on the CPU, for ``session.samples()``; ``batch`` is what torch's loader would yield.
    """

    def __init__(self, dataset: Dataset, *arguments: Any, **options: Any) -> None:
        given = inspect.signature(_DataLoader).bind(dataset, *arguments, **options).arguments
        collate = given.get("collate_fn")
        is_batched = given.get("batch_size", 1) is not None or given.get("batch_sampler") is not None
        given["collate_fn"] = _Collate(collate or default_collate) if is_batched else _Convert(collate or default_convert)
        given["dataset"] = IndexedDataset(dataset)
        super().__init__(**given)
