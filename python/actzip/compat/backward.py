"""Changes a setting of torch's while backward runs, as some libraries require."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable
from torch.utils._pytree import tree_leaves

_engine = Variable._execution_engine


class AutotuneInBackward:
    """Sets ``torch.backends.cudnn.benchmark`` to `wanted()` from the gradient of an output to the end of backward."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._before: bool | None = None  #: the value to restore

    def watch(self, output: Any) -> None:
        """Takes the output of a forward, and waits for its backward."""
        self.put_back()  # if an error has ended the last backward
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


#: Works even if torch allows its flags to be set only by context managers.
_set_autotune = torch._C._set_cudnn_benchmark
