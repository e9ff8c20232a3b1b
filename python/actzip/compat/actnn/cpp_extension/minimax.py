"""Minimum and maximum of groups."""

import torch


def minimax(data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the minimum and the maximum of each row."""
    return tuple(torch.aminmax(data, dim=1))
