"""Norms. A layer that follows a norm can derive its input from what the norm keeps."""

from __future__ import annotations

import functools

import torch.distributed as dist
from torch import Tensor, nn

from .._C import layers
from .binding import CompressedLayer, is_compiling


class _BatchNorm(CompressedLayer):
    """Keeps its input in few bits, and statistics exactly."""

    def forward(self, input: Tensor) -> Tensor:
        if is_compiling():
            return super().forward(input)
        self._check_input_dim(input)
        counted = self.num_batches_tracked if self.training and self.track_running_stats else None
        result = layers.batch_norm(self._layer(), input, self.weight, self.bias, *self._running(),
                                   self._factor(counted), self._uses_batch(), self.eps)
        if result is None:
            return super().forward(input)
        if counted is not None:
            counted.add_(1)
        return result

    def _running(self) -> tuple[Tensor | None, Tensor | None]:
        """Returns the statistics to use or to update, as torch's batch norms choose them."""
        if self.training and not self.track_running_stats:
            return None, None
        return self.running_mean, self.running_var

    def _uses_batch(self) -> bool:
        return self.training or (self.running_mean is None and self.running_var is None)

    def _factor(self, counted: Tensor | None) -> float:
        """Returns the weight of this batch in the running statistics."""
        if self.momentum is not None:
            return self.momentum
        return 0.0 if counted is None else 1.0 / (float(counted) + 1.0)  # synchronises with the device, as torch does


class BatchNorm1d(_BatchNorm, nn.BatchNorm1d):
    """:class:`torch.nn.BatchNorm1d`."""


class BatchNorm2d(_BatchNorm, nn.BatchNorm2d):
    """:class:`torch.nn.BatchNorm2d`."""


class BatchNorm3d(_BatchNorm, nn.BatchNorm3d):
    """:class:`torch.nn.BatchNorm3d`."""


class SyncBatchNorm(_BatchNorm, nn.SyncBatchNorm):
    """:class:`torch.nn.SyncBatchNorm`, also on the CPU. Processes exchange three numbers per channel, once in forward
    and once in backward."""

    def forward(self, input: Tensor) -> Tensor:
        group = self._group() if self.training and not is_compiling() else None
        if group is None:
            return super().forward(input)
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        counted = self.num_batches_tracked if self.track_running_stats else None
        result = layers.sync_batch_norm(self._layer(), input, self.weight, self.bias, *self._running(),
                                        self._factor(counted), self.eps, functools.partial(_gather, group))
        if result is None:  # torch's own operator, which needs a GPU
            return nn.SyncBatchNorm.forward(self, input)
        if counted is not None:
            counted.add_(1)
        return result

    def _group(self) -> dist.ProcessGroup | None:
        """Returns the group of processes that share statistics, or None if there is only one process."""
        if not (dist.is_available() and dist.is_initialized()):
            return None
        group = self.process_group or dist.group.WORLD
        return group if dist.get_world_size(group) > 1 else None


def _gather(group: dist.ProcessGroup, row: Tensor) -> Tensor:
    """Returns the rows of all processes."""
    rows = row.new_empty((dist.get_world_size(group), row.numel()))
    dist.all_gather(list(rows.unbind()), row.contiguous(), group=group)
    return rows


class LayerNorm(CompressedLayer, nn.LayerNorm):
    """:class:`torch.nn.LayerNorm`; keeps its input in few bits, and statistics exactly."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.layer_norm(
            self._layer(), input, self.normalized_shape, self.weight, self.bias, self.eps)
        return super().forward(input) if result is None else result


class GroupNorm(CompressedLayer, nn.GroupNorm):
    """:class:`torch.nn.GroupNorm`; keeps its input in few bits, and statistics exactly."""

    def forward(self, input: Tensor) -> Tensor:
        result = None if is_compiling() else layers.group_norm(
            self._layer(), input, self.num_groups, self.weight, self.bias, self.eps)
        return super().forward(input) if result is None else result


class RMSNorm(CompressedLayer, nn.RMSNorm):
    """:class:`torch.nn.RMSNorm`; keeps its input in few bits, and statistics exactly."""

    def forward(self, x: Tensor) -> Tensor:
        result = None if is_compiling() else layers.rms_norm(
            self._layer(), x, self.normalized_shape, self.weight, self.eps)
        return super().forward(x) if result is None else result
