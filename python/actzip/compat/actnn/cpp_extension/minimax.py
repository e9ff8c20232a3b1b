"""Extremes of groups."""

import torch


def minimax(data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the greatest element of each row."""
    return tuple(torch.aminmax(data, dim=1))
