"""Functions with which GACT's benchmarks measure memory, and its fingerprints of tensors."""

from __future__ import annotations

import torch

from ..memory import GlobalExpRecorder, compute_tensor_bytes, empty_cache, exp_recorder, get_memory_usage

__all__ = ["GlobalExpRecorder", "compute_tensor_bytes", "empty_cache", "exp_recorder", "get_memory_usage",
           "random_sample", "uniform_sample", "uniform_sample_ref"]


def _fingerprint(input: torch.Tensor, places: torch.Tensor, add_dataptr: bool) -> list[float]:
    values = input.detach().reshape(-1)[places.to(input.device)].tolist()
    return [input.data_ptr(), *values] if add_dataptr else values


def uniform_sample(input: torch.Tensor, sample_cnt: int, add_dataptr: bool = True) -> list[float]:
    """Returns a tensor's address, and some of its elements at equal distances.

    >>> uniform_sample(torch.arange(10.0), 3, add_dataptr=False)
    [0.0, 3.0, 6.0]
    """
    count = min(sample_cnt, input.numel())
    return _fingerprint(input, torch.arange(count) * (input.numel() // max(count, 1)), add_dataptr)


#: GACT's slow version of the same.
uniform_sample_ref = uniform_sample


def random_sample(input: torch.Tensor, sample_cnt: int, add_dataptr: bool = True) -> list[float]:
    """Does the same for random elements, which are always the same for tensors of the same size and dimensions."""
    generator = torch.Generator().manual_seed(input.dim())
    return _fingerprint(input, torch.randint(input.numel(), (sample_cnt,), generator=generator), add_dataptr)
