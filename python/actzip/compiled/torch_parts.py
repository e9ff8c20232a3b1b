"""The private parts of torch that compiling relies on. They differ between versions."""

from __future__ import annotations

import torch

#: Versions that actzip.compile() was tested with.
KNOWN_VERSIONS = "2.11 and 2.13"


def _missing(what: str) -> RuntimeError:
    return RuntimeError(
        f"actzip.compile: torch {torch.__version__} has no {what} (allowed: torch {KNOWN_VERSIONS}, which has it; or "
        "actzip.compress(model) around the model, without torch.compile)")


try:
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.custom_graph_pass import CustomGraphPass, CustomPartitionerFn
    from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import _disable_current_modes as disable_current_modes
except ImportError as error:
    raise _missing(str(error)) from error

for _config, _name in ((inductor_config, "custom_partitioner_fn"), (inductor_config, "pre_grad_custom_pass"),
                       (inductor_config, "reorder_for_peak_memory"),
                       (functorch_config, "ban_recompute_materialized_backward")):
    if not hasattr(_config, _name):
        raise _missing(f"{_config.__name__}.{_name}")

__all__ = ["CustomGraphPass", "CustomPartitionerFn", "FakeTensorMode", "disable_current_modes", "functorch_config",
           "inductor_config", "make_fx", "min_cut_rematerialization_partition", "run_and_save_rng_state",
           "run_with_rng_state", "select_decomp_table"]
