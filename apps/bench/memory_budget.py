"""torch.compile with a memory budget: it recomputes whatever does not fit."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.custom_graph_pass import CustomPartitionerFn


class BudgetPartitioner(CustomPartitionerFn):
    """torch's own partitioner with ``activation_memory_budget``.

    It is a partitioner because torch would reuse graphs that it has made without the setting if only that differed.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BudgetPartitioner) and self.budget == other.budget

    def __hash__(self) -> int:
        return hash(self.budget)

    def uuid(self) -> tuple:
        return ("actzip.bench", self.budget)

    def __call__(self, gm: torch.fx.GraphModule, joint_inputs: Any, **given: Any) -> Any:
        with config.patch(activation_memory_budget=self.budget):
            return min_cut_rematerialization_partition(gm, joint_inputs, **given)
