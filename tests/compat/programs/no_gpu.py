"""Makes programs that need a GPU run on the CPU: `cuda()` moves nothing, and two devices are reported."""

import time

import torch


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)


def _stay(self, *_, **__):
    return self


torch.Tensor.cuda = torch.nn.Module.cuda = _stay
for name in ("synchronize", "empty_cache", "set_device"):
    setattr(torch.cuda, name, lambda *_: None)  # a function for each name: torch's compiler distinguishes them
torch.cuda.device_count = lambda: 2
torch.cuda.Event = Event
