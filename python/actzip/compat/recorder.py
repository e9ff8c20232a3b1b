"""The class with which the benchmark scripts of the libraries write their figures."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any


class GlobalExpRecorder:
    """The values of one experiment. Each ``dump`` appends a line of JSON to a file."""

    def __init__(self) -> None:
        self.val_dict: OrderedDict[str, Any] = OrderedDict()

    def record(self, key: str, value: Any, float_round: int = 6) -> None:
        """Records a value. Scalars of NumPy and torch become Python's numbers, which JSON can hold."""
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        self.val_dict[key] = round(value, float_round) if isinstance(value, float) else value

    def dump(self, filename: str) -> None:
        with open(filename, "a") as file:
            file.write(json.dumps(self.val_dict) + "\n")
        print(f"Save exp results to {filename}")

    def clear(self) -> None:
        self.val_dict.clear()


exp_recorder = GlobalExpRecorder()
