"""What ActNN's benchmarks measure with."""

from ..memory import compute_tensor_bytes, exp_recorder, get_memory_usage

__all__ = ["compute_tensor_bytes", "exp_recorder", "get_memory_usage"]
