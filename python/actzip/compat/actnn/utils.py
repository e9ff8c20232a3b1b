"""What ActNN's benchmarks measure with."""

from ..memory import (
    GlobalExpRecorder,
    compute_tensor_bytes,
    disable_cache_allocator,
    empty_cache,
    enable_cache_allocator,
    exp_recorder,
    get_memory_usage,
    swap_to_cpu,
)

__all__ = ["GlobalExpRecorder", "compute_tensor_bytes", "disable_cache_allocator", "empty_cache",
           "enable_cache_allocator", "exp_recorder", "get_memory_usage", "swap_to_cpu"]
