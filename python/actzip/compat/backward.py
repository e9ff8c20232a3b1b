"""A setting of torch's that a library wants otherwise while backward runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable
from torch.utils._pytree import tree_leaves

_engine = Variable._execution_engine


class AutotuneInBackward:
    """``torch.backends.cudnn.benchmark`` as `wanted` says, from an output's gradient to the end of backward."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._before: bool | None = None  #: what to put back

    def watch(self, output: Any) -> None:
        """Of a forward."""
        self.put_back()  # an error may have ended the backward before
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(self._begin)

    def put_back(self) -> None:
        if self._before is not None:
            _set_autotune(self._before)
            self._before = None

    def _begin(self, _: torch.Tensor) -> None:
        if self._before is None:
            self._before = torch._C._get_cudnn_benchmark()
            _set_autotune(self._wanted())
            _engine.queue_callback(self.put_back)


#: Also where torch allows its flags to be set by contexts alone.
_set_autotune = torch._C._set_cudnn_benchmark
