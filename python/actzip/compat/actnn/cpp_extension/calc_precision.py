"""Distributes bits greedily: takes one bit after another where it costs least."""

from __future__ import annotations

import heapq

import torch


def calc_precision(b: torch.Tensor, C: torch.Tensor, w: torch.Tensor, target: float) -> torch.Tensor:
    """Reduces the bits in `b`, in place, until their total weight is at most `target`, and returns `b`.

    Item i has b[i] bits of weight w[i] each, and an error of C[i] / (2^b[i] - 1)^2. Each item keeps at least 1 bit.

    >>> calc_precision(torch.full((3,), 8, dtype=torch.int32), torch.tensor([1.0, 16.0, 256.0]), torch.ones(3), 9)
    tensor([2, 3, 4], dtype=torch.int32)
    """
    bits, costs, weights = b.tolist(), C.tolist(), w.tolist()

    def rise(item: int) -> float:
        """Returns by how much the error rises with one bit less, per unit of weight."""
        error = [costs[item] / (2**count - 1) ** 2 for count in (bits[item] - 1, bits[item])]
        return (error[0] - error[1]) / weights[item]

    queue = [(rise(item), -item) for item in range(len(bits)) if bits[item] > 1]
    heapq.heapify(queue)
    total = sum(count * weight for count, weight in zip(bits, weights, strict=True))
    while total > target and queue:
        item = -heapq.heappop(queue)[1]
        bits[item] -= 1
        total -= weights[item]
        if bits[item] > 1:
            heapq.heappush(queue, (rise(item), -item))
    return b.copy_(torch.tensor(bits))
